"""A small part of Fashion-MNIST inside the package, for a first run without any download.

One PNG of all images below each other; sample j is of class j mod 10, so labels need no room.
Drawn anew, and to the same bytes of images, by: python -m flatfed.data.embedded
"""

from __future__ import annotations

import io
from importlib.resources import files
from pathlib import Path

import numpy as np
import torch

from flatfed.data.draws import first_of_each
from flatfed.data.known import FASHION, KNOWN
from flatfed.data.published import read_published
from flatfed.data.sets import DataSet, Split

NAME = "fashion-mnist-small"
FILE = f"{NAME}.png"
TRAIN, TEST = 1000, 200  # of each class
SIDE = 28


def read_embedded() -> DataSet:
    """10 000 training and 2 000 test images, of every class as many."""
    from PIL import Image

    # Read from bytes: the package may lie in an archive.
    with Image.open(io.BytesIO(files("flatfed.data").joinpath(FILE).read_bytes())) as sheet:
        images = torch.from_numpy(np.array(sheet)).view(-1, 1, SIDE, SIDE)
    targets = torch.arange(len(images)) % len(FASHION)
    at = TRAIN * len(FASHION)
    train, test = Split(images[:at], targets[:at]), Split(images[at:], targets[at:])
    return DataSet(
        NAME, train, test, FASHION, KNOWN["fashion-mnist"].mean, KNOWN["fashion-mnist"].std
    )


def draw(full: DataSet) -> DataSet:
    """The same part, from the whole of Fashion-MNIST."""

    def part(split: Split, per_class: int, purpose: str) -> Split:
        places = first_of_each(split.targets, len(full.classes), per_class, f"{NAME}/{purpose}")
        places = places.T.flatten()  # one of each class in turn
        return Split(split.inputs[places], split.targets[places])

    train, test = part(full.train, TRAIN, "train"), part(full.test, TEST, "test")
    return DataSet(NAME, train, test, full.classes, full.mean, full.std)


def write(file: Path, data: DataSet) -> None:
    """The images of a draw as one sheet."""
    from PIL import Image

    images = torch.cat((data.train.inputs, data.test.inputs))
    Image.fromarray(images.reshape(-1, SIDE).numpy()).save(file, "PNG", optimize=True)


if __name__ == "__main__":
    write(Path(__file__).with_name(FILE), draw(read_published(KNOWN["fashion-mnist"])))
