"""What one worker process does: answer jobs until its pipe ends."""

from __future__ import annotations

import ctypes
import os
import pickle
import signal
from collections.abc import Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection

import torch

from flatfed.engines.engine import Reply, Task, Work, train
from flatfed.engines.shared import Letter, Mailbox, Reader
from flatfed.errors import FlatfedError
from flatfed.federation import Score
from flatfed.memory import keep_pages

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


@dataclass(frozen=True)
class Answer:
    """What goes back through the pipe; vectors lie in an outbox, the letter says where."""

    reply: Reply | None = None
    letter: Letter | None = None
    score: Score | None = None
    cause: BaseException | None = None  # pickling drops an error's cause
    fatal: FlatfedError | None = None  # not one client's failure: the run's


def serve(task: Task, pipe: Connection, outboxes: Sequence[Mailbox]) -> None:
    """Answer jobs, one after the other, in the order in which they come."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the run, which ends its workers
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _die_with_the_run()
    torch.set_num_threads(1)
    keep_pages()
    reader = Reader()
    while True:
        try:
            job, letter, slot = pipe.recv()
        except (EOFError, OSError):  # the run has ended, or was killed
            return
        sent = {name: tensors[0] for name, tensors in reader.read(letter).items()}
        try:
            if isinstance(job, Work):
                answer = _trained(train(task, sent, job), outboxes[slot])
            else:
                score = task.federation.evaluate(sent["x"], sent.get("buffers"), job)
                answer = Answer(score=score)
        except FlatfedError as error:
            answer = Answer(fatal=error)
        try:
            pipe.send(answer)
        except OSError:
            return


def _trained(reply: Reply, outbox: Mailbox) -> Answer:
    if reply.failure is not None:
        cause = reply.failure.__cause__
        try:
            pickle.loads(pickle.dumps(cause))
        except Exception:  # an exception class of its own making may refuse in any way
            cause = RuntimeError(repr(cause))
        return Answer(reply, cause=cause)
    assert reply.upload is not None
    letter = outbox.write(reply.upload.vectors)
    return Answer(replace(reply, upload=replace(reply.upload, vectors={})), letter)


def _die_with_the_run() -> None:
    """A run that is killed cannot end its workers: the kernel does, where it can."""
    parent = os.getppid()
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    except (AttributeError, OSError, TypeError):  # not Linux: it ends with its pipe
        return
    if os.getppid() != parent:
        os._exit(1)
