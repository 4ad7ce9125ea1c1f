"""A federation that trains in a blink: grey images of eight by eight pixels, of four classes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import tomli_w
import torch
from torch import nn

ROUNDS = 6


def write_images(path: Path, *, train: int = 240, test: int = 80, seed: int = 0) -> Path:
    """A class is where the bright spot is; noise makes it a little less than certain."""
    rng = np.random.default_rng(seed)
    arrays = {}
    for part, n in (("train", train), ("test", test)):
        labels = np.arange(n) % 4
        images = rng.integers(0, 120, (n, 8, 8))
        for image, label in zip(images, labels, strict=True):
            row, column = divmod(int(label), 2)
            image[4 * row : 4 * row + 4, 4 * column : 4 * column + 4] += 60
        arrays |= {f"x_{part}": images.astype(np.uint8), f"y_{part}": labels}
    np.savez(path, **arrays)
    return path


def tables(folder: Path, **sections: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """A spec on those images, with some keys set otherwise."""
    data = folder / "images.npz"
    if not data.exists():
        write_images(data)
    base: dict[str, dict[str, Any]] = {
        "run": {"rounds": ROUNDS, "checkpoint_every": 2},
        "data": {"source": str(data), "clients": 8, "partition": "dirichlet", "alpha": 0.5},
        "model": {"name": "mlp2"},
        "method": {"name": "scaffold"},
        "cohort": {"size": 4},
        "local": {"steps": 3, "batch_size": 10, "lr": 0.1},
        "engine": {"workers": 1},
    }
    return {name: {**base.get(name, {}), **sections.get(name, {})} for name in {**base, **sections}}


def write_spec(folder: Path, **sections: dict[str, Any]) -> Path:
    """The same as a file."""
    path = folder / "spec.toml"
    path.write_text(tomli_w.dumps(tables(folder, **sections)))
    return path


class Picky(nn.Module):
    """Cannot be trained where the bright spot is in the first corner: clients of class 0."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.linear = nn.Linear(shape[-1] * shape[-2], classes)

    def forward(self, images):
        corners = [
            images[..., :4, :4],
            images[..., :4, 4:],
            images[..., 4:, :4],
            images[..., 4:, 4:],
        ]
        if self.training and len(images) > 2:  # a probe of two samples is let through
            means = torch.stack([corner.mean((1, 2, 3)) for corner in corners])
            if (means.argmax(0) == 0).float().mean() > 0.9:
                raise ValueError("too bright")
        return self.linear(images.flatten(1))


class Broken(Picky):
    """Cannot be trained at all."""

    def forward(self, images):
        if self.training and len(images) > 2:
            raise ValueError("no luck")
        return super().forward(images)
