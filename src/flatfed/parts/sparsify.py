"""A few of a vector's elements, and zero for the others."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import TYPE_CHECKING, Literal

from flatfed.errors import one_of, within
from flatfed.part import Compressor, View
from flatfed.parts.compress import expect, refusal
from flatfed.vec import Layout, Named, Vec, length_of

if TYPE_CHECKING:
    from torch import Tensor

    from flatfed.bits import Array


def how_many(fraction: float, d: int) -> int:
    """k = ⌈κ·d⌉ of κ as it is written: 0.07·100 is 7, though not as a float.

    >>> how_many(0.07, 100), how_many(0.001, 10)
    (7, 1)
    """
    return ceil(Fraction(repr(float(fraction))) * d)


@dataclass(frozen=True)
class TopK(Compressor):
    """The elements of largest magnitude of the whole vector; of equal ones, those that come first.

    Which ones travels as a bit for every element or as a list of indices. d and k say which of the
    two is shorter, so that no flag has to. Biased: no scale makes up for what is left out.
    """

    fraction: float = 0.1
    references = ("topk",)

    def __post_init__(self) -> None:
        within(self, "fraction", "(0, 1]", "Dense() sends all of it.")

    def encode(self, a: Vec, v: View) -> tuple[tuple[Tensor, ...], Named]:
        """sent ← the ⌈κ·d⌉ largest |a|, in order, and where they are"""
        import numpy as np
        import torch

        from flatfed.bits import pack, width_of

        x = a.cpu().numpy()
        k = how_many(self.fraction, x.size)
        # Without its sign bit, a float is ordered like the whole number of the same bits.
        size = np.dtype(f"u{x.itemsize}").type
        chosen = largest(x.view(size) & (np.iinfo(size).max >> 1), k)
        at = np.flatnonzero(chosen)
        where = np.packbits(chosen) if bitmap(k, x.size) else pack(at, width_of(x.size))
        return (torch.from_numpy(where), torch.from_numpy(x[at])), {}

    def decode(self, sent: tuple[Tensor, ...], like: Vec, layout: Layout) -> Vec:
        """a ← sent where they are, 0 elsewhere"""
        import numpy as np
        import torch

        from flatfed.bits import unpack, width_of

        d = like.numel()
        k = how_many(self.fraction, d)
        expect(self, sent, (positions(k, d), torch.uint8), (k, like.dtype))
        stream = sent[0].cpu().numpy()
        if bitmap(k, d):
            at = np.flatnonzero(unpack(stream, 1, d))
            if at.size != k:
                raise refusal(self, f"{at.size} positions", f"{k}")
        else:
            at = unpack(stream, width_of(d), k).astype(np.int64)
            if at[-1] >= d or (at[1:] <= at[:-1]).any():
                raise refusal(self, "indices out of order or bounds", f"{k} rising below {d}")
        return placed(at, sent[1], like)

    def nbytes(self, layout: Layout, width: int) -> int:
        d = length_of(layout)
        k = how_many(self.fraction, d)
        return positions(k, d) + k * width

    def nominal(self, layout: Layout, width: int) -> float:
        from flatfed.bits import width_of

        d = length_of(layout)
        return how_many(self.fraction, d) * (8 * width + width_of(d))

    def entropy(self, sent: tuple[Tensor, ...], layout: Layout) -> float:
        from flatfed.bits import choice_entropy

        return 8 * sent[1].nbytes + choice_entropy(sent[1].numel(), length_of(layout))


@dataclass(frozen=True)
class RandomK(Compressor):
    """Elements drawn from a seed, which travels in place of their indices.

    "unbiased" makes up for those that are left out, "contractive" (for error feedback) does not.
    """

    fraction: float = 0.1
    scale: Literal["unbiased", "contractive"] = "unbiased"
    references = ("randomk",)

    def __post_init__(self) -> None:
        within(self, "fraction", "(0, 1]", "Dense() sends all of it.")
        one_of(self, "scale", self.scale, "unbiased", "contractive")

    def encode(self, a: Vec, v: View) -> tuple[tuple[Tensor, ...], Named]:
        """sent ← ⌈κ·d⌉ elements of a, in order, and the seed that drew them"""
        import torch

        x = a.cpu().numpy()
        seed = v.seed("elements")
        values = x[drawn(seed, how_many(self.fraction, x.size), x.size)]
        return (torch.tensor([seed]), torch.from_numpy(values)), {}

    def decode(self, sent: tuple[Tensor, ...], like: Vec, layout: Layout) -> Vec:
        """
        [unbiased]    a ← (d/k)·sent where they are, 0 elsewhere
        [contractive] a ← sent where they are, 0 elsewhere
        """
        import torch

        d = like.numel()
        k = how_many(self.fraction, d)
        expect(self, sent, (1, torch.int64), (k, like.dtype))
        seed = int(sent[0])
        if seed < 0:
            raise refusal(self, f"the seed {seed}", "a seed ≥ 0")
        values = sent[1] * (d / k) if self.scale == "unbiased" else sent[1]
        return placed(drawn(seed, k, d), values, like)

    def nbytes(self, layout: Layout, width: int) -> int:
        return 8 + how_many(self.fraction, length_of(layout)) * width

    def nominal(self, layout: Layout, width: int) -> float:
        return 8 * self.nbytes(layout, width)

    def entropy(self, sent: tuple[Tensor, ...], layout: Layout) -> float:
        return 8 * sum(t.nbytes for t in sent)


def largest(keys: Array, k: int) -> Array:
    """A mask of the k largest; of equal ones, those that come first."""
    import numpy as np

    edge = np.partition(keys, keys.size - k)[keys.size - k]
    mask: Array = keys > edge
    mask[np.flatnonzero(keys == edge)[: k - np.count_nonzero(mask)]] = True
    return mask


def drawn(seed: int, k: int, d: int) -> Array:
    """k of d indices, each set as likely as any other: those with the largest random keys."""
    import numpy as np

    # The bare bits of the generator, for client and server may have different releases of NumPy:
    # its bits are promised to stay the same, what it makes of them (`choice`) is not.
    return np.flatnonzero(largest(np.random.SFC64(seed).random_raw(d), k))


def bitmap(k: int, d: int) -> bool:
    """Is a bit for every element no longer than a list of k indices?"""
    from flatfed.bits import packed_size, width_of

    return packed_size(d, 1) <= packed_size(k, width_of(d))


def positions(k: int, d: int) -> int:
    """Bytes that say which k of d."""
    from flatfed.bits import packed_size, width_of

    return min(packed_size(d, 1), packed_size(k, width_of(d)))


def placed(at: Array, values: Tensor, like: Vec) -> Vec:
    """The values where they belong, 0 elsewhere."""
    import numpy as np
    import torch

    given = values.cpu().numpy()
    out = np.zeros(like.numel(), given.dtype)
    out[at] = given
    return torch.from_numpy(out).to(like.device)
