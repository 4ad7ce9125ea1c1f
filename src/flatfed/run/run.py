"""One run with its folder: begun, gone on with, interrupted, finished."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from flatfed.data.heterogeneity import heterogeneity
from flatfed.disk import write_vectors
from flatfed.errors import RunError, SpecError
from flatfed.history import History, Round, finite
from flatfed.run.build import completed, engine_of, method_of, training_of
from flatfed.run.checkpoint import Checkpoints
from flatfed.run.curves import draw_curves
from flatfed.run.folder import RunFolder
from flatfed.run.machine import machine
from flatfed.run.synthetic import save_synthetic
from flatfed.run.watch import Watcher, Watchers, trackers_of
from flatfed.spec import Spec
from flatfed.training import Result, Standing, Training

LISTED = 10_000  # class counts, at most, that a manifest lists client by client


def run(
    spec: Spec | str | Path,
    *,
    out: str | Path | None = None,
    resume: bool = False,
    watchers: Iterable[Watcher] = (),
) -> Result:
    """Run a spec, or go on with it; all it leaves is in the folder `out`.

    Interrupted, by an error or by Ctrl-C, it writes a checkpoint first. What is raised then is
    what interrupted it.
    """
    if isinstance(spec, Spec):
        path = folder_of(spec, out)
    else:
        file, spec = Path(spec), Spec.read(spec)
        path = folder_of(spec, out, file)
    spec = completed(spec, method_of(spec))
    folder = RunFolder(path)
    with folder.held():
        going_on = resume and folder.exists
        if not resume:
            folder.refuse_new()
        if going_on:
            folder.manifest()  # of another version, it is not even read
            folder.refuse_other(spec)
        trackers = trackers_of(spec, folder)  # one that is not installed says so before all else
        checkpoints = Checkpoints(folder.checkpoints)
        training = replace(training_of(spec), retire=checkpoints.retire)
        running = _Running(folder, spec, training, checkpoints)
        running.begin(going_on)
        return running.finish(Watchers([*watchers, *trackers]))


def folder_of(spec: Spec, out: str | Path | None, file: str | Path = "run.toml") -> Path:
    """Where a run goes: where it was told to, else where its spec says, else runs/ its name."""
    return Path(out or spec.run.out or Path("runs") / Path(file).stem)


@dataclass
class _Running:
    """A run between its first and its last round."""

    folder: RunFolder
    spec: Spec
    training: Training
    checkpoints: Checkpoints

    def begin(self, going_on: bool) -> None:
        """Where it stands before its first round of today."""
        self.standing: Standing = self.training.start()
        if not going_on:
            self.history: list[Round] = []
            self.manifest = self._first_manifest()
            self.folder.begin(self.spec, self.manifest)
            return
        before = self.folder.manifest()
        refuse_other_data(self.folder, before, self.training.federation.fingerprint())
        standing = self.checkpoints.load()
        if standing is None and before["status"] in ("finished", "interrupted"):
            raise RunError(
                f"{self.folder.path} has {before['status']} and holds no checkpoint, expected "
                "one.\nIt was removed; start the run again in another folder."
            )
        self.standing = standing or self.standing
        today = {"started": _now(), **machine()}
        ended = ("final", "params_sha256")  # of fewer rounds than there will be
        self.manifest = {k: v for k, v in before.items() if k not in ended}
        self.manifest["resumed"] = [*before.get("resumed", []), today]
        if self.standing.t > self.training.rounds:
            raise SpecError(
                f"{self.folder.path} has {self.standing.t} rounds, run.rounds is "
                f"{self.training.rounds}: expected at least as many.\n"
                "A run does not go back; give a new folder with --out."
            )
        self.folder.keep_rounds(self.standing.t)
        self.history = [*self.folder.history()]
        self.folder.write_spec(self.spec)

    def finish(self, watchers: Watchers) -> Result:
        """All the rounds that are left."""
        self.training = replace(self.training, tell=watchers.tell)
        watchers.begin(self.training, History(self.history))
        try:
            self._status("running")
            self._go(watchers)
            result = Result(History(self.history), self.standing.state, self.training)
            self._conclude(result)
        except KeyboardInterrupt:
            self._stop("interrupted", watchers)
            raise
        except Exception as error:
            self._stop("failed", watchers, error)
            raise
        watchers.end("finished")
        return result

    def _go(self, watchers: Watchers) -> None:
        engine = engine_of(self.spec)
        scratch = self.folder.checkpoints / "scratch"
        try:
            for standing, record in self.training.go_on(
                self.standing, engine, self.checkpoints.store, scratch
            ):
                self.folder.add(record)
                self.history.append(record)
                new = standing.state.get("syn") is not self.standing.state.get("syn")
                self.standing = standing  # from here on, the round is done
                if new:
                    save_synthetic(self.folder, self.training, standing)
                if standing.t % self.spec.run.checkpoint_every == 0:
                    self._save()
                watchers.round(record)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def _save(self) -> None:
        self.folder.sync_rounds()
        self.checkpoints.save(self.standing)

    def _stop(self, status: str, watchers: Watchers, error: Exception | None = None) -> None:
        """What is done stays done."""
        try:
            if not isinstance(error, RunError):  # it is the disk that has failed
                self._save()
        finally:
            with suppress(OSError):  # a full disk has been said already
                self._status(status, **({} if error is None else {"error": str(error)}))
            watchers.end(status)

    def _conclude(self, result: Result) -> None:
        """The last checkpoint, the model, the final numbers."""
        self._save()
        try:
            unfinished = self.folder.model_file.with_suffix(".part")
            write_vectors(unfinished, result.module().state_dict())
            unfinished.rename(self.folder.model_file)
        except OSError as error:
            raise RunError(
                f"The model could not be written: {error.strerror or error}.\n"
                "Make room, then finish with --resume: no round will be run again."
            ) from error
        history = result.history
        method = self.training.method.name
        draw_curves({method: [history]}, self.folder.figures / "accuracy.png")
        final: dict[str, Any] = {
            "rounds": len(history),
            "test_accuracy": history.accuracy,
            "test_loss": finite(history[-1].test_loss),
            "best_test_accuracy": history.best,
            **{n: history.total(n) for n in ("bytes_up", "bytes_down", "gradients", "failed")},
            "seconds": round(history.total("seconds"), 3),
            **{n: history.total(n) for n in ("forwards", "server_gradients") if history.total(n)},
            **{name: finite(value) for name, value in history[-1].logged.items()},
        }
        target = self.spec.run.target_accuracy
        if target is not None:
            final["rounds_to_target"] = history.rounds_to(target)
        self._status("finished", final=final, params_sha256=result.params_sha256)

    def _status(self, status: str, **more: Any) -> None:
        kept = {k: v for k, v in self.manifest.items() if k not in ("error", "ended")}
        if status != "running":
            kept["ended"] = _now()
        self.manifest = {**kept, "status": status, **more}
        self.folder.write_manifest(self.manifest)

    def _first_manifest(self) -> dict[str, Any]:
        federation, method = self.training.federation, self.training.running
        model, shares, data = federation.model, federation.shares, federation.data
        buffers = model.b0.numel()
        sizes = {"buffers": buffers, "buffers_i": buffers} if buffers else {}
        width = model.x0.element_size()
        bill = method.bill(model.d, itemsize=width, layout=model.layout, **sizes)
        found = heterogeneity(shares, data.train.targets, len(data.classes))
        listed = federation.N * len(data.classes) <= LISTED
        return {
            "status": "running",
            "method": method.name,
            "bill": str(bill),
            "parameters": model.d,
            "partition": found.as_dict(counts=listed),
            "seed": self.training.seed,
            "started": _now(),
            "federation": federation.fingerprint(),
            **machine(),
        }


def refuse_other_data(
    folder: RunFolder, manifest: Mapping[str, Any], now: Mapping[str, object]
) -> None:
    """A spec may say the same and mean something else: files and code change."""
    before: Mapping[str, Any] = manifest["federation"]
    for key, value in now.items():
        if before.get(key) != value:
            raise RunError(
                f"{folder.path} began with another {key.replace('_', ' ')} "
                f"({str(before.get(key))[:12]}, now {str(value)[:12]}), expected the same.\n"
                "Data, code or versions have changed since; start again in another folder."
            )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
