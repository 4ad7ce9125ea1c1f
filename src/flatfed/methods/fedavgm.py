"""FedAvgM: heavy ball on the server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Unpack

from flatfed.errors import one_of, within
from flatfed.method import Method
from flatfed.part import ServerUpdate, View
from flatfed.parts.local import SHARED, LocalWork, work
from flatfed.vec import Named, Vec


@dataclass(frozen=True)
class Momentum(ServerUpdate):
    """Along the running sum of the mean updates."""

    beta: float
    global_lr: float
    form: Literal["heavy-ball", "nesterov"]
    server = ("m",)
    references = ("fedavgm",)

    def __post_init__(self) -> None:
        within(self, "beta", "[0, 1)", "beta=0 is FedAvg.")
        one_of(self, "form", self.form, "heavy-ball", "nesterov")
        within(self, "global_lr", "(0, ∞)")

    def absorb(self, mean: View, v: View) -> Named:
        """m ← β·m + mean(dx)"""
        return {"m": mean.dx.add(v.m, alpha=self.beta)}

    def step(self, x: Vec, mean: View, v: View) -> Vec:
        """
        [heavy-ball] x ← x + η_g·m
        [nesterov]   x ← x + η_g·(mean(dx) + β·m)
        """
        along = v.m if self.form == "heavy-ball" else mean.dx.add(v.m, alpha=self.beta)
        return x.add(along, alpha=self.global_lr)


def fedavgm(
    *, beta: float = 0.9, global_lr: float = 1.0, nesterov: bool = False, **local: Unpack[LocalWork]
) -> Method:
    """FedAvg whose server keeps momentum (Hsu et al., 2019).

    beta = 0.9 is the value of two public implementations; no paper we follow prints one.

    Differs from the paper:
        Plain heavy ball by default; nesterov=True is the form of a public implementation of the
        original's experiments. The damped form m ← βm + (1−β)·mean(dx) is not offered: it is
        this one with another global_lr (test_fedvssam_with_only_its_server_part_is_fedavgm).
    """
    one_of("fedavgm", "nesterov", nesterov, True, False)
    return Method(
        name="fedavgm",
        paper="fedavgm",
        family="server optimiser",
        server=Momentum(beta, global_lr, "nesterov" if nesterov else "heavy-ball"),
        local=work(SHARED, local),
    )
