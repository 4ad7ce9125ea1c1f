"""Samples chosen by a seed, class by class: subsets, and what is put aside for the test."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from flatfed.errors import FederationError
from flatfed.vec import seed_for


def shuffled_classes(targets: Tensor, classes: int, purpose: str) -> list[Tensor]:
    """For each class the places of its samples, in the order of one shuffle of all samples."""
    order = np.random.default_rng(seed_for(0, purpose)).permutation(len(targets))
    shuffled = torch.from_numpy(order)
    of = targets[shuffled]
    return [shuffled[of == label] for label in range(classes)]


def first_of_each(targets: Tensor, classes: int, per_class: int, purpose: str) -> Tensor:
    """Places of the first samples of each class after a shuffle: (classes, per_class)."""
    places = shuffled_classes(targets, classes, purpose)
    fewest = min(range(classes), key=lambda label: len(places[label]))
    if len(places[fewest]) < per_class:
        raise FederationError(
            f"class {fewest} has {len(places[fewest])} samples, expected at least {per_class} of "
            "each class.\nGet the whole data set, or draw fewer."
        )
    return torch.stack([place[:per_class] for place in places])


def put_aside(targets: Tensor, classes: int, fraction: float) -> tuple[Tensor, Tensor]:
    """Places of training and of test samples: of every class the same fraction is for the test.

    A class of two or more is in both; a single sample is trained on.
    """
    kept, aside = [], []
    for places in shuffled_classes(targets, classes, "test fraction"):
        asked = max(1, min(len(places) - 1, round(fraction * len(places))))
        tested = asked if len(places) > 1 else 0
        aside.append(places[:tested])
        kept.append(places[tested:])
    # In the order in which they came, so that the classes stay as mixed as they were.
    return torch.cat(kept).sort().values, torch.cat(aside).sort().values
