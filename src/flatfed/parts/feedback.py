"""What a compressor lost, brought later."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from flatfed.errors import CompositionError
from flatfed.part import Compressor, View
from flatfed.vec import Layout, Named, Vec

if TYPE_CHECKING:
    from torch import Tensor

    from flatfed.method import Method


def own_mean(compressor: Compressor, method: Method) -> None:
    """Refuse a mean of its own where parts read means that it does not replace."""
    if method.names("means"):
        raise CompositionError(
            f"{type(compressor).__name__} puts a mean of its own in place of the cohort's, and "
            f"{method.name} reads {', '.join(method.names('means'))}, which no such mean has.\n"
            "Use another compressor or feedback."
        )


class _Around(Compressor):
    """Another compressor, with a memory of its own."""

    inner: Compressor
    remembers: str  # what the client keeps for it

    def __post_init__(self) -> None:
        if isinstance(self.inner, _Around) or not isinstance(self.inner, Compressor):
            raise CompositionError(
                f"{type(self).__name__} got inner={self.inner!r}, expected a compressor without "
                "error feedback.\nOne memory makes up for all that is lost: leave the other out."
            )
        object.__setattr__(self, "keep", (self.remembers, *self.inner.keep))
        object.__setattr__(self, "server", (*self.server, *self.inner.server))
        object.__setattr__(
            self, "references", tuple(dict.fromkeys((*self.inner.references, *self.references)))
        )

    def init(self, name: str, a: Vec) -> Vec:
        own = name not in (*self.inner.keep, *self.inner.server)
        return super().init(name, a) if own else self.inner.init(name, a)

    def kept_size(self, name: str, layout: Layout) -> int:
        own = name == self.remembers
        return super().kept_size(name, layout) if own else self.inner.kept_size(name, layout)

    def fits(self, method: Method) -> None:
        self.inner.fits(method)

    def decode(self, sent: tuple[Tensor, ...], like: Vec, layout: Layout) -> Vec:
        """The inner compressor's own."""
        return self.inner.decode(sent, like, layout)

    def nbytes(self, layout: Layout, width: int) -> int:
        return self.inner.nbytes(layout, width)

    def nominal(self, layout: Layout, width: int) -> float:
        return self.inner.nominal(layout, width)

    def entropy(self, sent: tuple[Tensor, ...], layout: Layout) -> float:
        return self.inner.entropy(sent, layout)

    def equations(self, hook: str) -> tuple[str, ...]:
        own, inner = super().equations(hook), self.inner.equations(hook)
        return (own[0], *inner, *own[1:]) if hook == "encode" else own or inner


@dataclass(frozen=True)
class ErrorFeedback(_Around):
    """What a client could not say is added to what it says next.

    All it ever sent, and e, are together all it was asked to send.
    """

    inner: Compressor
    remembers = "e"
    references = ("error_feedback",)

    def encode(self, a: Vec, v: View) -> tuple[tuple[Tensor, ...], Named]:
        """
        a ← a + e
        e ← a − decode(sent)
        """
        a = a + v.e
        sent, new = self.inner.encode(a, v)
        return sent, {**new, "e": a - self.inner.decode(sent, a, v.layout)}


@dataclass(frozen=True)
class EF21(_Around):
    """Clients send how their vector differs from what the server knows of it.

    The server keeps h, the mean of h_i over all N clients, and that is what its hooks see as the
    mean. It is the cohort's if all take part, and a run asks for that; for a client that fails,
    its last vector stands in.
    """

    inner: Compressor
    server = ("h",)
    remembers = "h_i"
    cohorts = "everybody"
    references = ("ef21",)

    def fits(self, method: Method) -> None:
        super().fits(method)
        own_mean(self, method)

    def encode(self, a: Vec, v: View) -> tuple[tuple[Tensor, ...], Named]:
        """
        a ← a − h_i
        h_i ← h_i + decode(sent)
        """
        a = a - v.h_i
        sent, new = self.inner.encode(a, v)
        return sent, {**new, "h_i": v.h_i + self.inner.decode(sent, a, v.layout)}

    def understood(self, sent: tuple[Tensor, ...], like: Vec, layout: Layout, kept: Named) -> Vec:
        return kept["h_i"]

    def gather(self, mean: Vec, v: View) -> tuple[Vec, Named]:
        """h ← h + (S/N)·mean;  mean ← h"""
        h = v.h + v.S / v.N * mean
        return h, {"h": h}
