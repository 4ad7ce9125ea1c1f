"""FedSMOO: FedDyn's dual, and a second one that makes local perturbations agree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Unpack

from flatfed.errors import one_of, within
from flatfed.method import Method
from flatfed.oracle import Oracle
from flatfed.part import Perturbation, View
from flatfed.parts.correct import Dual
from flatfed.parts.local import SHARED, LocalWork, work
from flatfed.parts.perturb import NO_ASCENT, Reusing
from flatfed.parts.server import DualAverage
from flatfed.vec import Named, Vec, along, per_length


@dataclass(frozen=True)
class ConsensusSAM(Perturbation):
    """SAM whose perturbation is pulled to the global one, s, by a multiplier that persists."""

    rho: float
    form: Literal["printed", "simplified"] = "printed"
    server, broadcast = ("s",), ("s",)
    keep = ("mu_i",)
    notes, upload = ("eps",), ("s_i",)
    gradients = 2
    references = ("fedsmoo",)

    def __post_init__(self) -> None:
        within(self, "rho", "[0, ∞)", NO_ASCENT)
        one_of(self, "form", self.form, "printed", "simplified")
        if self.form == "simplified":
            object.__setattr__(self, "notes", ())

    def gradient(self, w: Vec, grad: Oracle, v: View) -> tuple[Vec, Named]:
        """
        eps ← ρ·unit(∇F(w) − mu_i − s);  mu_i ← mu_i + eps − s
        g ← ∇F(w + eps)
        """
        # Underscored operations write into vectors this line has just made.
        q = (grad(w) - v.mu_i).sub_(v.s)
        eps = q.mul_(per_length(q).mul_(self.rho))
        new = {"mu_i": (v.mu_i + eps).sub_(v.s), "eps": eps}
        return grad(w + eps), {name: new[name] for name in (*self.keep, *self.notes)}

    def finish(self, y: Vec, v: View) -> Named:
        """
        [printed]    s_i ← mu_i − eps
        [simplified] s_i ← mu_i
        """
        return {"s_i": v.mu_i - v.eps if self.form == "printed" else v.mu_i}

    def absorb(self, mean: View, v: View) -> Named:
        """s ← ρ·unit(mean(s_i))"""
        return {"s": along(mean.s_i, self.rho)}


def fedsmoo(
    *,
    rho: float = 0.1,
    lam: float = 0.1,
    form: Literal["printed", "simplified"] = "printed",
    ascent: Literal["L", "N"] = "L",
    **local: Unpack[LocalWork],
) -> Method:
    """FedSpeed with perturbations in consensus (Sun et al., ICML 2023).

    lam is 1/β of the paper (β = 10); rho = 0.1 in FedVSSAM, FedTOGA and FL-Simulator; lr_decay =
    0.9995 in FedTOGA. ascent="N" leads the ascent by the last perturbed gradient (FedTOGA).

    Differs from the paper:
        Nothing; form="simplified" drops −eps from what is sent, as the authors' code does.
        mu_i − eps is 0 after one step, and unit(0) is 0: public code divides by zero there
        (test_rule_5_consensus_dual_persists_and_survives_one_step).
    """
    perturb: Perturbation = ConsensusSAM(rho, form)
    one_of("fedsmoo", "ascent", ascent, "L", "N")
    return Method(
        name="fedsmoo",
        paper="fedsmoo",
        family="sharpness-aware",
        perturb=Reusing(perturb) if ascent == "N" else perturb,
        correct=(Dual(lam),),
        server=DualAverage(),
        local=work({**SHARED, "lr_decay": 0.9995}, local),
    )
