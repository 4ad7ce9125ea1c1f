"""Clients on all cores: one process each, fed so that none of them waits."""

from __future__ import annotations

import os
import shutil
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from time import monotonic
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias

import torch
import torch.multiprocessing

from flatfed.batches import Tally
from flatfed.engines.engine import Reply, Task, Work, failed
from flatfed.engines.shared import Letter, Mailbox, Reader
from flatfed.engines.worker import Answer, serve
from flatfed.errors import EngineError, FlatfedError, one_of, whole, within
from flatfed.federation import Score
from flatfed.vec import Named, Vec

AHEAD = 2  # jobs a worker has at a time: one to do, one to go on with
SLOTS = AHEAD + 1  # outboxes: those two's, and one that is being read

Job: TypeAlias = Work | int  # a client's turn, or where a pass over test samples starts


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
        safe = sys.platform == "linux" and not torch.cuda.is_initialized()
        return Pool(task, self.workers, self.start or ("fork" if safe else "spawn"))


class _Worker:
    """One process with its pipe, its outboxes and the jobs it has not answered yet."""

    def __init__(self, pool: Pool, number: int) -> None:
        self.number, self.jobs = number, deque[int]()
        self.since = monotonic()  # when its first job began
        self._turn = 0
        self.pipe: Connection
        self.pipe, theirs = pool.context.Pipe()
        boxes = [Mailbox(pool.scratch / f"out-{number}-{slot}") for slot in range(SLOTS)]
        self.process = pool.context.Process(
            target=serve, args=(pool.task, theirs, boxes), name=f"flatfed-{number}", daemon=True
        )
        self.process.start()
        theirs.close()  # so that its end is the end of the pipe

    def send(self, index: int, job: Job, letter: Letter) -> None:
        if not self.jobs:
            self.since = monotonic()
        self.jobs.append(index)
        try:
            self.pipe.send((job, letter, self._turn))
        except OSError:
            pass  # it has died: its sentinel says so in a moment
        self._turn = (self._turn + 1) % SLOTS

    def kill(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


class Pool:
    """Workers that are ready, and who does what."""

    def __init__(self, task: Task, workers: int, start: str) -> None:
        self.task, self.count = task, workers
        self.context: Any = torch.multiprocessing.get_context(start)
        self.scratch = task.scratch / "mail"
        self._numbers = 0
        self._workers: list[_Worker] = []

    def __enter__(self) -> Self:
        self._threads = torch.get_num_threads()
        torch.set_num_threads(1)
        shutil.rmtree(self.scratch, ignore_errors=True)
        self.scratch.mkdir(parents=True)
        self._inbox, self._reader = Mailbox(self.scratch / "in"), Reader()
        self._workers = [self._hire() for _ in range(self.count)]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for worker in self._workers:
            worker.kill()
        shutil.rmtree(self.scratch, ignore_errors=True)
        torch.set_num_threads(self._threads)

    def _hire(self) -> _Worker:
        self._numbers += 1
        return _Worker(self, self._numbers)

    def train(self, sent: Named, work: Sequence[Work]) -> Iterator[Reply]:
        letter = self._inbox.write({name: (vector,) for name, vector in sent.items()})
        for answer in self._run(letter, work):
            assert isinstance(answer, Reply)
            yield answer

    def evaluate(self, w: Vec, buffers: Vec | None) -> Score:
        named = {"x": (w,)} | ({} if buffers is None else {"buffers": (buffers,)})
        total = Score()
        for answer in self._run(self._inbox.write(named), self.task.federation.test_starts):
            if isinstance(answer, Reply):
                assert answer.failure is not None
                raise EngineError(
                    f"The model could not be evaluated: {answer.failure}"
                ) from answer.failure
            total += answer
        return total

    def _run(self, letter: Letter, jobs: Sequence[Job]) -> Iterator[Reply | Score]:
        """Every job's answer in the jobs' order: each is tried twice, elsewhere if there is one."""
        open_jobs = deque(range(len(jobs)))
        tried: dict[int, int] = {}  # job → the worker on which it failed once
        done: dict[int, Reply | Score] = {}
        upcoming = 0
        while upcoming < len(jobs):
            for worker in self._workers:
                self._feed(worker, letter, jobs, open_jobs, tried)
            for worker, answer in self._next_answers():
                index = worker.jobs.popleft()
                worker.since = monotonic()
                if isinstance(answer, BaseException):
                    # Whatever else it had to do is not its failure: others may go on with it.
                    open_jobs.extendleft(reversed(worker.jobs))
                    self._workers[self._workers.index(worker)] = self._hire()
                    worker.kill()
                    outcome = self._lost(jobs[index], answer)
                else:
                    # It goes on while we look at what it sent.
                    self._feed(worker, letter, jobs, open_jobs, tried)
                    outcome = self._opened(answer)
                failure = outcome.failure if isinstance(outcome, Reply) else None
                if failure is not None and index not in tried:
                    tried[index] = worker.number
                    open_jobs.appendleft(index)
                    continue
                if index == upcoming:
                    yield outcome
                    upcoming += 1
                else:
                    done[index] = _held(outcome)
                while upcoming in done:
                    yield done.pop(upcoming)
                    upcoming += 1

    def _feed(
        self,
        worker: _Worker,
        letter: Letter,
        jobs: Sequence[Job],
        open_jobs: deque[int],
        tried: dict[int, int],
    ) -> None:
        while len(worker.jobs) < AHEAD:
            mine = (
                i for i in open_jobs if len(self._workers) == 1 or tried.get(i) != worker.number
            )
            index = next(mine, None)
            if index is None:
                return
            open_jobs.remove(index)
            worker.send(index, jobs[index], letter)

    def _next_answers(self) -> Iterator[tuple[_Worker, Answer | BaseException]]:
        """What the workers have sent since; of one that died or hangs, why it will send nothing."""
        busy = [worker for worker in self._workers if worker.jobs]
        limit = None if self.task.timeout is None else 1.25 * self.task.timeout + 1.0
        patience = None
        if limit is not None:  # it stops by itself at the next gradient; one that hangs does not
            patience = max(0.0, min(worker.since for worker in busy) + limit - monotonic())
        ends = [end for worker in busy for end in (worker.pipe, worker.process.sentinel)]
        ready = wait(ends, patience)
        for worker in busy:
            if worker.pipe in ready:
                try:
                    yield worker, worker.pipe.recv()
                except (EOFError, OSError):
                    worker.process.join()
                    yield worker, EngineError(_died(worker.process.exitcode))
            elif worker.process.sentinel in ready:
                yield worker, EngineError(_died(worker.process.exitcode))
            elif limit is not None and monotonic() - worker.since > limit:
                yield (
                    worker,
                    EngineError(
                        f"it hung for more than engine.timeout={self.task.timeout!r} seconds"
                    ),
                )

    def _opened(self, answer: Answer) -> Reply | Score:
        if answer.fatal is not None:
            raise answer.fatal
        if answer.score is not None:
            return answer.score
        assert answer.reply is not None
        if answer.reply.failure is not None and answer.cause is not None:
            answer.reply.failure.__cause__ = answer.cause
        if answer.reply.upload is None or answer.letter is None:
            return answer.reply
        vectors = self._reader.read(answer.letter)
        return replace(answer.reply, upload=replace(answer.reply.upload, vectors=vectors))

    def _lost(self, job: Job, why: BaseException) -> Reply:
        if isinstance(job, int):
            return Reply(-1, None, Tally(), why if isinstance(why, FlatfedError) else None)
        return Reply(job.client, None, Tally(), failed(job, why))


def _held(outcome: Reply | Score) -> Reply | Score:
    """The same, in memory of its own: its turn has not come, and its outbox will be needed."""
    if isinstance(outcome, Score) or outcome.upload is None:
        return outcome
    vectors = {n: tuple(v.clone() for v in vs) for n, vs in outcome.upload.vectors.items()}
    return replace(outcome, upload=replace(outcome.upload, vectors=vectors))


def _died(exitcode: int | None) -> str:
    if exitcode is not None and exitcode < 0:
        return f"its worker process was killed by signal {-exitcode}"
    return f"its worker process ended with exit code {exitcode}"


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
