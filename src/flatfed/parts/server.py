"""How the global model moves."""

from __future__ import annotations

from dataclasses import dataclass

from flatfed.errors import within
from flatfed.part import ServerUpdate, View
from flatfed.vec import Vec


@dataclass(frozen=True)
class Average(ServerUpdate):
    """Along the mean update."""

    global_lr: float = 1.0

    def __post_init__(self) -> None:
        within(self, "global_lr", "(0, ∞)")

    def step(self, x: Vec, mean: View, v: View) -> Vec:
        """x ← x + η_g·mean(dx)"""
        return x.add(mean.dx, alpha=self.global_lr)


@dataclass(frozen=True)
class DualAverage(ServerUpdate):
    """To the mean model, moved by the dual; no server rate, as in the papers."""

    uses = ("h",)
    references = ("feddyn",)

    def step(self, x: Vec, mean: View, v: View) -> Vec:
        """x ← x + mean(dx) + h"""
        return x + mean.dx + v.h
