"""FedCM: every local gradient mixed with the last round's direction."""

from __future__ import annotations

from typing import Unpack

from flatfed.method import Method
from flatfed.parts.correct import Blend
from flatfed.parts.local import SHARED, LocalWork, work
from flatfed.parts.server import Average
from flatfed.parts.track import PseudoGradient


def fedcm(*, alpha: float = 0.1, global_lr: float = 1.0, **local: Unpack[LocalWork]) -> Method:
    """FedAvg with the server's direction in every local step (Xu et al., 2021).

    alpha = 0.1 in FedVSSAM, FedTOGA and FL-Simulator. Their Δ is our delta.

    Differs from the paper:
        The server rate is relative, x ← x + η_g·mean(dx): the paper's x − η_g'·delta is the same
        at η_g' = η_g·Ση and does not follow a falling η.
        Clients that differ in K: delta averages the ratios dx/Ση.
        Weight decay goes into the gradient before it is mixed (decay="inside"), else its effect
        grows to ω/α; "outside" is FL-Simulator's
        (test_rule_7_decay_outside_the_mix_is_amplified).
    """
    return Method(
        name="fedcm",
        paper="fedcm",
        family="client momentum",
        correct=(Blend(alpha),),
        server=Average(global_lr),
        also=(PseudoGradient(),),
        local=work({**SHARED, "decay": "inside"}, local),
    )
