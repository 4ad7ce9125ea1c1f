"""A federation: one task, one model, and who holds which samples of it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from flatfed.batches import Steps, Tally, Turn, Whole
from flatfed.data.sets import DataSet
from flatfed.data.shares import Partition, Shares
from flatfed.data.transforms import Prepare
from flatfed.errors import FederationError, FlatfedError, ModelError
from flatfed.flatmodel import Batch, FlatModel
from flatfed.part import Local
from flatfed.rounds import LocalData
from flatfed.vec import Vec, digest

EVALUATED_AT_ONCE = 500  # test samples in one pass: fixed, because it decides how sums round


@dataclass(frozen=True)
class Score:
    """Test samples, how many are classified rightly, and the sum of their losses."""

    samples: int = 0
    right: int = 0
    losses: float = 0.0

    def __add__(self, other: Score) -> Score:
        return Score(
            self.samples + other.samples, self.right + other.right, self.losses + other.losses
        )

    @property
    def accuracy(self) -> float:
        return self.right / self.samples

    @property
    def loss(self) -> float:
        return self.losses / self.samples


class Federation:
    """Every client's share of a data set, and the model they train.

    `partition` says who holds what; it is dealt once, by its own seed, so that runs which differ
    in method or seed differ in nothing else. `augment` is applied to training batches only.
    """

    def __init__(
        self,
        data: DataSet,
        model: nn.Module | FlatModel,
        partition: Partition | Shares,
        *,
        augment: str = "none",
        partition_seed: int = 0,
    ) -> None:
        self.data = data
        self.model = model if isinstance(model, FlatModel) else FlatModel(model)
        if isinstance(partition, Shares):
            self.shares = partition
        else:
            self.shares = partition.deal(
                data.train.targets,
                len(data.classes),
                seed=partition_seed,
                owners=data.train.owners,
            )
        self.prepare = Prepare(data.mean, data.std, augment)
        self._sizes = self.shares.sizes
        empty = int((self._sizes == 0).sum())
        if len(self.shares) == 0 or empty:
            raise FederationError(
                f"{empty} of {len(self.shares)} clients hold no sample, expected at least one "
                "each.\nUse fewer clients, or a partition with a minimum size."
            )
        n, shared = len(data.train), self.shares.indices
        if int(shared.min()) < 0 or int(shared.max()) >= n:
            raise FederationError(
                f"The shares name samples {int(shared.min())} to {int(shared.max())}, expected "
                f"numbers in [0, {n}), for {data.name} has {n} training samples.\n"
                "Deal this data set's samples."
            )
        if not len(data.test):
            raise FederationError(
                f"{data.name} has 0 test samples, expected at least 1.\n"
                "Put some aside: without them nobody knows what was learnt."
            )
        self._probe()

    def _probe(self) -> None:
        """A few samples through the model: a wrong shape is said here and not in round 0."""
        # Two, because BatchNorm has no variance of one.
        batch = self._batch(self.data.train.inputs[:2], self.data.train.targets[:2], None)
        classes = len(self.data.classes)
        try:
            outputs = self.model.outputs(self.model.x0, batch[0])
            if outputs.dim() == 2 and outputs.shape[1] < classes:
                raise ModelError(
                    f"the model has {outputs.shape[1]} outputs and {self.data.name} {classes} "
                    f"classes, expected at least as many outputs.\nBuild it for {classes} classes."
                )
            # A pass that draws nothing needs no seed, which saves a small model a tenth of a step.
            self.random = self.model.draws(batch)
        except FlatfedError:
            raise
        except Exception as error:  # a module may refuse its inputs in any way
            raise ModelError(
                f"the model fails on two inputs of {self.data.name}, each of shape "
                f"{self.data.shape}: {next(iter(str(error).splitlines()), type(error).__name__)}\n"
                "Choose a model for inputs of that shape, or give it the shape."
            ) from error

    @property
    def N(self) -> int:
        """Clients in all."""
        return len(self.shares)

    @cached_property
    def mean_samples(self) -> float:
        """n̄, the mean of n_i over all clients."""
        return float(self._sizes.double().mean())

    def fingerprint(self) -> dict[str, object]:
        """What a run's results depend on: two federations that agree in it train the same."""
        return {
            "data": self.data.name,
            "samples": self.data.digest,
            "clients": self.N,
            "shares": digest({"offsets": self.shares.offsets, "indices": self.shares.indices}),
            "augment": self.prepare.augment,
            "first_model": digest({"x": self.model.x0, "buffers": self.model.b0}),
        }

    def local_data(
        self,
        client: int,
        t: int,
        local: Local,
        *,
        seed: int,
        tally: Tally | None = None,
        drawn: int | None = None,
    ) -> LocalData:
        """What one client brings to round t: its mini-batches in this round's order."""
        mine = self.shares.of(client)
        turn = Turn(self, client, t, seed, mine, Tally() if tally is None else tally)
        batch_size = min(local.batch_size or len(mine), len(mine))
        return LocalData(
            client,
            Steps(turn, local.steps_for(len(mine)), batch_size),
            Whole(turn, batch_size),
            samples=len(mine),
            layout=self.model.layout,
            seed=seed,
            drawn=drawn,
        )

    def evaluate(self, w: Vec, buffers: Vec | None, start: int = 0) -> Score:
        """The score on test samples from `start`, as many as are evaluated at once."""
        test = self.data.test
        at = slice(start, start + EVALUATED_AT_ONCE)
        inputs, targets = self._batch(test.inputs[at], test.targets[at], None)
        with torch.no_grad():
            outputs = self.model.outputs(w, inputs, buffers=buffers)
            loss = float(self.model.loss_of(outputs, targets)) * len(targets)
        return Score(len(targets), int((outputs.argmax(1) == targets).sum()), loss)

    @property
    def test_starts(self) -> range:
        """Where the passes over the test samples start."""
        return range(0, len(self.data.test), EVALUATED_AT_ONCE)

    def _batch(self, inputs: Tensor, targets: Tensor, generator: torch.Generator | None) -> Batch:
        return self.prepare(inputs, generator), targets

    def take(self, indices: Tensor, generator: torch.Generator | None = None) -> Batch:
        """Training samples as a batch that the model takes."""
        train = self.data.train
        # index_select is an order of magnitude faster than indexing with a tensor.
        return self._batch(
            train.inputs.index_select(0, indices), train.targets.index_select(0, indices), generator
        )
