"""Every matrix of the model as a product of two thin ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from flatfed.errors import whole
from flatfed.part import Compressor, View
from flatfed.parts.compress import expect
from flatfed.vec import Layout, Named, Vec, length_of

if TYPE_CHECKING:
    from torch import Tensor

    from flatfed.bits import Array


@dataclass(frozen=True)
class LowRank(Compressor):
    """Each tensor's r largest directions, by one step of the power method from where it last was.

    A tensor is a matrix V of a×b, its first dimension by all others; where r(a + b) ≥ ab/2, it
    travels whole. Biased: pair it with error feedback.
    """

    rank: int = 4
    keep = ("q",)
    references = ("powersgd",)

    def __post_init__(self) -> None:
        whole(self, "rank", 1)

    def init(self, name: str, a: Vec) -> Vec:
        """Nothing yet: the first Q is drawn."""
        return a.new_zeros(0)

    def kept_size(self, name: str, layout: Layout) -> int:
        return sum(self.rank * b for _, _, b in self._matrices(layout))

    def encode(self, a: Vec, v: View) -> tuple[tuple[Tensor, ...], Named]:
        """P ← orth(V·q);  q ← Vᵀ·P;  sent ← P, q and what travels whole"""
        import numpy as np
        import torch

        x, r = a.cpu().numpy(), self.rank
        warm = v.q.cpu().numpy() if v.q.numel() else np.zeros(self.kept_size("q", v.layout))
        random = np.random.Generator(np.random.SFC64(v.seed("directions")))
        left, right, done = [x[:0]], [x[:0]], 0
        for at, n, b in self._matrices(v.layout):
            # Double precision: no product overflows, and P is orthogonal to its last float.
            V = x[at].reshape(n, b).astype(np.float64)
            Q = warm[done : done + r * b].reshape(r, b).astype(np.float64)  # its columns as rows
            done += r * b
            dead = ~Q.any(axis=1)  # such a direction would stay 0 for ever
            Q[dead] = random.standard_normal((int(dead.sum()), b))
            # einsum, for a BLAS may add up in another order with another number of threads.
            with np.errstate(invalid="ignore"):  # NaN stays NaN: the server refuses it
                P = orthonormal(np.einsum("ab,rb->ra", V, Q))
                left.append(saturated(P, x.dtype))
                right.append(saturated(np.einsum("ab,ra->rb", V, P), x.dtype))
        parts = (left, right, [x[:0], *(x[at] for at in self._others(v.layout))])
        sent = tuple(torch.from_numpy(np.concatenate([p.ravel() for p in part])) for part in parts)
        return sent, {"q": sent[1].to(a.device)}

    def decode(self, sent: tuple[Tensor, ...], like: Vec, layout: Layout) -> Vec:
        """V ← P·qᵀ"""
        import numpy as np
        import torch

        r, shapes = self.rank, [(n, b) for _, n, b in self._matrices(layout)]
        lengths = [sum(r * n for n, _ in shapes), sum(r * b for _, b in shapes)]
        lengths.append(like.numel() - sum(n * b for n, b in shapes))
        expect(self, sent, *((length, like.dtype) for length in lengths))
        left, right, rest = (t.cpu().numpy() for t in sent)
        out = np.empty(like.numel(), left.dtype)
        for at, n, b in self._matrices(layout):
            P, left = left[: r * n].reshape(r, n), left[r * n :]
            Q, right = right[: r * b].reshape(r, b), right[r * b :]
            with np.errstate(invalid="ignore"):
                V = np.einsum("ra,rb->ab", P.astype(np.float64), Q.astype(np.float64))
            out[at] = saturated(V, out.dtype).ravel()
        for at in self._others(layout):
            out[at], rest = rest[: at.stop - at.start], rest[at.stop - at.start :]
        return torch.from_numpy(out).to(like.device)

    def _matrices(self, layout: Layout) -> Iterator[tuple[slice, int, int]]:
        """(where it lies, a, b) of every tensor that is worth it."""
        for slot in layout:
            if len(slot.shape) >= 2:
                n, b = slot.shape[0], prod(slot.shape[1:])
                if 2 * self.rank * (n + b) < n * b:
                    yield slot.at, n, b

    def _others(self, layout: Layout) -> Iterator[slice]:
        """Where the others lie."""
        worth = {at.start for at, _, _ in self._matrices(layout)}
        yield from (s.at for s in layout if s.at.start not in worth)

    def nbytes(self, layout: Layout, width: int) -> int:
        saved = sum(n * b - self.rank * (n + b) for _, n, b in self._matrices(layout))
        return width * (length_of(layout) - saved)

    def nominal(self, layout: Layout, width: int) -> float:
        return 8 * self.nbytes(layout, width)

    def entropy(self, sent: tuple[Tensor, ...], layout: Layout) -> float:
        return 8 * sum(t.nbytes for t in sent)


def orthonormal(rows: Array) -> Array:
    """Gram and Schmidt's basis, cleared twice; a row that those before it span becomes 0."""
    import numpy as np

    from flatfed.blocks import safe

    out = rows / safe(np.abs(rows).max(axis=1))[:, None]  # so that no square is lost
    for j, row in enumerate(out):
        for _ in range(2):  # what rounding left of a spanned row is not orthogonal after one
            for earlier in out[:j]:
                row -= (earlier * row).sum() * earlier
        length = np.sqrt(np.square(row).sum())
        row *= 0 if length == 0 else 1 / length
    return out


def saturated(wide: Array, dtype: Any) -> Array:
    """In a type of fewer bits; a finite number beyond it becomes its largest."""
    import numpy as np

    largest = np.finfo(dtype).max
    return np.where(np.isinf(wide), wide, np.clip(wide, -largest, largest)).astype(dtype)
