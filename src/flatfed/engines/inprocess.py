"""Clients one after the other, in this process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import torch

from flatfed.engines.engine import Reply, Task, Work, score, train
from flatfed.errors import within
from flatfed.federation import Score
from flatfed.memory import keep_pages
from flatfed.vec import Named, Vec


@dataclass(frozen=True, kw_only=True)
class InProcess:
    """One client at a time, on one thread: the reference."""

    timeout: float | None = None
    needs_disk = False

    def __post_init__(self) -> None:
        if self.timeout is not None:
            within(self, "timeout", "(0, ∞)", "None lets a client take its time.")

    def open(self, task: Task) -> Alone:
        return Alone(task)


class Alone:
    """A crew of one."""

    def __init__(self, task: Task) -> None:
        self._task = task

    def __enter__(self) -> Self:
        keep_pages()
        # Kernels split their sums by threads: with as many everywhere, the bytes are the same.
        self._threads = torch.get_num_threads()
        torch.set_num_threads(1)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        torch.set_num_threads(self._threads)

    def train(self, sent: Named, work: Sequence[Work]) -> Iterator[Reply]:
        for one in work:
            reply = train(self._task, sent, one)
            yield reply if reply.failure is None else train(self._task, sent, one)

    def evaluate(self, w: Vec, buffers: Vec | None) -> Score:
        starts = self._task.federation.test_starts
        return sum((score(self._task, w, buffers, start) for start in starts), Score())
