"""FedProx: a pull towards the received model."""

from __future__ import annotations

from typing import Unpack

from flatfed.method import Method
from flatfed.parts.correct import Proximal
from flatfed.parts.local import SHARED, LocalWork, work
from flatfed.parts.server import Average


def fedprox(*, lam: float = 0.1, global_lr: float = 1.0, **local: Unpack[LocalWork]) -> Method:
    """FedAvg with a proximal term (Li et al., MLSys 2020).

    lam is the paper's μ; 0.1 is FedVSSAM's setting.

    Differs from the paper:
        Nothing. Public code often drops the ½ of (μ/2)‖w − x‖², which doubles λ, or detaches
        the term, which removes it (test_the_proximal_term_has_its_half).
    """
    return Method(
        name="fedprox",
        paper="fedprox",
        family="proximal",
        correct=(Proximal(lam),),
        server=Average(global_lr),
        local=work(SHARED, local),
    )
