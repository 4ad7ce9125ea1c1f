"""FedLESAM, -S and -D: the ascent is estimated from how the global model moved."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Unpack

from flatfed.errors import one_of, within
from flatfed.method import Method
from flatfed.oracle import Oracle
from flatfed.part import Correction, Part, Perturbation, ServerUpdate, View
from flatfed.parts.correct import ControlVariates, Dual, Increment
from flatfed.parts.local import SHARED, LocalWork, work
from flatfed.parts.perturb import NO_ASCENT
from flatfed.parts.server import Average, DualAverage
from flatfed.vec import Named, Vec, along

Reference = Literal["last_active", "last_round"]


@dataclass(frozen=True)
class WayBack(Perturbation):
    """Moved from w by eps, the same in every step of a round."""

    rho: float
    notes = ("eps",)
    references = ("fedlesam",)

    def __post_init__(self) -> None:
        within(self, "rho", "[0, ∞)", NO_ASCENT)

    def gradient(self, w: Vec, grad: Oracle, v: View) -> tuple[Vec, Named]:
        """g ← ∇F(w + eps)"""
        return grad(w + v.eps), {}


@dataclass(frozen=True)
class SinceLastSeen(WayBack):
    """Along the model's way back to where client i last received it; nowhere the first time."""

    keep = ("x_i",)

    def init(self, name: str, x: Vec) -> Vec:
        return x if name == "x_i" else super().init(name, x)

    def observe(self, w: Vec, batch: Oracle, v: View) -> Named:
        """eps ← ρ·unit(x_i − x)  at k = 0"""
        return {"eps": along(v.x_i - v.x, self.rho)} if v.k == 0 else {}

    def finish(self, y: Vec, v: View) -> Named:
        """x_i ← x"""
        return {"x_i": v.x}


@dataclass(frozen=True)
class SinceLastRound(WayBack):
    """Along the model's way back to the round before, the same for every client."""

    broadcast = ("x_last",)

    def observe(self, w: Vec, batch: Oracle, v: View) -> Named:
        """eps ← ρ·unit(x_last − x)  at k = 0"""
        return {"eps": along(v.x_last - v.x, self.rho)} if v.k == 0 else {}


@dataclass(frozen=True)
class LastModel(Part):
    """The global model of the round before."""

    server = ("x_last",)

    def init(self, name: str, x: Vec) -> Vec:
        return x

    def absorb(self, mean: View, v: View) -> Named:
        """x_last ← x"""
        return {"x_last": v.x}


def fedlesam(
    *,
    rho: float = 0.01,
    reference: Reference = "last_active",
    global_lr: float = 1.0,
    **local: Unpack[LocalWork],
) -> Method:
    """FedSAM at one gradient a step, its ascent estimated (Fan et al., ICML 2024).

    rho = 0.01 in FedVSSAM and FedTOGA, 0.1 in the authors' command line; lr_decay = 0.9995 in
    FedTOGA.

    Differs from the paper:
        At its first participation a client has no reference, and ε = 0, not the way back to the
        initial model. reference="last_round" is the authors' code's and FedSynSAM's reading: one
        reference for all clients, sent down; equal under full participation
        (test_fedlesam_references_agree_only_with_everybody).
        The authors' code indexes the flat difference by tensor number, so that a tensor moves by
        one constant; here it is the difference of whole vectors and their joint norm
        (test_rule_4_lesam_ascends_along_the_whole_difference).
    """
    return _fedlesam("fedlesam", rho, reference, (), Average(global_lr), local)


def fedlesam_s(
    *,
    rho: float = 0.1,
    reference: Reference = "last_active",
    increment: Increment = "sent",
    global_lr: float = 1.0,
    **local: Unpack[LocalWork],
) -> Method:
    """FedLESAM's ascent under SCAFFOLD's control variates (Fan et al., ICML 2024).

    rho = 0.1 for ResNet-18, 0.01 for LeNet (FedTOGA).

    Differs from the paper:
        As FedLESAM. The authors' code multiplies c − c_i by a penalty coefficient; here it is 1.
    """
    control = (ControlVariates(increment=increment),)
    return _fedlesam("fedlesam-s", rho, reference, control, Average(global_lr), local)


def fedlesam_d(
    *,
    rho: float = 0.1,
    lam: float = 0.1,
    reference: Reference = "last_active",
    increment: Increment = "derived",
    **local: Unpack[LocalWork],
) -> Method:
    """FedLESAM's ascent under FedDyn's dual (Fan et al., ICML 2024).

    lam is 1/β of the paper (β = 10); rho = 0.1 for ResNet-18, 0.01 for LeNet (FedTOGA).
    increment="sent" sends the dual's change beside dx, which FedSynSAM's table counts.

    Differs from the paper:
        As FedLESAM. The movement is the server model's, dual included, as in the code.
    """
    return _fedlesam("fedlesam-d", rho, reference, (Dual(lam, increment),), DualAverage(), local)


def _fedlesam(
    name: str,
    rho: float,
    reference: Reference,
    correct: tuple[Correction, ...],
    server: ServerUpdate,
    local: LocalWork,
) -> Method:
    one_of(name, "reference", reference, "last_active", "last_round")
    last_active = reference == "last_active"
    return Method(
        name=name,
        paper="fedlesam",
        family="sharpness-aware",
        perturb=SinceLastSeen(rho) if last_active else SinceLastRound(rho),
        correct=correct,
        server=server,
        also=() if last_active else (LastModel(),),
        local=work({**SHARED, "lr_decay": 0.9995}, local),
    )
