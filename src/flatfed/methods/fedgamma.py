"""FedGAMMA: SCAFFOLD with SAM's gradient."""

from __future__ import annotations

from typing import Unpack

from flatfed.method import Method
from flatfed.parts.correct import ControlVariates, Increment
from flatfed.parts.local import SHARED, LocalWork, work
from flatfed.parts.perturb import SAM
from flatfed.parts.server import Average


def fedgamma(
    *,
    rho: float = 0.05,
    increment: Increment = "sent",
    global_lr: float = 1.0,
    **local: Unpack[LocalWork],
) -> Method:
    """FedSAM's ascent under SCAFFOLD's control variates (Dai et al., TNNLS 2023).

    rho = 0.05 is FedVSSAM's setting; FedTOGA has 0.1 for ResNet-18 and 0.01 for LeNet.

    Differs from the paper:
        As SCAFFOLD. The ascent follows the uncorrected local gradient. One public code averages
        over S and divides by N again, which makes c S times too slow
        (test_scaffold_c_is_the_mean_over_all_clients).
    """
    return Method(
        name="fedgamma",
        paper="fedgamma",
        family="sharpness-aware",
        perturb=SAM(rho),
        correct=(ControlVariates(increment=increment),),
        server=Average(global_lr),
        local=work(SHARED, local),
    )
