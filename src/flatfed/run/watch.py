"""Who watches a run: the terminal, and experiment trackers as optional extras."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

from flatfed.errors import SpecError
from flatfed.history import History, Round
from flatfed.run.folder import RunFolder
from flatfed.spec import Spec
from flatfed.training import Training


class Watcher(Protocol):
    """Told what happens; rounds.jsonl is written whoever watches."""

    def begin(self, training: Training, history: History) -> None:
        """Before the first round of today; the history is of those before."""
        ...

    def round(self, record: Round) -> None:
        """After every round."""
        ...

    def end(self, status: str) -> None:
        """It is finished, interrupted or failed."""
        ...


class Watchers:
    """All of them: one that fails is sent home, and the run goes on."""

    def __init__(self, watchers: Iterable[Watcher]) -> None:
        self._watchers = [*watchers]

    def begin(self, training: Training, history: History) -> None:
        self._tell(lambda watcher: watcher.begin(training, history))

    def round(self, record: Round) -> None:
        self._tell(lambda watcher: watcher.round(record))

    def end(self, status: str) -> None:
        self._tell(lambda watcher: watcher.end(status))

    def _tell(self, what: Callable[[Watcher], None]) -> None:
        for watcher in [*self._watchers]:
            try:
                what(watcher)
            except Exception as error:  # a tracker's server may fail in any way
                self._watchers.remove(watcher)
                print(f"flatfed: {watcher} watches no longer: {error!r}", file=sys.stderr)


@dataclass(frozen=True)
class Tracker:
    """An experiment tracker: numbers by name for every round, and an end."""

    name: str
    log: Callable[[dict[str, float], int], object]
    close: Callable[[str], object]

    def begin(self, training: Training, history: History) -> None:
        """Rounds of another day it has seen already."""

    def round(self, record: Round) -> None:
        numbers = record.as_dict()
        t = numbers.pop("round")
        self.log({k: v for k, v in numbers.items() if isinstance(v, int | float)}, t)

    def end(self, status: str) -> None:
        self.close(status)

    def __str__(self) -> str:
        return self.name


def tensorboard(spec: Spec, folder: RunFolder) -> Tracker:
    """Event files in the run's folder."""
    writer: Any = _extra("torch.utils.tensorboard", "tensorboard").SummaryWriter(
        str(folder.path / "tensorboard")
    )

    def log(numbers: dict[str, float], t: int) -> None:
        for name, value in numbers.items():
            writer.add_scalar(name, value, t)

    return Tracker("tensorboard", log, lambda status: writer.close())


def mlflow(spec: Spec, folder: RunFolder) -> Tracker:
    """A run named like the folder; where it goes is MLFLOW_TRACKING_URI's business."""
    tracker = _extra("mlflow", "mlflow")
    tracker.start_run(run_name=folder.path.name)
    tracker.log_params(spec.flat())
    ends = {"finished": "FINISHED", "interrupted": "KILLED", "failed": "FAILED"}
    return Tracker(
        "mlflow",
        lambda numbers, t: tracker.log_metrics(numbers, step=t),
        lambda status: tracker.end_run(ends[status]),
    )


def wandb(spec: Spec, folder: RunFolder) -> Tracker:
    """A run named like the folder; project and mode are WANDB_PROJECT's and WANDB_MODE's."""
    run: Any = _extra("wandb", "wandb").init(
        name=folder.path.name, config=spec.flat(), dir=str(folder.path)
    )
    return Tracker(
        "wandb",
        lambda numbers, t: run.log(numbers, step=t),
        lambda status: run.finish(exit_code=0 if status == "finished" else 1),
    )


TRACKERS = {"tensorboard": tensorboard, "mlflow": mlflow, "wandb": wandb}


def trackers_of(spec: Spec, folder: RunFolder) -> list[Watcher]:
    """Those that run.watch names."""
    return [TRACKERS[name](spec, folder) for name in spec.run.watch]


def _extra(module: str, extra: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise SpecError(
            f"run.watch names {extra}, which is not installed.\n"
            f"Install it: pip install 'flatfed[{extra}]'"
        ) from error
