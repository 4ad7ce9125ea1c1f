"""FedAvg: local steps, then the mean."""

from __future__ import annotations

from typing import Literal, Unpack

from flatfed.method import Method
from flatfed.parts.local import SHARED, LocalWork, work
from flatfed.parts.server import Average


def fedavg(
    *,
    global_lr: float = 1.0,
    weights: Literal["uniform", "samples"] = "uniform",
    **local: Unpack[LocalWork],
) -> Method:
    """Local SGD and the mean of the models (McMahan et al., AISTATS 2017).

    Differs from the paper:
        The mean is uniform, as in every paper that compares with it; weights="samples" is the
        original's (test_sample_weights_weigh_the_mean).
    """
    return Method(
        name="fedavg",
        paper="fedavg",
        family="averaging",
        server=Average(global_lr),
        weights=weights,
        local=work(SHARED, local),
    )
