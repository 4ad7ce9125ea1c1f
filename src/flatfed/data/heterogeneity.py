"""How far clients are from holding the same: what a run stores about its partition."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from torch import Tensor

from flatfed.data.shares import Floats, Ints, Shares, labels_of

BLOCK = 1 << 22  # counts that are in memory at once: a million clients of 200 classes are 1.6 GB


@dataclass(frozen=True, eq=False)
class Heterogeneity:
    """Statistics of a partition; means are over clients, each counted once whatever its size.

    A client's mix is the share of each class in what it holds. The global mix is that of all
    training samples, whether or not anybody holds them, and however often.
    """

    clients: int
    held: int  # samples over all clients: one that two hold counts twice
    distinct: int  # samples that anybody holds
    moved: int  # samples that changed hands because a client had too few
    size_min: int
    size_mean: float
    size_max: int
    total_variation: float  # mean of ½·Σ|mix − global mix|: 0 where all are the same
    max_share: float  # mean share of a client's most frequent class
    mix: Floats = field(repr=False)  # the global one
    shares: Shares = field(repr=False)
    labels: Ints = field(repr=False)

    @cached_property
    def counts(self) -> Ints:
        """Samples of each class at every client, (clients, classes)."""
        return self.counts_of(0, self.clients)

    def counts_of(self, first: int, end: int) -> Ints:
        """The rows of counts for clients first, ..., end − 1, without the others."""
        return class_counts(self.shares, self.labels, len(self.mix), first, end)

    def as_dict(self, *, counts: bool = False) -> dict[str, Any]:
        """For JSON; with counts, a list of them for every client."""
        plain = {key: value for key, value in vars(self).items() if isinstance(value, int | float)}
        listed = {"counts": self.counts.tolist()} if counts else {}
        return {**plain, "mix": self.mix.tolist(), **listed}


def heterogeneity(shares: Shares, targets: Tensor, classes: int) -> Heterogeneity:
    """Statistics of shares of the samples with these targets.

    >>> import torch
    >>> from flatfed.data.partition import build
    >>> targets = torch.arange(100) % 10
    >>> alone = build("pathological_cover", clients=10).deal(targets, 10, seed=0)
    >>> heterogeneity(alone, targets, 10).total_variation
    0.9
    """
    labels, clients = labels_of(targets, classes), len(shares)
    mix = np.bincount(labels, minlength=classes) / len(labels)
    sizes = shares.sizes.numpy()
    away = largest = 0.0
    for first, end in _blocks(clients, classes):
        counts = class_counts(shares, labels, classes, first, end)
        own = counts / np.maximum(sizes[first:end, None], 1)
        away += float(np.abs(own - mix).sum()) / 2
        largest += float(own.max(1).sum())
    held = np.zeros(len(labels), bool)
    held[shares.indices.numpy()] = True
    return Heterogeneity(
        clients=clients,
        held=len(shares.indices),
        distinct=int(held.sum()),
        moved=shares.moved,
        size_min=int(sizes.min()),
        size_mean=float(sizes.mean()),
        size_max=int(sizes.max()),
        total_variation=round(away / clients, 12),  # the last digits depend on the blocks
        max_share=round(largest / clients, 12),
        mix=mix,
        shares=shares,
        labels=labels,
    )


def class_counts(shares: Shares, labels: Ints, classes: int, first: int, end: int) -> Ints:
    """Samples of each class at clients first, ..., end − 1."""
    offsets = shares.offsets[first : end + 1].numpy()
    own = labels[shares.indices[offsets[0] : offsets[-1]].numpy()]
    row = np.repeat(np.arange(end - first), np.diff(offsets))
    counted = np.bincount(row * classes + own, minlength=(end - first) * classes)
    return counted.reshape(end - first, classes)


def _blocks(clients: int, classes: int) -> Iterator[tuple[int, int]]:
    """Ranges of clients whose counts together are no larger than a block."""
    rows = max(1, BLOCK // classes)
    for first in range(0, clients, rows):
        yield first, min(clients, first + rows)
