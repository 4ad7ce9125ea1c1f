"""A few synthetic samples whose training follows a recorded trajectory (trajectory matching)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from flatfed.errors import NonFiniteError
from flatfed.flatmodel import FlatModel
from flatfed.vec import Vec, seed_for

Measure: TypeAlias = Literal["normalised", "sse", "mse"]
Progress: TypeAlias = Callable[[int, int], object]  # iterations done, of how many


@dataclass(frozen=True)
class Recipe:
    """How samples are distilled."""

    iterations: int
    inner_steps: int
    gap: int
    optimiser: Literal["adam", "sgd"]
    momentum: float  # of sgd
    lr_images: float
    lr_alpha: float
    lr_labels: float
    measure: Measure


@dataclass(frozen=True)
class Distilled:
    """Samples, labels (logits, where they were trained) and inner rate; how well they match."""

    inputs: Tensor
    labels: Tensor
    alpha: float
    losses: tuple[float, ...]  # of every iteration


def soft_cross_entropy(outputs: Tensor, logits: Tensor) -> Tensor:
    """mean over samples and classes of −softmax(logits)·log softmax(outputs): DynaFed's loss."""
    return -(logits.softmax(1) * outputs.log_softmax(1)).mean()


def loss_of(model: FlatModel, outputs: Tensor, labels: Tensor) -> Tensor:
    """The model's own loss on hard labels, DynaFed's on logits."""
    soft = labels.is_floating_point()
    return soft_cross_entropy(outputs, labels) if soft else model.loss_of(outputs, labels)


def mismatch(
    model: FlatModel,
    first: Vec,
    target: Vec,
    inputs: Tensor,
    labels: Tensor,
    alpha: Tensor,
    *,
    steps: int,
    measure: Measure = "normalised",
    seed: int | None = None,
) -> Tensor:
    """How far `steps` gradient steps on the samples end from the target, differentiable in all.

    Both ends of the trajectory are constants; every inner gradient keeps its graph. `seed` is for
    models that drop out.
    """
    theta = first.detach().requires_grad_()
    for _ in range(steps):
        outputs = model.outputs(theta, inputs, train=True, seed=seed)
        loss = loss_of(model, outputs, labels)
        (g,) = torch.autograd.grad(loss, theta, create_graph=True)
        theta = theta - alpha * g
    off = (theta - target.detach()).square()
    if measure == "normalised":
        return off.sum() / ((first - target).square().sum().detach() + 1e-12)
    return off.sum() if measure == "sse" else off.mean()


def distil(
    model: FlatModel,
    trajectory: Tensor,  # models × d, in the order of their rounds
    inputs: Tensor,
    labels: Tensor,
    alpha: float,
    recipe: Recipe,
    *,
    seed: int,
    progress: Progress = lambda done, total: None,
) -> Distilled:
    """Train the samples, the inner rate, and the labels if they are logits."""
    inputs = inputs.detach().clone().requires_grad_()
    rate = torch.tensor(alpha, dtype=trajectory.dtype).requires_grad_()
    soft = labels.is_floating_point()
    labels = labels.detach().clone().requires_grad_(soft)
    groups = [
        {"params": [inputs], "lr": recipe.lr_images},
        {"params": [rate], "lr": recipe.lr_alpha},
        *([{"params": [labels], "lr": recipe.lr_labels}] if soft else []),
    ]
    optimiser: torch.optim.Optimizer
    if recipe.optimiser == "adam":
        optimiser = torch.optim.Adam(groups)
    else:
        optimiser = torch.optim.SGD(groups, momentum=recipe.momentum)
    random = torch.Generator().manual_seed(seed)
    starts = len(trajectory) - recipe.gap
    losses = []
    for iteration in range(recipe.iterations):
        r = int(torch.randint(starts, (), generator=random))
        with torch.enable_grad():
            loss = mismatch(
                model,
                trajectory[r],
                trajectory[r + recipe.gap],
                inputs,
                labels,
                rate,
                steps=recipe.inner_steps,
                measure=recipe.measure,
                seed=seed_for(seed, "dropout", iteration),
            )
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        with torch.no_grad():
            rate.clamp_(min=1e-6)
        losses.append(float(loss.detach()))
        if not isfinite(losses[-1]):
            raise NonFiniteError(
                f"The matching loss is {losses[-1]} in iteration {iteration} of the distillation, "
                "expected a finite number.\nLower lr_images or alpha."
            )
        progress(iteration + 1, recipe.iterations)
    return Distilled(inputs.detach(), labels.detach(), float(rate.detach()), tuple(losses))


def train_on(
    model: FlatModel,
    x: Vec,
    inputs: Tensor,
    labels: Tensor,
    *,
    epochs: int,
    lr: float,
    batch_size: int,
    seed: int,
) -> tuple[Vec, int]:
    """x after so many epochs of Adam on the samples, and the gradients that took."""
    w = x.detach().clone().requires_grad_()
    optimiser = torch.optim.Adam([w], lr=lr)
    random = torch.Generator().manual_seed(seed)
    steps = 0
    for _ in range(epochs):
        order = torch.randperm(len(inputs), generator=random)
        for chosen in torch.split(order, batch_size):
            with torch.enable_grad():
                dropout = seed_for(seed, "dropout", steps)
                outputs = model.outputs(w, inputs[chosen], train=True, seed=dropout)
                loss = loss_of(model, outputs, labels[chosen])
            (w.grad,) = torch.autograd.grad(loss, w)
            optimiser.step()
            steps += 1
    return w.detach(), steps
