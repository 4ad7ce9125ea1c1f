"""FedSOL: the gradient taken where forgetting the global model would lead."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal, Unpack

from flatfed.errors import one_of, within
from flatfed.method import Method
from flatfed.oracle import Oracle, Pass
from flatfed.part import Perturbation, View
from flatfed.parts.local import SHARED, LocalWork, work
from flatfed.parts.objective import divergence
from flatfed.parts.perturb import NO_ASCENT
from flatfed.vec import Layout, Named, Vec, norm

if TYPE_CHECKING:
    from torch import Tensor

TINY = 1e-12  # this paper's own guard under a norm


@dataclass(frozen=True)
class ProximalAscent(Perturbation):
    """At a distance along the gradient of the distance to the global model's outputs.

    KL is Σ p·ln(p/q) of p = softmax(outputs(x)/τ), q = softmax(outputs(w)/τ), its mean over the
    batch.
    """

    rho: float
    tau: float
    strength: Literal["adaptive", "fixed"] = "adaptive"
    gradients, gradients_least, forwards = 2, 1, 1
    references = ("fedsol",)

    def __post_init__(self) -> None:
        within(self, "rho", "[0, ∞)", NO_ASCENT)
        within(self, "tau", "(0, ∞)")
        one_of(self, "strength", self.strength, "adaptive", "fixed")

    def gradient(self, w: Vec, grad: Oracle, v: View) -> tuple[Vec, Named]:
        """
        p ← ∇KL(x ‖ w at temperature τ)
        [adaptive] g ← ∇F(w + ρ·A⊙p/‖p‖),  A = |w − x|, of length 1 along each first dimension
        [fixed]    g ← ∇F(w + ρ·p/‖p‖)
        """
        anchor = v.batch.outputs(v.x)
        if v.k == 0:  # w is x and p is 0; what rounding leaves of it, ‖p‖ would make ρ long
            return grad(w), {}
        p = v.batch.gradient(w, partial(self.distance, anchor))
        p = p * (self.rho / (norm(p) + TINY))
        if self.strength == "adaptive":
            p = p.mul_(reach(w, v.x, v.layout))
        return grad(p.add_(w)), {}

    def distance(self, anchor: Tensor, seen: Pass) -> Tensor:
        """From the global model's outputs."""
        return divergence(anchor, seen.outputs, self.tau)


def reach(w: Vec, x: Vec, layout: Layout) -> Vec:
    """A: how far each weight has gone, scaled to length 1 along every tensor's first dimension."""
    A = (w - x).abs_()
    for slot in layout:
        part = A[slot.at].view(slot.shape)
        part.div_(part.norm(dim=0, keepdim=True).clamp_min_(TINY))
    return A


def fedsol(
    *,
    rho: float = 1.0,
    tau: float = 3.0,
    strength: Literal["adaptive", "fixed"] = "adaptive",
    weights: Literal["uniform", "samples"] = "samples",
    **local: Unpack[LocalWork],
) -> Method:
    """SAM, ascending a proximal loss in place of the data's (Lee et al., CVPR 2024).

    Settings are the authors' for CIFAR-10: rho 1, tau 3, rate 0.01·0.99^t, momentum 0.9, ω 1e-5,
    no clipping. Both strengths are theirs, under one value of rho.

    Differs from the paper:
        The first local step is plain SGD: w is the global model, so there is nothing to ascend. In
        floating point the authors' fixed strength divides rounding errors by their own length
        there, and perturbs by ρ at random
        (test_fedsol_takes_its_first_step_without_a_perturbation).
        It always perturbs the whole model; the code can leave out its head or its body.
    """
    paper = LocalWork(lr=0.01, lr_decay=0.99, momentum=0.9, weight_decay=1e-5, clip=None)
    return Method(
        name="fedsol",
        paper="fedsol",
        family="sharpness-aware",
        perturb=ProximalAscent(rho, tau, strength),
        weights=weights,
        local=work({**SHARED, **paper}, local),
    )
