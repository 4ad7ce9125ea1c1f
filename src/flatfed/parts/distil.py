"""Synthetic samples that the server makes from how its model has moved, and what uses them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Literal, Self

from flatfed.errors import CompositionError, FederationError, one_of, whole, within
from flatfed.oracle import Workbench
from flatfed.part import Part, View, brief
from flatfed.vec import Named, Vec

if TYPE_CHECKING:
    from torch import Tensor

NOISE = "noise"


@dataclass(frozen=True, kw_only=True, repr=False)
class Distillation(Part):
    """After `warmup` rounds, once: `ipc` samples of every class whose training follows the model's.

    alpha=None starts the inner rate at the way a client walks in a round, η_g·Ση.
    """

    warmup: int
    iterations: int
    ipc: int  # samples of every class
    inner_steps: int
    gap: int | None = None  # rounds that those steps should cover; None: as many
    optimiser: Literal["adam", "sgd"] = "adam"
    momentum: float = 0.5  # of sgd
    lr_images: float
    lr_alpha: float
    lr_labels: float = 0.01
    labels: Literal["hard", "soft"] = "hard"
    measure: Literal["normalised", "sse", "mse"] = "normalised"
    images: str = NOISE  # or a file of samples to start from
    alpha: float | None = None
    global_lr: float = 1.0
    server = ("trajectory", "syn", "alpha", "matching")
    scalars = ("alpha", "matching")
    apart = ("trajectory", "syn", "syn_labels")
    logged = ("alpha", "matching")
    references = ("trajectory_matching",)
    __repr__ = brief

    def __post_init__(self) -> None:
        for name in ("warmup", "iterations", "ipc", "inner_steps"):
            whole(self, name, 1)
        if self.gap is not None:
            whole(self, "gap", 1)
        if self.rounds > self.warmup:
            raise CompositionError(
                f"Distillation got a gap of {self.rounds} rounds after warmup={self.warmup!r}, "
                "expected at most as many.\nWarm up for longer, or lower gap or inner_steps."
            )
        one_of(self, "optimiser", self.optimiser, "adam", "sgd")
        within(self, "momentum", "[0, 1)")
        for name in ("lr_images", "lr_alpha", "lr_labels"):
            within(self, name, "[0, ∞)")
        one_of(self, "labels", self.labels, "hard", "soft")
        one_of(self, "measure", self.measure, "normalised", "sse", "mse")
        if self.alpha is not None:
            within(self, "alpha", "(0, ∞)", "None starts at the way a client walks in a round.")
        if self.labels == "soft":
            object.__setattr__(self, "server", (*self.server, "syn_labels"))

    @property
    def rounds(self) -> int:
        """How far on the trajectory the inner steps should come."""
        return self.inner_steps if self.gap is None else self.gap

    def quick(self) -> Self:
        return replace(
            self,
            warmup=2,
            iterations=2,
            ipc=1,
            inner_steps=1,
            gap=None,
            images=NOISE,
            lr_images=0.05,  # what a data set asks for may be far too much for the toy
            alpha=0.01,
        )

    def init(self, name: str, x: Vec) -> Vec:
        if name == "trajectory":
            return x
        if name in ("syn", "syn_labels"):
            return x.new_zeros(0)
        return x.new_ones(1) if name == "matching" else super().init(name, x)

    def absorb(self, mean: View, v: View) -> Named:
        """alpha ← where the inner rate starts, until the samples are there"""
        if v.syn.numel():
            return {}
        start = self.global_lr * mean.travel if self.alpha is None else self.alpha
        return {"alpha": v.alpha.new_tensor([start])}

    def settle(self, x: Vec, v: View) -> Named:
        """trajectory ← trajectory, x; syn ← samples whose training follows it, after R rounds"""
        if v.syn.numel():
            return {}
        import torch

        trajectory = torch.cat([v.trajectory, x])
        if trajectory.numel() == 2 * x.numel():  # the first round: what will not do is said now
            self._first_samples(v)
        if trajectory.numel() < (self.warmup + 1) * x.numel():
            return {"trajectory": trajectory}
        return self._distilled(trajectory.view(-1, x.numel()), v)

    def _distilled(self, trajectory: Tensor, v: View) -> Named:
        from flatfed.distillation import Recipe, distil

        bench = v.workbench
        recipe = Recipe(
            iterations=self.iterations,
            inner_steps=self.inner_steps,
            gap=self.rounds,
            optimiser=self.optimiser,
            momentum=self.momentum,
            lr_images=self.lr_images,
            lr_alpha=self.lr_alpha,
            lr_labels=self.lr_labels,
            measure=self.measure,
        )
        inputs, labels = self._first_samples(v)
        found = distil(
            bench.model,
            trajectory,
            inputs,
            labels,
            float(v.alpha),
            recipe,
            seed=v.seed("distillation"),
            progress=lambda done, total: bench.tell("distillation", done, total),
        )
        bench.spent(self.iterations * self.inner_steps)
        # One batch's loss says little: the mean of the last tenth.
        last = found.losses[-max(1, self.iterations // 10) :]
        new = {
            "trajectory": trajectory.new_zeros(0),
            "syn": found.inputs.reshape(-1),
            "alpha": v.alpha.new_tensor([found.alpha]),
            "matching": v.matching.new_tensor([sum(last) / len(last)]),
        }
        return new | ({"syn_labels": found.labels.reshape(-1)} if self.labels == "soft" else {})

    def _first_samples(self, v: View) -> tuple[Tensor, Tensor]:
        import torch

        bench, like = v.workbench, v.x
        shape = (bench.classes * self.ipc, *bench.shape)
        if self.images == NOISE:
            random = torch.Generator().manual_seed(v.seed("first samples"))
            inputs = torch.randn(shape, generator=random, dtype=like.dtype).to(like.device)
        else:
            inputs = _from_file(self.images, self.ipc, bench).to(like)
        hard = hard_labels(bench.classes, self.ipc)
        try:
            bench.model.outputs(like, inputs[:2])
        except Exception as error:  # a module may refuse inputs in any way: words, for one
            raise FederationError(
                "Samples cannot be distilled here: the model fails on inputs of real numbers of "
                f"shape {bench.shape}: {next(iter(str(error).splitlines()), '')}\n"
                "Distillation is for images and the like; choose another method."
            ) from error
        if self.labels == "hard":
            return inputs, hard
        return inputs, torch.zeros(len(hard), bench.classes).to(like)  # uniform, as the code's


def hard_labels(classes: int, ipc: int) -> Tensor:
    """Class by class, as many of each."""
    import torch

    return torch.arange(classes).repeat_interleave(ipc)


def samples(
    syn: Vec, shape: tuple[int, ...], ipc: int, labels: Vec | None = None
) -> tuple[Tensor, Tensor]:
    """The synthetic samples as a batch: inputs, and classes or logits."""
    count = syn.numel() // prod(shape)
    classes = count // ipc
    inputs = syn.view(count, *shape)
    return inputs, hard_labels(classes, ipc) if labels is None else labels.view(count, classes)


def _from_file(path: str, ipc: int, bench: Workbench) -> Tensor:
    """The first samples of every class in an .npz with inputs and targets, as the model takes
    them."""
    import numpy as np
    import torch

    try:
        with np.load(path, allow_pickle=False) as arrays:
            inputs, targets = arrays["inputs"], arrays["targets"]
    except (OSError, ValueError, KeyError) as error:
        raise FederationError(
            f"images={path!r} cannot be read: {error}.\n"
            "Give an .npz file with the arrays inputs and targets, or 'noise'."
        ) from error
    if inputs.shape[1:] != bench.shape or len(inputs) != len(targets):
        raise FederationError(
            f"images={path!r} has inputs of shape {inputs.shape} and {len(targets)} targets, "
            f"expected one target each and inputs of shape (n, {', '.join(map(str, bench.shape))})."
        )
    chosen = []
    for label in range(bench.classes):
        of_class = np.flatnonzero(targets == label)[:ipc]
        if len(of_class) < ipc:
            raise FederationError(
                f"images={path!r} has {len(of_class)} samples of class {label}, expected at least "
                f"ipc={ipc}.\nAdd some, or lower ipc."
            )
        chosen.append(of_class)
    return bench.ready(torch.from_numpy(inputs[np.concatenate(chosen)]))
