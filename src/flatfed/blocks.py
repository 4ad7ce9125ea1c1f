"""The blocks of a vector that have a scale each: all of it, each tensor, or buckets of one length.

A stretch is (where it starts, how many blocks of equal length follow, their length); what is worked
on at a time is a tile of it that fits the cache, its blocks in rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from flatfed.vec import Layout, length_of

if TYPE_CHECKING:
    from flatfed.bits import Array

Blocks: TypeAlias = Literal["global", "tensor"] | int
Stretch: TypeAlias = tuple[int, int, int]

TILE = 1 << 15  # elements


def stretches(blocks: Blocks, layout: Layout) -> list[Stretch]:
    """Where the blocks lie; what is empty is no block.

    >>> from flatfed.vec import lay_out
    >>> stretches("tensor", lay_out({"weight": (2, 3), "bias": (2,)}))
    [(0, 1, 6), (6, 1, 2)]
    >>> stretches(3, lay_out({"weight": (2, 4)}))
    [(0, 2, 3), (6, 1, 2)]
    """
    if blocks == "tensor":
        found = [(slot.at.start, 1, slot.at.stop - slot.at.start) for slot in layout]
    else:
        d = length_of(layout)
        size = d if blocks == "global" else blocks
        whole = d // size if size else 0
        found = [(0, whole, size), (whole * size, 1, d - whole * size)]
    return [(start, count, length) for start, count, length in found if count and length]


def tiles(found: list[Stretch]) -> Iterator[tuple[slice, slice]]:
    """(where in the vector, which blocks): whole blocks, or a piece of one that is longer."""
    first = 0
    for start, count, length in found:
        rows, piece = max(1, TILE // length), min(length, TILE)
        for row in range(0, count, rows):
            of = slice(first + row, first + min(row + rows, count))
            begin, end = start + row * length, start + min(row + rows, count) * length
            step = (of.stop - of.start) * piece
            for at in range(begin, end, step):
                yield slice(at, min(at + step, end)), of
        first += count


def scales(x: Array, found: list[Stretch], norm: Literal["linf", "l2", "mean"]) -> Array:
    """‖·‖_∞, ‖·‖₂ or mean |·| of every block, in x's own type.

    They are taken of blocks divided by a power of 2 near their largest element: no square is lost,
    and nothing is rounded. A ‖·‖₂ beyond every float is the largest float, which is still no less
    than any element. A block with a NaN or an infinity has that for its scale.
    """
    largest = np.finfo(x.dtype).max
    out = []
    for start, count, length in found:
        rows = x[start : start + count * length].reshape(count, length)
        top = np.maximum(rows.max(axis=1), -rows.min(axis=1))
        if norm != "linf":
            with np.errstate(over="ignore", invalid="ignore"):  # NaN and ∞ are to come through
                power = np.ldexp(np.ones_like(top), np.frexp(top)[1] - 1)
                shares = np.abs(rows)
                shares /= power[:, None]
                if norm == "l2":
                    ratio = np.sqrt(np.square(shares, out=shares).sum(axis=1, dtype=np.float64))
                else:
                    ratio = shares.mean(axis=1, dtype=np.float64)
                scaled = np.minimum(power * ratio, largest)
            top = np.where(np.isfinite(top), scaled, top).astype(x.dtype)
        out.append(top)
    return np.concatenate(out) if out else np.zeros(0, x.dtype)


def safe(divisors: Array) -> Array:
    """What a block may be divided by: 1 where its scale is 0, or no number at all."""
    one = divisors.dtype.type(1)
    return np.where(np.isfinite(divisors) & (divisors > 0), divisors, one)
