"""FedDC: FedDyn's drift and SCAFFOLD's correction together."""

from __future__ import annotations

from typing import Unpack

from flatfed.method import Method
from flatfed.parts.correct import ControlVariates, Dual
from flatfed.parts.local import SHARED, LocalWork, work
from flatfed.parts.server import DualAverage


def feddc(*, lam: float = 0.1, **local: Unpack[LocalWork]) -> Method:
    """FedDyn, its drift kept apart from SCAFFOLD's control variates (Gao et al., CVPR 2022).

    lam is the paper's α: 0.1 for ResNet-18, 0.01 for LeNet (FedTOGA) and in the authors' example.
    Their drift H_i is our h_i.

    Differs from the paper:
        The control variate follows the authors' code (SCAFFOLD's recursion), not the printed
        difference of last displacements.
        It divides by the round's own Ση, not by the first round's Kη as the code does
        (test_rule_1_displacement_is_divided_by_the_rates_of_its_own_round).
        For clients of unequal size their code uses λ·n̄/n_i and a uniform mean; here λ is the same
        for all, and weights="samples" in the Method settles where theirs does, Σ n_i·∇F_i = 0
        (test_sample_weights_settle_where_the_weighted_gradients_cancel).
    """
    return Method(
        name="feddc",
        paper="feddc",
        family="dual",
        correct=(Dual(lam), ControlVariates()),
        server=DualAverage(),
        local=work(SHARED, local),
    )
