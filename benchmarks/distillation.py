"""How long FedSynSAM's distillation takes on one core, with its paper's settings.

    python benchmarks/distillation.py [--repeats 5] [--convnet]

20 samples of each of ten classes, 200 iterations of Adam, each through the paper's number of inner
steps, of which every gradient keeps its graph.
"""

from __future__ import annotations

import argparse
from statistics import median
from time import perf_counter

import torch

from flatfed import models
from flatfed.distillation import Recipe, distil
from flatfed.flatmodel import FlatModel
from flatfed.memory import keep_pages
from flatfed.parts.distil import hard_labels

SETTINGS = {"mlp2": ((1, 28, 28), 3), "convnet": ((3, 32, 32), 5)}  # input, inner steps
ROUNDS = 30


def seconds(name: str, iterations: int) -> float:
    """Of one distillation of that model's trajectory."""
    shape, steps = SETTINGS[name]
    model = FlatModel(models.build(name, seed=0, shape=shape, classes=10))
    random = torch.Generator().manual_seed(0)
    walk = torch.randn((ROUNDS, model.d), generator=random).mul_(0.01).cumsum(0)
    trajectory = torch.cat([model.x0[None], model.x0 + walk])
    noise = torch.randn((200, *shape), generator=random)
    recipe = Recipe(
        iterations=iterations,
        inner_steps=steps,
        gap=steps,
        optimiser="adam",
        momentum=0.5,
        lr_images=0.05,
        lr_alpha=1e-5,
        lr_labels=0.01,
        measure="normalised",
    )
    started = perf_counter()
    distil(model, trajectory, noise, hard_labels(10, 20), 0.01, recipe, seed=0)
    return perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--convnet", action="store_true", help="CIFAR-10's model too: minutes")
    args = parser.parse_args()
    torch.set_num_threads(1)
    keep_pages()
    took = [seconds("mlp2", 200) for _ in range(args.repeats)]
    print(f"mlp2: {median(took):.1f} s of 200 iterations ({min(took):.1f} to {max(took):.1f})")
    if args.convnet:
        one = seconds("convnet", 1)
        print(f"convnet: about {200 * one:.0f} s of 200 iterations, from {one:.1f} s of one")


if __name__ == "__main__":
    main()
