"""Vectors that several parts read and one part keeps."""

from __future__ import annotations

from dataclasses import dataclass

from flatfed.errors import FederationError, within
from flatfed.oracle import Oracle
from flatfed.part import Part, View
from flatfed.vec import Named, Vec


@dataclass(frozen=True)
class PseudoGradient(Part):
    """The direction, uphill, in which the cohort walked per unit of learning rate; smoothed."""

    gamma: float = 1.0  # share of the newest
    server = ("delta",)
    means = ("dx_travel",)

    def __post_init__(self) -> None:
        within(self, "gamma", "[0, 1]")

    def absorb(self, mean: View, v: View) -> Named:
        """delta ← (1−γ)·delta − γ·mean(dx/Ση)"""
        return {"delta": v.delta.lerp(-mean.dx_travel, self.gamma)}


@dataclass(frozen=True)
class RunningStatistics(Part):
    """BatchNorm's running statistics: moved only by a pass at w, never by a perturbed one."""

    server, broadcast = ("buffers",), ("buffers",)
    notes, upload = ("buffers_i",), ("buffers_i",)
    apart = ("buffers", "buffers_i")

    def init(self, name: str, x: Vec) -> Vec:
        if name == "buffers":
            raise FederationError(
                "RunningStatistics got no first value for 'buffers', expected the model's own.\n"
                "Start with method.start(model.x0, buffers=model.b0)."
            )
        return super().init(name, x)

    def observe(self, w: Vec, batch: Oracle, v: View) -> Named:
        """buffers_i ← running statistics after a pass at w"""
        if not hasattr(batch, "observe"):
            raise FederationError(
                f"RunningStatistics got {batch!r}, expected an oracle that can observe.\n"
                "Make it with FlatModel.oracle(batch), or use GroupNorm instead of BatchNorm."
            )
        before = v.buffers if v.k == 0 else v.buffers_i
        return {"buffers_i": batch.observe(w, before)}

    def finish(self, y: Vec, v: View) -> Named:
        """buffers_i ← buffers_i"""
        return {"buffers_i": v.buffers_i}

    def absorb(self, mean: View, v: View) -> Named:
        """buffers ← mean(buffers_i)"""
        return {"buffers": mean.buffers_i}
