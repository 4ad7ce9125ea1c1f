"""FedSynSAM: the ascent is led by synthetic samples that stand for everybody's data."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, Self, Unpack

from flatfed.errors import whole, within
from flatfed.method import Method
from flatfed.methods.dynafed import TEN_STEPS
from flatfed.oracle import Oracle
from flatfed.part import Perturbation, View
from flatfed.parts.distil import NOISE, Distillation, samples
from flatfed.parts.local import LocalWork, work
from flatfed.parts.perturb import NO_ASCENT
from flatfed.parts.server import Average
from flatfed.vec import Named, Vec, ascend


@dataclass(frozen=True, kw_only=True)
class SyntheticSAM(Perturbation):
    """SAM whose ascent follows the local gradient and that of synthetic samples, mixed before they
    are normalised; plain SAM until there are any."""

    rho: float
    beta: float
    ipc: int
    batch_size: int | None = None  # of synthetic samples; None: all of them
    push = ("syn",)
    gradients, gradients_least = 3, 2
    references = ("fedsynsam",)

    def __post_init__(self) -> None:
        within(self, "rho", "[0, ∞)", NO_ASCENT)
        within(self, "beta", "[0, 1]", "beta=1 is FedSAM.")
        whole(self, "ipc", 1)
        if self.batch_size is not None:
            whole(self, "batch_size", 1)

    def quick(self) -> Self:
        return replace(self, ipc=1)

    def gradient(self, w: Vec, grad: Oracle, v: View) -> tuple[Vec, Named]:
        """
        q ← β·∇F(w) + (1−β)·∇F(w; syn), or ∇F(w) while there is no syn
        g ← ∇F(w + ρ·unit(q))
        """
        q = grad(w)
        if v.syn.numel():
            q = self._synthetic(w, v).lerp(q, self.beta)
        return grad(ascend(w, q, self.rho)), {}

    def _synthetic(self, w: Vec, v: View) -> Vec:
        import torch

        inputs, labels = samples(v.syn, v.batch.shape, self.ipc)
        if self.batch_size is not None and self.batch_size < len(labels):
            random = torch.Generator().manual_seed(v.seed("synthetic"))
            chosen = torch.randperm(len(labels), generator=random)[: self.batch_size]
            inputs, labels = inputs[chosen], labels[chosen]
        return v.batch.on(inputs, labels)(w)


def fedsynsam(
    *,
    rho: float = 0.05,
    beta: float = 0.9,
    warmup: int = 30,
    iterations: int = 200,
    ipc: int = 20,
    inner_steps: int = 3,
    gap: int | None = None,
    optimiser: Literal["adam", "sgd"] = "adam",
    momentum_images: float = 0.5,
    lr_images: float = 0.05,
    lr_alpha: float = 1e-5,
    measure: Literal["normalised", "sse", "mse"] = "normalised",
    images: str = NOISE,
    alpha: float | None = 0.01,
    synthetic_batch: Literal["local", "all"] = "local",
    global_lr: float = 1.0,
    **local: Unpack[LocalWork],
) -> Method:
    """FedSAM whose ascent is steered by samples distilled from the global trajectory (FedSynSAM,
    2026).

    The defaults are the paper's for Fashion-MNIST; for CIFAR-10 and CINIC-10 it has inner_steps=5,
    optimiser="sgd", lr_images=1000, lr_alpha=1e-5 and images of a generator (a file, here), and
    ipc=40 for CINIC-10. rho is tuned in {0.001, 0.01, 0.05, 0.1, 0.5} there.

    Differs from the paper:
        Its listing writes local gradients with a synthetic batch on FedSAM's lines as well; here,
        as in its equation (14), they see local data alone
        (test_fedsynsam_is_fedsam_until_there_are_samples).
        Its listing distils after R + 1 rounds, its prose after R: here after `warmup` rounds, so
        warmup=31 is the listing. The matching loss is divided by ‖θ_0 − θ*‖², as the original of
        trajectory matching does: lr_images = 1000 means nothing otherwise. The paper is silent on
        where alpha starts: 0.01 is the original's. None starts at η_g·Ση, the way of a round, at
        which inner steps on noise overshoot: on Fashion-MNIST the samples then match worse than
        none (test_a_first_inner_rate_that_overshoots_matches_worse_than_standing_still).
        Three gradients a step when samples are there; the paper counts two.
    """
    walk = work(TEN_STEPS, local)
    batch_size = walk.batch_size if synthetic_batch == "local" else None
    return Method(
        name="fedsynsam",
        paper="fedsynsam",
        family="sharpness-aware",
        perturb=SyntheticSAM(rho=rho, beta=beta, ipc=ipc, batch_size=batch_size),
        server=Average(global_lr),
        also=(
            Distillation(
                warmup=warmup,
                iterations=iterations,
                ipc=ipc,
                inner_steps=inner_steps,
                gap=gap,
                optimiser=optimiser,
                momentum=momentum_images,
                lr_images=lr_images,
                lr_alpha=lr_alpha,
                measure=measure,
                images=images,
                alpha=alpha,
                global_lr=global_lr,
            ),
        ),
        local=walk,
    )
