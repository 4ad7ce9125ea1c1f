"""What one round brought and what it cost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from torch import Tensor

from flatfed.engines.engine import Reply
from flatfed.federation import Federation
from flatfed.flatmodel import FlatModel
from flatfed.mean import Upload
from flatfed.method import DENSE, Method
from flatfed.vec import Layout, Named

Tell: TypeAlias = Callable[[str, int, int], object]  # what, how much is done, of how much


@dataclass
class Heard:
    """What a round's replies add up to."""

    method: Method
    layout: Layout
    width: int  # bytes of a float
    clients: list[int] = field(default_factory=list)
    failures: dict[int, Exception] = field(default_factory=dict)
    bytes_up: int = 0
    bits_nominal: float | None = None
    bits_entropy: float | None = None
    gradients: int = 0
    forwards: int = 0
    losses: float = 0.0
    steps: int = 0

    def note(self, reply: Reply) -> None:
        """Of uploads, those that are in the mean: their messages have been looked at."""
        if reply.upload is None:
            assert reply.failure is not None
            self.failures[reply.client] = reply.failure
            return
        self.clients.append(reply.client)
        self.bytes_up += reply.upload.nbytes
        if self.method.compress != DENSE:
            self._count_bits(reply.upload)
        self.gradients += reply.tally.gradients
        self.forwards += reply.tally.forwards
        self.losses += reply.tally.losses
        self.steps += reply.tally.steps

    def _count_bits(self, upload: Upload) -> None:
        nominal, entropy = self.bits_nominal or 0.0, self.bits_entropy or 0.0
        for name, sent in upload.vectors.items():
            how = self.method.compress
            if name in self.method.apart:
                nominal, entropy = (bits + 8 * sent[0].nbytes for bits in (nominal, entropy))
            else:
                nominal += how.nominal(self.layout, self.width)
                entropy += how.entropy(sent, self.layout)
        self.bits_nominal, self.bits_entropy = nominal, entropy


@dataclass
class Bench:
    """The server's workbench: the federation's model, and what was spent on it in one round."""

    federation: Federation
    listener: Tell
    gradients: int = 0

    @property
    def model(self) -> FlatModel:
        return self.federation.model

    @property
    def shape(self) -> tuple[int, ...]:
        return self.federation.data.shape

    @property
    def classes(self) -> int:
        return len(self.federation.data.classes)

    def ready(self, inputs: Tensor) -> Tensor:
        """Inputs as the data set has them, as the model takes them."""
        return self.federation.prepare(inputs, None)

    def spent(self, gradients: int) -> None:
        """So many mini-batch gradients more."""
        self.gradients += gradients

    def tell(self, what: str, done: int, total: int) -> None:
        """How far a long piece of work has come."""
        self.listener(what, done, total)


def bytes_down(method: Method, sent: Named, clients: int) -> int:
    """What the cohort receives, beside what was pushed to everybody when it changed."""
    push = method.names("push")
    return clients * sum(v.nbytes for name, v in sent.items() if name not in push)


def bytes_pushed(method: Method, before: Named, after: Named, N: int) -> int:
    """What all N clients receive, because it has changed."""
    new = (after[n] for n in method.names("push") if after[n] is not before.get(n))
    return N * sum(vector.nbytes for vector in new)
