"""One client's work of one round: its mini-batches, made when their step comes, and what they cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from flatfed.errors import FederationError, NonFiniteError
from flatfed.flatmodel import Batch
from flatfed.part import Local, Oracle
from flatfed.vec import Layout, Vec, seed_for

if TYPE_CHECKING:
    from flatfed.federation import Federation


@dataclass
class Tally:
    """What one client did in one round: gradients it took, losses it saw, how long it may take."""

    gradients: int = 0
    losses: float = 0.0
    steps: int = 0
    deadline: float = float("inf")  # of time.monotonic()


class Steps(Sequence["Oracle"]):
    """One client's mini-batches of one round, each made when its step comes."""

    def __init__(
        self,
        federation: Federation,
        client: int,
        t: int,
        K: int,
        mine: Tensor,
        local: Local,
        seed: int,
        tally: Tally,
    ) -> None:
        self._federation, self._mine, self._tally = federation, mine, tally
        self._K, self._seed, self._at = K, seed, (t, client)
        self.batch_size = min(local.batch_size or len(mine), len(mine))
        self._orders: dict[int, Tensor] = {}

    def __len__(self) -> int:
        return self._K

    def __getitem__(self, k: int) -> Oracle:  # type: ignore[override]  # no slices
        if not 0 <= k < self._K:
            raise IndexError(k)
        federation, tally = self._federation, self._tally
        epoch, position = divmod(k, -(-len(self._mine) // self.batch_size))
        order = self._order(epoch)
        chosen = order[position * self.batch_size : (position + 1) * self.batch_size]
        draw = None
        if federation.prepare.augment != "none":
            draw = torch.Generator().manual_seed(self._seed_for("augmentation", k))
        dropout = self._seed_for("dropout", k) if federation.random else None
        return StepOracle(federation, federation.take(chosen, draw), dropout, self._at, k, tally)

    def _order(self, epoch: int) -> Tensor:
        """The epoch's order of this client's samples; a whole batch has only one."""
        if self.batch_size == len(self._mine):
            return self._mine
        if epoch not in self._orders:
            random = torch.Generator().manual_seed(self._seed_for("order", epoch))
            order = torch.randperm(len(self._mine), generator=random)
            self._orders = {epoch: self._mine.index_select(0, order)}
        return self._orders[epoch]

    def _seed_for(self, purpose: str, number: int) -> int:
        return seed_for(self._seed, purpose, *self._at, number)


class StepOracle:
    """One mini-batch's gradient, counted; the loss of its first is the step's."""

    def __init__(
        self,
        federation: Federation,
        batch: Batch,
        seed: int | None,
        at: tuple[int, int],
        k: int,
        tally: Tally,
    ) -> None:
        self._model, self._batch, self._seed = federation.model, batch, seed
        self._at, self._k, self._tally, self._first = at, k, tally, True

    def __call__(self, w: Vec) -> Vec:
        value, gradient = self._model.value_and_grad(w, self._batch, seed=self._seed)
        loss, tally = float(value), self._tally
        t, client = self._at
        if not loss - loss == 0.0:  # NaN or infinite: the client need not finish its round
            raise NonFiniteError(
                f"Client {client}'s loss is {loss} at step {self._k} of round {t}, expected a "
                "finite number.\nLower its learning rate, or set clip."
            )
        if monotonic() > tally.deadline:
            raise FederationError(
                f"Client {client} ran out of time at step {self._k} of round {t}.\n"
                "Give it more with engine.timeout, or less work."
            )
        tally.gradients += 1
        if self._first:
            self._first = False
            tally.losses += loss
            tally.steps += 1
        return gradient

    @property
    def layout(self) -> Layout:
        """Where the module's tensors lie in the vector."""
        return self._model.layout

    def observe(self, w: Vec, buffers: Vec) -> Vec:
        """The running statistics after a pass at w over this batch."""
        return self._model.observe(w, self._batch[0], buffers, seed=self._seed)


class Whole:
    """The gradient over all of one client's data, without augmentation, a mini-batch at a time."""

    def __init__(self, federation: Federation, mine: Tensor, batch_size: int, tally: Tally) -> None:
        self._federation, self._mine, self._tally = federation, mine, tally
        self._batch_size = batch_size

    def __call__(self, w: Vec) -> Vec:
        total = torch.zeros_like(w)
        for some in self._mine.split(self._batch_size):
            gradient = self._federation.model.grad(w, self._federation.take(some))
            total.add_(gradient, alpha=len(some) / len(self._mine))
            # It costs what as many mini-batches cost.
            self._tally.gradients += 1
        return total
