"""Who holds which samples, and what a partitioner is."""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from flatfed.errors import CompositionError, FederationError, whole
from flatfed.vec import seed_for

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Shares:
    """Who holds which samples: client i has indices[offsets[i]:offsets[i + 1]], ascending.

    Two flat tensors, so a million clients cost no more than their samples.

    >>> shares = share_out(np.array([4, 7, 2]), np.array([1, 0, 1]), clients=2)
    >>> shares.of(1), shares.sizes
    (tensor([2, 4]), tensor([1, 2]))
    """

    indices: Tensor  # int64
    offsets: Tensor  # int64, one more than clients
    moved: int = 0  # samples that changed hands because a client had too few

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def of(self, i: int) -> Tensor:
        """The samples of client i."""
        return self.indices[int(self.offsets[i]) : int(self.offsets[i + 1])]

    @property
    def sizes(self) -> Tensor:
        """Samples of every client."""
        return self.offsets.diff()


def share_out(samples: Ints, owner: Ints, clients: int, moved: int = 0) -> Shares:
    """Sample samples[k] for client owner[k]."""
    # One sort of one number for both: a stable sort of two takes four times as long.
    span = int(samples.max()) + 1
    indices = np.sort(owner * span + samples) % span
    offsets = np.zeros(clients + 1, np.int64)
    np.cumsum(np.bincount(owner, minlength=clients), out=offsets[1:])
    return Shares(torch.from_numpy(indices), torch.from_numpy(offsets), moved)


@dataclass(frozen=True, eq=False)
class Pools:
    """All samples, class by class, shuffled within; classes without samples are left out.

    A Dirichlet prior over the classes that are left, renormalised, is a Dirichlet prior.
    """

    order: Ints  # samples of the first class, then of the second, ...
    counts: Ints  # how many each class has
    starts: Ints  # where each class begins in order

    @classmethod
    def of(cls, labels: Ints, rng: np.random.Generator) -> Pools:
        shuffled = rng.permutation(len(labels))
        _, counts = np.unique(labels, return_counts=True)
        order = shuffled[np.argsort(labels[shuffled], kind="stable")]
        return cls(order, counts, np.cumsum(counts) - counts)

    @property
    def total(self) -> int:
        return len(self.order)

    def owners(self, held: Ints) -> Ints:
        """The owner of every place in order, when client i holds held[c, i] of class c."""
        return np.repeat(np.tile(np.arange(held.shape[1]), len(held)), held.ravel())


@dataclass(frozen=True)
class Partition(abc.ABC):
    """A rule by which clients get their samples."""

    @abc.abstractmethod
    def deal(
        self, targets: Tensor, classes: int, *, seed: int, owners: Tensor | None = None
    ) -> Shares:
        """Who holds what; owners are the natural clients of the samples, where there are any."""


@dataclass(frozen=True, kw_only=True)
class Dealt(Partition):
    """A partition over a given number of clients."""

    clients: int

    def __post_init__(self) -> None:
        try:
            self.check()
        except CompositionError as error:  # the same words; a wrong federation is no method
            raise FederationError(str(error)) from None

    def check(self) -> None:
        """Refuse values that no data could satisfy."""
        whole(self, "clients", 1)

    def deal(
        self, targets: Tensor, classes: int, *, seed: int, owners: Tensor | None = None
    ) -> Shares:
        """Who holds what: the same for the same targets and seed; owners are not looked at."""
        labels = labels_of(targets, classes)
        if self.clients > len(labels):
            self.refuse(f"{len(labels)} samples", "a sample for every client", clients=self.clients)
        rng = np.random.Generator(np.random.PCG64(seed_for(seed, "partition")))
        return self.share(Pools.of(labels, rng), rng)

    @abc.abstractmethod
    def share(self, pools: Pools, rng: np.random.Generator) -> Shares:
        """The rule itself."""

    def refuse(self, of: str, expected: str, do: str = "Lower", /, **given: int) -> NoReturn:
        """Refuse values that this data cannot satisfy, though other data could."""
        asked = ", ".join(f"{name}={value!r}" for name, value in given.items())
        raise FederationError(
            f"{type(self).__name__} got {asked} for {of}, expected {expected}.\n"
            f"{do} {' or '.join(given)}, or take other data."
        )


def labels_of(targets: Tensor, classes: int) -> Ints:
    """Targets as NumPy sees them, each a whole number in [0, classes)."""
    if targets.dim() != 1 or targets.is_floating_point() or targets.is_complex():
        raise FederationError(
            f"Targets are {targets.dtype} of shape {tuple(targets.shape)}, expected a vector of "
            "whole numbers.\nGive every sample the number of its class."
        )
    labels: Ints = targets.detach().cpu().numpy().astype(np.int64)
    wrong = labels[(labels < 0) | (labels >= classes)]
    if len(wrong):
        raise FederationError(
            f"Targets hold {int(wrong[0])}, expected whole numbers in [0, {classes}).\n"
            "Number the classes from 0, and say how many there are."
        )
    return labels


def even(total: int, parts: int) -> Ints:
    """The sizes of that many parts of a whole, equal as far as whole numbers can be.

    >>> even(7, 3)
    array([2, 2, 3])
    """
    return np.diff(total * np.arange(parts + 1) // parts)
