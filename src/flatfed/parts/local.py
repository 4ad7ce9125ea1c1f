"""How a client walks: steps or epochs, rate η(t, k, K), momentum, weight decay, clipping."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from math import ceil
from typing import Literal, TypeAlias, TypedDict

from flatfed.errors import CompositionError, SpecError, nearest, one_of, refuse, whole, within
from flatfed.part import Local, View, brief
from flatfed.vec import Named, Vec, clip, shrink

Rate: TypeAlias = float | Callable[[int, int, int], float]  # η, or η(t, k, K)


def rate_at(rate: Rate, t: int, k: int, K: int) -> float:
    """η(t, k, K) of either kind of rate."""
    return rate(t, k, K) if callable(rate) else rate


@dataclass(frozen=True)
class Falling:
    """A rate that falls in a line from lr towards ratio·lr over the round's K steps.

    The K steps take the line's first K of K+1 points, so the last step is still above ratio·lr.
    """

    lr: Rate
    ratio: float

    def __post_init__(self) -> None:
        within(self, "ratio", "[0, 1]", "It is a ratio of rates, not a radius.")

    def __call__(self, t: int, k: int, K: int) -> float:
        return rate_at(self.lr, t, k, K) * ((1 - k / K) + k / K * self.ratio)


@dataclass(frozen=True, kw_only=True, repr=False)
class SGD(Local):
    """Gradient steps at η = lr·lr_decay^t, for so many steps or epochs. Momentum starts anew in
    every round."""

    lr: Rate
    lr_decay: float = 1.0
    steps: int | None = None
    epochs: int | None = None
    batch_size: int | None = None
    momentum: float = 0.0
    weight_decay: float = 0.0
    decay: Literal["outside", "inside"] = "outside"  # of the correction
    clip: float | None = None
    clip_scope: Literal["direction", "data"] = "direction"

    def __post_init__(self) -> None:
        if not callable(self.lr):
            within(self, "lr", "(0, ∞)", "Or give a function η(t, k, K).")
        within(self, "lr_decay", "(0, 1]")
        for name in ("steps", "epochs", "batch_size"):
            if getattr(self, name) is not None:
                whole(self, name, 1)
        if (self.steps is None) == (self.epochs is None):
            given = "neither" if self.steps is None else "both"
            raise CompositionError(
                f"SGD got {given} of steps={self.steps!r} and epochs={self.epochs!r}, expected "
                "one.\nGive steps=10, or epochs=5 with batch_size=50."
            )
        if self.epochs is not None and self.batch_size is None:
            refuse(self, "batch_size", "a whole number ≥ 1, because epochs count batches")
        within(self, "momentum", "[0, 1)")
        if self.momentum:
            object.__setattr__(self, "notes", ("velocity",))
        within(self, "weight_decay", "[0, ∞)")
        one_of(self, "decay", self.decay, "outside", "inside")
        if self.clip is not None:
            within(self, "clip", "(0, ∞)", "None clips nothing.")
        one_of(self, "clip_scope", self.clip_scope, "direction", "data")

    __repr__ = brief

    def steps_for(self, samples: int) -> int:
        """K ← steps, or epochs·⌈samples/batch_size⌉: the short last batch counts."""
        if self.steps is not None:
            return self.steps
        assert self.epochs is not None
        assert self.batch_size is not None
        return self.epochs * ceil(samples / self.batch_size)

    def rates(self, t: int, K: int) -> Sequence[float]:
        """η_k ← lr(t, k, K)·lr_decay^t"""
        return [rate_at(self.lr, t, k, K) * self.lr_decay**t for k in range(K)]

    def travel(self, rates: Sequence[float]) -> float:
        """travel ← Ση_k·(1 + β + … + β^k): the way a constant gradient of length 1 would carry"""
        if not self.momentum:
            return super().travel(rates)
        velocity = way = 0.0
        for rate in rates:
            velocity = self.momentum * velocity + 1
            way += rate * velocity
        return way

    def prepare(self, g: Vec, w: Vec, v: View) -> Vec:
        """g ← g, data gradients clipped and decayed here if the modes say so"""
        if self.clip_scope == "data":
            g = clip(g, self.clip)
        inside = self.weight_decay and self.decay == "inside"
        return g.add(w, alpha=self.weight_decay) if inside else g

    def step(self, w: Vec, g: Vec, v: View) -> tuple[Vec, Named]:
        """velocity ← β·velocity + clip(g) + ω·w;  w ← w − η·velocity"""
        # g's length first, while g is in the cache.
        shorter = None if self.clip is None or self.clip_scope == "data" else shrink(g, self.clip)
        if self.momentum:
            g = g if shorter is None else g * shorter
            outside = self.weight_decay and self.decay == "outside"
            g = g.add(w, alpha=self.weight_decay) if outside else g
            velocity = g.add(v.velocity, alpha=self.momentum)
            return w.add(velocity, alpha=-v.lr), {"velocity": velocity}
        if not self.weight_decay or self.decay == "inside":
            if shorter is None:
                return w.add(g, alpha=-v.lr), {}
            return w.addcmul(g, shorter, value=-v.lr), {}
        own = w * (1 - v.lr * self.weight_decay)  # a vector of our own: the rest is in place
        if shorter is None:
            return own.add_(g, alpha=-v.lr), {}
        return own.addcmul_(g, shorter, value=-v.lr), {}

    def equations(self, hook: str) -> tuple[str, ...]:
        """Many combinations are easier to assemble than to list."""
        omega = " + ω·w" if self.weight_decay else ""
        data = self.clip is not None and self.clip_scope == "data"
        inside = omega if self.decay == "inside" else ""
        if hook == "prepare":
            return ("g ← " + ("clip(g)" if data else "g") + inside,) if data or inside else ()
        if hook == "step":
            g = "clip(g)" if self.clip is not None and not data else "g"
            outside = omega if self.decay == "outside" else ""
            if self.momentum:
                return (f"velocity ← β·velocity + {g}{outside};  w ← w − η·velocity",)
            return (f"w ← w − η({g}{outside})" if outside else f"w ← w − η·{g}",)
        return super().equations(hook)


class LocalWork(TypedDict, total=False):
    """SGD's fields, as every method takes them."""

    lr: Rate
    lr_decay: float
    steps: int | None
    epochs: int | None
    batch_size: int | None
    momentum: float
    weight_decay: float
    decay: Literal["outside", "inside"]
    clip: float | None
    clip_scope: Literal["direction", "data"]


# The protocol most of the papers share (FL-Simulator's, on CIFAR-10): recipes 3.3, spec 0.3.
SHARED = LocalWork(lr=0.1, lr_decay=0.998, epochs=5, batch_size=50, weight_decay=1e-3, clip=10.0)


def work(paper: LocalWork, given: LocalWork) -> SGD:
    """The paper's local work, with the caller's settings in place of its own."""
    known = [field.name for field in fields(SGD)]
    for name in given:
        if name not in known:
            raise SpecError(f"{name!r} is no setting of local work.\n{nearest(name, known)}")
    settings = {**paper, **given}
    # Steps and epochs are two ways to say one thing: who gives one means it instead of the other.
    if given.get("steps") is not None and "epochs" not in given:
        settings["epochs"] = None
    if given.get("epochs") is not None and "steps" not in given:
        settings["steps"] = None
    # A function of the round says all there is to say about rounds.
    if callable(given.get("lr")) and "lr_decay" not in given:
        settings["lr_decay"] = 1.0
    return SGD(**settings)  # type: ignore[arg-type]  # a merged TypedDict loses its types
