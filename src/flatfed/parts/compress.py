"""What travels instead of a vector."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from flatfed.part import Compressor, View
from flatfed.vec import Named, Vec

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Dense(Compressor):
    """The vector itself."""

    def encode(self, a: Vec, v: View) -> tuple[tuple[Tensor, ...], Named]:
        """sent ← a"""
        return (a,), {}

    def decode(self, sent: tuple[Tensor, ...], like: Vec) -> Vec:
        """a ← sent"""
        return sent[0]
