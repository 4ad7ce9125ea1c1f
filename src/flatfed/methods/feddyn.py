"""FedDyn: a penalty whose multiplier makes local and global stationary points agree."""

from __future__ import annotations

from typing import Unpack

from flatfed.method import Method
from flatfed.parts.correct import Dual
from flatfed.parts.local import SHARED, LocalWork, work
from flatfed.parts.server import DualAverage


def feddyn(*, lam: float = 0.1, **local: Unpack[LocalWork]) -> Method:
    """FedProx with a dual on every client and on the server (Acar et al., ICLR 2021).

    lam is the paper's α: 0.1 for ResNet-18, 0.01 for LeNet (FedTOGA). lr_decay = 0.9995 is
    FL-Simulator's for this method.

    Differs from the paper:
        The server's dual is divided by N, not by S, and there is no server rate
        (test_rule_2_server_dual_is_the_mean_over_all_clients). FedTOGA's listing of it prints S;
        one public code averages the dual over S and forgets 1/λ, another penalises the distance
        without its square: both are other methods. For clients of unequal size the authors' code
        uses λ·n̄/n_i; here it is weights="samples", as for FedDC.
    """
    return Method(
        name="feddyn",
        paper="feddyn",
        family="dual",
        correct=(Dual(lam),),
        server=DualAverage(),
        local=work({**SHARED, "lr_decay": 0.9995}, local),
    )
