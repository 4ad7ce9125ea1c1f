"""DynaFed: the server goes on training the mean model, on samples distilled from its trajectory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, Self, Unpack

from flatfed.errors import one_of, whole, within
from flatfed.method import Method
from flatfed.part import ServerUpdate, View
from flatfed.parts.distil import NOISE, Distillation, samples
from flatfed.parts.local import LocalWork, work
from flatfed.vec import Vec

# The protocol of FedSynSAM's comparison: no decay, no clipping, ten steps (recipes 3.1).
TEN_STEPS = LocalWork(lr=0.1, steps=10, batch_size=128)


@dataclass(frozen=True, kw_only=True)
class FineTuning(ServerUpdate):
    """Along the mean update, and then some epochs of Adam on synthetic samples."""

    epochs: int
    lr: float
    batch_size: int
    ipc: int
    labels: Literal["hard", "soft"] = "hard"
    global_lr: float = 1.0
    uses = ("syn",)
    references = ("dynafed",)

    def __post_init__(self) -> None:
        whole(self, "epochs", 0)
        within(self, "lr", "(0, ∞)")
        whole(self, "batch_size", 1)
        whole(self, "ipc", 1)
        one_of(self, "labels", self.labels, "hard", "soft")
        within(self, "global_lr", "(0, ∞)")
        if self.labels == "soft":
            object.__setattr__(self, "uses", ("syn", "syn_labels"))

    def quick(self) -> Self:
        return replace(self, ipc=1)

    def step(self, x: Vec, mean: View, v: View) -> Vec:
        """x ← x + η_g·mean(dx);  x ← x after so many epochs of Adam on syn"""
        x = x.add(mean.dx, alpha=self.global_lr)
        labels = v.syn_labels if self.labels == "soft" else None
        if not v.syn.numel() or not self.epochs:
            return x
        from flatfed.distillation import train_on

        bench = v.workbench
        x, steps = train_on(
            bench.model,
            x,
            *samples(v.syn, bench.shape, self.ipc, labels),
            epochs=self.epochs,
            lr=self.lr,
            batch_size=self.batch_size,
            seed=v.seed("fine-tuning"),
        )
        bench.spent(steps)
        return x


def dynafed(
    *,
    epochs_server: int = 20,
    lr_server: float = 1e-4,
    batch_server: int = 256,
    warmup: int = 30,
    iterations: int = 200,
    ipc: int = 20,
    inner_steps: int = 3,
    gap: int | None = None,
    optimiser: Literal["adam", "sgd"] = "adam",
    lr_images: float = 0.05,
    lr_alpha: float = 1e-5,
    lr_labels: float = 0.01,
    labels: Literal["hard", "soft"] = "hard",
    images: str = NOISE,
    alpha: float | None = 0.01,
    global_lr: float = 1.0,
    **local: Unpack[LocalWork],
) -> Method:
    """FedAvg whose mean model is trained further on the server (Pi et al., CVPR 2023).

    epochs_server, lr_server and batch_server are the authors' code's for CIFAR-10; what is
    distilled, and how clients walk, is FedSynSAM's setting for Fashion-MNIST, which compares with
    it. The authors' code has warmup=24, ipc=15, inner_steps=20, gap=3, iterations=3000,
    labels="soft", alpha=0.04.

    Differs from the paper:
        Clients walk with SGD like all other methods'; the authors' code gives them Adam.
        The samples are not augmented, on neither occasion, and the inner steps aim at one model,
        not at the mean of a few. The authors' code keeps aliases of live parameters on a CPU, so
        that its trajectory is one model many times over; here each is a copy
        (test_the_trajectory_holds_every_model_since_the_first).
    """
    return Method(
        name="dynafed",
        paper="dynafed",
        family="synthetic data",
        server=FineTuning(
            epochs=epochs_server,
            lr=lr_server,
            batch_size=batch_server,
            ipc=ipc,
            labels=labels,
            global_lr=global_lr,
        ),
        also=(
            Distillation(
                warmup=warmup,
                iterations=iterations,
                ipc=ipc,
                inner_steps=inner_steps,
                gap=gap,
                optimiser=optimiser,
                lr_images=lr_images,
                lr_alpha=lr_alpha,
                lr_labels=lr_labels,
                labels=labels,
                images=images,
                alpha=alpha,
                global_lr=global_lr,
            ),
        ),
        local=work(TEN_STEPS, local),
    )
