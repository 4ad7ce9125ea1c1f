"""What is added to the gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from flatfed.errors import CompositionError, one_of, refuse, within
from flatfed.part import Correction, View, brief
from flatfed.parts.compress import Dense
from flatfed.vec import Named, Vec

if TYPE_CHECKING:
    from flatfed.method import Method

# Whether the server is sent how a client's state changed, or works it out from dx.
Increment = Literal["sent", "derived"]


@dataclass(frozen=True)
class Proximal(Correction):
    """A pull towards the model the client started from."""

    lam: float
    references = ("fedprox",)

    def __post_init__(self) -> None:
        within(self, "lam", "[0, ∞)", "lam=0 switches the pull off.")

    def direction(self, g: Vec, w: Vec, v: View) -> Vec:
        """g ← g + λ(w − x)"""
        return g.add(w - v.x, alpha=self.lam)


@dataclass(frozen=True)
class Blend(Correction):
    """Every local gradient mixed with the server's direction; the sender's equation says what
    delta is."""

    alpha: float
    broadcast = ("delta",)

    def __post_init__(self) -> None:
        within(self, "alpha", "[0, 1]")

    def direction(self, g: Vec, w: Vec, v: View) -> Vec:
        """g ← α·g + (1−α)·delta"""
        return v.delta.lerp(g, self.alpha)


@dataclass(frozen=True, repr=False)
class ControlVariates(Correction):
    """Each client's usual gradient out, the average one in."""

    option: Literal["I", "II"] = "II"
    increment: Increment = "sent"
    server, broadcast = ("c",), ("c",)
    keep, upload = ("c_i",), ("dc",)
    references = ("scaffold",)
    __repr__ = brief

    def __post_init__(self) -> None:
        one_of(self, "option", self.option, "I", "II")
        one_of(self, "increment", self.increment, "sent", "derived")
        if self.option == "I":
            if self.increment == "derived":
                refuse(self, "increment", "'sent'", "Nobody can derive ∇F_i(x) from dx.")
            object.__setattr__(self, "asks", ("whole",))
        elif self.increment == "sent":
            object.__setattr__(self, "derivable", ("dc",))  # the server knows dx, Ση and c
        else:
            object.__setattr__(self, "upload", ())
            object.__setattr__(self, "means", ("dx_travel",))

    def fits(self, method: Method) -> None:
        lossy = not isinstance(method.compress, Dense)
        if self.increment == "derived" and lossy and method.kept == "exact":
            raise CompositionError(
                f"increment='derived' with {method.compress!r} and kept='exact', expected "
                "kept='synced': the server works dc out of the dx that it decodes.\n"
                "Set kept = 'synced', or increment = 'sent'."
            )

    def direction(self, g: Vec, w: Vec, v: View) -> Vec:
        """g ← g − c_i + c"""
        return (g - v.c_i).add_(v.c)

    def finish(self, y: Vec, v: View) -> Named:
        """
        [I]  dc ← ∇F_i(x) − c_i
        [II] dc ← (x − y)/Ση − c
        """
        if self.increment == "derived":
            return {}
        return {"dc": v.whole(v.x) - v.c_i if self.option == "I" else (v.x - y) / v.travel - v.c}

    def remember(self, sent: View, v: View) -> Named:
        """
        [sent]    c_i ← c_i + dc
        [derived] c_i ← c_i − dx/Ση − c
        """
        if self.increment == "sent":
            return {"c_i": v.c_i + sent.dc}
        return {"c_i": v.c_i + (-sent.dx / v.travel - v.c)}

    def absorb(self, mean: View, v: View) -> Named:
        """
        [sent]    c ← c + (S/N)·mean(dc)
        [derived] c ← c + (S/N)·(−mean(dx/Ση) − c)
        """
        dc = mean.dc if self.increment == "sent" else -mean.dx_travel - v.c
        return {"c": v.c + v.S / v.N * dc}

    def equations(self, hook: str) -> tuple[str, ...]:
        """What is derived is not sent."""
        nothing = hook == "finish" and self.increment == "derived"
        return () if nothing else super().equations(hook)


@dataclass(frozen=True, repr=False)
class Dual(Correction):
    """A pull towards x − h_i: the penalty's multiplier, kept as the drift it stands for.

    In the papers' letters: our h_i is −(their h_i)/λ, our h is −(their h)/λ = (1/N)·Σ_i h_i.
    """

    lam: float
    increment: Increment = "derived"
    server, keep = ("h",), ("h_i",)
    references = ("feddyn",)
    __repr__ = brief

    def __post_init__(self) -> None:
        within(self, "lam", "(0, ∞)", "Leave the part out for no penalty.")
        one_of(self, "increment", self.increment, "sent", "derived")
        if self.increment == "sent":
            object.__setattr__(self, "upload", ("dh",))

    def direction(self, g: Vec, w: Vec, v: View) -> Vec:
        """g ← g + λ(w − x + h_i)"""
        return g.add((w - v.x).add_(v.h_i), alpha=self.lam)

    def finish(self, y: Vec, v: View) -> Named:
        """[sent] dh ← y − x"""
        return {"dh": y - v.x} if self.increment == "sent" else {}

    def remember(self, sent: View, v: View) -> Named:
        """
        [derived] h_i ← h_i + dx
        [sent]    h_i ← h_i + dh
        """
        return {"h_i": v.h_i + (sent.dx if self.increment == "derived" else sent.dh)}

    def absorb(self, mean: View, v: View) -> Named:
        """
        [derived] h ← h + (S/N)·mean(dx)
        [sent]    h ← h + (S/N)·mean(dh)
        """
        dh = mean.dx if self.increment == "derived" else mean.dh
        return {"h": v.h + v.S / v.N * dh}

    def equations(self, hook: str) -> tuple[str, ...]:
        """What is derived is not sent."""
        nothing = hook == "finish" and self.increment == "derived"
        return () if nothing else super().equations(hook)
