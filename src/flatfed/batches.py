"""One client's work of one round: its mini-batches, made when their step comes, and their cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import inf, isfinite
from time import monotonic
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from flatfed.errors import NonFiniteError
from flatfed.flatmodel import Batch
from flatfed.oracle import Oracle, Pass
from flatfed.vec import Layout, Vec, seed_for

if TYPE_CHECKING:
    from flatfed.federation import Federation


@dataclass
class Tally:
    """What one client did in one round: gradients it took, losses it saw, how long it may take."""

    gradients: int = 0
    forwards: int = 0  # passes without a gradient
    losses: float = 0.0
    steps: int = 0
    step: int = 0  # the one it is at
    deadline: float = inf  # of time.monotonic()


@dataclass(frozen=True)
class Turn:
    """One client's turn in one round: whose samples, drawn by which seed, counted where."""

    federation: Federation
    client: int
    t: int
    seed: int
    mine: Tensor
    tally: Tally

    def seed_for(self, purpose: str, number: int) -> int:
        """The seed of one purpose in this turn, at one step, epoch or batch."""
        return seed_for(self.seed, purpose, self.t, self.client, number)

    def gradient(
        self,
        w: Vec,
        batch: Batch,
        seed: int | None,
        of: Callable[[Pass], Tensor] | None = None,
        features: bool = False,
    ) -> tuple[float, Vec]:
        """The loss and the gradient of one mini-batch, or the gradient of another loss: counted,
        and refused when it cannot go on."""
        model = self.federation.model
        if of is None:
            value, gradient = model.value_and_grad(w, batch, seed=seed)
        else:
            value, gradient = model.gradient_of(w, batch, of, features=features, seed=seed)
        loss, tally = float(value), self.tally
        if not isfinite(loss):  # the client need not finish its round
            raise NonFiniteError(
                f"Client {self.client}'s loss is {loss} at step {tally.step} of round {self.t}, "
                "expected a finite number.\nLower its learning rate, or set clip."
            )
        if monotonic() > tally.deadline:
            raise TimeoutError("it took longer than engine.timeout: raise it, or give less work")
        tally.gradients += 1
        return loss, gradient

    def outputs(self, w: Vec, batch: Batch, seed: int | None) -> Tensor:
        """The model's outputs on one mini-batch, as a training pass gives them: counted."""
        self.tally.forwards += 1
        with torch.no_grad():
            return self.federation.model.outputs(w, batch[0], train=True, seed=seed)


