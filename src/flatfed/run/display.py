"""A run on the terminal: a live line, or plain lines where nobody looks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from flatfed.history import History, Round
from flatfed.run.watch import Watcher
from flatfed.training import Training


class Live:
    """One line that moves: rounds, accuracy, bytes, time left."""

    def __init__(self, console: Console, name: str) -> None:
        self._name = name
        self._progress = Progress(
            TextColumn("[bold]{task.description}"),
            TextColumn("round {task.completed:.0f}/{task.total:.0f}"),
            BarColumn(bar_width=None),
            TextColumn("{task.fields[said]}"),
            TimeRemainingColumn(compact=True),
            console=console,
        )
        self._task: TaskID | None = None
        self._seen = _Seen()

    def begin(self, training: Training, history: History) -> None:
        for record in history:
            self._seen.note(record)
        self._task = self._progress.add_task(
            self._name, total=training.rounds, completed=len(history), said=str(self._seen)
        )
        self._progress.start()

    def round(self, record: Round) -> None:
        self._seen.note(record)
        assert self._task is not None
        for line in _said_of(record):
            self._progress.console.print(line, highlight=False, markup=False)
        self._progress.update(self._task, completed=record.round + 1, said=str(self._seen))

    def tell(self, what: str, done: int, total: int) -> None:
        """In place of the accuracy, while it takes."""
        assert self._task is not None
        self._progress.update(self._task, said=f"{what} {done}/{total}")

    def end(self, status: str) -> None:
        self._progress.stop()


class Plain:
    """One line for every round that was measured."""

    def __init__(self, console: Console, name: str) -> None:
        self._console, self._name = console, name
        self._seen = _Seen()

    def begin(self, training: Training, history: History) -> None:
        self._rounds = training.rounds
        for record in history:
            self._seen.note(record)
        if history:
            self._print(f"{self._name}: goes on after {len(history)} of {training.rounds} rounds")

    def round(self, record: Round) -> None:
        self._seen.note(record)
        for line in _said_of(record):
            self._print(line)
        if record.test_accuracy is not None:
            done = f"round {record.round + 1}/{self._rounds}"
            self._print(f"{self._name}: {done}  {self._seen}  {self._seen.left(self._rounds)} left")

    def tell(self, what: str, done: int, total: int) -> None:
        """At every quarter."""
        if 4 * done // total > 4 * (done - 1) // total:
            self._print(f"{self._name}: {what} {done}/{total}")

    def end(self, status: str) -> None:
        pass

    def _print(self, line: str) -> None:
        self._console.print(line, highlight=False, markup=False, soft_wrap=True)


class _Seen:
    """What there is to say so far."""

    def __init__(self) -> None:
        self._accuracy: float | None = None
        self._best = 0.0
        self._bytes = self._done = 0
        self._seconds = 0.0

    def note(self, record: Round) -> None:
        self._done += 1
        self._seconds += record.seconds
        self._bytes += record.bytes_up + record.bytes_down
        if record.test_accuracy is not None:
            self._accuracy = record.test_accuracy
            self._best = max(self._best, record.test_accuracy)

    def left(self, rounds: int) -> timedelta:
        """How long the rest will take if it is like what was."""
        return timedelta(seconds=round(self._seconds / self._done * (rounds - self._done)))

    def __str__(self) -> str:
        if self._accuracy is None:
            return byte_count(self._bytes)
        return f"accuracy {self._accuracy:.1%} (best {self._best:.1%})  {byte_count(self._bytes)}"


def _said_of(record: Round) -> Iterator[str]:
    for client, why in record.failures.items():
        yield f"round {record.round}: client {client} is left out: {why.splitlines()[0]}"


def byte_count(count: float) -> str:
    """In the largest unit of which there is one.

    >>> byte_count(999), byte_count(25_420_000)
    ('999 B', '25.4 MB')
    """
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


@contextmanager
def displayed(name: str, *, quiet: bool = False) -> Iterator[list[Watcher]]:
    """Who shows a run: the live line on a terminal, else plain lines."""
    console = Console(stderr=False)
    if quiet:
        yield []
    elif console.is_terminal:
        yield [Live(console, name)]
    else:
        yield [Plain(console, name)]
