"""A run's folder: spec.toml, manifest.json, rounds.jsonl, model.safetensors, checkpoint/ and
figures/."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any, BinaryIO

from flatfed.disk import write_whole
from flatfed.errors import RunError, SpecError
from flatfed.history import History, Round
from flatfed.spec import Spec

FORMAT = 1  # of the folder: raised when an older flatfed could not read it

# What may differ when a run goes on: where it is computed, not what.
FREE = ("run.out", "run.checkpoint_every", "run.watch", "run.target_accuracy", "engine.")


class RunFolder:
    """One run on the disk."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.checkpoints = self.path / "checkpoint"
        self.figures = self.path / "figures"
        self.spec_file = self.path / "spec.toml"
        self.model_file = self.path / "model.safetensors"
        self._manifest_file = self.path / "manifest.json"
        self._rounds_file = self.path / "rounds.jsonl"
        self._rounds: BinaryIO | None = None

    @property
    def exists(self) -> bool:
        """Whether a run has begun here."""
        return self._manifest_file.exists()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Two processes that write into one folder would spoil both their runs."""
        if self.path.exists() and not self.path.is_dir():
            raise SpecError(
                f"{self.path} is a file, expected a folder for the run.\n"
                "Give another one with --out."
            )
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = (self.path / ".lock").open("w")
        except OSError as error:
            raise RunError(
                f"The run's folder {self.path} cannot be written: {error.strerror}.\n"
                "Give another one with --out, or mend its permissions."
            ) from error
        with lock:
            try:
                import fcntl

                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except ImportError:  # Windows, and nobody to warn
                pass
            except OSError:
                raise RunError(
                    f"{self.path} is in use by another flatfed, expected one at a time.\n"
                    "Wait for it, or give another folder with --out."
                ) from None
            try:
                yield
            finally:
                if self._rounds is not None:
                    self._rounds.close()
                    self._rounds = None

    def begin(self, spec: Spec, manifest: Mapping[str, Any]) -> None:
        """A new run."""
        shutil.rmtree(self.checkpoints, ignore_errors=True)  # of a run without a manifest
        for folder in (self.checkpoints, self.figures):
            folder.mkdir(exist_ok=True)
        self.write_spec(spec)
        self.keep_rounds(0)
        self.write_manifest(manifest)  # last: with it, the run has begun

    def refuse_new(self) -> None:
        """A folder with a run in it is not written over."""
        if self.exists:
            manifest = self.manifest()
            raise SpecError(
                f"{self.path} holds a run ({manifest['status']}), expected a new folder.\n"
                "Go on with it with --resume, or give another folder with --out."
            )

    def refuse_other(self, spec: Spec) -> None:
        """A run goes on as it began; more rounds are no change."""
        before, now = self.spec().flat(), spec.flat()
        for key in (*now, *(key for key in before if key not in now)):
            if before.get(key) == now.get(key) or key.startswith(FREE) or key == "run.rounds":
                continue
            raise SpecError(
                f"{self.path} began with {key} = {before.get(key)!r}, now it is {now.get(key)!r}: "
                "expected the same.\n"
                "Go on with the spec.toml in that folder, or give a new folder with --out."
            )

    def write_spec(self, spec: Spec) -> None:
        """What is asked for, in full."""
        write_whole(self.spec_file, spec.toml().encode())

    def spec(self) -> Spec:
        """The same, read again."""
        return Spec.read(self.spec_file)

    def manifest(self) -> dict[str, Any]:
        """Versions, machine, seed, state, final numbers."""
        try:
            manifest: dict[str, Any] = json.loads(self._manifest_file.read_bytes())
            found = manifest["format"]
        except FileNotFoundError:
            raise RunError(
                f"{self.path} holds no run, expected a folder with a manifest.json.\n"
                "Give the folder that flatfed run has written."
            ) from None
        except (ValueError, KeyError, TypeError) as error:
            raise RunError(
                f"{self._manifest_file} is no manifest of a run ({error!r}).\n"
                "It was cut off or changed; start the run again in another folder."
            ) from error
        if found != FORMAT:
            raise RunError(
                f"{self.path} was written by flatfed {manifest.get('flatfed')} in format "
                f"{found!r}, expected {FORMAT}.\n"
                "Go on with that version, or start again in another folder."
            )
        return manifest

    def write_manifest(self, manifest: Mapping[str, Any]) -> None:
        """All of it, or as it was."""
        whole = {"format": FORMAT, **manifest}
        text = json.dumps(whole, indent=2, ensure_ascii=False, allow_nan=False)
        write_whole(self._manifest_file, text.encode() + b"\n")

    def history(self) -> History:
        """The rounds so far; a last line that was cut off is none."""
        whole = (line for line in self._lines() if line.endswith(b"\n"))
        known = [field.name for field in fields(Round)]
        try:
            records = [json.loads(line) for line in whole]
            return History(Round(**{k: r[k] for k in known if k in r}) for r in records)
        except (ValueError, TypeError) as error:
            raise RunError(
                f"{self._rounds_file} has a line that is no round: {error}.\n"
                "It was changed; start the run again in another folder."
            ) from error

    def _lines(self) -> list[bytes]:
        if not self._rounds_file.exists():
            return []
        return self._rounds_file.read_bytes().splitlines(keepends=True)

    def keep_rounds(self, count: int) -> None:
        """Forget the lines of rounds that come again."""
        lines = self._lines()[:count]
        if len(lines) < count:
            raise RunError(
                f"{self._rounds_file} has {len(lines)} lines, expected one for each of {count} "
                "rounds.\nIt was changed; start the run again in another folder."
            )
        write_whole(self._rounds_file, b"".join(lines))
        self._rounds = self._rounds_file.open("ab")

    def add(self, record: Round) -> None:
        """One more line, there as soon as the round is over."""
        assert self._rounds is not None
        self._rounds.write(json.dumps(record.as_dict(), allow_nan=False).encode() + b"\n")
        self._rounds.flush()

    def sync_rounds(self) -> None:
        """A checkpoint counts on the lines of its rounds."""
        assert self._rounds is not None
        os.fsync(self._rounds.fileno())
