"""What clients keep between rounds, each version of it apart until a round is over.

A version is the number of the round that wrote it. A client that fails, or a run that is killed,
leaves the version before untouched: the caller's ledger says which one counts.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from flatfed.disk import read_vectors, sync_path, write_vectors
from flatfed.vec import Named, Vec


class Store(Protocol):
    """Kept vectors by client and version."""

    def read(self, client: int, version: int) -> dict[str, Vec]: ...

    def write(self, client: int, version: int, kept: Named) -> None: ...

    def drop(self, client: int, version: int) -> None: ...


@dataclass
class Memory:
    """In this process: nothing outlives it."""

    _kept: dict[tuple[int, int], dict[str, Vec]] = field(default_factory=dict)

    def read(self, client: int, version: int) -> dict[str, Vec]:
        return self._kept[client, version]

    def write(self, client: int, version: int, kept: Named) -> None:
        self._kept[client, version] = dict(kept)

    def drop(self, client: int, version: int) -> None:
        self._kept.pop((client, version), None)


@dataclass(frozen=True)
class Disk:
    """One file for each client and version: every process of this machine sees it."""

    folder: Path

    def path(self, client: int, version: int) -> Path:
        # A million files in one folder would make every look-up slow.
        return self.folder / f"{client // 1000:04d}" / f"{client}-{version}.safetensors"

    def read(self, client: int, version: int) -> dict[str, Vec]:
        return read_vectors(self.path(client, version))

    def write(self, client: int, version: int, kept: Named) -> None:
        path = self.path(client, version)
        path.parent.mkdir(parents=True, exist_ok=True)
        # Two processes may write one version: a client that was tried again. Their names differ.
        unfinished = path.with_name(f".{path.name}.{os.getpid()}")
        write_vectors(unfinished, kept, sync=False)
        unfinished.rename(path)

    def drop(self, client: int, version: int) -> None:
        self.path(client, version).unlink(missing_ok=True)

    def sync(self, written: Iterable[tuple[int, int]]) -> None:
        """Versions that a checkpoint is about to name are on the disk, not on their way to it."""
        paths = {self.path(client, version) for client, version in written}
        folders = {path.parent for path in paths}
        for path in (*paths, *folders, *({self.folder} if folders else ())):
            sync_path(path)

    def prune(self, ledger: Mapping[int, int]) -> None:
        """Remove what no ledger names: versions of a round that was not finished."""
        named = {self.path(client, version) for client, version in ledger.items()}
        for path in self.folder.glob("*/*.safetensors*"):
            if path not in named:
                path.unlink()
