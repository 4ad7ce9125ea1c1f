"""Clients on all cores: one process each, fed so that none of them waits."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from multiprocessing.connection import wait
from time import monotonic
from types import TracebackType
from typing import Any, Literal, Self

import torch
import torch.multiprocessing

from flatfed.batches import Tally
from flatfed.engines.engine import Reply, Task, Work, failed, not_evaluated
from flatfed.engines.queue import Queue
from flatfed.engines.shared import Mailbox, Reader
from flatfed.engines.store import Memory
from flatfed.engines.worker import Answer, Job, Worker, no_room
from flatfed.errors import EngineError, FlatfedError, one_of, whole, within
from flatfed.federation import Score
from flatfed.vec import Named, Vec


@dataclass(frozen=True, kw_only=True)
class Processes:
    """Several clients at a time, each on one thread; the same bytes as one after the other.

    `start` is how workers come to be: "fork" shares data and model as they are, "spawn" is for
    where a fork is not safe (a GPU in use, macOS). None takes fork where it is safe.
    """

    workers: int
    timeout: float | None = None
    start: Literal["fork", "spawn"] | None = None
    needs_disk = True

    def __post_init__(self) -> None:
        whole(self, "workers", 1)
        if self.timeout is not None:
            within(self, "timeout", "(0, ∞)", "None lets a client take its time.")
        one_of(self, "start", self.start, None, "fork", "spawn")

    def open(self, task: Task) -> Pool:
        if isinstance(task.store, Memory) and task.method.names("keep"):
            raise EngineError(
                f"Processes got a store in memory for {task.method.name}, whose clients keep "
                f"{', '.join(task.method.names('keep'))}.\nGive Disk(folder)."
            )
        used = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        safe = sys.platform == "linux" and not used
        return Pool(task, self.workers, self.start or ("fork" if safe else "spawn"))


class Pool:
    """Workers that are ready, and who does what."""

    def __init__(self, task: Task, workers: int, start: str) -> None:
        self._task, self._count = task, workers
        self._context: Any = torch.multiprocessing.get_context(start)
        self._scratch = task.scratch / "mail"
        self._numbers = 0
        self._workers: list[Worker] = []

    def __enter__(self) -> Self:
        self._threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            shutil.rmtree(self._scratch, ignore_errors=True)
            self._scratch.mkdir(parents=True)
            self._inbox, self._reader = Mailbox(self._scratch / "in"), Reader()
            for _ in range(self._count):
                self._workers.append(self._hire())
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close()

    def _close(self) -> None:
        for worker in self._workers:
            worker.kill()
        shutil.rmtree(self._scratch, ignore_errors=True)
        torch.set_num_threads(self._threads)

    def _hire(self) -> Worker:
        self._numbers += 1
        try:
            return Worker(self._context, self._task, self._scratch, self._numbers)
        except Exception as error:  # what cannot be pickled says so in many ways
            raise EngineError(
                f"No worker process could be started: {type(error).__name__}: "
                f"{next(iter(str(error).splitlines()), '')}\n"
                "With start='spawn', the model's class must be importable and the method's rates "
                "must be no lambdas."
            ) from error

    def _replace(self, worker: Worker) -> None:
        """Another in its place, with a pipe and outboxes of its own."""
        worker.kill()
        for path in worker.boxes:
            self._reader.forget(path)
        self._workers[self._workers.index(worker)] = self._hire()

    def train(self, sent: Named, work: Sequence[Work]) -> Iterator[Reply]:
        for reply in self._run({name: (vector,) for name, vector in sent.items()}, work):
            assert isinstance(reply, Reply)
            yield reply

    def evaluate(self, w: Vec, buffers: Vec | None) -> Score:
        named = {"x": (w,)} | ({} if buffers is None else {"buffers": (buffers,)})
        total = Score()
        for score in self._run(named, self._task.federation.test_starts):
            assert isinstance(score, Score)
            total += score
        return total

    def _run(
        self, sent: Mapping[str, tuple[Vec, ...]], jobs: Sequence[Job]
    ) -> Iterator[Reply | Score]:
        """Every job's answer in the jobs' order: each is tried twice, elsewhere if there is one."""
        for worker in tuple(self._workers):
            # Busy with a run that was left before its end, or dead since the last one.
            if worker.jobs or not worker.process.is_alive():
                self._replace(worker)
        try:
            letter = self._inbox.write(sent)
        except OSError as error:
            raise no_room(self._inbox.path, error) from error
        queue = Queue(jobs, letter, alone=self._count == 1)
        done: dict[int, Reply | Score] = {}
        queue.feed(self._workers)
        for upcoming in range(len(jobs)):
            while upcoming not in done:
                for worker, answer in self._news(queue.timeout(self._task)):
                    index = worker.jobs.popleft()
                    outcome: Reply | Score | Exception
                    if isinstance(answer, Answer):
                        outcome = self._opened(answer)
                    else:
                        # Whatever else it had to do is not its failure: others go on with it.
                        queue.open.extendleft(reversed(worker.jobs))
                        self._replace(worker)
                        outcome = answer
                    if not isinstance(outcome, Score) and queue.again(index, worker, outcome):
                        continue
                    if isinstance(outcome, Exception):
                        outcome = _given_up(jobs[index], outcome)
                    # What is next may stay where it lies; the others' outboxes will be needed.
                    done[index] = outcome if index == upcoming else _held(outcome)
                # They go on while the caller looks at what they sent.
                queue.feed(self._workers)
            yield done.pop(upcoming)

    def _news(self, timeout: float | None) -> list[tuple[Worker, Answer | Exception]]:
        """What workers have sent; of one that died or hangs, why it will send nothing."""
        busy = [worker for worker in self._workers if worker.jobs]
        # It stops by itself at the next gradient; one that hangs does not.
        limit = inf if timeout is None else 1.25 * timeout + 1.0
        began = min((worker.since for worker in busy if worker.ready), default=inf)
        patience = None if began + limit == inf else max(0.0, began + limit - monotonic())
        assert busy, "nobody trains: a run goes on after another one began"
        ready = wait([end for w in busy for end in (w.pipe, w.process.sentinel)], patience)
        now = monotonic()
        news: list[tuple[Worker, Answer | Exception]] = []
        for worker in busy:
            if worker.pipe in ready or worker.process.sentinel in ready:
                try:
                    answer = worker.receive()
                except EngineError as error:
                    if not worker.ready:
                        raise EngineError(
                            f"A worker process did not start: {error}.\nWhat it printed says why; "
                            "with start='spawn', a script begins under if __name__ == '__main__'."
                        ) from None
                    news.append((worker, error))
                else:
                    news += [] if answer is None else [(worker, answer)]
            elif worker.ready and now - worker.since > limit:
                said = f"it hung for more than engine.timeout={timeout!r} seconds"
                news.append((worker, TimeoutError(said)))
        return news

    def _opened(self, answer: Answer) -> Reply | Score:
        outcome = answer.outcome
        if isinstance(outcome, FlatfedError):
            raise outcome from answer.cause
        if isinstance(outcome, Score):
            return outcome
        if outcome.failure is not None:
            outcome.failure.__cause__ = answer.cause
        if outcome.upload is None or answer.letter is None:
            return outcome
        vectors = self._reader.read(answer.letter)
        return replace(outcome, upload=replace(outcome.upload, vectors=vectors))


def _given_up(job: Job, why: Exception) -> Reply:
    if isinstance(job, Work):
        return Reply(job.client, None, Tally(), failed(job, why))
    raise not_evaluated(why) from why


def _held(outcome: Reply | Score) -> Reply | Score:
    """The same, in memory of its own: its turn has not come, and its outbox will be needed."""
    if isinstance(outcome, Score) or outcome.upload is None:
        return outcome
    vectors = {n: tuple(v.clone() for v in vs) for n, vs in outcome.upload.vectors.items()}
    return replace(outcome, upload=replace(outcome.upload, vectors=vectors))


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
