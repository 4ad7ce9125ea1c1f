"""SCAFFOLD: control variates against client drift."""

from __future__ import annotations

from typing import Literal, Unpack

from flatfed.method import Method
from flatfed.parts.correct import ControlVariates, Increment
from flatfed.parts.local import SHARED, LocalWork, work
from flatfed.parts.server import Average


def scaffold(
    *,
    option: Literal["I", "II"] = "II",
    increment: Increment = "sent",
    global_lr: float = 1.0,
    **local: Unpack[LocalWork],
) -> Method:
    """FedAvg whose clients trade their usual gradient for the average one (Karimireddy et al.,
    ICML 2020).

    increment="derived" sends dx alone: the server works dc out of it, as some codes do.

    Differs from the paper:
        Option II divides by the rates really used, Ση, where the paper writes Kη: with a falling
        rate or unequal K anything else biases c_i, as two public implementations do
        (test_rule_1_displacement_is_divided_by_the_rates_of_its_own_round).
    """
    return Method(
        name="scaffold",
        paper="scaffold",
        family="control variates",
        correct=(ControlVariates(option, increment),),
        server=Average(global_lr),
        local=work(SHARED, local),
    )
