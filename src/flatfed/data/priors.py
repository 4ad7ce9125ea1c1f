"""Partitions in which every client has a prior over classes: Hsu et al. as public code has it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from flatfed.data.shares import Dealt, Floats, Ints, Pools, Shares, share_out
from flatfed.errors import whole, within

SPENT = 1e-12  # a prior with less mass than this says nothing about the classes that are left
TINY = 1e-200  # a weight below this is none: waiting for it would take for ever


@dataclass(frozen=True, kw_only=True)
class Prior(Dealt):
    """A prior q_i ~ Dir(α·1) for every client i."""

    alpha: float = 0.1

    def check(self) -> None:
        super().check()
        within(self, "alpha", "(0, ∞)")

    def prior(self, pools: Pools, rng: np.random.Generator) -> Floats:
        return dirichlet(rng, self.alpha, self.clients, len(pools.counts))


@dataclass(frozen=True, kw_only=True)
class PriorReuse(Prior):
    """Draws by the prior; an empty class is refilled (FL-Simulator, hence FedTOGA).

    Samples may be held twice while others are held by nobody.
    """

    def share(self, pools: Pools, rng: np.random.Generator) -> Shares:
        return share_reusing(self.prior(pools, rng), pools, rng)


@dataclass(frozen=True, kw_only=True)
class Dirichlet(Prior):
    """Draws by the prior, every sample once (FedDyn, DisPFL and so DFedSAM).

    size_sigma > 0 draws the clients' sizes from a lognormal of that width. Where the code may
    search for ever, an exhausted class leaves all priors and an exhausted prior is what is left.
    """

    size_sigma: float = 0.0

    def check(self) -> None:
        super().check()
        within(self, "size_sigma", "[0, 10]")

    def share(self, pools: Pools, rng: np.random.Generator) -> Shares:
        prior, N, n = self.prior(pools, rng), self.clients, pools.total // self.clients
        sizes = np.full(N, n)
        if self.size_sigma:
            # One for everybody, the rest by lot: nobody is left without data.
            share = rng.lognormal(0, self.size_sigma, N)
            sizes = 1 + np.floor((pools.total - N) * (share / share.sum())).astype(np.int64)
        sequence = turns(sizes, rng)
        table, L, draw = cumulative(prior), len(pools.counts), uniforms(rng)
        left, starts = pools.counts.tolist(), pools.starts.tolist()
        places = np.empty(len(sequence), np.int64)
        for k, i in enumerate(sequence.tolist()):
            c = bisect_left(table, next(draw), i * L, (i + 1) * L) - i * L
            left[c] -= 1
            places[k] = starts[c] + left[c]
            if not left[c] and any(left):
                prior = without_empty(prior, np.array(left))
                table = cumulative(prior)
        return with_the_rest(pools, places, sequence, N, rng)


@dataclass(frozen=True, kw_only=True)
class PriorWeighted(Prior):
    """Client by client, samples drawn with weights q_i[class], every sample once (FedRCL)."""

    def share(self, pools: Pools, rng: np.random.Generator) -> Shares:
        left, n = pools.counts.copy(), pools.total // self.clients
        places = []
        for q in self.prior(pools, rng):
            weights = q if left[q > TINY].sum() >= n else np.ones_like(q)
            taken = race(weights, left, n, rng)
            left -= taken
            # From the end of every class: its places start + left, ..., start + left + taken − 1.
            first = np.repeat(pools.starts + left - (np.cumsum(taken) - taken), taken)
            places.append(first + np.arange(n))
        owner = np.repeat(np.arange(self.clients), n)
        return with_the_rest(pools, np.concatenate(places), owner, self.clients, rng)


@dataclass(frozen=True, kw_only=True)
class Pathological(Dealt):
    """A few classes, independently for every client, in equal parts (FL-Simulator).

    With few clients some classes are held by nobody: pathological_cover sees to that.
    """

    classes_per_client: int = 3

    def check(self) -> None:
        super().check()
        whole(self, "classes_per_client", 1)

    def share(self, pools: Pools, rng: np.random.Generator) -> Shares:
        c, L = self.classes_per_client, len(pools.counts)
        if c > L:
            self.refuse(f"{L} classes with samples", f"at most {L}", classes_per_client=c)
        chosen = np.argpartition(rng.random((self.clients, L)), c - 1)[:, :c]
        prior = np.zeros((self.clients, L))
        np.put_along_axis(prior, chosen, 1 / c, axis=1)
        return share_reusing(prior, pools, rng)


@dataclass(frozen=True, kw_only=True)
class FedSWAPrior(Prior):
    """Client by client, a class that runs out is shuffled and dealt anew (FedSWA's code).

    Samples may be held twice while others are held by nobody, and the remainder is left out.
    """

    def share(self, pools: Pools, rng: np.random.Generator) -> Shares:
        prior, n, L = self.prior(pools, rng), pools.total // self.clients, len(pools.counts)
        owner = np.repeat(np.arange(self.clients), n)
        table, draw = cumulative(prior), uniforms(rng)
        drawn = [bisect_left(table, next(draw), i * L, (i + 1) * L) - i * L for i in owner.tolist()]
        samples = np.empty_like(owner)
        labels = np.array(drawn)
        for c, (start, T) in enumerate(zip(pools.starts, pools.counts, strict=True)):
            (at,) = np.nonzero(labels == c)
            own = pools.order[start : start + T]
            again = [rng.permutation(own) for _ in range((len(at) - 1) // T)]
            samples[at] = np.concatenate([own, *again])[: len(at)]
        return share_out(samples, owner, self.clients)


def share_reusing(prior: Floats, pools: Pools, rng: np.random.Generator) -> Shares:
    """Equal sizes drawn by the prior; a class found empty is full again, and the draw repeated."""
    N, L = prior.shape
    sizes = np.full(N, pools.total // N)
    sizes[0] += pools.total % N
    sequence = turns(sizes, rng)
    table, draw = cumulative(prior), uniforms(rng)
    counts, starts = pools.counts.tolist(), pools.starts.tolist()
    left = list(counts)
    places = np.empty(len(sequence), np.int64)
    for k, i in enumerate(sequence.tolist()):
        c = bisect_left(table, next(draw), i * L, (i + 1) * L) - i * L
        while not left[c]:
            left[c] = counts[c]
            c = bisect_left(table, next(draw), i * L, (i + 1) * L) - i * L
        left[c] -= 1
        places[k] = starts[c] + left[c]
    return share_out(pools.order[places], sequence, N)


def with_the_rest(
    pools: Pools, places: Ints, owner: Ints, clients: int, rng: np.random.Generator
) -> Shares:
    """Places in order and their owners; what nobody has goes round from client 0 on."""
    free = np.ones(pools.total, bool)
    free[places] = False
    rest = rng.permutation(np.flatnonzero(free))
    samples = pools.order[np.concatenate([places, rest])]
    return share_out(samples, np.concatenate([owner, np.arange(len(rest)) % clients]), clients)


def dirichlet(rng: np.random.Generator, alpha: float, rows: int, length: int) -> Floats:
    """Rows of Dir(α·1); beyond these bounds they are their limits, to the last digit or nearly."""
    drawn: Floats = rng.dirichlet(np.full(length, min(max(float(alpha), 1e-300), 1e12)), rows)
    return drawn


def turns(sizes: Ints, rng: np.random.Generator) -> Ints:
    """Who draws next, until client i has drawn sizes[i] times: each time anybody not yet done.

    Such draws are the order of events of independent Poisson processes of rate 1, stopped after
    sizes[i] events: all their times at once, sorted.
    """
    owner = np.repeat(np.arange(len(sizes)), sizes)
    times = np.cumsum(rng.standard_exponential(len(owner)))
    start = np.concatenate([[0.0], times])[np.cumsum(sizes) - sizes]
    result: Ints = owner[np.argsort(times - np.repeat(start, sizes))]
    return result


def cumulative(prior: Floats) -> memoryview:
    """All cumulative priors in a row; each ends at exactly 1, so no draw can pass it."""
    sums = np.cumsum(prior, axis=1)
    sums /= sums[:, -1:]
    return sums.ravel().data


def uniforms(rng: np.random.Generator) -> Iterator[float]:
    """Numbers in (0, 1]: 0 would find a class of no mass."""
    while True:
        yield from (1 - rng.random(4096)).tolist()


def without_empty(prior: Floats, left: Ints) -> Floats:
    """Priors without the classes of which nothing is left."""
    prior = prior * (left > 0)
    prior[prior.sum(1) < SPENT] = left
    prior /= prior.sum(1, keepdims=True)
    return prior


def race(weights: Floats, left: Ints, n: int, rng: np.random.Generator) -> Ints:
    """How many of each class, when n of the left samples are drawn by weight, none twice.

    Samples arrive at exponential times with their weights as rates, and the first n are drawn;
    of a class only the gaps between arrivals matter, the j-th at rate weight·(left − j).
    """
    waiting = np.maximum(left[:, None] - np.arange(min(n, int(left.max()))), 0)
    rates = weights[:, None] / weights.max() * waiting
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        arrivals = np.cumsum(rng.standard_exponential(rates.shape) / rates, axis=1)
    first = np.argpartition(arrivals.ravel(), n - 1)[:n]
    return np.bincount(first // rates.shape[1], minlength=len(left))
