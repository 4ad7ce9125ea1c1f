"""FedWMSAM: FedCM's mix with control variates, its ascent towards where momentum points."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Unpack

from flatfed.errors import one_of, refuse, within
from flatfed.method import Method
from flatfed.oracle import Oracle
from flatfed.part import Perturbation, View
from flatfed.parts.local import SHARED, LocalWork, work
from flatfed.parts.perturb import NO_ASCENT
from flatfed.parts.server import Average
from flatfed.vec import Named, Vec, ascend, unit

INERTIA = 0.99  # share of the old α in the new


@dataclass(frozen=True)
class MomentumGuided(Perturbation):
    """Uphill to where the client's momentum m_i points from the model it received; the gradient
    found there is mixed with m_i."""

    rho: float
    alpha: float  # share of the gradient, at first
    anchor_scale: Literal["one", "rate"]
    server = broadcast = ("m", "c", "alpha")
    keep, upload = ("c_i",), ("turn",)
    means = ("dx_travel",)
    scalars, logged = ("alpha", "turn"), ("alpha",)
    references = ("fedwmsam", "fedcm", "scaffold")

    def __post_init__(self) -> None:
        within(self, "rho", "[0, ∞)", NO_ASCENT)
        within(self, "alpha", "(0, 1]")
        if self.alpha == 1 and self.rho:
            refuse(self, "alpha", "less than 1, for m_i divides by 1−α", "Or switch off rho.")
        one_of(self, "anchor_scale", self.anchor_scale, "one", "rate")

    def init(self, name: str, x: Vec) -> Vec:
        return x.new_full((1,), self.alpha) if name == "alpha" else super().init(name, x)

    def gradient(self, w: Vec, grad: Oracle, v: View) -> tuple[Vec, Named]:
        """
        m_i ← m + α/(1−α)·(c − c_i)
        [one]  g ← α·∇F(w + ρ·unit(x + k·m_i − w)) + (1−α)·m_i
        [rate] g ← α·∇F(w + ρ·unit(x + k·η·m_i − w)) + (1−α)·m_i
        """
        control = v.c - v.c_i
        if self.rho:
            m_i = v.m + v.alpha / (1 - v.alpha) * control
            steps = v.k if self.anchor_scale == "one" else v.k * v.lr
            g = grad(ascend(w, v.x.add(m_i, alpha=steps).sub_(w), self.rho))
        else:
            g = grad(w)
        return v.m.lerp(control.add_(g), v.alpha), {}  # α·(g + c − c_i) + (1−α)·m

    def finish(self, y: Vec, v: View) -> Named:
        """turn ← 1 + cos(y − x, m)"""
        return {"turn": 1 + (unit(y - v.x) @ unit(v.m)).reshape(1)}

    def remember(self, sent: View, v: View) -> Named:
        """c_i ← c_i − dx/Ση − c"""
        return {"c_i": v.c_i - sent.dx / v.travel - v.c}

    def absorb(self, mean: View, v: View) -> Named:
        """
        m ← −mean(dx/Ση);  c ← c + (S/N)·(−mean(dx/Ση) − c)
        alpha ← 0.99·alpha + 0.01·min(max(mean(turn), 0.1), 0.9)
        """
        m = -mean.dx_travel
        return {
            "m": m,
            "c": v.c + v.S / v.N * (m - v.c),
            "alpha": INERTIA * v.alpha + (1 - INERTIA) * mean.turn.clamp(0.1, 0.9),
        }


def fedwmsam(
    *,
    rho: float = 0.01,
    alpha: float = 0.1,
    anchor_scale: Literal["one", "rate"] = "one",
    global_lr: float = 1.0,
    **local: Unpack[LocalWork],
) -> Method:
    """FedCM with SCAFFOLD's variates and an ascent along momentum (Li et al., NeurIPS 2025).

    rho = 0.01, alpha = 0.1 at first and the local work are the paper's; weight decay and the fall
    of the rate are the authors' code's. One gradient a step. alpha is written down every round.

    Differs from the paper:
        The perturbation is along x + k·m_i − w as printed, uphill, one unit vector over the whole
        model. The authors' code indexes the flat vector by tensor number, so that a tensor moves
        by one constant, takes a sum of absolute values for the norm, and goes downhill
        (test_fedwmsam_ascends_along_the_whole_anchor).
        k·m_i is as long as k gradients, not as k steps; anchor_scale="rate" makes it steps.
        The first step of a round is not perturbed
        (test_fedwmsam_first_step_of_a_round_is_not_perturbed).
        m is the mean of gradients, divided by Ση as in the code; the listing divides by η only, and
        its sign would climb. The code also multiplies it by lr_decay, which nothing explains and
        which would part it from FedCM (test_fedwmsam_without_ascent_and_variates_is_fedcm).
        alpha follows 1 + cos(dx, m), as the code does: 0 for clients that walk along m, so that
        alpha falls to 0.1 while they agree. The text has it rise with agreement, and takes m_i
        for dx (test_fedwmsam_alpha_falls_with_agreement_and_rises_against_it).
        Clients keep c_i themselves, where the paper's server keeps all N: x, m, c and alpha go
        down in place of x and m_i, and no variate goes up.
        Weight decay is outside the mix and comes back in m, which makes it ω/α
        (test_fedwmsam_decay_is_amplified_by_the_mix).
    """
    return Method(
        name="fedwmsam",
        paper="fedwmsam",
        family="sharpness-aware",
        perturb=MomentumGuided(rho, alpha, anchor_scale),
        server=Average(global_lr),
        local=work(SHARED, local),
    )
