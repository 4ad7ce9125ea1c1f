"""What a method's hooks may ask: gradients of a mini-batch, and on the server the model itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from flatfed.vec import Vec

if TYPE_CHECKING:
    from torch import Tensor

    from flatfed.flatmodel import FlatModel


class Oracle(Protocol):
    """The gradient of one mini-batch, at whatever point it is asked for."""

    def __call__(self, w: Vec, /) -> Vec: ...


@dataclass(frozen=True)
class Pass:
    """What one forward pass showed: what another loss than the model's own is made of."""

    outputs: Tensor
    targets: Tensor
    features: Sequence[Tensor]  # of every layer that the model names, if they were asked for
    loss: Tensor  # the model's own


class Samples(Oracle, Protocol):
    """A mini-batch that answers more than the gradient of the model's own loss."""

    def gradient(self, w: Vec, loss: Callable[[Pass], Tensor], /, *, features: bool = False) -> Vec:
        """The gradient of another loss, a mean over the batch."""
        ...

    def outputs(self, w: Vec, /) -> Tensor:
        """The model's outputs, without a gradient: a forward pass."""
        ...

    def on(self, inputs: Tensor, targets: Tensor, /) -> Oracle:
        """The same model's gradient on other samples."""
        ...

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one input."""
        ...


class Workbench(Protocol):
    """What the server computes with, where a method lets it train."""

    @property
    def model(self) -> FlatModel: ...

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one input."""
        ...

    @property
    def classes(self) -> int: ...

    def ready(self, inputs: Tensor) -> Tensor:
        """Inputs as the data set has them, as the model takes them."""
        ...

    def spent(self, gradients: int) -> None:
        """So many mini-batch gradients more."""
        ...

    def tell(self, what: str, done: int, total: int) -> None:
        """How far a long piece of work has come."""
        ...
