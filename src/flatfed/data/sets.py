"""What a data set is, wherever it came from: tensors that every worker shares."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from flatfed.errors import FederationError


@dataclass(frozen=True)
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

    def __len__(self) -> int:
        return len(self.targets)


@dataclass(frozen=True)
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

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one input."""
        return tuple(self.train.inputs.shape[1:])
