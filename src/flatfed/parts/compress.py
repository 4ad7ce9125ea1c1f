"""What travels instead of a vector: the vector itself, or floats of half the size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from flatfed.errors import FederationError, one_of
from flatfed.part import Compressor, View
from flatfed.vec import Layout, Named, Vec, length_of

if TYPE_CHECKING:
    from torch import Tensor


def expect(receiver: Compressor, sent: tuple[Tensor, ...], *wanted: tuple[int, Any]) -> None:
    """Refuse a message that is not made of tensors of these lengths and types."""
    came = [(t.numel(), t.dtype) if t.dim() == 1 else (tuple(t.shape), t.dtype) for t in sent]
    if came != list(wanted):
        raise refusal(receiver, _listed(came), _listed(wanted))


def refusal(receiver: Compressor, came: str, wanted: str) -> FederationError:
    """What to say about a message that cannot be read."""
    return FederationError(
        f"{receiver!r} received {came}, expected {wanted}.\n"
        "Clients and server must run the same compressor on the same model: leave this client out."
    )


def _listed(tensors: Any) -> str:
    said = (f"{length} × {str(dtype).removeprefix('torch.')}" for length, dtype in tensors)
    return " and ".join(said) or "nothing"


@dataclass(frozen=True)
class Dense(Compressor):
    """The vector itself."""

    def encode(self, a: Vec, v: View) -> tuple[tuple[Tensor, ...], Named]:
        """sent ← a"""
        return (a,), {}

    def decode(self, sent: tuple[Tensor, ...], like: Vec, layout: Layout) -> Vec:
        """a ← sent"""
        expect(self, sent, (like.numel(), like.dtype))
        return sent[0].to(like.device)

    def nbytes(self, layout: Layout, width: int) -> int:
        return width * length_of(layout)

    def nominal(self, layout: Layout, width: int) -> float:
        return 8 * self.nbytes(layout, width)

    def entropy(self, sent: tuple[Tensor, ...], layout: Layout) -> float:
        return 8 * sent[0].nbytes


@dataclass(frozen=True)
class Cast(Compressor):
    """Every number rounded to the nearest of 16 bits.

    A number beyond the largest of them (65504 in float16) travels as the largest, for an infinity
    would spoil the cohort's mean in that place; error feedback brings the rest later. What was no
    finite number before stays none, so that the server can see it.
    """

    to: Literal["float16", "bfloat16"] = "float16"

    def __post_init__(self) -> None:
        one_of(self, "to", self.to, "float16", "bfloat16")

    def encode(self, a: Vec, v: View) -> tuple[tuple[Tensor, ...], Named]:
        """sent ← a, in 16 bits a number"""
        import torch

        short = getattr(torch, self.to)
        largest = torch.finfo(short).max
        return (torch.where(a.isinf(), a, a.clamp(-largest, largest)).to(short),), {}

    def decode(self, sent: tuple[Tensor, ...], like: Vec, layout: Layout) -> Vec:
        """a ← sent"""
        import torch

        expect(self, sent, (like.numel(), getattr(torch, self.to)))
        return sent[0].to(like.device, like.dtype)

    def nbytes(self, layout: Layout, width: int) -> int:
        return 2 * length_of(layout)

    def nominal(self, layout: Layout, width: int) -> float:
        return 16 * length_of(layout)

    def entropy(self, sent: tuple[Tensor, ...], layout: Layout) -> float:
        return 8 * sent[0].nbytes
