"""FedAdam and FedYogi: adaptive steps along the mean update."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, Unpack

from flatfed.errors import one_of, refuse, within
from flatfed.method import Method
from flatfed.part import ServerUpdate, View
from flatfed.parts.local import SHARED, LocalWork, work
from flatfed.vec import Named, Vec


@dataclass(frozen=True, kw_only=True)
class Adaptive(ServerUpdate):
    """Each coordinate of the mean update, divided by the root of its usual square."""

    global_lr: float
    beta1: float
    beta2: float
    tau: float
    rule: Literal["adam", "yogi"]
    first_v: Literal["tau2", "zero"] = "tau2"
    bias: Literal["as is", "corrected"] = "as is"
    server = ("m", "v")
    references = ("fedopt",)

    def __post_init__(self) -> None:
        within(self, "global_lr", "(0, ∞)")
        within(self, "beta1", "[0, 1)")
        within(self, "beta2", "[0, 1]")
        within(self, "tau", "(0, ∞)")
        one_of(self, "rule", self.rule, "adam", "yogi")
        one_of(self, "first_v", self.first_v, "tau2", "zero")
        one_of(self, "bias", self.bias, "as is", "corrected")
        if self.bias == "corrected" and self.beta2 == 1:
            refuse(self, "beta2", "less than 1, to correct a bias")

    def init(self, name: str, x: Vec) -> Vec:
        zero = super().init(name, x)
        return zero + self.tau**2 if name == "v" and self.first_v == "tau2" else zero

    def absorb(self, mean: View, v: View) -> Named:
        """
        [adam] m ← β₁·m + (1−β₁)·mean(dx);  v ← β₂·v + (1−β₂)·mean(dx)²
        [yogi] m ← β₁·m + (1−β₁)·mean(dx);  v ← v − (1−β₂)·mean(dx)²·sign(v − mean(dx)²)
        """
        square = mean.dx**2
        to = square - v.v if self.rule == "adam" else square * (square - v.v).sign()
        return {"m": v.m.lerp(mean.dx, 1 - self.beta1), "v": v.v.add(to, alpha=1 - self.beta2)}

    def step(self, x: Vec, mean: View, v: View) -> Vec:
        """
        [as is]     x ← x + η_g·m/(√v + τ)
        [corrected] x ← x + η_g·√(1−β₂^(t+1))/(1−β₁^(t+1))·m/(√v + τ)
        """
        rate = self.global_lr
        if self.bias == "corrected":
            n = v.t + 1
            rate *= (1 - self.beta2**n) ** 0.5 / (1 - self.beta1**n)
        return x.addcdiv(v.m, v.v.sqrt() + self.tau, value=rate)


def fedadam(
    *,
    global_lr: float = 0.01,
    beta1: float = 0.9,
    beta2: float = 0.99,
    tau: float = 1e-3,
    first_v: Literal["tau2", "zero"] = "tau2",
    bias_correction: bool = False,
    **local: Unpack[LocalWork],
) -> Method:
    """FedAvg whose server takes Adam's step along the mean update (Reddi et al., ICLR 2021).

    (0.9, 0.99), τ = 1e-3 and η_g = 0.01 are FedVSSAM's and FedTOGA's CIFAR-10 settings.

    Differs from the paper:
        Nothing. Public code starts v at 0 (first_v="zero") or corrects the bias
        (bias_correction=True, counting rounds from 1); both exist for comparison.
    """
    one_of("fedadam", "bias_correction", bias_correction, True, False)
    return Method(
        name="fedadam",
        paper="fedopt",
        family="server optimiser",
        server=Adaptive(
            rule="adam",
            global_lr=global_lr,
            beta1=beta1,
            beta2=beta2,
            tau=tau,
            first_v=first_v,
            bias="corrected" if bias_correction else "as is",
        ),
        local=work(SHARED, local),
    )


def fedyogi(
    *,
    global_lr: float = 0.01,
    beta1: float = 0.9,
    beta2: float = 0.99,
    tau: float = 1e-3,
    first_v: Literal["tau2", "zero"] = "tau2",
    bias_correction: bool = False,
    **local: Unpack[LocalWork],
) -> Method:
    """FedAdam whose squares move by sign and not by distance (Reddi et al., ICLR 2021).

    Settings as FedAdam's, from FedTOGA.

    Differs from the paper:
        As FedAdam.
    """
    adam = fedadam(
        global_lr=global_lr,
        beta1=beta1,
        beta2=beta2,
        tau=tau,
        first_v=first_v,
        bias_correction=bias_correction,
        **local,
    )
    assert isinstance(adam.server, Adaptive)
    return replace(adam, name="fedyogi", server=replace(adam.server, rule="yogi"))
