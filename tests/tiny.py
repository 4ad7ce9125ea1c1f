"""Federations small enough for a test, and models that misbehave."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import torch
from torch import nn

from flatfed.data.hands import IID
from flatfed.data.sets import DataSet, Split
from flatfed.data.shares import Shares
from flatfed.federation import Federation
from flatfed.flatmodel import FlatModel

CLASSES = ("a", "b", "c")


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def vectors(n: int = 56, features: int = 5, test: int = 30) -> DataSet:
    """Numbers, with a number of its own in every sample's first place."""
    inputs = drawn(n + test, features)
    inputs[:, 0] = torch.arange(n + test) / 100
    targets = torch.arange(n + test) * 7 % 3
    return DataSet(
        "numbers", Split(inputs[:n], targets[:n]), Split(inputs[n:], targets[n:]), CLASSES
    )


def images(n: int = 48, test: int = 20, side: int = 8) -> DataSet:
    """Bytes, each image another."""
    random = torch.Generator().manual_seed(1)
    pixels = torch.randint(0, 256, (n + test, 2, side, side), generator=random, dtype=torch.uint8)
    targets = torch.arange(n + test) * 5 % 3
    train, rest = Split(pixels[:n], targets[:n]), Split(pixels[n:], targets[n:])
    return DataSet("bytes", train, rest, CLASSES, (0.5, 0.4), (0.25, 0.2))


def in_turn(sizes: list[int]) -> Shares:
    """The first samples are client 0's, the next client 1's, ..."""
    offsets = torch.tensor([0, *sizes]).cumsum(0)
    return Shares(torch.arange(int(offsets[-1])), offsets)


def seeded(make, seed: int = 0) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make()


def dropout_net() -> nn.Module:
    return seeded(
        lambda: nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 3))
    )


def batchnorm_net() -> nn.Module:
    return seeded(
        lambda: nn.Sequential(
            nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3)
        )
    )


def numbers(model: nn.Module | FlatModel | None = None, clients: int = 8) -> Federation:
    return Federation(vectors(), model or dropout_net(), IID(clients=clients))


class Troubled(nn.Module):
    """A linear model on which one client's training fails, always or only the first time."""

    def __init__(self, client: int, how: str, flag: Path | None = None) -> None:
        super().__init__()
        self.inner = seeded(lambda: nn.Linear(5, 3))
        self.client, self.how, self.flag, self.run = client, how, flag, os.getpid()

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        outputs = self.inner(inputs)
        hers = 7 * self.client - 0.5 < 100 * float(inputs[0, 0]) < 7 * self.client + 6.5
        if not self.training or not hers or (self.flag and self.flag.exists()):
            return outputs
        if self.flag:
            self.flag.touch()
        if self.how == "raise":
            raise ZeroDivisionError("seven by nothing")
        if self.how == "nan":
            return outputs * float("nan")
        if self.how in ("slow", "late"):
            time.sleep(0.12 if self.how == "slow" else 0.02)
        if self.how == "hang":
            time.sleep(60)
        if self.how == "kill" and os.getpid() != self.run:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.how == "exit" and os.getpid() != self.run:
            os._exit(3)
        return outputs


def troubled(client: int, how: str, flag: Path | None = None) -> Federation:
    """Eight clients of seven samples each, the given one in trouble."""
    return Federation(vectors(), Troubled(client, how, flag), in_turn([7] * 8))
