"""Which jobs of a run are open, and who gets which next."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from flatfed.engines.engine import Reply, Task, Work
from flatfed.engines.shared import Letter
from flatfed.engines.worker import AHEAD, Job, Worker


class Queue:
    """Jobs that nobody has yet, and who has failed at which."""

    def __init__(self, jobs: Sequence[Job], letter: Letter, *, alone: bool) -> None:
        self._jobs, self._letter, self._alone = jobs, letter, alone
        self.open = deque(range(len(jobs)))
        self._tried: dict[int, int] = {}  # job → the worker on which it failed once

    def timeout(self, task: Task) -> float | None:
        """How long one job may take; a pass over test samples as long as it takes."""
        return task.timeout if self._jobs and isinstance(self._jobs[0], Work) else None

    def again(self, index: int, worker: Worker, outcome: Reply | Exception) -> bool:
        """Whether a job that failed is tried once more."""
        failure = outcome.failure if isinstance(outcome, Reply) else outcome
        if failure is None or index in self._tried:
            return False
        self._tried[index] = worker.number
        self.open.appendleft(index)
        return True

    def feed(self, workers: Sequence[Worker]) -> None:
        """To every worker a job, and one to go on with while there are enough for all."""
        for ahead in range(1, AHEAD + 1):
            for worker in workers:
                if len(worker.jobs) < ahead and (ahead == 1 or len(self.open) >= len(workers)):
                    self._give(worker)

    def _give(self, worker: Worker) -> None:
        mine = (i for i in self.open if self._alone or self._tried.get(i) != worker.number)
        index = next(mine, None)
        if index is not None:
            self.open.remove(index)
            worker.send(index, self._jobs[index], self._letter)
