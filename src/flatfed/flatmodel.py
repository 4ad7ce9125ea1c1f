"""Any `nn.Module`, seen as a function of one flat vector."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn
from torch.func import functional_call

from flatfed.errors import ModelError
from flatfed.module import features_into, own_copy, trained_parameters
from flatfed.oracle import Pass
from flatfed.vec import Layout, Vec, lay_out

Batch: TypeAlias = tuple[Tensor, Tensor]  # inputs, targets
Loss: TypeAlias = Callable[[Tensor, Tensor], Tensor]  # (outputs, targets) → mean over the batch


class FlatModel:
    """A module's trainable parameters as one vector, its loss and derivatives as functions of it.

    Frozen parameters stay out of the vector and keep their values, so adapters work as they are.
    Running statistics are no parameters: they travel as a vector of their own (`b0`, `observe`),
    and no other call changes them. Nothing here changes the module it was given.

    >>> model = FlatModel(nn.Linear(3, 2))
    >>> model.x0.shape
    torch.Size([8])
    """

    def __init__(
        self,
        module: nn.Module,
        loss: Loss = nn.functional.cross_entropy,
        *,
        precision: Literal["full", "bfloat16"] = "full",
    ) -> None:
        self._module = own_copy(module)
        if precision not in ("full", "bfloat16"):
            raise ModelError(
                f"FlatModel got precision={precision!r}, expected 'full' or 'bfloat16'.\n"
                "bfloat16 computes the forward pass in it and keeps w and the gradient as they are."
            )
        self.loss_of, self._precision = loss, precision  # of outputs that are already there
        trained = trained_parameters(self._module)
        # What its owner has put in evaluation mode, under a module that trains, stays in it.
        self._still = [m for m in self._module.modules() if module.training and not m.training]
        self._trained: list[Tensor] = list(trained.values())
        self._training: bool | None = None  # the mode the module was last put in
        self.layout: Layout = lay_out({name: p.shape for name, p in trained.items()})
        self._lengths = [slot.at.stop - slot.at.start for slot in self.layout]
        self.x0: Vec = _flatten(trained.values())
        # What a state dict holds beside parameters is what training may move; integer counters,
        # buffers outside the state dict and masks of infinities are the module's own constants.
        self._has_buffers = any(True for _ in self._module.buffers())
        kept = self._module.state_dict().keys()
        moving = {
            name: buffer
            for name, buffer in self._module.named_buffers()
            if name in kept and buffer.is_floating_point() and buffer.isfinite().all()
        }
        self._buffer_layout = lay_out({name: buffer.shape for name, buffer in moving.items()})
        self.b0: Vec = _flatten(moving.values()) if moving else self.x0.new_empty(0)

    @property
    def d(self) -> int:
        """Trainable scalars."""
        return self.x0.numel()

    def loss(self, w: Vec, batch: Batch, *, seed: int | None = None) -> Tensor:
        """F(w) on a batch in training mode, differentiable in w; `seed` fixes dropout."""
        with _seeded(seed, w.device):
            outputs = self._call(self._cut(w), batch[0], self._scratch(None), train=True)
            return self.loss_of(outputs, batch[1])

    def grad(self, w: Vec, batch: Batch, *, seed: int | None = None) -> Vec:
        """∇F(w) on a batch."""
        return self.value_and_grad(w, batch, seed=seed)[1]

    def value_and_grad(
        self, w: Vec, batch: Batch, *, seed: int | None = None, loss_of: Loss | None = None
    ) -> tuple[Tensor, Vec]:
        """F(w), without a graph, and ∇F(w) on a batch; of another loss if one is given."""
        loss_of = loss_of or self.loss_of
        if self._has_buffers:
            leaves, loss = self._leaves(w, batch, seed, loss_of)
        else:
            # The module's own parameters look at w while it runs: half the overhead of
            # functional_call, which a small model feels in every step.
            leaves = self._trained
            for parameter, piece in zip(leaves, self._pieces(w.detach()), strict=True):
                parameter.data = piece
            self._mode(train=True)
            with torch.enable_grad(), _seeded(seed, w.device):
                loss = loss_of(self._run(batch[0]), batch[1])
        # Unused parameters have no gradient: theirs is zero.
        return loss.detach(), _flatten(torch.autograd.grad(loss, leaves, materialize_grads=True))

    def draws(self, batch: Batch) -> bool:
        """Whether a training pass draws random numbers: only then does it need a seed."""
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            before = torch.get_rng_state()
            self.loss(self.x0, batch)
            return not torch.equal(before, torch.get_rng_state())

    def hvp(self, w: Vec, u: Vec, batch: Batch, *, seed: int | None = None) -> Vec:
        """∇²F(w)·u on a batch."""
        with torch.enable_grad():
            leaves, loss = self._leaves(w, batch, seed, self.loss_of)
            first = torch.autograd.grad(loss, leaves, create_graph=True, materialize_grads=True)
            along = self._cut(u.detach(), "u").values()
            inner = torch.stack([(g * v).sum() for g, v in zip(first, along, strict=True)]).sum()
            if not inner.requires_grad:  # a loss linear in w
                return torch.zeros_like(w)
            return _flatten(torch.autograd.grad(inner, leaves, materialize_grads=True))

    def outputs(
        self,
        w: Vec,
        inputs: Tensor,
        *,
        buffers: Vec | None = None,
        train: bool = False,
        seed: int | None = None,
    ) -> Tensor:
        """The module's outputs at w, differentiable in w; evaluation mode unless told otherwise."""
        with _seeded(seed, w.device):
            return self._call(self._cut(w), inputs, self._scratch(buffers), train=train)

    def gradient_of(
        self,
        w: Vec,
        batch: Batch,
        loss: Callable[[Pass], Tensor],
        *,
        features: bool = False,
        seed: int | None = None,
    ) -> tuple[Tensor, Vec]:
        """The model's own loss, and the gradient of another that is made of one pass."""
        seen: list[Tensor] = []
        own: list[Tensor] = []

        def loss_of(outputs: Tensor, targets: Tensor) -> Tensor:
            own.append(self.loss_of(outputs, targets))
            return loss(Pass(outputs, targets, tuple(seen), own[0]))

        with features_into(seen, self._module) if features else nullcontext():
            _, gradient = self.value_and_grad(w, batch, seed=seed, loss_of=loss_of)
        return own[0].detach(), gradient

    def observe(self, w: Vec, inputs: Tensor, buffers: Vec, *, seed: int | None = None) -> Vec:
        """The buffers after one training pass at w: the only call that moves running statistics."""
        scratch = self._scratch(buffers)
        if not self._buffer_layout:
            return buffers
        with torch.no_grad(), _seeded(seed, w.device):
            self._call(self._cut(w), inputs, scratch, train=True)
        return _flatten(scratch[slot.name] for slot in self._buffer_layout)

    def oracle(self, batch: Batch, *, seed: int | None = None) -> BatchOracle:
        """The batch as a method's client sees it."""
        return BatchOracle(self, batch, seed)

    def module_at(self, w: Vec, buffers: Vec | None = None) -> nn.Module:
        """A module of its own at w, in evaluation mode: back to plain PyTorch."""
        module = copy.deepcopy(self._module).eval()
        values = {**self._cut(w), **self._scratch(buffers)}
        with torch.no_grad():
            for name, tensor in (*module.named_parameters(), *module.named_buffers()):
                if name in values:
                    tensor.copy_(values[name])
        return module

    def _leaves(
        self, w: Vec, batch: Batch, seed: int | None, loss_of: Loss
    ) -> tuple[list[Tensor], Tensor]:
        # Leaves that share w's memory: differentiating through the cuts would write a zero vector
        # of length d for every tensor.
        cut = {name: part.requires_grad_() for name, part in self._cut(w.detach()).items()}
        with torch.enable_grad(), _seeded(seed, w.device):
            outputs = self._call(cut, batch[0], self._scratch(None), train=True)
            loss = loss_of(outputs, batch[1])
        return list(cut.values()), loss

    def _call(
        self, cut: dict[str, Tensor], inputs: Tensor, scratch: dict[str, Tensor], *, train: bool
    ) -> Tensor:
        self._mode(train=train)
        return self._run(inputs, {**cut, **scratch})

    def _run(self, inputs: Tensor, values: dict[str, Tensor] | None = None) -> Tensor:
        """The module's outputs, at other parameters and buffers if they are given."""
        outputs: Tensor
        if self._precision == "full":
            if values is None:
                outputs = self._module(inputs)
            else:
                outputs = functional_call(self._module, values, (inputs,))
            return outputs
        # Autocast keeps casts of what it takes for weights that stay; ours move at every call.
        with torch.autocast(inputs.device.type, torch.bfloat16, cache_enabled=False):
            outputs = functional_call(self._module, values or {}, (inputs,))
        return outputs.to(self.x0.dtype)

    def _mode(self, *, train: bool) -> None:
        if self._training is not train:
            self._training = train
            self._module.train(train)
            for part in self._still:
                part.training = False

    def _pieces(self, w: Vec, name: str = "w") -> list[Tensor]:
        _checked(name, w, self.x0)
        return [
            piece.view(slot.shape)
            for slot, piece in zip(self.layout, torch.split(w, self._lengths), strict=True)
        ]

    def _cut(self, w: Vec, name: str = "w") -> dict[str, Tensor]:
        return {
            slot.name: piece for slot, piece in zip(self.layout, self._pieces(w, name), strict=True)
        }

    def _scratch(self, buffers: Vec | None) -> dict[str, Tensor]:
        # Copies for one call: a training pass writes into the buffers it is given.
        scratch = {name: buffer.clone() for name, buffer in self._module.named_buffers()}
        if buffers is not None:
            _checked("buffers", buffers, self.b0)
            for slot in self._buffer_layout:
                scratch[slot.name] = buffers[slot.at].view(slot.shape).clone()
        return scratch


