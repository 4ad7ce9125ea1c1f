"""FedVSSAM: one smoothed server direction for the ascent, the local step and the server step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Unpack

from flatfed.errors import one_of, within
from flatfed.method import Method
from flatfed.oracle import Oracle
from flatfed.part import Perturbation, ServerUpdate, View
from flatfed.parts.correct import Blend
from flatfed.parts.local import SHARED, LocalWork, work
from flatfed.parts.perturb import NO_ASCENT, SAM
from flatfed.parts.track import PseudoGradient
from flatfed.vec import Named, Vec, ascend


@dataclass(frozen=True)
class AnchoredSAM(Perturbation):
    """SAM whose ascent is mixed with the server's direction."""

    rho: float
    gamma: float
    broadcast = ("delta",)
    gradients = 2
    references = ("fedvssam",)

    def __post_init__(self) -> None:
        within(self, "rho", "[0, ∞)", NO_ASCENT)
        within(self, "gamma", "[0, 1]")

    def gradient(self, w: Vec, grad: Oracle, v: View) -> tuple[Vec, Named]:
        """g ← ∇F(w + ρ·unit((1−γ)·delta + γ·∇F(w)))"""
        return grad(ascend(w, v.delta.lerp(grad(w), self.gamma), self.rho)), {}


@dataclass(frozen=True)
class Follow(ServerUpdate):
    """Down the server's own direction."""

    global_lr: float
    scale: Literal["absolute", "relative"]
    uses = ("delta",)
    references = ("fedvssam",)

    def __post_init__(self) -> None:
        within(self, "global_lr", "(0, ∞)")
        one_of(self, "scale", self.scale, "absolute", "relative")

    def step(self, x: Vec, mean: View, v: View) -> Vec:
        """
        [absolute] x ← x − η_g·delta
        [relative] x ← x − η_g·mean(Ση)·delta
        """
        rate = self.global_lr * (mean.travel if self.scale == "relative" else 1.0)
        return x.add(v.delta, alpha=-rate)


def fedvssam(
    *,
    rho: float = 0.05,
    gamma_l: float = 0.4,
    gamma_g: float = 0.6,
    lf: bool = True,
    lu: bool = True,
    gu: bool = True,
    global_lr: float = 1.0,
    server_lr: Literal["absolute", "relative"] = "relative",
    **local: Unpack[LocalWork],
) -> Method:
    """FedSAM, MoFedSAM's mix and a server momentum, all along one direction (arXiv:2605.09144).

    (gamma_l, gamma_g) = (0.4, 0.6) for moderate heterogeneity, (0.1, 0.6) for severe; rho = 0.05;
    10 epochs of batch 128. lf, lu and gu switch the local ascent, the local step and the server
    step; all off is the paper's base. Their H is our delta.

    Differs from the paper:
        server_lr="relative" measures η_g in units of Ση, so that 1 is FedSAM's step at any decayed
        rate and any K that all clients share; the printed rule is "absolute", with η_g from
        {0.5, 1, 2, 3, 4}. They are the same at η_g = Ση, and only there does γ = 1 give FedSAM, as
        the paper says it does (test_fedvssam_with_every_gamma_one_is_fedsam).
        The first steps are short by γ_l·γ_g, for delta starts at zero; that is its warm-up, and
        correcting it like a bias would be another method
        (test_fedvssam_direction_depends_on_the_product_of_its_gammas).
        Weight decay goes into the gradient before it is mixed; the paper has none in its rules.
        lr = 0.1 is from its grid; lr_decay 0.998, ω 1e-3 and clip 10 are FL-Simulator's, for it
        states none. We know of no public code to compare with.
    """
    for switch, on in (("lf", lf), ("lu", lu), ("gu", gu)):
        one_of("fedvssam", switch, on, True, False)
    perturb: Perturbation = AnchoredSAM(rho, gamma_l) if lf else SAM(rho)
    return Method(
        name="fedvssam",
        paper="fedvssam",
        family="sharpness-aware",
        perturb=perturb,
        correct=(Blend(gamma_l),) if lu else (),
        server=Follow(global_lr, server_lr),
        also=(PseudoGradient(gamma_g if gu else 1.0),),
        local=work({**SHARED, "epochs": 10, "batch_size": 128, "decay": "inside"}, local),
    )
