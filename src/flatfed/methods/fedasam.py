"""FedASAM: adaptive sharpness-aware local steps, and an average of late global models."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, Unpack

from flatfed.errors import whole, within
from flatfed.method import Method
from flatfed.oracle import Oracle
from flatfed.part import Part, Perturbation, View
from flatfed.parts.local import LocalWork, Rate, rate_at, work
from flatfed.parts.perturb import NO_ASCENT
from flatfed.vec import Layout, Named, Vec, norm

TINY = 1e-16  # this paper's own guard under the norm


@dataclass(frozen=True)
class AdaptiveSAM(Perturbation):
    """At a distance measured in each weight's own size."""

    rho: float
    zeta: float
    gradients = 2
    references = ("fedasam",)

    def __post_init__(self) -> None:
        within(self, "rho", "[0, ∞)", NO_ASCENT)
        within(self, "zeta", "[0, ∞)")

    def gradient(self, w: Vec, grad: Oracle, v: View) -> tuple[Vec, Named]:
        """g ← ∇F(w + ρ·T²∇F(w)/‖T∇F(w)‖),  T = |w| + ζ on weights, 1 elsewhere"""
        T = size(w, self.zeta, v.layout)
        Tg = T * grad(w)
        return grad(w.addcmul(T.mul_(Tg), self.rho / (norm(Tg) + TINY))), {}


def size(w: Vec, zeta: float, layout: Layout) -> Vec:
    """T: |w| + ζ on tensors whose name contains "weight", 1 on the rest."""
    T = w.abs().add_(zeta)
    for slot in layout:
        if "weight" not in slot.name:
            T[slot.at] = 1
    return T


@dataclass(frozen=True)
class Cyclic:
    """From round `start` on, a rate that falls from lr·decay^t to `low` in every `cycle` rounds."""

    lr: Rate
    decay: float
    low: float
    start: int
    cycle: int

    def __post_init__(self) -> None:
        within(self, "low", "[0, ∞)")

    def __call__(self, t: int, k: int, K: int) -> float:
        high = rate_at(self.lr, t, k, K) * self.decay**t
        if t < self.start or self.cycle == 1:
            return high
        tau = ((t - self.start) % self.cycle + 1) / self.cycle
        return (1 - tau) * high + tau * self.low


@dataclass(frozen=True)
class LateAverage(Part):
    """The mean of the global models at the ends of the cycles; training never sees it."""

    start: int
    cycle: int
    server = ("x_swa",)
    result = "x_swa"
    references = ("fedasam",)

    def __post_init__(self) -> None:
        whole(self, "start", 0)
        whole(self, "cycle", 1)

    def init(self, name: str, x: Vec) -> Vec:
        return x

    def settle(self, x: Vec, v: View) -> Named:
        """x_swa ← (n·x_swa + x)/(n+1) at the end of cycle n+1;  x before the first"""
        ended, round_of_cycle = divmod(v.t - self.start + 1, self.cycle)
        if ended <= 0:
            return {"x_swa": x}
        if round_of_cycle != 0:
            return {}
        return {"x_swa": v.x_swa.lerp(x, 1 / ended)}


def fedasam(
    *,
    rho: float = 0.7,
    zeta: float = 0.2,
    swa_start: int | None = None,
    swa_cycle: int = 10,
    swa_low: float = 1e-4,
    weights: Literal["uniform", "samples"] = "samples",
    **local: Unpack[LocalWork],
) -> Method:
    """FedAvg with ASAM's gradient, and with swa_start its server SWA (Caldarola et al., ECCV 2022).

    Settings are the authors' for CIFAR-10: rate 0.01 without decay, ω 4e-4, one epoch of batch
    64, no clipping, T = 10 000 rounds of which SWA takes the last quarter (swa_start=7500).

    Differs from the paper:
        The first capture is at the end of the first cycle, where the rate is lowest. The authors'
        code captures one round later, near the highest
        (test_swa_captures_where_the_rate_is_lowest).
        A cycle is counted from swa_start, so that this holds for any swa_start. Cycles of one
        round keep the rate, as the code does; the formula alone would hold it at its lowest.
        T follows the code: biases count as 1. FL-Simulator's `adaptive` switch is another method:
        |x|² without ζ, on all parameters.
    """
    paper = LocalWork(lr=0.01, lr_decay=1.0, epochs=1, batch_size=64, weight_decay=4e-4, clip=None)
    walk = work(paper, local)
    also: tuple[Part, ...] = ()
    late = LateAverage(0 if swa_start is None else swa_start, swa_cycle)
    # The decay lowers the high end of a cycle only, so it moves into the rate.
    cyclic = Cyclic(walk.lr, walk.lr_decay, swa_low, late.start, swa_cycle)
    if swa_start is not None:
        also = (late,)
        walk = replace(walk, lr=cyclic, lr_decay=1.0)
    return Method(
        name="fedasam",
        paper="fedasam",
        family="sharpness-aware",
        perturb=AdaptiveSAM(rho, zeta),
        also=also,
        weights=weights,
        local=walk,
    )
