"""What is minimised on a batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from flatfed.oracle import Oracle
from flatfed.part import Objective, View
from flatfed.vec import Vec

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class DataLoss(Objective):
    """The loss the model was given, on the batch, and nothing else."""

    def value(self, w: Vec, batch: Oracle, v: View) -> Vec:
        """∇F(w) ← ∇loss(w; batch)"""
        return batch(w)


def divergence(of: Tensor, outputs: Tensor, tau: float) -> Tensor:
    """KL = Σ p·ln(p/q), p = softmax(of/τ), q = softmax(outputs/τ): its mean over the batch."""
    from torch.nn.functional import kl_div, log_softmax, softmax

    q, p = log_softmax(outputs / tau, 1), softmax(of / tau, 1)
    return kl_div(q, p, reduction="batchmean")
