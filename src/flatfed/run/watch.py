"""Who watches a run: the terminal, and experiment trackers as optional extras."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any, Protocol, TypeAlias

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

    def tell(self, what: str, done: int, total: int) -> None:
        """How far the server has come with a long piece of work, to those who want to know."""
        self._tell(lambda watcher: getattr(watcher, "tell", _nothing)(what, done, total))

    def _tell(self, what: Callable[[Watcher], None]) -> None:
        for watcher in [*self._watchers]:
            try:
                what(watcher)
            except Exception as error:  # a tracker's server may fail in any way
                self._watchers.remove(watcher)
                print(f"flatfed: {watcher} watches no longer: {error!r}", file=sys.stderr)


def _nothing(what: str, done: int, total: int) -> None:
    """A tracker does not care."""


Log: TypeAlias = Callable[[dict[str, float], int], object]  # numbers by name, of round t
Close: TypeAlias = Callable[[str], object]  # with how the run ended
Opening: TypeAlias = Callable[[Any, Spec, RunFolder], tuple[Log, Close]]


class Tracker:
    """An experiment tracker: found before the run, opened when it begins."""

    def __init__(self, name: str, spec: Spec, folder: RunFolder) -> None:
        module, self._opening = TRACKERS[name]
        self._name, self._spec, self._folder = name, spec, folder
        try:
            self._module = import_module(module)
        except ImportError as error:
            raise SpecError(
                f"run.watch names {name}, which is not installed.\n"
                f"Install it: pip install 'flatfed[{name}]'"
            ) from error

    def begin(self, training: Training, history: History) -> None:
        self._log, self._close = self._opening(self._module, self._spec, self._folder)

    def round(self, record: Round) -> None:
        numbers = record.as_dict()
        t = numbers.pop("round")
        numbers |= numbers.pop("logged", {})
        self._log({k: v for k, v in numbers.items() if isinstance(v, int | float)}, t)

    def end(self, status: str) -> None:
        self._close(status)

    def __str__(self) -> str:
        return self._name


def tensorboard(module: Any, spec: Spec, folder: RunFolder) -> tuple[Log, Close]:
    """Event files in the run's folder."""
    writer = module.SummaryWriter(str(folder.path / "tensorboard"))

    def log(numbers: dict[str, float], t: int) -> None:
        for name, value in numbers.items():
            writer.add_scalar(name, value, t)

    return log, lambda status: writer.close()


def mlflow(module: Any, spec: Spec, folder: RunFolder) -> tuple[Log, Close]:
    """A run named like the folder; where it goes is MLFLOW_TRACKING_URI's business."""
    module.start_run(run_name=folder.path.name)
    module.log_params(spec.flat())
    ends = {"finished": "FINISHED", "interrupted": "KILLED", "failed": "FAILED"}
    return (
        lambda numbers, t: module.log_metrics(numbers, step=t),
        lambda status: module.end_run(ends[status]),
    )


def wandb(module: Any, spec: Spec, folder: RunFolder) -> tuple[Log, Close]:
    """A run named like the folder; project and mode are WANDB_PROJECT's and WANDB_MODE's."""
    run = module.init(name=folder.path.name, config=spec.flat(), dir=str(folder.path))
    return (
        lambda numbers, t: run.log(numbers, step=t),
        lambda status: run.finish(exit_code=0 if status == "finished" else 1),
    )


TRACKERS: dict[str, tuple[str, Opening]] = {
    "tensorboard": ("torch.utils.tensorboard", tensorboard),
    "mlflow": ("mlflow", mlflow),
    "wandb": ("wandb", wandb),
}


def trackers_of(spec: Spec, folder: RunFolder) -> list[Watcher]:
    """Those that run.watch names."""
    return [Tracker(name, spec, folder) for name in spec.run.watch]
