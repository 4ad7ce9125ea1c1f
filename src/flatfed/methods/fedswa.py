"""FedSWA, FedMoSWA and FedMo: a rate that falls within the round, a server that goes beyond the
mean, and control by momentum."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, Unpack

from flatfed.errors import one_of, within
from flatfed.method import Method
from flatfed.part import Correction, View
from flatfed.parts.local import SGD, SHARED, Falling, LocalWork, work
from flatfed.parts.server import Average
from flatfed.vec import Named, Vec

Option = Literal["I", "I-batch", "II"]


@dataclass(frozen=True)
class MomentumControl(Correction):
    """SCAFFOLD's correction, its server half a momentum average of fresh client variates."""

    gamma: float
    option: Option = "II"
    server, broadcast = ("m",), ("m",)
    keep, upload = ("c_i",), ("dm",)
    references = ("fedswa",)

    def __post_init__(self) -> None:
        within(self, "gamma", "[0, 1]")
        one_of(self, "option", self.option, "I", "I-batch", "II")
        asks = {"I": ("whole",), "I-batch": ("first",), "II": ()}
        object.__setattr__(self, "asks", asks[self.option])

    def direction(self, g: Vec, w: Vec, v: View) -> Vec:
        """g ← g − c_i + m"""
        return (g - v.c_i).add_(v.m)

    def finish(self, y: Vec, v: View) -> Named:
        """
        [I]       dm ← ∇F_i(x) − m
        [I-batch] dm ← ∇F(x) on the round's first batch − m
        [II]      dm ← c_i − m + (x − y)/Ση − m
        """
        if self.option == "II":
            return {"dm": v.c_i - v.m + (v.x - y) / v.travel - v.m}
        return {"dm": (v.whole(v.x) if self.option == "I" else v.first(v.x)) - v.m}

    def remember(self, sent: View, v: View) -> Named:
        """c_i ← m + dm"""
        return {"c_i": v.m + sent.dm}

    def absorb(self, mean: View, v: View) -> Named:
        """m ← m + γ·mean(dm)"""
        return {"m": v.m.add(mean.dm, alpha=self.gamma)}


def fedswa(*, ratio: float = 0.1, alpha: float = 1.5, **local: Unpack[LocalWork]) -> Method:
    """FedAvg with a rate that falls towards ratio·lr in every round (Liu et al., ICML 2025).

    ratio is the paper's ρ, which is no radius; alpha = 1.5 is its server rate, beyond the mean.

    Differs from the paper:
        The listing counts K + 1 rates; K steps use the first K of them, as the code does
        (test_the_last_rate_of_a_falling_round_is_above_the_ratio).
        Current public code has ratio 0, server rate 1, a cosine over rounds and a doubled rate.
    """
    return Method(
        name="fedswa",
        paper="fedswa",
        family="weight averaging",
        server=Average(alpha),
        local=_falling(work(SHARED, local), ratio),
    )


def fedmoswa(
    *,
    ratio: float = 0.1,
    alpha: float = 1.5,
    gamma: float = 0.2,
    option: Option = "II",
    **local: Unpack[LocalWork],
) -> Method:
    """FedSWA under SCAFFOLD's correction, with momentum (Liu et al., ICML 2025).

    ratio = 0.1 (the paper's ρ), alpha = 1.5, gamma = 0.2; option II is the experiments'.

    Differs from the paper:
        What is sent and averaged is c_i − m, which the listing leaves undefined; γ applies from
        round 0, where the code takes 1; Ση is the exact sum of the rates
        (test_rule_6_variate_difference_is_to_m).
        Option I takes the gradient over all local data; "I-batch" over the round's first batch.
        Current public code under this name has no falling rate and no extrapolation: it is FedMo.
        It also clips the gradient before the correction (clip_scope="data"), and keeps c_i with the
        worker process instead of the client, which mixes clients.
    """
    return Method(
        name="fedmoswa",
        paper="fedswa",
        family="weight averaging",
        correct=(MomentumControl(gamma, option),),
        server=Average(alpha),
        local=_falling(work(SHARED, local), ratio),
    )


def fedmo(*, gamma: float = 0.2, option: Option = "II", **local: Unpack[LocalWork]) -> Method:
    """FedMoSWA's momentum control alone (Liu et al., ICML 2025).

    gamma = 0.2 as in FedMoSWA.

    Differs from the paper:
        As FedMoSWA.
    """
    return Method(
        name="fedmo",
        paper="fedswa",
        family="control variates",
        correct=(MomentumControl(gamma, option),),
        local=work(SHARED, local),
    )


def _falling(walk: SGD, ratio: float) -> SGD:
    return replace(walk, lr=Falling(walk.lr, ratio))
