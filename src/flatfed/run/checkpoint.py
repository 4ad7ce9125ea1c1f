"""Checkpoints: the previous one stays until the new one is complete."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import torch

from flatfed.disk import read_vectors, sync_path, write_vectors, write_whole
from flatfed.engines.store import Disk, Store
from flatfed.errors import RunError
from flatfed.training import Standing

CLIENT, VERSION = "ledger.client", "ledger.version"  # beside the server's vectors


class Checkpoints:
    """Where a run stood, on the disk: checkpoint/ROUNDS/ and what clients keep beside it.

    A checkpoint costs the server's vectors and those that changed: clients' are written once,
    when they train, and stay as long as a checkpoint names them.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.store = Disk(folder / "clients")
        self.rounds = 0  # done at the last checkpoint
        self._named: Mapping[int, int] = {}  # the last checkpoint's ledger
        self._superseded: list[tuple[int, int]] = []

    def retire(self, store: Store, client: int, version: int) -> None:
        """A version has a successor: what the last checkpoint names stays until the next one."""
        if self._named.get(client) == version:
            self._superseded.append((client, version))
        else:
            store.drop(client, version)

    def save(self, standing: Standing) -> None:
        """Complete, or not at all."""
        if standing.t == self.rounds and self._path(standing.t).exists():
            return
        unfinished, finished = self._folder / ".unfinished", self._path(standing.t)
        try:
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir(parents=True)
            new = ((i, t) for i, t in standing.ledger.items() if t >= self.rounds)
            self.store.sync(new)
            self._write(unfinished, standing)
            sync_path(unfinished)
            shutil.rmtree(finished, ignore_errors=True)  # of a save that was interrupted just here
            unfinished.rename(finished)
            sync_path(self._folder)
        except OSError as error:
            shutil.rmtree(unfinished, ignore_errors=True)
            stays = f"that of {self.rounds} stays" if self.rounds else "there is none before it"
            raise RunError(
                f"The checkpoint after {standing.t} rounds could not be written: "
                f"{error.strerror or error}; {stays}.\nMake room, then go on with --resume."
            ) from error
        self.rounds, self._named = standing.t, standing.ledger
        self._forget_all_but(finished)
        for client, version in self._superseded:
            self.store.drop(client, version)
        self._superseded = []

    def _write(self, folder: Path, standing: Standing) -> None:
        ledger = {
            CLIENT: torch.tensor([*standing.ledger], dtype=torch.int64),
            VERSION: torch.tensor([*standing.ledger.values()], dtype=torch.int64),
        }
        server = folder / "server.safetensors"
        write_vectors(server, {**standing.state, **ledger})
        about = {"rounds": standing.t, "sha256": _sha256(server)}
        write_whole(folder / "checkpoint.json", json.dumps(about).encode())

    def load(self) -> Standing | None:
        """The last that is complete; what belongs to none is removed."""
        done = [int(path.name) for path in self._folder.glob("[0-9]*") if path.name.isdigit()]
        if not done:
            self.store.prune({})
            return None
        self.rounds = max(done)
        path = self._path(self.rounds)
        server = path / "server.safetensors"
        try:
            about = json.loads((path / "checkpoint.json").read_bytes())
            found = _sha256(server)
        except (OSError, ValueError) as error:
            raise RunError(
                f"The checkpoint {path} cannot be read: {error}.\n"
                "Mend it if you can, or start the run again in another folder."
            ) from error
        if found != about.get("sha256"):
            raise RunError(
                f"{server} has sha256 {found[:12]}…, expected {str(about.get('sha256'))[:12]}….\n"
                "It was changed or damaged; start the run again in another folder."
            )
        vectors = read_vectors(server)
        clients, versions = vectors.pop(CLIENT).tolist(), vectors.pop(VERSION).tolist()
        self._named = ledger = dict(zip(clients, versions, strict=True))
        self._forget_all_but(path)
        self.store.prune(ledger)
        return Standing(self.rounds, vectors, ledger)

    def _path(self, rounds: int) -> Path:
        return self._folder / f"{rounds:06d}"

    def _forget_all_but(self, path: Path) -> None:
        for other in self._folder.glob("[0-9]*"):
            if other != path:
                shutil.rmtree(other, ignore_errors=True)
        shutil.rmtree(self._folder / ".unfinished", ignore_errors=True)


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
