"""FedSAM and MoFedSAM: sharpness-aware local steps."""

from __future__ import annotations

from typing import Unpack

from flatfed.method import Method
from flatfed.parts.correct import Blend
from flatfed.parts.local import SHARED, LocalWork, work
from flatfed.parts.perturb import SAM
from flatfed.parts.server import Average
from flatfed.parts.track import PseudoGradient


def fedsam(*, rho: float = 0.1, global_lr: float = 1.0, **local: Unpack[LocalWork]) -> Method:
    """FedAvg with SAM's gradient (Qu et al., ICML 2022).

    rho = 0.1 is FedVSSAM's setting; FedTOGA uses 0.01.

    Differs from the paper:
        Nothing. Both gradients of a step use one mini-batch, and neither weight decay nor
        clipping enters the ascent (test_rule_9_ascent_sees_raw_gradients).
    """
    return Method(
        name="fedsam",
        paper="fedsam",
        family="sharpness-aware",
        perturb=SAM(rho),
        server=Average(global_lr),
        local=work(SHARED, local),
    )


def mofedsam(
    *, rho: float = 0.1, alpha: float = 0.1, global_lr: float = 1.0, **local: Unpack[LocalWork]
) -> Method:
    """FedSAM's ascent under FedCM's mix (Qu et al., ICML 2022).

    rho = 0.1 and alpha = 0.1 (there β) are FedVSSAM's settings; FedTOGA has rho = 0.01.
    Their Δ is our delta.

    Differs from the paper:
        As FedCM. delta does not enter the ascent
        (test_mofedsam_ascends_along_the_local_gradient_alone).
    """
    return Method(
        name="mofedsam",
        paper="fedsam",
        family="sharpness-aware",
        perturb=SAM(rho),
        correct=(Blend(alpha),),
        server=Average(global_lr),
        also=(PseudoGradient(),),
        local=work({**SHARED, "decay": "inside"}, local),
    )
