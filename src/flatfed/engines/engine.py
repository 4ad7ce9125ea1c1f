"""The seam between a run and where its clients train."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from flatfed.batches import Tally
from flatfed.engines.store import Store
from flatfed.errors import ClientError, EngineError, FlatfedError, NonFiniteError
from flatfed.federation import Federation, Score
from flatfed.mean import Upload
from flatfed.method import Method
from flatfed.rounds import client_round
from flatfed.vec import Named, Vec, non_finite

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Task:
    """What a worker knows before the first round."""

    method: Method
    federation: Federation
    seed: int
    store: Store
    scratch: Path  # a folder for files that nobody needs afterwards
    timeout: float | None = None  # seconds that one client may take in one round


@dataclass(frozen=True)
class Work:
    """One client's turn in round t; `version` of what it keeps, if it has kept anything."""

    client: int
    t: int
    version: int | None
    drawn: int | None = None  # clients drawn for the round


@dataclass(frozen=True)
class Reply:
    """What came of it: an upload, or why there is none."""

    client: int
    upload: Upload | None
    tally: Tally
    failure: ClientError | None = None


class Crew(Protocol):
    """Workers that are ready."""

    def train(self, sent: Named, work: Sequence[Work]) -> Iterator[Reply]:
        """Every client's reply, in the order of the work; vectors hold until the next one."""
        ...

    def evaluate(self, w: Vec, buffers: Vec | None) -> Score:
        """The score on all test samples."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class Engine(Protocol):
    """Where clients train."""

    @property
    def needs_disk(self) -> bool:
        """Whether kept vectors must be where several processes see them."""
        ...

    @property
    def timeout(self) -> float | None:
        """Seconds that one client may take in one round."""
        ...

    def open(self, task: Task) -> Crew: ...


def train(task: Task, sent: Named, work: Work) -> Reply:
    """One client's round: whatever fails in it is the client's failure, but for the disk's."""
    tally = Tally()
    if task.timeout is not None:
        tally.deadline = monotonic() + task.timeout
    try:
        kept = {} if work.version is None else task.store.read(work.client, work.version)
    except OSError as error:
        raise _store_failed(work, "read", error) from error
    try:
        data = task.federation.local_data(
            work.client,
            work.t,
            task.method.local,
            seed=task.seed,
            tally=tally,
            drawn=work.drawn,
        )
        upload, kept = client_round(task.method, sent, kept, data, work.t)
        for name, vector in (*_sent(upload), *kept.items()):
            _finite(work, name, vector)
    except Exception as error:
        # A class of its own making need not survive the way between two processes.
        failure = error if type(error) is ClientError else failed(work, error, tally.step)
        return Reply(work.client, None, tally, failure)
    try:
        if kept:
            task.store.write(work.client, work.t, kept)
    except OSError as error:
        raise _store_failed(work, "written", error) from error
    return Reply(work.client, upload, tally)


def score(task: Task, w: Vec, buffers: Vec | None, start: int) -> Score:
    """The score on one pass of test samples."""
    try:
        return task.federation.evaluate(w, buffers, start)
    except FlatfedError:
        raise
    except Exception as error:
        raise not_evaluated(error) from error


def failed(work: Work, error: BaseException, k: int = 0) -> ClientError:
    """Any error, said as a client's failure."""
    where = f"Client {work.client}"
    message = str(error)
    if not isinstance(error, FlatfedError):
        said = f"{type(error).__name__}: {next(iter(message.splitlines()), '')}"
        message = (
            f"{where} failed in round {work.t}: {said}\n"
            "What raised it is this error's cause (__cause__)."
        )
    elif not message.startswith(where):
        message = f"{where} failed in round {work.t}: {message}"
    failure = ClientError(message, client=work.client, t=work.t, k=k, part="")
    failure.__cause__ = error
    return failure


def not_evaluated(error: BaseException) -> EngineError:
    """What a run says when nobody can tell how good its model is."""
    first = next(iter(str(error).splitlines()), "")
    return EngineError(
        f"The model could not be evaluated: {type(error).__name__}: {first}\n"
        "What raised it is this error's cause (__cause__)."
    )


def _sent(upload: Upload) -> Iterator[tuple[str, Tensor]]:
    return ((name, vector) for name, several in upload.vectors.items() for vector in several)


def _finite(work: Work, name: str, vector: Tensor) -> None:
    if bad := non_finite(vector):
        raise NonFiniteError(
            f"Client {work.client}'s {name} has {bad} of {vector.numel()} elements NaN or "
            f"infinite after round {work.t}, expected finite numbers.\n"
            "Lower its learning rate, or set clip."
        )


def _store_failed(work: Work, doing: str, error: OSError) -> EngineError:
    return EngineError(
        f"What client {work.client} keeps could not be {doing} in round {work.t}: "
        f"{error.strerror or error}{f' ({error.filename})' if error.filename else ''}.\n"
        "Make room or mend the path, then go on with --resume."
    )
