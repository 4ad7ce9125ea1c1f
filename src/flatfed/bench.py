"""What a run costs beside its gradients: rounds against the same gradients in a bare loop.

Both take turns in one process set-up: as many processes, one thread each, the same mini-batches,
prepared before the clock starts where the loop is bare. A speed is the median of their ratios.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, TypeAlias

import torch
import torch.multiprocessing
from torch import Tensor

from flatfed.engines.engine import Engine
from flatfed.engines.inprocess import InProcess
from flatfed.engines.processes import Processes
from flatfed.engines.store import Disk
from flatfed.federation import Federation
from flatfed.flatmodel import Batch
from flatfed.memory import keep_pages
from flatfed.training import Training

Work: TypeAlias = list[list[tuple[Tensor, Batch]]]  # by client; samples, as the model takes them

ENDLESS = 10**9  # rounds, the last of which would be evaluated


@dataclass(frozen=True)
class Speed:
    """Rounds on so many workers: seconds a gradient, one number for each repeat."""

    workers: int
    bare: Sequence[float]  # of gradients alone
    taking: Sequence[float]  # of making their mini-batches alone
    round: Sequence[float]  # of all that a round is

    @property
    def overhead(self) -> float:
        """The share of a round that is no gradient, in units of the gradients' time."""
        pairs = zip(self.round, self.bare, strict=True)
        return median(whole / part for whole, part in pairs) - 1

    @property
    def mini_batches(self) -> float:
        """What of it is making the mini-batches, which every loop must."""
        return median(part / bare for part, bare in zip(self.taking, self.bare, strict=True))

    @property
    def seconds(self) -> float:
        """A gradient takes in a round."""
        return median(self.round)


def measure(training: Training, workers: Sequence[int], repeats: int = 5) -> list[Speed]:
    """The same rounds on each number of workers, which take turns as well."""
    training = replace(training, rounds=ENDLESS, evaluate_every=ENDLESS)
    work = _gradients(training, t=1)
    total = sum(len(batches) for batches in work)
    times: dict[int, list[tuple[float, float, float]]] = {count: [] for count in workers}
    for _ in range(repeats):
        for count in workers:
            with _bare(training.federation, work, count) as loop:
                loop(False)  # warm
                with _rounds(training, count) as one_round:
                    one_round()  # t = 0 is warm-up
                    times[count].append((loop(False) / total, loop(True) / total, one_round()))
    return [Speed(n, *zip(*times[n], strict=True)) for n in workers]


def _gradients(training: Training, t: int) -> Work:
    """What every client of round t differentiates: mini-batches, ready to be used."""
    federation, local = training.federation, training.method.local
    per_step = training.method.bill().gradients_per_step
    work = []
    cohort, seed = training.cohort, training.seed
    for client in cohort.present(cohort.draw(federation.N, t, seed), t, seed):
        mine = federation.shares.of(client)
        steps = local.steps_for(len(mine))
        size = min(local.batch_size or len(mine), len(mine))
        epoch = [(some, federation.take(some)) for some in torch.split(mine, size)]
        work.append([epoch[k % len(epoch)] for k in range(steps) for _ in range(per_step)])
    return work


@contextmanager
def _rounds(training: Training, workers: int) -> Iterator[Callable[[], float]]:
    engine: Engine = InProcess() if workers == 1 else Processes(workers=workers)
    with tempfile.TemporaryDirectory(prefix="flatfed-") as folder:
        store = Disk(Path(folder) / "kept")
        rounds = training.go_on(training.start(), engine, store, Path(folder))

        def one_round() -> float:
            _, record = next(rounds)
            return record.seconds / record.gradients

        try:
            yield one_round
        finally:
            rounds.close()


@contextmanager
def _bare(federation: Federation, work: Work, workers: int) -> Iterator[Callable[[bool], float]]:
    """The gradients alone, or the mini-batches alone, each worker its part of the clients."""
    parts = [[one for client in work[w::workers] for one in client] for w in range(workers)]
    if workers == 1:
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        keep_pages()
        try:
            yield lambda taking: _timed(federation, parts[0], taking)
        finally:
            torch.set_num_threads(threads)
        return
    context: Any = torch.multiprocessing.get_context("fork")
    pipes, processes = [], []
    for part in parts:
        ours, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(federation, part, theirs), daemon=True)
        process.start()
        pipes.append(ours)
        processes.append(process)

    def loop(taking: bool) -> float:
        started = perf_counter()
        for pipe in pipes:
            pipe.send(taking)
        for pipe in pipes:
            pipe.recv()
        return perf_counter() - started

    try:
        yield loop
    finally:
        for process in processes:
            process.kill()
            process.join()


def _serve(federation: Federation, part: list[tuple[Tensor, Batch]], pipe: Connection) -> None:
    torch.set_num_threads(1)
    keep_pages()
    while True:
        pipe.send(_timed(federation, part, pipe.recv()))


def _timed(federation: Federation, part: list[tuple[Tensor, Batch]], taking: bool) -> float:
    model, seed = federation.model, 0 if federation.random else None
    draw = torch.Generator().manual_seed(0)
    started = perf_counter()
    for some, batch in part:
        if taking:
            federation.take(some, draw)
        else:
            model.value_and_grad(model.x0, batch, seed=seed)
    return perf_counter() - started
