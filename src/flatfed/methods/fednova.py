"""FedNova: clients that take more steps than others do not pull harder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Unpack

from flatfed.errors import CompositionError, within
from flatfed.method import Method
from flatfed.oracle import Oracle
from flatfed.part import Part, ServerUpdate, View
from flatfed.parts.correct import Proximal
from flatfed.parts.local import SHARED, LocalWork, work
from flatfed.vec import Named, Vec


@dataclass(frozen=True)
class Normalised(ServerUpdate):
    """Along the mean of how far clients went per unit of travel, by the mean travel."""

    means = ("dx_travel",)
    references = ("fednova",)

    def step(self, x: Vec, mean: View, v: View) -> Vec:
        """x ← x + mean(Ση)·mean(dx/Ση)"""
        return x.add(mean.dx_travel, alpha=mean.travel)


@dataclass(frozen=True)
class NormalisedProximal(ServerUpdate):
    """The same where a proximal pull has shortened the travel, to a."""

    mu: float
    notes, scalars = ("a",), ("tau", "a")
    upload = ("dx", "tau")  # its own dx in place of y − x
    references = ("fednova",)

    def __post_init__(self) -> None:
        within(self, "mu", "(0, ∞)", "Without a pull, Normalised does.")

    def fits(self, method: Method) -> None:
        readers: list[Part] = [part for part in method.correct if part != Proximal(self.mu)]
        readers += [part for part in method.also if part.means]
        if readers:
            raise CompositionError(
                f"{type(self).__name__} sends dx divided by a, which "
                f"{', '.join(type(part).__name__ for part in readers)} would take for y − x, "
                f"expected no correction but Proximal({self.mu!r}).\n"
                "Leave the others out, or the pull: Normalised() sends dx as it is."
            )

    def observe(self, w: Vec, batch: Oracle, v: View) -> Named:
        """a ← (1 − ημ)·a + η"""
        return {"a": v.a * (1 - v.lr * self.mu) + v.lr}

    def finish(self, y: Vec, v: View) -> Named:
        """tau ← Ση;  dx ← (y − x)/a"""
        return {"tau": y.new_tensor([v.travel]), "dx": (y - v.x) / v.a}

    def step(self, x: Vec, mean: View, v: View) -> Vec:
        """x ← x + mean(tau)·mean(dx)"""
        return x.addcmul(mean.dx, mean.tau)


def fednova(
    *,
    mu: float = 0.0,
    weights: Literal["uniform", "samples"] = "samples",
    **local: Unpack[LocalWork],
) -> Method:
    """FedAvg, or FedProx if mu > 0, on normalised updates (Wang et al., NeurIPS 2020).

    Means are weighted by samples, as in the paper; momentum is a setting of local work, off. The
    card we follow states no rates: they are the shared protocol's. Their a_i is Ση/η here, their
    τ_eff is mean(Ση)/η; with a pull, a/η and mean(tau)/η. Without one nothing but dx is sent.

    Differs from the paper:
        a_i is measured in rates, not in steps (Ση for plain SGD): the same where η is constant
        within a round, right where it falls, and with momentum what a constant gradient would
        carry the client (test_fednova_divides_by_the_papers_normaliser).
        With mu > 0, the mean tau counts all of Ση, as the authors' code does, and not the shortened
        a_i: clients of equal K are then FedProx with a server rate above 1, not FedProx
        (test_fednova_with_a_pull_and_equal_steps_is_fedprox_with_a_larger_server_rate).
        mu > 0 with momentum is refused: nobody states its normaliser.
        Neither weight decay nor clipping enters a_i. No factor of N/S, which one public code
        multiplies by, and no momentum on the server.
    """
    walk = work(SHARED, local)
    if mu and walk.momentum:
        raise CompositionError(
            f"fednova got mu={mu!r} with momentum={walk.momentum!r}, expected one of them to be "
            "0: no normaliser is known for both.\nChange one of the two."
        )
    server = NormalisedProximal(mu) if mu else Normalised()
    return Method(
        name="fednova",
        paper="fednova",
        family="averaging",
        correct=(Proximal(mu),) if mu else (),
        server=server,
        weights=weights,
        local=walk,
    )
