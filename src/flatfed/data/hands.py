"""Partitions that deal like cards: shards, a few classes each, evenly, or as data came."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from flatfed.data.shares import Dealt, Ints, Partition, Pools, Shares, even, labels_of, share_out
from flatfed.errors import FederationError, one_of, whole


@dataclass(frozen=True, kw_only=True)
class Shards(Dealt):
    """Samples sorted by class, cut into shards, a few for each client (FedAvg, FedSOL).

    per_class cuts every class by itself, as often as its card is in a shuffled deck of classes
    (FedNTD, FL-SAM); a client's shards may then be of one class.
    """

    shards_per_client: int = 2
    per_class: bool = False

    def check(self) -> None:
        super().check()
        whole(self, "shards_per_client", 1)
        one_of(self, "per_class", self.per_class, True, False)

    def share(self, pools: Pools, rng: np.random.Generator) -> Shares:
        N, s = self.clients, self.shards_per_client
        if N * s > pools.total:
            self.refuse(
                f"{pools.total} samples",
                f"at most {pools.total} shards",
                clients=N,
                shards_per_client=s,
            )
        if self.per_class:
            cards = deck(self, s, pools, rng)
            return cut_by_cards(pools, cards, np.repeat(np.arange(N), s), N)
        shards = even(pools.total, N * s)
        owner = np.repeat(rng.permutation(N * s) // s, shards)
        return share_out(pools.order, owner, N)


@dataclass(frozen=True, kw_only=True)
class PathologicalCover(Dealt):
    """Exactly a few classes for every client, and every class used (FedSynSAM's Path(c))."""

    classes_per_client: int = 1

    def check(self) -> None:
        super().check()
        whole(self, "classes_per_client", 1)

    def share(self, pools: Pools, rng: np.random.Generator) -> Shares:
        N, c, L = self.clients, self.classes_per_client, len(pools.counts)
        if c > L:
            self.refuse(f"{L} classes with samples", f"at most {L}", classes_per_client=c)
        cards = deck(self, c, pools, rng).reshape(N, c)
        without_pairs(cards, rng)
        return cut_by_cards(pools, cards.ravel(), np.repeat(np.arange(N), c), N)


@dataclass(frozen=True, kw_only=True)
class IID(Dealt):
    """Shuffled and cut evenly; stratified also cuts every class evenly (all papers)."""

    stratified: bool = False

    def check(self) -> None:
        super().check()
        one_of(self, "stratified", self.stratified, True, False)

    def share(self, pools: Pools, rng: np.random.Generator) -> Shares:
        if self.stratified:  # class by class, round the table
            return share_out(pools.order, np.arange(pools.total) % self.clients, self.clients)
        owner = np.repeat(np.arange(self.clients), even(pools.total, self.clients))
        return share_out(rng.permutation(pools.order), owner, self.clients)


@dataclass(frozen=True, kw_only=True)
class Natural(Partition):
    """The clients that the data came from; ids without samples are passed over."""

    def deal(
        self, targets: Tensor, classes: int, *, seed: int, owners: Tensor | None = None
    ) -> Shares:
        """Who holds what: nothing is drawn, so every seed gives the same."""
        labels_of(targets, classes)
        if owners is None:
            raise FederationError(
                "Natural got data without client ids, expected one for every sample.\n"
                "Name the column that holds them, or take a partition like 'dirichlet'."
            )
        if owners.shape != targets.shape or not len(targets):
            raise FederationError(
                f"Natural got {owners.numel()} client ids for {len(targets)} samples, expected one "
                "for every sample.\nDrop samples and ids together."
            )
        ids, owner = torch.unique(owners, return_inverse=True)
        return share_out(np.arange(len(owner)), owner.cpu().numpy(), len(ids))


def deck(of: Dealt, each: int, pools: Pools, rng: np.random.Generator) -> Ints:
    """A shuffled card for every class a client is to hold: every class as often, or once more."""
    L, cards = len(pools.counts), of.clients * each
    what = "classes_per_client" if isinstance(of, PathologicalCover) else "shards_per_client"
    given = {"clients": of.clients, what: each}
    if cards < L:
        expected = f"at least {L} in all, so that each is held"
        of.refuse(f"{L} classes with samples", expected, "Raise", **given)
    copies = np.full(L, cards // L)
    copies[rng.choice(L, cards % L, replace=False)] += 1
    short = np.flatnonzero(copies > pools.counts)
    if len(short):
        c = short[0]
        of.refuse(
            f"a class with {pools.counts[c]} samples", f"at least {copies[c]} to cut", **given
        )
    return rng.permutation(np.repeat(np.arange(L), copies))


def cut_by_cards(pools: Pools, cards: Ints, owner: Ints, clients: int) -> Shares:
    """Every class cut evenly among its cards, and each part to the card's owner."""
    by_class = np.argsort(cards, kind="stable")
    copies = np.bincount(cards, minlength=len(pools.counts))
    parts = [even(int(T), int(m)) for T, m in zip(pools.counts, copies, strict=True)]
    return share_out(pools.order, np.repeat(owner[by_class], np.concatenate(parts)), clients)


def without_pairs(hands: Ints, rng: np.random.Generator) -> None:
    """Swap cards, in place, until no hand has a class twice.

    A swap must leave fewer pairs than before. As long as there are pairs and no class has more
    cards than there are hands, one exists: a hand without the class either has a class that is
    new to the first hand, or a pair itself.
    """
    for i, s in zip(*np.nonzero(later_copies(hands)), strict=True):
        mine = hands[i]
        while np.count_nonzero(mine == mine[s]) > 1:
            theirs = hands[hand_without(hands, mine[s], rng)]
            good = np.flatnonzero(~(theirs[:, None] == mine).any(1))
            if not len(good):
                good = np.flatnonzero(later_copies(theirs[None])[0])
            t = rng.choice(good)
            mine[s], theirs[t] = theirs[t], mine[s]


def later_copies(hands: Ints) -> npt.NDArray[np.bool_]:
    """Where a hand has a class that it already has further left."""
    order = np.argsort(hands, axis=1, kind="stable")
    in_order = np.take_along_axis(hands, order, 1)
    result = np.zeros(hands.shape, bool)
    np.put_along_axis(result, order[:, 1:], in_order[:, 1:] == in_order[:, :-1], 1)
    return result


def hand_without(hands: Ints, card: int, rng: np.random.Generator) -> int:
    """A hand, by lot, that lacks a class."""
    some = rng.integers(len(hands), size=16)  # nearly always enough, however many hands there are
    lacking = some[(hands[some] != card).all(1)]
    if not len(lacking):
        lacking = rng.permutation(np.flatnonzero((hands != card).all(1)))
    return int(lacking[0])
