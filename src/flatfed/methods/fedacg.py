"""FedACG: clients start from where the server is about to be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Unpack

from flatfed.errors import within
from flatfed.method import Method
from flatfed.part import ServerUpdate, View
from flatfed.parts.correct import Proximal
from flatfed.parts.local import SHARED, LocalWork, work
from flatfed.vec import Named, Vec


@dataclass(frozen=True)
class LookAhead(ServerUpdate):
    """Momentum whose next step is taken before the clients start; x itself stays behind."""

    lookahead: float
    server = ("m",)
    references = ("fedacg",)

    def __post_init__(self) -> None:
        within(self, "lookahead", "[0, 1)")

    def start(self, x: Vec, v: View) -> Vec:
        """start ← x + λ_m·m"""
        return x.add(v.m, alpha=self.lookahead)

    def absorb(self, mean: View, v: View) -> Named:
        """m ← λ_m·m + mean(dx)"""
        return {"m": mean.dx.add(v.m, alpha=self.lookahead)}

    def step(self, x: Vec, mean: View, v: View) -> Vec:
        """x ← x + m"""
        return x + v.m


def fedacg(*, lookahead: float = 0.85, lam: float = 0.01, **local: Unpack[LocalWork]) -> Method:
    """FedProx around a look-ahead model with server momentum (Kim et al., CVPR 2024).

    lookahead is the paper's λ (0.85), lam its penalty, called β in FedVSSAM and μ in FedTOGA
    (0.01 in both). On a client, x is the look-ahead model.

    Differs from the paper:
        The penalty is (λ/2)‖w − x‖²; the authors' code leaves out the ½ and lowers the rate
        after every local epoch as well, which the paper does not say.
    """
    return Method(
        name="fedacg",
        paper="fedacg",
        family="server optimiser",
        correct=(Proximal(lam),),
        server=LookAhead(lookahead),
        local=work(SHARED, local),
    )
