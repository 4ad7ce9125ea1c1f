"""Numbers rounded to a few levels of their block's scale."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from flatfed.errors import NonFiniteError, one_of, refuse, whole, within
from flatfed.part import Compressor, View
from flatfed.parts.blockwise import Blockwise
from flatfed.parts.compress import expect, refusal
from flatfed.parts.feedback import own_mean
from flatfed.vec import Layout, Named, Vec, length_of, non_finite

if TYPE_CHECKING:
    from torch import Tensor

    from flatfed.bits import Array
    from flatfed.blocks import Blocks
    from flatfed.method import Method

INTERVALS = {"fixed": -1, "levels": 0, "literal": 1}  # s − 2^bits


@dataclass(frozen=True)
class QSGD(Blockwise):
    """Each number rounded up or down to a level of its block's scale σ: right on average.

    A code is a level of 0 … s and a sign. `intervals` says what "so many bits" means: "fixed"
    fills them, "levels" is the widespread implementation, "literal" the text of a paper.
    """

    bits: int = 4
    norm: Literal["linf", "l2"] = "linf"
    blocks: Blocks = "tensor"
    intervals: Literal["fixed", "levels", "literal"] = "fixed"
    references = ("qsgd",)

    def __post_init__(self) -> None:
        whole(self, "bits", 1)
        if self.bits > 16:  # a float32 that a level is added to has no more to spare
            refuse(self, "bits", "a whole number in [1, 16]", "Cast() sends 16 bits a number.")
        one_of(self, "norm", self.norm, "linf", "l2")
        one_of(self, "intervals", self.intervals, *INTERVALS)
        self.check_blocks()

    @property
    def s(self) -> int:
        """The highest level."""
        return int(2**self.bits + INTERVALS[self.intervals])

    @property
    def width(self) -> int:
        """Bits of a code: the level's, and the sign."""
        return self.s.bit_length() + 1

    def encode(self, a: Vec, v: View) -> tuple[tuple[Tensor, ...], Named]:
        """
        [linf] sent ← sign(a)·⌊s·|a|/σ + u⌋ and σ = ‖a‖_∞ of every block, u ~ U[0, 1)
        [l2]   sent ← sign(a)·⌊s·|a|/σ + u⌋ and σ = ‖a‖₂ of every block, u ~ U[0, 1)
        """
        import numpy as np
        import torch

        from flatfed.bits import pack
        from flatfed.blocks import TILE, safe, scales, stretches, tiles

        x = a.cpu().numpy()
        found = stretches(self.blocks, v.layout)
        sigma = scales(x, found, self.norm)
        divisors = safe(sigma)[:, None]
        random = np.random.Generator(np.random.SFC64(v.seed("levels")))
        codes = np.empty(x.size, np.min_scalar_type((1 << self.width) - 1))
        level, u = np.empty((2, TILE), x.dtype)
        for at, of in tiles(found):
            piece = x[at]
            here, up = level[: piece.size], u[: piece.size]
            np.abs(piece, out=here)
            rows = here.reshape(of.stop - of.start, -1)
            rows /= divisors[of]  # before ·s: s/σ may be beyond every float
            with np.errstate(over="ignore"):  # of a block with a NaN or an infinity, divided by 1
                here *= self.s
            here += random.random(out=up, dtype=x.dtype.type)
            # s + u may round up to s + 1, and a NaN has to become some code.
            codes[at] = np.fmin(here, self.s, out=here)
            codes[at] |= np.signbit(piece).astype(codes.dtype) << (self.width - 1)
        return (torch.from_numpy(pack(codes, self.width)), torch.from_numpy(sigma)), {}

    def decode(self, sent: tuple[Tensor, ...], like: Vec, layout: Layout) -> Vec:
        """a ← σ·sent/s"""
        import numpy as np

        codes, sigma = self.read(sent, like, layout)
        above = 1 << (self.width - 1)
        top = int((codes & (above - 1)).max(initial=0)) if self.s < above - 1 else 0
        if top > self.s:
            raise refusal(self, f"a level of {top}", f"levels of 0 to {self.s}")
        levels = np.arange(above) / self.s
        values = np.concatenate([levels, -levels]).astype(sigma.dtype)
        return self.spread(values, codes, sigma, layout).to(like.device)

    def nominal(self, layout: Layout, width: int) -> float:
        return self.bits * length_of(layout) + 8 * width * self.count(layout)

    def entropy(self, sent: tuple[Tensor, ...], layout: Layout) -> float:
        from flatfed.bits import entropy, occurrences, unpack

        codes = unpack(sent[0].numpy(), self.width, length_of(layout))
        counts = occurrences(codes, 1 << self.width)
        above = 1 << (self.width - 1)
        counts[0] += counts[above]  # a zero is one symbol, whatever its sign
        counts[above] = 0
        return 8 * sent[1].nbytes + entropy(counts)

    def elias(self, sent: tuple[Tensor, ...], layout: Layout) -> int:
        """Bits of this message in the Elias code of the paper."""
        from flatfed.bits import elias

        return 8 * sent[1].nbytes + elias(self._levels(sent, layout))

    def _levels(self, sent: tuple[Tensor, ...], layout: Layout) -> Array:
        """Levels of a message, with their signs."""
        import numpy as np

        from flatfed.bits import unpack

        codes = unpack(sent[0].numpy(), self.width, length_of(layout)).astype(np.int32)
        above = 1 << (self.width - 1)
        return np.where(codes < above, codes, above - codes)


