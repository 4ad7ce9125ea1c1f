"""Small data sets in the formats of their publishers, written by the tests themselves."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path

import numpy as np
from PIL import Image

RNG = np.random.default_rng


def idx(file: Path, array: np.ndarray, *, packed: bool = False) -> None:
    header = bytes((0, 0, 8, array.ndim)) + np.array(array.shape, ">u4").tobytes()
    write = gzip.open if packed else open
    with write(file, "wb") as stream:
        stream.write(header + array.astype(np.uint8).tobytes())


def fashion(folder: Path, *, packed: bool = True, train: int = 20, test: int = 10) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    ending = ".gz" if packed else ""
    for part, n in (("train", train), ("t10k", test)):
        images = RNG(n).integers(0, 256, (n, 28, 28))
        idx(folder / f"{part}-images-idx3-ubyte{ending}", images, packed=packed)
        idx(folder / f"{part}-labels-idx1-ubyte{ending}", np.arange(n) % 10, packed=packed)
    return folder


def cifar(file: Path, labels: list[list[int]], seed: int = 0) -> np.ndarray:
    """Records of the binary version; returns the images (n, 3, 32, 32)."""
    file.parent.mkdir(parents=True, exist_ok=True)
    images = RNG(seed).integers(0, 256, (len(labels), 3072)).astype(np.uint8)
    records = np.concatenate([np.array(labels, np.uint8), images], axis=1)
    file.write_bytes(records.tobytes())
    return images.reshape(-1, 3, 32, 32)


def picture(file: Path, side: int = 32, *, mode: str = "RGB", seed: int = 0) -> np.ndarray:
    """A picture of random pixels; returns them (side, side) or (side, side, channels)."""
    file.parent.mkdir(parents=True, exist_ok=True)
    channels = {"L": (), "RGB": (3,), "RGBA": (4,)}[mode]
    pixels = RNG(seed).integers(0, 256, (side, side, *channels)).astype(np.uint8)
    Image.fromarray(pixels).save(file)
    return pixels


def table(file: Path, rows: list[list[object]]) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows(rows)
    return file
