"""Small whole numbers as a stream of bits, and how short a stream could be.

A run of numbers is packed as bit planes: the lowest bit of each, then the second of each, and so
on. Runs fit the cache, and all but the last end their planes at whole bytes, so that a stream of n
numbers of b bits takes ⌈n·b/8⌉ bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array: TypeAlias = NDArray[Any]

RUN = 1 << 15  # numbers packed at a time; a multiple of 8


def width_of(values: int) -> int:
    """⌈log₂ n⌉: bits that tell so many values apart.

    >>> width_of(16), width_of(17), width_of(1)
    (4, 5, 0)
    """
    return (values - 1).bit_length()


def packed_size(n: int, width: int) -> int:
    """Bytes that n numbers of so many bits take."""
    return -(-n * width // 8)


def pack(numbers: Array, width: int) -> Array:
    """Numbers below 2^width as a stream of bytes.

    >>> pack(np.array([1, 0, 3]), 2)
    array([164], dtype=uint8)
    """
    plane = (1 << np.arange(width)).astype(numbers.dtype)[:, None]
    stream = np.empty(packed_size(len(numbers), width), np.uint8)
    for start in range(0, len(numbers), RUN):
        run = numbers[start : start + RUN]
        at = start * width // 8
        stream[at : at + packed_size(len(run), width)] = np.packbits((run & plane) != 0)
    return stream


def unpack(stream: Array, width: int, n: int) -> Array:
    """The n numbers of a stream; spare bits of its last byte are not read.

    >>> unpack(np.array([164], dtype=np.uint8), 2, 3)
    array([1, 0, 3], dtype=uint8)
    """
    numbers = np.zeros(n, np.min_scalar_type((1 << width) - 1))
    for start in range(0, n if width else 0, RUN):
        run = numbers[start : start + RUN]
        at = start * width // 8
        part = stream[at : at + packed_size(len(run), width)]
        planes = np.unpackbits(part, count=len(run) * width).reshape(width, len(run))
        for j, plane in enumerate(planes):
            run |= plane.astype(numbers.dtype, copy=False) << j
    return numbers


def occurrences(codes: Array, symbols: int) -> Array:
    """How often each symbol occurs.

    >>> occurrences(np.array([0, 2, 2], dtype=np.uint8), 4)
    array([1, 0, 2, 0])
    """
    counts = np.zeros(symbols, np.int64)
    run = max(RUN, 4 * symbols)  # counting widens what it counts: not all of it at once
    for start in range(0, len(codes), run):
        counts += np.bincount(codes[start : start + run], minlength=symbols)
    return counts


def entropy(counts: Array) -> float:
    """Bits of an ideal code of symbols that occur so many times each.

    >>> entropy(np.array([2, 2, 4, 0]))
    12.0
    """
    seen = counts[counts > 0].astype(np.float64)
    return float(-(seen * np.log2(seen / seen.sum())).sum()) + 0.0


def choice_entropy(k: int, d: int) -> float:
    """d·H(k/d), bits of an ideal code of which k of d were chosen.

    >>> choice_entropy(1, 2), choice_entropy(2, 2)
    (2.0, 0.0)
    """
    return entropy(np.array([k, d - k]))


def elias_omega(k: int) -> int:
    """Bits of k ≥ 1 in Elias's omega code.

    >>> [elias_omega(k) for k in (1, 2, 3, 4, 8, 16)]
    [1, 3, 3, 6, 7, 11]
    """
    bits = 1
    while k > 1:
        bits += k.bit_length()
        k = k.bit_length() - 1
    return bits


def elias(numbers: Array) -> int:
    """Bits of a sparse vector of whole numbers: gap, sign and size of each that is not 0.

    >>> elias(np.array([0, 3, 0, 0, -1]))  # ω(2)+1+ω(3) and ω(3)+1+ω(1)
    12
    """
    at = np.flatnonzero(numbers)
    gaps = np.diff(at, prepend=-1)
    total = len(at)
    for values in (gaps, np.abs(numbers[at])):
        different, times = np.unique(values, return_counts=True)
        total += sum(elias_omega(int(k)) * int(n) for k, n in zip(different, times, strict=True))
    return total