class Steps(Sequence["Oracle"]):
    """One client's mini-batches of one round. One of them is there at a time, the one last used:
    what a small model's step costs beside its gradient is memory that is not in the cache."""

    def __init__(self, turn: Turn, K: int, batch_size: int) -> None:
        self.turn, self._K, self._batch_size = turn, K, batch_size
        self._per_epoch = -(-len(turn.mine) // batch_size)  # the short last one counts
        self._order = (-1, turn.mine)  # an epoch, and its order of the samples
        self._made: tuple[int, Batch, int | None] | None = None
        self._counted = -1

    def __len__(self) -> int:
        return self._K

    def __getitem__(self, k: int) -> Oracle:  # type: ignore[override]  # no slices
        if not 0 <= k < self._K:
            raise IndexError(k)
        return StepOracle(self, k)

    def batch(self, k: int) -> tuple[Batch, int | None]:
        """Step k's samples, and the seed of its dropout: the same whenever they are asked for."""
        if self._made is None or self._made[0] != k:
            turn, federation = self.turn, self.turn.federation
            self._made = draw = None  # the last one goes first, and leaves its room to the next
            epoch, position = divmod(k, self._per_epoch)
            start = position * self._batch_size
            chosen = self._in_order(epoch)[start : start + self._batch_size]
            if federation.prepare.augment != "none":
                draw = torch.Generator().manual_seed(turn.seed_for("augmentation", k))
            dropout = turn.seed_for("dropout", k) if federation.random else None
            self._made = k, federation.take(chosen, draw), dropout
        return self._made[1:]

    def heard(self, k: int, loss: float) -> None:
        """The loss of the first gradient that a step asks for is the step's."""
        if k > self._counted:
            self._counted = k
            self.turn.tally.losses += loss
            self.turn.tally.steps += 1

    def _in_order(self, epoch: int) -> Tensor:
        """The client's samples in the epoch's order; a whole batch has only one."""
        mine = self.turn.mine
        if self._batch_size == len(mine):
            return mine
        if self._order[0] != epoch:
            random = torch.Generator().manual_seed(self.turn.seed_for("order", epoch))
            order = torch.randperm(len(mine), generator=random)
            self._order = (epoch, mine.index_select(0, order))
        return self._order[1]


class StepOracle:
    """One step's mini-batch, and whatever a method asks of it."""

    def __init__(self, steps: Steps, k: int) -> None:
        self._steps, self._k = steps, k

    def __call__(self, w: Vec) -> Vec:
        return self._gradient(w)

    def gradient(self, w: Vec, loss: Callable[[Pass], Tensor], *, features: bool = False) -> Vec:
        """The gradient of another loss."""
        return self._gradient(w, loss, features)

    def _gradient(
        self, w: Vec, of: Callable[[Pass], Tensor] | None = None, features: bool = False
    ) -> Vec:
        steps = self._steps
        steps.turn.tally.step = self._k
        batch, seed = steps.batch(self._k)
        loss, gradient = steps.turn.gradient(w, batch, seed, of, features)
        steps.heard(self._k, loss)
        return gradient

    def outputs(self, w: Vec) -> Tensor:
        """The model's outputs, without a gradient."""
        batch, seed = self._steps.batch(self._k)
        return self._steps.turn.outputs(w, batch, seed)

    def on(self, inputs: Tensor, targets: Tensor) -> Oracle:
        """The same model's gradient on other samples."""
        turn = self._steps.turn
        seed = turn.seed_for("dropout of others", self._k) if turn.federation.random else None
        return BatchAt(turn, (inputs, targets), seed)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one input."""
        return self._steps.turn.federation.data.shape

    @property
    def layout(self) -> Layout:
        """Where the module's tensors lie in the vector."""
        return self._steps.turn.federation.model.layout

    def observe(self, w: Vec, buffers: Vec) -> Vec:
        """The running statistics after a pass at w over this batch."""
        batch, seed = self._steps.batch(self._k)
        return self._steps.turn.federation.model.observe(w, batch[0], buffers, seed=seed)


@dataclass(frozen=True)
class BatchAt:
    """A mini-batch that is none of the client's steps, and whatever a method asks of it."""

    turn: Turn
    batch: Batch
    seed: int | None

    def __call__(self, w: Vec) -> Vec:
        return self.turn.gradient(w, self.batch, self.seed)[1]

    def gradient(self, w: Vec, loss: Callable[[Pass], Tensor], *, features: bool = False) -> Vec:
        """The gradient of another loss."""
        return self.turn.gradient(w, self.batch, self.seed, loss, features)[1]

    def outputs(self, w: Vec) -> Tensor:
        """The model's outputs, without a gradient."""
        return self.turn.outputs(w, self.batch, self.seed)

    def on(self, inputs: Tensor, targets: Tensor) -> Oracle:
        """The same model's gradient on other samples."""
        return BatchAt(self.turn, (inputs, targets), self.seed)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one input."""
        return self.turn.federation.data.shape


class Whole:
    """The gradient over all of one client's data, without augmentation, a mini-batch at a time."""

    def __init__(self, turn: Turn, batch_size: int) -> None:
        self._turn, self._batch_size = turn, batch_size

    @property
    def pieces(self) -> Iterator[tuple[float, BatchAt]]:
        """The mini-batches with their shares. They cost what as many steps cost, and are counted
        so."""
        turn = self._turn
        federation, mine = turn.federation, turn.mine
        for number, start in enumerate(range(0, len(mine), self._batch_size)):
            some = mine[start : start + self._batch_size]
            seed = turn.seed_for("dropout of all", number) if federation.random else None
            yield len(some) / len(mine), BatchAt(turn, federation.take(some), seed)

    def __call__(self, w: Vec) -> Vec:
        return self.weighed(w, lambda piece: piece)

    def weighed(self, w: Vec, gradient_on: Callable[[Oracle], Oracle]) -> Vec:
        """The mean of what is asked of every mini-batch, made one by one, by its samples."""
        total = torch.zeros_like(w)
        for share, piece in self.pieces:
            total.add_(gradient_on(piece)(w), alpha=share)
        return total
