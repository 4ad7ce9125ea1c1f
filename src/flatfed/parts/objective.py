"""What is minimised on a batch."""

from __future__ import annotations

from dataclasses import dataclass

from flatfed.oracle import Oracle
from flatfed.part import Objective, View
from flatfed.vec import Vec


@dataclass(frozen=True)
class DataLoss(Objective):
    """The loss the model was given, on the batch, and nothing else."""

    def value(self, w: Vec, batch: Oracle, v: View) -> Vec:
        """∇F(w) ← ∇loss(w; batch)"""
        return batch(w)