@dataclass(frozen=True)
class ScaledSign(Blockwise):
    """A bit for every number's sign, and the mean magnitude of every block.

    With blocks="global" one float travels beside d bits, as in sign compression whose server
    multiplies the mean of the signs by the mean of ‖a‖₁/d. Our server only ever sees the mean of
    what it decodes: each client's signs are multiplied by its own scale, and there is no majority
    vote. Biased: pair it with error feedback.
    """

    blocks: Blocks = "global"
    width = 1
    references = ("error_feedback",)

    def __post_init__(self) -> None:
        self.check_blocks()

    def encode(self, a: Vec, v: View) -> tuple[tuple[Tensor, ...], Named]:
        """sent ← sign(a), + for 0, and σ = mean |a| of every block"""
        import numpy as np
        import torch

        from flatfed.blocks import scales, stretches

        x = a.cpu().numpy()
        sigma = scales(x, stretches(self.blocks, v.layout), "mean")
        return (torch.from_numpy(np.packbits(x < 0)), torch.from_numpy(sigma)), {}

    def decode(self, sent: tuple[Tensor, ...], like: Vec, layout: Layout) -> Vec:
        """a ← σ·sent"""
        import numpy as np

        codes, sigma = self.read(sent, like, layout)
        signs = np.array([1, -1], sigma.dtype)
        return self.spread(signs, codes, sigma, layout).to(like.device)

    def nominal(self, layout: Layout, width: int) -> float:
        return length_of(layout) + 8 * width * self.count(layout)

    def entropy(self, sent: tuple[Tensor, ...], layout: Layout) -> float:
        return 8 * sent[1].nbytes + sign_entropy(sent[0], length_of(layout))


@dataclass(frozen=True)
class Sign(Compressor):
    """A bit for every number, and a step of a fixed length for all of them.

    With vote="majority" every number moves by the sign that more clients sent, 0 where they are
    even; with "mean", by the mean of the signs. How long the vectors were is lost: scale is a
    server rate, in units of the uploads.
    """

    scale: float = 1e-3
    vote: Literal["mean", "majority"] = "mean"
    references = ("signsgd",)

    def __post_init__(self) -> None:
        within(self, "scale", "(0, ∞)")
        one_of(self, "vote", self.vote, "mean", "majority")

    def fits(self, method: Method) -> None:
        if self.vote == "majority":
            own_mean(self, method)

    def encode(self, a: Vec, v: View) -> tuple[tuple[Tensor, ...], Named]:
        """sent ← sign(a), + for 0"""
        import numpy as np
        import torch

        if bad := non_finite(a):  # a bit could not say so
            raise NonFiniteError(
                f"Sign got a vector with {bad} of {a.numel()} elements NaN or infinite, expected "
                "finite numbers.\nLower the learning rate, or set clip."
            )
        return (torch.from_numpy(np.packbits(a.cpu().numpy() < 0)),), {}

    def decode(self, sent: tuple[Tensor, ...], like: Vec, layout: Layout) -> Vec:
        """a ← scale·sent"""
        import torch

        from flatfed.bits import packed_size, unpack

        expect(self, sent, (packed_size(like.numel(), 1), torch.uint8))
        negative = torch.from_numpy(unpack(sent[0].cpu().numpy(), 1, like.numel())).to(like)
        return negative.mul_(-2 * self.scale).add_(self.scale)

    def gather(self, mean: Vec, v: View) -> tuple[Vec, Named]:
        """
        [mean]     mean ← mean
        [majority] mean ← scale·sign(mean)
        """
        return mean if self.vote == "mean" else mean.sign() * self.scale, {}

    def nbytes(self, layout: Layout, width: int) -> int:
        return -(-length_of(layout) // 8)

    def nominal(self, layout: Layout, width: int) -> float:
        return length_of(layout)

    def entropy(self, sent: tuple[Tensor, ...], layout: Layout) -> float:
        return sign_entropy(sent[0], length_of(layout))


def sign_entropy(stream: Tensor, d: int) -> float:
    """Bits of an ideal code of which of d numbers are negative."""
    from flatfed.bits import choice_entropy, unpack

    return choice_entropy(int(unpack(stream.numpy(), 1, d).sum()), d)