@dataclass(frozen=True)
class BatchOracle:
    """One mini-batch, and whatever a method asks of it at any point."""

    model: FlatModel
    batch: Batch
    seed: int | None = None

    def __call__(self, w: Vec) -> Vec:
        return self.model.grad(w, self.batch, seed=self.seed)

    def gradient(self, w: Vec, loss: Callable[[Pass], Tensor], *, features: bool = False) -> Vec:
        """The gradient of another loss."""
        return self.model.gradient_of(w, self.batch, loss, features=features, seed=self.seed)[1]

    def outputs(self, w: Vec) -> Tensor:
        """The model's outputs, without a gradient."""
        with torch.no_grad():
            return self.model.outputs(w, self.batch[0], train=True, seed=self.seed)

    def on(self, inputs: Tensor, targets: Tensor) -> BatchOracle:
        """The same model on other samples."""
        return BatchOracle(self.model, (inputs, targets), self.seed)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.batch[0].shape[1:])

    @property
    def layout(self) -> Layout:
        """Where the module's tensors lie in the vector."""
        return self.model.layout

    def observe(self, w: Vec, buffers: Vec) -> Vec:
        """The running statistics after a pass at w over this batch."""
        return self.model.observe(w, self.batch[0], buffers, seed=self.seed)


def _checked(name: str, given: Vec, expected: Vec) -> None:
    if given.shape != expected.shape:
        raise ModelError(
            f"{name} has shape {tuple(given.shape)}, expected {tuple(expected.shape)}.\n"
            "It belongs to another model, or to the same one with other parameters frozen."
        )


def _flatten(tensors: Iterable[Tensor]) -> Vec:
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors])


@contextmanager
def _seeded(seed: int | None, device: torch.device) -> Iterator[None]:
    """Dropout draws from torch's generator: give it a seed of its own, and its state back."""
    if seed is None:
        yield
    else:
        devices = [device] if device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices):
            torch.default_generator.manual_seed(seed)
            if devices:
                torch.cuda.manual_seed(seed)
            yield
