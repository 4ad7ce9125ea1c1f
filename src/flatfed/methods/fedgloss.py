"""FedGloSS: clients start uphill, so that the server's own step is sharpness-aware."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self, Unpack

from flatfed.errors import whole, within
from flatfed.method import Method
from flatfed.oracle import Oracle
from flatfed.part import Perturbation, ServerUpdate, View
from flatfed.parts.correct import Dual
from flatfed.parts.local import SHARED, LocalWork, work
from flatfed.parts.perturb import NO_ASCENT
from flatfed.vec import Named, Vec, ascend


def risen(rho: float, rho_0: float, rise: int, t: int) -> float:
    """A radius that rises from rho_0 to rho in a line over so many rounds; it never falls.

    >>> [risen(0.3, 0.1, 2, t) for t in range(4)]
    [0.1, 0.2, 0.3, 0.3]
    """
    low = min(rho_0, rho)
    return rho if t >= rise else low + (rho - low) * t / rise


@dataclass(frozen=True)
class RisingSAM(Perturbation):
    """SAM at a radius that rises from ρ₀ to ρ over the first rounds."""

    rho: float
    rho_0: float
    rise: int
    gradients = 2
    references = ("sam", "fedgloss")

    def __post_init__(self) -> None:
        _check(self)

    def quick(self) -> Self:
        return replace(self, rise=min(self.rise, 2))

    def gradient(self, w: Vec, grad: Oracle, v: View) -> tuple[Vec, Named]:
        """g ← ∇F(w + ρ_t·unit(∇F(w))),  ρ_t = ρ₀ + (ρ − ρ₀)·min(1, t/T_s)"""
        return grad(ascend(w, grad(w), risen(self.rho, self.rho_0, self.rise, v.t))), {}


@dataclass(frozen=True)
class UphillStart(ServerUpdate):
    """To the mean model's change and the dual, from x; clients start uphill of it, along the last
    change."""

    rho: float
    rho_0: float
    rise: int
    global_lr: float
    server, uses = ("delta",), ("h",)
    references = ("fedgloss",)

    def __post_init__(self) -> None:
        _check(self)
        within(self, "global_lr", "(0, ∞)")

    def quick(self) -> Self:
        return replace(self, rise=min(self.rise, 2))

    def start(self, x: Vec, v: View) -> Vec:
        """start ← x + ρ_t·unit(delta),  ρ_t = ρ₀ + (ρ − ρ₀)·min(1, t/T_s)"""
        return ascend(x, v.delta, risen(self.rho, self.rho_0, self.rise, v.t))

    def absorb(self, mean: View, v: View) -> Named:
        """delta ← −mean(dx)"""
        return {"delta": -mean.dx}

    def step(self, x: Vec, mean: View, v: View) -> Vec:
        """x ← x + η_g·mean(dx) + h"""
        return x.add(mean.dx, alpha=self.global_lr).add_(v.h)


def _check(part: RisingSAM | UphillStart) -> None:
    within(part, "rho", "[0, ∞)", NO_ASCENT)
    within(part, "rho_0", "[0, ∞)")
    whole(part, "rise", 0)


def fedgloss(
    *,
    rho_s: float = 0.15,
    rho_l: float = 0.15,
    lam: float = 0.1,
    rho_0: float = 0.001,
    rise: int = 2000,
    global_lr: float = 1.0,
    **local: Unpack[LocalWork],
) -> Method:
    """FedSpeed whose server takes SAM's step as well, at no cost (Caldarola et al., CVPR 2025).

    rho_s, rho_l = 0.15, lam = 1/β = 0.1 and rise = 2000 (T_s) of 10 000 rounds for CIFAR-10;
    0.01, 0.2, 0.01 and 15 000 of 20 000 for CIFAR-100; set rise below the rounds of a run. Local
    work and rho_0 are the authors' code's. On a client, x is where the server looked uphill to.

    Differs from the paper:
        Both radii rise from rho_0 to their own end, and never fall to it; the code's server goes
        on from where the clients' ended, and its clients' radius is set where the optimiser may
        not read it (test_fedgloss_radii_rise_in_a_line_to_their_own_ends).
        The server's dual is the mean over all N clients; the code divides it by the cohort's size
        once more (test_fedgloss_without_radii_is_feddyn).
        The model that clients are pulled to is the one they received, once a round: the code
        takes a new one at every local epoch.
        The last change of the model is weighted as every mean is, uniformly: the code weighs it
        by samples, but not the dual, whose fixed point is the uniform one. With weights="samples"
        both are.
        A penalty that vanishes does not switch the duals off: h is the drift itself, whatever λ
        (test_fedgloss_without_a_penalty_still_has_its_dual_on_the_server).
    """
    paper: LocalWork = {
        **SHARED,
        "lr": 0.01,
        "lr_decay": 1.0,
        "epochs": 1,
        "batch_size": 64,
        "weight_decay": 4e-4,
        "clip": None,
    }
    return Method(
        name="fedgloss",
        paper="fedgloss",
        family="sharpness-aware",
        perturb=RisingSAM(rho_l, rho_0, rise),
        correct=(Dual(lam),),
        server=UphillStart(rho_s, rho_0, rise, global_lr),
        local=work(paper, local),
    )
