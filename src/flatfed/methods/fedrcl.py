"""FedRCL: features of a class drawn together at every level, but not onto one point."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING, Literal, Unpack

from flatfed.errors import ModelError, one_of, within
from flatfed.method import Method
from flatfed.oracle import Pass, Samples
from flatfed.part import Objective, View
from flatfed.parts.local import SHARED, LocalWork, Rate, rate_at, work
from flatfed.vec import Vec

if TYPE_CHECKING:
    from torch import Tensor

NEGATIVES = 2  # of other classes, the most similar


@dataclass(frozen=True)
class RelaxedContrast(Objective):
    """The loss, and two penalties on the cosines s_ij of a batch's features at every level.

    A level is the input of one of the model's feature layers (activations before their ReLU),
    averaged over pixels and scaled to length 1. s⁺ is the least cosine to a sample of the same
    class, itself included, s⁻ the two largest to other classes, s° what is penalised.
    """

    tau: float
    threshold: float
    pairs: Literal["hardest", "all"] = "hardest"
    contrast: float = 1.0  # weight of the pull together
    relax: float = 1.0  # weight of the push apart
    references = ("fedrcl",)

    def __post_init__(self) -> None:
        within(self, "tau", "(0, ∞)")
        within(self, "threshold", "[-1, ∞)", "It is a cosine; above 1 it selects no pair.")
        one_of(self, "pairs", self.pairs, "hardest", "all")
        for name in ("contrast", "relax"):
            within(self, name, "[0, ∞)", "0 switches the penalty off.")

    def value(self, w: Vec, batch: Samples, v: View) -> Vec:
        """
        ∇F(w) ← ∇(loss + mean(contrast·ln(1 + Σexp((s⁻ − s⁺)/τ)) + relax·ln(1 + Σexp((s° − 1)/τ))))
        [hardest] s° ← the least s_ij of i's class, j ≠ i, if it is at least the threshold;  else −1
        [all]     s° ← every s_ij of i's class, j ≠ i, above the threshold
        """
        return batch.gradient(w, self.loss, features=True)

    def loss(self, seen: Pass) -> Tensor:
        """Of one pass: the model's own loss, and the penalties' mean over samples and levels."""
        same = seen.targets[:, None] == seen.targets
        levels = [self.penalty(cosines(each, seen), same) for each in seen.features]
        return sum((level / len(levels) for level in levels), start=seen.loss)

    def penalty(self, s: Tensor, same: Tensor) -> Tensor:
        """Of one level, from its cosines and which of them are within a class."""
        import torch

        n = len(s)
        least = s.masked_fill(~same, inf).amin(1, keepdim=True)
        others = s.masked_fill(same, -inf).topk(min(NEGATIVES, n)).values
        # exp(−inf) is 0: where there are no others, nothing is pulled.
        together = torch.cat([least, others], 1).div(self.tau).logsumexp(1) - least[:, 0] / self.tau
        partner = same & ~torch.eye(n, dtype=torch.bool, device=s.device)
        if self.pairs == "hardest":
            least = s.masked_fill(~partner, inf).amin(1, keepdim=True)
            close = least.where((least >= self.threshold) & least.isfinite(), -1.0)
        else:
            close = s.masked_fill(~(partner & (s > self.threshold)), -inf)
        one = torch.ones_like(close[:, :1])
        apart = torch.cat([one, close], 1).div(self.tau).logsumexp(1) - 1 / self.tau
        level: Tensor = (self.contrast * together + self.relax * apart).mean()
        return level


def cosines(feature: Tensor, seen: Pass) -> Tensor:
    """s_ij of one level; 0 where a feature is 0."""
    n = len(seen.targets)
    if feature.dim() not in (2, 4) or len(feature) != n:
        raise ModelError(
            f"A feature layer received shape {tuple(feature.shape)}, expected ({n}, width) or "
            f"({n}, channels, height, width).\nName others in the module's feature_layers."
        )
    pooled = feature.to(seen.outputs.dtype)
    pooled = pooled.mean((2, 3)) if pooled.dim() == 4 else pooled
    length = pooled.norm(dim=1, keepdim=True)
    direction: Tensor = pooled / length.masked_fill(length == 0, inf)
    return direction @ direction.T


@dataclass(frozen=True)
class ByEpoch:
    """A rate that falls by one factor after every local epoch."""

    lr: Rate
    factor: float
    epochs: int

    def __post_init__(self) -> None:
        within(self, "factor", "(0, 1]")

    def __call__(self, t: int, k: int, K: int) -> float:
        return rate_at(self.lr, t, k, K) * self.factor ** (k * self.epochs // K)


def fedrcl(
    *,
    tau: float = 0.05,
    threshold: float = 0.7,
    pairs: Literal["hardest", "all"] = "hardest",
    contrast: float = 1.0,
    relax: float = 1.0,
    epoch_decay: float = 0.998,
    **local: Unpack[LocalWork],
) -> Method:
    """FedAvg with a supervised contrastive loss, relaxed (Seo et al., CVPR 2024).

    Settings are the authors' code's: τ 0.05, threshold (the paper's λ) 0.7, both weights 1; local
    work as ours, and the rate falls by epoch_decay after every local epoch too, where epochs count.

    Differs from the paper:
        The paper penalises every pair of a class above the threshold: pairs="all". The code, and
        our default, only the least similar pair, and only if even that one is above it; else −1
        stands in for it, a constant (test_fedrcl_above_every_cosine_penalises_a_constant).
        The code also runs the frozen global model on every batch and multiplies its loss by 0.
        Levels of a residual network are the stem and the stages, before their last ReLU; of other
        models, every convolution block and hidden layer, which the paper does not define
        (test_every_image_model_has_the_levels_it_should).
    """
    walk = work(SHARED, local)
    falling = ByEpoch(walk.lr, epoch_decay, walk.epochs or 1)
    if walk.epochs is not None and epoch_decay != 1:
        walk = replace(walk, lr=falling)
    return Method(
        name="fedrcl",
        paper="fedrcl",
        family="representation",
        objective=RelaxedContrast(tau, threshold, pairs, contrast, relax),
        local=walk,
    )
