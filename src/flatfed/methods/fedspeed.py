"""FedSpeed: FedDyn's dual with SAM's gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Unpack

from flatfed.errors import CompositionError, one_of, within
from flatfed.method import Method
from flatfed.oracle import Oracle
from flatfed.part import Correction, Perturbation, View
from flatfed.parts.correct import Dual
from flatfed.parts.local import SHARED, LocalWork, work
from flatfed.parts.perturb import NO_ASCENT, SAM, Reusing
from flatfed.parts.server import Average, DualAverage
from flatfed.vec import Named, Vec, ascend


@dataclass(frozen=True)
class MixedSAM(Perturbation):
    """SAM's gradient and the plain one, mixed."""

    rho: float
    mixture: float
    gradients = 2
    references = ("fedspeed",)

    def __post_init__(self) -> None:
        within(self, "rho", "[0, ∞)", NO_ASCENT)
        within(self, "mixture", "[0, 1]")

    def gradient(self, w: Vec, grad: Oracle, v: View) -> tuple[Vec, Named]:
        """g ← (1−a)·∇F(w) + a·∇F(w + ρ·unit(∇F(w)))"""
        g = grad(w)
        return g.lerp(grad(ascend(w, g, self.rho)), self.mixture), {}


@dataclass(frozen=True)
class LocalDual(Correction):
    """FedDyn's dual without its server half: each client corrects the model it sends."""

    lam: float
    keep, upload = ("h_i",), ("dx",)  # its own dx in place of y − x
    references = ("fedspeed",)

    def __post_init__(self) -> None:
        within(self, "lam", "(0, ∞)", "Leave the part out for no penalty.")

    def direction(self, g: Vec, w: Vec, v: View) -> Vec:
        """g ← g + λ(w − x + h_i)"""
        return g.add((w - v.x).add_(v.h_i), alpha=self.lam)

    def finish(self, y: Vec, v: View) -> Named:
        """h_i ← h_i + (y − x);  dx ← (y − x) + h_i"""
        h_i = v.h_i + (y - v.x)
        return {"h_i": h_i, "dx": y - v.x + h_i}


def fedspeed(
    *,
    rho: float = 0.1,
    lam: float = 0.1,
    mixture: float = 1.0,
    server: Literal["dual", "mean"] = "dual",
    ascent: Literal["L", "N"] = "L",
    **local: Unpack[LocalWork],
) -> Method:
    """SAM's ascent under FedDyn's dual (Sun et al., ICLR 2023).

    lam is 1/λ of the paper; 0.1, rho = 0.1 and no mixture (a = 1) are FedTOGA's and FL-Simulator's.
    ascent="N" leads the ascent by the last perturbed gradient, one gradient a step (FedTOGA).

    Differs from the paper:
        The server keeps FedDyn's dual, as the authors' code does. The printed form, where clients
        send y − h_i/λ and the server takes the mean, is server="mean": equal under full
        participation, not otherwise (test_fedspeed_server_forms_agree_only_with_everybody).
        The ascent is normalised, as in the code; the printed step is ρ·∇F.
    """
    mixed = MixedSAM(rho, mixture)
    perturb: Perturbation = SAM(rho) if mixture == 1.0 else mixed
    if ascent == "N":
        if mixture != 1.0:
            raise CompositionError(
                f"fedspeed got ascent='N' with mixture={mixture!r}, expected mixture=1: with one "
                "gradient a step there is no plain gradient to mix.\nChange one of the two."
            )
        perturb = Reusing(perturb)
    one_of("fedspeed", "ascent", ascent, "L", "N")
    one_of("fedspeed", "server", server, "dual", "mean")
    dual = server == "dual"
    return Method(
        name="fedspeed",
        paper="fedspeed",
        family="sharpness-aware",
        perturb=perturb,
        correct=(Dual(lam) if dual else LocalDual(lam),),
        server=DualAverage() if dual else Average(),
        local=work(SHARED, local),
    )
