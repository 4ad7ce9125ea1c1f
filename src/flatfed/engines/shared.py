"""Vectors that several processes see at once: a file mapped into all of them."""

from __future__ import annotations

import mmap
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

_ALIGNED = 64  # bytes: as torch aligns its own, because kernels round by it


@dataclass(frozen=True)
class Letter:
    """Where tensors lie in a mapped file: small enough for a pipe."""

    path: str
    size: int
    tensors: tuple[
        tuple[str, int, str, tuple[int, ...], int], ...
    ]  # name, number, dtype, shape, at


@dataclass
class Mailbox:
    """A mapped file that one process writes into and another reads from."""

    path: Path
    _map: mmap.mmap | None = None
    _size: int = 0
    _grown: int = 0

    def write(self, named: Mapping[str, Sequence[Tensor]]) -> Letter:
        """Put tensors in, in place of what was there."""
        tensors, at = [], 0
        for name, several in named.items():
            for number, tensor in enumerate(several):
                dtype = str(tensor.dtype).removeprefix("torch.")
                tensors.append((name, number, dtype, tuple(tensor.shape), at))
                at += -(-tensor.nbytes // _ALIGNED) * _ALIGNED
        path = self._room(max(at, 1))
        letter = Letter(str(path), self._size, tuple(tensors))
        assert self._map is not None
        flat = (tensor for several in named.values() for tensor in several)
        for (*_, shape, at), tensor in zip(letter.tensors, flat, strict=True):
            if tensor.numel():
                _view(self._map, tensor.dtype, shape, at).copy_(tensor)
        return letter

    def _room(self, size: int) -> Path:
        """The file, replaced by a larger one where it is too small: the reader maps it anew."""
        path = self.path.with_name(f"{self.path.name}.{self._grown}")
        if self._map is None or size > self._size:
            if self._map is not None:
                path.unlink(missing_ok=True)
                self._grown += 1
                path = self.path.with_name(f"{self.path.name}.{self._grown}")
            with path.open("w+b") as file:
                if hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(file.fileno(), 0, size)  # a full disk says so here
                else:
                    file.truncate(size)
                self._map, self._size = mmap.mmap(file.fileno(), size), size
        return path


@dataclass
class Reader:
    """Maps of the mailboxes this process reads from."""

    _maps: dict[str, mmap.mmap] = field(default_factory=dict)

    def read(self, letter: Letter) -> dict[str, tuple[Tensor, ...]]:
        """The tensors of a letter, not copied: they change with the next one."""
        if letter.path not in self._maps:
            with open(letter.path, "r+b") as file:
                self._maps[letter.path] = mmap.mmap(file.fileno(), letter.size)
        named: dict[str, tuple[Tensor, ...]] = {}
        for name, _, dtype, shape, at in letter.tensors:
            tensor = _view(self._maps[letter.path], getattr(torch, dtype), shape, at)
            named[name] = (*named.get(name, ()), tensor)
        return named


def _view(mapped: mmap.mmap, dtype: torch.dtype, shape: tuple[int, ...], at: int) -> Tensor:
    count = 1
    for length in shape:
        count *= length
    if not count:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(mapped, dtype=dtype, count=count, offset=at).view(shape)
