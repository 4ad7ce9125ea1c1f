"""A model is one flat vector. The few operations on it that are not plain arithmetic.

Nothing here, and nothing in a part, imports torch before a vector exists: that is why
`flatfed methods` answers at once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from torch import Tensor

    Vec: TypeAlias = Tensor  # always 1-D
else:
    Vec = "torch.Tensor"

Named: TypeAlias = Mapping[str, Vec]  # vectors under the paper's symbols

SAFE = 1e-7  # ε₀: unit(0) is 0, and nothing else notices (spec 0.1)


def norm(v: Vec) -> Vec:
    """‖v‖₂, as a 0-dimensional tensor: no synchronisation, and it batches."""
    from torch.linalg import vector_norm

    length: Vec = vector_norm(v)
    return length


def unit(v: Vec) -> Vec:
    """v / (‖v‖ + ε₀), the norm taken over all parameters jointly."""
    return v * per_length(v)


def along(v: Vec, rho: float) -> Vec:
    """ρ·unit(v) in one pass over memory."""
    return v * per_length(v).mul_(rho)


def ascend(w: Vec, v: Vec, rho: float) -> Vec:
    """w + ρ·unit(v) in one pass over memory."""
    return w.addcmul(v, per_length(v), value=rho)


def per_length(v: Vec) -> Vec:
    """1/(‖v‖ + ε₀), the factor that gives v length 1."""
    # A number divided by a tensor would take three times as long.
    return norm(v).add_(SAFE).reciprocal_()


def clip(v: Vec, limit: float | None) -> Vec:
    """v · min(1, limit/‖v‖); None clips nothing."""
    return v if limit is None else v * shrink(v, limit)


def shrink(v: Vec, limit: float) -> Vec:
    """min(1, limit/‖v‖), the factor that clips v."""
    return norm(v).reciprocal_().mul_(limit).clamp_max_(1.0)


def non_finite(v: Tensor) -> int:
    """How many elements are NaN or infinite."""
    # A sum is finite only if every term is, save for overflow: look closer only then.
    if not v.is_floating_point() or v.sum().isfinite():
        return 0
    return int((~v.isfinite()).sum())


def digest(named: Mapping[str, Tensor]) -> str:
    """One hash of named tensors: names, types, shapes and bytes, in the order of names."""
    import torch

    total = hashlib.sha256()
    for name in sorted(named):
        tensor = named[name].detach().cpu().contiguous()
        total.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        total.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return total.hexdigest()


def seed_for(run: int, purpose: str, *coordinates: int) -> int:
    """The seed of one purpose at one place: purposes and places never shift each other.

    >>> seed_for(0, "cohort", 3) == seed_for(0, "cohort", 3) != seed_for(0, "dropout", 3)
    True
    """
    text = f"{run}/{purpose}/" + "/".join(map(str, coordinates))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


@dataclass(frozen=True)
class Slot:
    """Where one of the module's tensors lies in the flat vector."""

    name: str
    shape: tuple[int, ...]
    at: slice


Layout: TypeAlias = tuple[Slot, ...]  # all of them, in order


def length_of(layout: Layout) -> int:
    """Of the vector that a layout cuts."""
    return layout[-1].at.stop if layout else 0


def lay_out(shapes: Mapping[str, Sequence[int]]) -> Layout:
    """Tensors of these shapes, one behind the other.

    >>> [slot.at for slot in lay_out({"weight": (2, 3), "bias": (2,)})]
    [slice(0, 6, None), slice(6, 8, None)]
    """
    slots: list[Slot] = []
    for name, shape in shapes.items():
        start = length_of(tuple(slots[-1:]))
        slots.append(Slot(name, tuple(shape), slice(start, start + prod(shape))))
    return tuple(slots)
