"""Fully connected networks, on inputs of any shape."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod

from torch import nn


def dense(*widths: int) -> list[nn.Module]:
    """Flatten, then fully connected layers of these widths with a ReLU between two of them."""
    layers: list[nn.Module] = [nn.Flatten()]
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return layers[:-1]


def mlp2(*, classes: int = 10, shape: Sequence[int] = (1, 28, 28)) -> nn.Sequential:
    """Two weight layers: what the FedSynSAM paper calls a two-layer MLP, taken literally."""
    return nn.Sequential(*dense(prod(shape), 128, classes))


def mlp_128_128(*, classes: int = 10, shape: Sequence[int] = (1, 28, 28)) -> nn.Sequential:
    """Two hidden layers of 128: the MLP of the DynaFed code."""
    return nn.Sequential(*dense(prod(shape), 128, 128, classes))


def two_nn(*, classes: int = 10, shape: Sequence[int] = (1, 28, 28)) -> nn.Sequential:
    """Two hidden layers of 200: the 2NN of FedAvg and FedDyn."""
    return nn.Sequential(*dense(prod(shape), 200, 200, classes))
