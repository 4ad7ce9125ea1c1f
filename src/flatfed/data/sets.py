"""What a data set is, wherever it came from: tensors that every worker shares."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from flatfed.errors import FederationError
from flatfed.vec import digest, non_finite


@dataclass(frozen=True, eq=False)  # tensors do not compare to one truth
class Split:
    """Samples and their classes; images stay bytes until a batch is made of them.

    inputs: images as uint8 (n, channels, height, width), token ids as int32 (n, length), or
    anything else as float32 (n, ...). targets: int64 (n,), each in [0, classes).
    """

    inputs: Tensor
    targets: Tensor
    owners: Tensor | None = None  # int64 (n,): the natural client of each sample, from 0

    def __post_init__(self) -> None:
        lengths = {len(self.inputs), len(self.targets)}
        lengths |= set() if self.owners is None else {len(self.owners)}
        if len(lengths) > 1 or self.targets.dim() != 1:
            raise FederationError(
                f"A split has {len(self.inputs)} inputs and targets of shape "
                f"{tuple(self.targets.shape)}, expected one target for every input.\n"
                "Give targets as a vector of whole numbers."
            )
        if self.targets.dtype != torch.int64:
            raise FederationError(
                f"A split has targets of {self.targets.dtype}, expected torch.int64.\n"
                "Give the numbers of classes, for example targets.long()."
            )
        if bad := non_finite(self.inputs):
            raise FederationError(
                f"A split has {bad} NaN or infinite numbers among its inputs, expected none.\n"
                "Leave those samples out, or fill them in."
            )

    def __len__(self) -> int:
        return len(self.targets)


@dataclass(frozen=True, eq=False)
class DataSet:
    """Training and test samples of one task.

    mean and std are of the pixels divided by 255, one number a channel; empty where inputs are
    no images.
    """

    name: str
    train: Split
    test: Split
    classes: tuple[str, ...]
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    vocabulary: int = 0  # token ids are below this; 0 where inputs are no text

    def __post_init__(self) -> None:
        seen, asked = self.train.inputs, self.test.inputs
        if seen.shape[1:] != asked.shape[1:] or seen.dtype != asked.dtype:
            raise FederationError(
                f"{self.name} has training inputs of shape {tuple(seen.shape)} and {seen.dtype}, "
                f"test inputs of {tuple(asked.shape)} and {asked.dtype}, expected the same.\n"
                "Prepare both in the same way."
            )
        for split in (self.train, self.test):
            low, high = map(int, split.targets.aminmax()) if len(split) else (0, 0)
            if len(split) and not 0 <= low <= high < len(self.classes):
                raise FederationError(
                    f"{self.name} has targets from {low} to {high}, expected 0 to "
                    f"{len(self.classes) - 1}: one of its {len(self.classes)} classes.\n"
                    "Number the classes from 0, and name each of them."
                )

    @cached_property
    def digest(self) -> str:
        """A hash of all samples and of how they are seen: it tells data of one name apart."""
        samples = {
            f"{part} {what}": getattr(split, what)
            for part, split in (("train", self.train), ("test", self.test))
            for what in ("inputs", "targets")
        }
        seen = repr((self.classes, self.mean, self.std, digest(samples)))
        return hashlib.sha256(seen.encode()).hexdigest()

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one input."""
        return tuple(self.train.inputs.shape[1:])

    @property
    def sizes(self) -> dict[str, Any]:
        """What a model must know of its data: models.build("lenet", seed=0, **data.sizes)."""
        return {
            "shape": self.shape,
            "classes": len(self.classes),
            "vocabulary": self.vocabulary or None,
        }
