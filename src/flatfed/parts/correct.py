"""What is added to the gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from flatfed.errors import one_of, within
from flatfed.part import Correction, View
from flatfed.vec import Named, Vec


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


@dataclass(frozen=True)
class ControlVariates(Correction):
    """Each client's usual gradient out, the average one in."""

    option: Literal["I", "II"] = "II"
    server, broadcast = ("c",), ("c",)
    keep, upload = ("c_i",), ("dc",)
    references = ("scaffold",)

    def __post_init__(self) -> None:
        one_of(self, "option", self.option, "I", "II")
        if self.option == "I":
            object.__setattr__(self, "asks", ("whole",))
        else:
            object.__setattr__(self, "derivable", ("dc",))  # the server knows dx, Ση and c

    def direction(self, g: Vec, w: Vec, v: View) -> Vec:
        """g ← g − c_i + c"""
        return (g - v.c_i).add_(v.c)

    def finish(self, y: Vec, v: View) -> Named:
        """
        [I]  dc ← ∇F_i(x) − c_i;  c_i ← c_i + dc
        [II] dc ← (x − y)/Ση − c;  c_i ← c_i + dc
        """
        dc = v.whole(v.x) - v.c_i if self.option == "I" else (v.x - y) / v.travel - v.c
        return {"dc": dc, "c_i": v.c_i + dc}

    def absorb(self, mean: View, v: View) -> Named:
        """c ← c + (S/N)·mean(dc)"""
        return {"c": v.c + v.S / v.N * mean.dc}


@dataclass(frozen=True)
class Dual(Correction):
    """A pull towards x − h_i: the penalty's multiplier, kept as the drift it stands for.

    In the papers' letters: our h_i is −(their h_i)/λ, our h is −(their h)/λ = (1/N)·Σ_i h_i.
    """

    lam: float
    server, keep = ("h",), ("h_i",)
    references = ("feddyn",)

    def __post_init__(self) -> None:
        within(self, "lam", "(0, ∞)", "Leave the part out for no penalty.")

    def direction(self, g: Vec, w: Vec, v: View) -> Vec:
        """g ← g + λ(w − x + h_i)"""
        return g.add((w - v.x).add_(v.h_i), alpha=self.lam)

    def finish(self, y: Vec, v: View) -> Named:
        """h_i ← h_i + (y − x)"""
        return {"h_i": v.h_i + (y - v.x)}

    def absorb(self, mean: View, v: View) -> Named:
        """h ← h + (S/N)·mean(dx)"""
        return {"h": v.h + v.S / v.N * mean.dx}
