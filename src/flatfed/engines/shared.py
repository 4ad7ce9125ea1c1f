"""Vectors that several processes see at once: a file mapped into all of them."""

from __future__ import annotations

import mmap
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path

import torch
from torch import Tensor

_ALIGNED = 64  # bytes: as torch aligns its own, because kernels round by it


@dataclass(frozen=True)
class Letter:
    """Where tensors lie in a mapped file: small enough for a pipe."""

    path: str
    size: int
    tensors: Mapping[str, Sequence[tuple[str, tuple[int, ...], int]]]  # dtype, shape, where


@dataclass
class Mailbox:
    """A mapped file that one process writes into and another reads from; it grows as it must."""

    path: Path
    _map: mmap.mmap | None = None

    def write(self, named: Mapping[str, Sequence[Tensor]]) -> Letter:
        """Put tensors in, in place of what was there."""
        tensors: dict[str, list[tuple[str, tuple[int, ...], int]]] = {}
        size = 0
        for name, several in named.items():
            tensors[name] = []
            for tensor in several:
                dtype = str(tensor.dtype).removeprefix("torch.")
                tensors[name].append((dtype, tuple(tensor.shape), size))
                size += -(-tensor.nbytes // _ALIGNED) * _ALIGNED
        mapped = self._room(size)
        for name, several in named.items():
            for (_, shape, at), tensor in zip(tensors[name], several, strict=True):
                _view(mapped, tensor.dtype, shape, at).copy_(tensor)
        return Letter(str(self.path), len(mapped), tensors)

    def _room(self, size: int) -> mmap.mmap:
        if self._map is None or size > len(self._map):
            size = max(size, 1)
            with self.path.open("a+b") as file:
                if hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(file.fileno(), 0, size)  # a full disk says so here
                else:
                    file.truncate(size)
                self._map = mmap.mmap(file.fileno(), size)
        return self._map


@dataclass
class Reader:
    """Maps of the mailboxes this process reads from."""

    _maps: dict[str, mmap.mmap] = field(default_factory=dict)

    def read(self, letter: Letter) -> dict[str, tuple[Tensor, ...]]:
        """The tensors of a letter, not copied: they change with the next one."""
        mapped = self._maps.get(letter.path)
        if mapped is None or len(mapped) < letter.size:
            with open(letter.path, "r+b") as file:
                mapped = self._maps[letter.path] = mmap.mmap(file.fileno(), letter.size)
        return {
            name: tuple(
                _view(mapped, getattr(torch, dtype), shape, at) for dtype, shape, at in several
            )
            for name, several in letter.tensors.items()
        }

    def forget(self, path: Path) -> None:
        """Let go of a mailbox that nobody writes into any more."""
        self._maps.pop(str(path), None)


def _view(mapped: mmap.mmap, dtype: torch.dtype, shape: tuple[int, ...], at: int) -> Tensor:
    count = prod(shape)
    if not count:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(mapped, dtype=dtype, count=count, offset=at).view(shape)
