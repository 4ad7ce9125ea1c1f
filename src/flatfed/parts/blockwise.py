"""Compressors that send a short code of every number, and a scale of every block."""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING

from flatfed.errors import refuse
from flatfed.part import Compressor
from flatfed.parts.compress import expect
from flatfed.vec import Layout, Vec, length_of

if TYPE_CHECKING:
    from torch import Tensor

    from flatfed.bits import Array
    from flatfed.blocks import Blocks


class Blockwise(Compressor, abc.ABC):
    """What is sent is the stream of codes and the scales, as floats of the vector's own type."""

    blocks: Blocks

    @property
    @abc.abstractmethod
    def width(self) -> int:
        """Bits of a code."""

    def check_blocks(self) -> None:
        """Refuse blocks that are no way to cut a vector."""
        number = isinstance(self.blocks, int) and not isinstance(self.blocks, bool)
        if self.blocks not in ("tensor", "global") and not (number and int(self.blocks) >= 1):
            refuse(
                self, "blocks", "'tensor', 'global' or a whole number ≥ 1, the length of a bucket"
            )

    def count(self, layout: Layout) -> int:
        """How many blocks there are."""
        from flatfed.blocks import stretches

        return sum(count for _, count, _ in stretches(self.blocks, layout))

    def nbytes(self, layout: Layout, width: int) -> int:
        from flatfed.bits import packed_size

        return packed_size(length_of(layout), self.width) + width * self.count(layout)

    def read(self, sent: tuple[Tensor, ...], like: Vec, layout: Layout) -> tuple[Array, Array]:
        """Codes and scales of a message."""
        import torch

        from flatfed.bits import packed_size, unpack

        d = like.numel()
        codes = (packed_size(d, self.width), torch.uint8)
        expect(self, sent, codes, (self.count(layout), like.dtype))
        return unpack(sent[0].cpu().numpy(), self.width, d), sent[1].cpu().numpy()

    def spread(self, values: Array, codes: Array, sigma: Array, layout: Layout) -> Tensor:
        """The value of every code, times its block's scale."""
        import numpy as np
        import torch

        from flatfed.blocks import stretches, tiles

        out = np.empty(codes.size, sigma.dtype)
        for at, of in tiles(stretches(self.blocks, layout)):
            piece = out[at]
            np.take(values, codes[at], out=piece, mode="clip")  # any other mode would copy first
            rows = piece.reshape(of.stop - of.start, -1)
            rows *= sigma[of, None]
        return torch.from_numpy(out)
