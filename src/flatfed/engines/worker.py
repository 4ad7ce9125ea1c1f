"""A worker: the process that answers jobs until its pipe ends, and what the run holds of it."""

from __future__ import annotations

import ctypes
import os
import pickle
import signal
import traceback
import warnings
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from time import monotonic
from typing import Any, TypeAlias

import torch

from flatfed.engines.engine import Reply, Task, Work, score, train
from flatfed.engines.shared import Letter, Mailbox, Reader
from flatfed.errors import EngineError, FlatfedError
from flatfed.federation import Score
from flatfed.memory import keep_pages

AHEAD = 2  # jobs a worker has at a time: one to do, one to go on with
_SLOTS = AHEAD + 1  # outboxes: those two's, and one that is being read
_PR_SET_PDEATHSIG = 1  # linux/prctl.h

Job: TypeAlias = Work | int  # a client's turn, or where a pass over test samples starts


@dataclass(frozen=True)
class Answer:
    """What goes back through the pipe; vectors lie in an outbox, the letter says where."""

    outcome: Reply | Score | FlatfedError  # an error of its own is the run's, not one client's
    letter: Letter | None = None
    cause: BaseException | None = None  # pickling drops an error's cause


class Worker:
    """One process with its pipe, its outboxes and the jobs it has not answered yet."""

    def __init__(self, context: Any, task: Task, scratch: Path, number: int) -> None:
        self.number, self.jobs = number, deque[int]()
        self.ready = False
        self.since = monotonic()  # when it began with its first job
        self._turn = 0
        self.boxes = [scratch / f"out-{number}-{slot}" for slot in range(_SLOTS)]
        self.pipe: Connection
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(
            target=serve,
            args=(task, theirs, [Mailbox(path) for path in self.boxes], os.getpid()),
            name=f"flatfed-{number}",
            daemon=True,
        )
        try:
            with warnings.catch_warnings():  # of forks beside threads: ours wait, and hold no lock
                warnings.simplefilter("ignore", DeprecationWarning)
                self.process.start()
        finally:
            theirs.close()  # so that its end is the end of the pipe

    def send(self, index: int, job: Job, letter: Letter) -> None:
        """Give it one more job."""
        if not self.jobs:
            self.since = monotonic()
        self.jobs.append(index)
        with suppress(OSError):  # it has died: its sentinel says so in a moment
            self.pipe.send((job, letter, self._turn))
        self._turn = (self._turn + 1) % _SLOTS

    def receive(self) -> Answer | None:
        """Its next message; None is its first, that it is ready."""
        try:
            answer: Answer | None = self.pipe.recv()
        except (EOFError, OSError):
            self.process.join()
            raise EngineError(self.died()) from None
        self.ready, self.since = True, monotonic()
        return answer

    def died(self) -> str:
        """How its process ended."""
        code = self.process.exitcode
        if code is not None and code < 0:
            return f"its worker process was killed by {signal.Signals(-code).name}"
        return f"its worker process ended with exit code {code}"

    def kill(self) -> None:
        """End it, whatever it does."""
        self.process.kill()
        self.process.join()
        self.pipe.close()
        for path in self.boxes:
            path.unlink(missing_ok=True)


def serve(task: Task, pipe: Connection, outboxes: Sequence[Mailbox], run: int) -> None:
    """In the process: answer jobs, one after the other, in the order in which they come."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the run, which ends its workers
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _die_with(run)
    torch.set_num_threads(1)
    keep_pages()
    reader = Reader()
    try:
        pipe.send(None)
        while True:
            job, letter, slot = pipe.recv()
            sent = {name: tensors[0] for name, tensors in reader.read(letter).items()}
            try:
                if isinstance(job, Work):
                    answer = _trained(train(task, sent, job), outboxes[slot])
                else:
                    answer = Answer(score(task, sent["x"], sent.get("buffers"), job))
            except FlatfedError as error:
                known = isinstance(_portable(error), FlatfedError)
                answer = Answer(
                    error if known else EngineError(str(error)), cause=_portable(error.__cause__)
                )
            pipe.send(answer)
    except (EOFError, OSError):  # the run has ended, or was killed
        return


def _trained(reply: Reply, outbox: Mailbox) -> Answer:
    if reply.upload is None:
        assert reply.failure is not None
        return Answer(reply, cause=_portable(reply.failure.__cause__))
    try:
        letter = outbox.write(reply.upload.vectors)
    except OSError as error:
        raise no_room(outbox.path, error) from error
    return Answer(replace(reply, upload=replace(reply.upload, vectors={})), letter)


def no_room(path: Path, error: OSError) -> EngineError:
    """What is said when vectors cannot go from one process to another."""
    return EngineError(
        f"Vectors could not be passed between processes: {error.strerror or error} ({path}).\n"
        "Make room there, or set TMPDIR to a folder that has it."
    )


def _portable(error: BaseException | None) -> BaseException | None:
    """An error that survives the pipe, and says where in this process it was raised."""
    if error is None:
        return None
    trace = "".join(traceback.format_tb(error.__traceback__)).rstrip()
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # an exception class of its own making may refuse in any way
        error = RuntimeError(repr(error))
    if trace:
        error.add_note(f"In the worker process:\n{trace}")
    return error


def _die_with(run: int) -> None:
    """A run that is killed cannot end its workers: the kernel does, where it can."""
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    except (AttributeError, OSError, TypeError):  # not Linux: it ends with its pipe
        return
    if os.getppid() != run:
        os._exit(1)
