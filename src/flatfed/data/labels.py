"""Classes and clients by their names in the data, as the numbers that a split holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

from flatfed.errors import FederationError


def class_names(labels: Iterable[str]) -> tuple[str, ...]:
    """Every label once, in the order of the alphabet; whole numbers by their size.

    >>> class_names(["10", "9", "10"]), class_names(["b", "10", "9"])
    (('9', '10'), ('10', '9', 'b'))
    """
    names = set(labels)
    numbers = all(name.isdecimal() for name in names)
    return tuple(sorted(names, key=(lambda name: (int(name), name)) if numbers else None))


def class_numbers(
    labels: Sequence[str],
    classes: Sequence[str],
    refused: Callable[[int, str], FederationError],
) -> Tensor:
    """The place of each label among the classes; refused makes the error for one that has none."""
    places = {name: place for place, name in enumerate(classes)}
    for at, label in enumerate(labels):
        if label not in places:
            raise refused(at, label)
    return torch.tensor([places[label] for label in labels], dtype=torch.int64)


def client_numbers(owners: Sequence[object] | np.ndarray) -> Tensor:
    """Natural clients numbered from 0 in the order of their names."""
    return torch.from_numpy(np.unique(np.asarray(owners), return_inverse=True)[1].astype(np.int64))
