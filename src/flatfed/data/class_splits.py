"""Partitions that cut every class among the clients: sizes follow from the cuts."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from flatfed.data.priors import dirichlet
from flatfed.data.shares import Dealt, Floats, Ints, Pools, Shares, even, share_out
from flatfed.errors import one_of, whole, within

RESTARTS = 1000  # draws after which a minimum size is enforced by moving samples
NUMBERS = 100_000_000  # that those draws may take: a million clients would redraw for an hour
SWEEPS = 1000  # of Sinkhorn's iteration
FLOOR = 1e-12  # keeps a column of small draws from vanishing


@dataclass(frozen=True, kw_only=True)
class ClassSplit(Dealt):
    """Every class cut by q_c ~ Dir(α·1), sizes unequal (FedML, NIID-Bench).

    balance gives nothing more to clients that have their even share. A draw that leaves a client
    below min_size is repeated, 1000 times at most (fewer where classes × clients is above 100 000);
    then samples move from the largest client to the smallest, and `Shares.moved` counts them.
    """

    alpha: float = 0.1
    balance: bool = True
    min_size: int = 10

    def check(self) -> None:
        super().check()
        within(self, "alpha", "(0, ∞)")
        one_of(self, "balance", self.balance, True, False)
        whole(self, "min_size", 1)

    def share(self, pools: Pools, rng: np.random.Generator) -> Shares:
        self.room(pools)
        held = self.held(pools.counts, self.clients, rng)
        return topped_up(pools, held, self.min_size, rng)

    def room(self, pools: Pools) -> None:
        """Refuse a minimum size that not even equal sizes would reach."""
        if self.min_size * self.clients > pools.total:
            self.refuse(
                f"{pools.total} samples",
                f"at least {self.min_size * self.clients}",
                clients=self.clients,
                min_size=self.min_size,
            )

    def held(self, counts: Ints, clients: int, rng: np.random.Generator) -> Ints:
        """How many of class c client i gets: a draw of which all have enough, or the last."""
        for _ in range(min(RESTARTS, 1 + NUMBERS // (len(counts) * clients))):
            shares = dirichlet(rng, self.alpha, len(counts), clients)
            held = self.cut(shares, counts, rng)
            if held.sum(0).min() >= self.min_size:
                break
        return held

    def cut(self, shares: Floats, counts: Ints, rng: np.random.Generator) -> Ints:
        if not self.balance:
            return cut_classes(shares, counts)
        held, quota = np.zeros(shares.shape, np.int64), counts.sum() / shares.shape[1]
        sizes = np.zeros(shares.shape[1], np.int64)
        for c, q in enumerate(shares):
            hungry = sizes < quota
            q = q * hungry
            if not q.any():  # too small for floating point, though not 0: their part drawn anew
                q[hungry] = dirichlet(rng, self.alpha, 1, int(hungry.sum()))[0]
            held[c] = cut_classes(q[None], counts[c : c + 1])
            sizes += held[c]
        return held


@dataclass(frozen=True, kw_only=True)
class GroupedClassSplit(ClassSplit):
    """class_split inside groups of 10 clients, cut again to equal sizes (FedGMT's code).

    Groups get even parts of all shuffled samples; a client's surplus goes to its neighbours.
    """

    def share(self, pools: Pools, rng: np.random.Generator) -> Shares:
        self.room(pools)
        ends = np.cumsum(even(pools.total, self.clients))
        groups = np.array_split(rng.permutation(pools.total), ends[9:-1:10])
        samples = []
        for g, places in enumerate(groups):
            labels = np.searchsorted(pools.starts, places, side="right") - 1
            own = Pools.of(labels, rng)
            held = self.held(own.counts, min(10, self.clients - 10 * g), rng)
            in_order = np.argsort(own.owners(held), kind="stable")
            samples.append(pools.order[places[own.order[in_order]]])
        owner = np.repeat(np.arange(self.clients), even(pools.total, self.clients))
        return share_out(np.concatenate(samples), owner, self.clients)


@dataclass(frozen=True, kw_only=True)
class DoublyStochastic(Dealt):
    """Every class cut by Dir(α·1), scaled until all clients weigh the same (DynaFed).

    Where rounding down leaves a client with nothing, the largest gives it a sample. Draws below
    1e-12 count as that much, so an α far below 0.01 is milder again.
    """

    alpha: float = 0.1

    def check(self) -> None:
        super().check()
        within(self, "alpha", "(0, ∞)")

    def share(self, pools: Pools, rng: np.random.Generator) -> Shares:
        L, N = len(pools.counts), self.clients
        shares = sinkhorn(np.maximum(dirichlet(rng, self.alpha, L, N), FLOOR))
        return topped_up(pools, cut_classes(shares, pools.counts), 1, rng)


def cut_classes(shares: Floats, counts: Ints) -> Ints:
    """counts[c] cut at ⌊cumsum(shares[c])·counts[c]⌋, shares scaled to sum to exactly 1."""
    sums = np.cumsum(shares, axis=1)
    ends = np.floor(sums / sums[:, -1:] * counts[:, None]).astype(np.int64)
    return np.diff(ends, axis=1, prepend=0)


def sinkhorn(matrix: Floats) -> Floats:
    """Columns and rows scaled in turn, until columns are equal and rows sum to 1."""
    column = matrix.shape[0] / matrix.shape[1]
    for _ in range(SWEEPS):
        matrix = matrix * (column / matrix.sum(0))
        matrix /= matrix.sum(1, keepdims=True)
        if np.allclose(matrix.sum(0), column, rtol=1e-9, atol=0):
            break
    return matrix


def topped_up(pools: Pools, held: Ints, least: int, rng: np.random.Generator) -> Shares:
    """Shares of held[c, i] samples of class c; the largest give to those with less than least."""
    owner, sizes = pools.owners(held), held.sum(0)
    poor = [(size, i) for i, size in enumerate(sizes.tolist()) if size < least]
    rich = [(-size, i) for i, size in enumerate(sizes.tolist()) if size > least] if poor else []
    heapq.heapify(poor)
    heapq.heapify(rich)
    shuffled = rng.permutation(pools.total)
    theirs = shuffled[np.argsort(owner[shuffled], kind="stable")]
    ends = np.cumsum(sizes).tolist()
    moved = 0
    while poor:
        size, i = heapq.heappop(poor)
        surplus, j = rich[0]
        ends[j] -= 1
        owner[theirs[ends[j]]] = i
        moved += 1
        heapq.heapreplace(rich, (surplus + 1, j))
        if size + 1 < least:
            heapq.heappush(poor, (size + 1, i))
    return share_out(pools.order, owner, held.shape[1], moved)
