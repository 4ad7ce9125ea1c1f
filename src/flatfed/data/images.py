"""Images of the published formats, as bytes (n, channels, height, width), and their statistics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from flatfed.data.files import MEND, content, damaged, plain_or_gz
from flatfed.data.sets import Split

if TYPE_CHECKING:
    from PIL import Image

SIDE = 32  # of every CIFAR image
GREY = ("1", "L", "LA")
DEEP = ("I", "I;16", "I;16B", "I;16L", "F")  # Pillow would cut these off at 255


def read_idx(file: Path, dimensions: int, remedy: str = MEND) -> Tensor:
    """One IDX file of bytes, compressed or not: a header of sizes, then the numbers."""
    file = plain_or_gz(file)
    expected = f"IDX: the bytes 0, 0, 8, {dimensions}, then {dimensions} sizes, then the numbers"
    data = content(file, expected, remedy)
    start = 4 + 4 * dimensions
    magic = bytes((0, 0, 8, dimensions))
    if data[:4] != magic or len(data) < start:
        found = f"{len(data)} bytes that begin with {', '.join(map(str, data[:4])) or 'nothing'}"
        raise damaged(file, found, expected, remedy)
    sizes = [int.from_bytes(data[at : at + 4], "big") for at in range(4, start, 4)]
    if len(data) != start + prod(sizes):
        raise damaged(
            file,
            f"{len(data)} bytes",
            f"{start + prod(sizes)} for {' × '.join(map(str, sizes))} numbers",
            remedy,
        )
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)[start:].view(sizes)


def read_idx_split(folder: Path, part: str, classes: int, remedy: str = MEND) -> Split:
    """The images and labels of one part, "train" or "t10k", in the layout of MNIST."""
    images = read_idx(folder / f"{part}-images-idx3-ubyte", 3, remedy)
    at = folder / f"{part}-labels-idx1-ubyte"
    labels = read_idx(at, 1, remedy)
    if len(labels) != len(images):
        found, expected = f"{len(labels)} labels", f"one for each of the {len(images)} images"
        raise damaged(plain_or_gz(at), found, expected, remedy)
    _refuse_labels(plain_or_gz(at), labels, classes, remedy)
    return Split(images.unsqueeze(1), labels.long())


def read_cifar(
    files: Sequence[Path], classes: int, label_bytes: int = 1, remedy: str = MEND
) -> Split:
    """The binary version of CIFAR: records of labels and 3072 pixels, channel by channel.

    CIFAR-100 has two label bytes, of which the last is the fine class.
    """
    record = label_bytes + 3 * SIDE * SIDE
    images, labels = [], []
    for file in files:
        data = content(file, f"whole records of {record} bytes", remedy)
        if not data or len(data) % record:
            found = f"{len(data)} bytes"
            raise damaged(file, found, f"whole records of {record} bytes", remedy)
        records = torch.frombuffer(bytearray(data), dtype=torch.uint8).view(-1, record)
        _refuse_labels(file, records[:, label_bytes - 1], classes, remedy)
        labels.append(records[:, label_bytes - 1].long())
        images.append(records[:, label_bytes:])
    # torch.cat copies, so the records with their labels can go.
    return Split(torch.cat(images).view(-1, 3, SIDE, SIDE), torch.cat(labels))


def _refuse_labels(file: Path, labels: Tensor, classes: int, remedy: str) -> None:
    if len(labels) and int(labels.max()) >= classes:
        found = f"the label {int(labels.max())}"
        raise damaged(file, found, f"labels from 0 to {classes - 1}", remedy)


def read_pictures(
    files: Sequence[Path],
    *,
    resize: int | None = None,
    channels: int | None = None,
    remedy: str = MEND,
) -> Tensor:
    """Files that Pillow can read, as `stacked` makes them one tensor."""
    from PIL import Image

    def opened() -> Iterator[tuple[str, Image.Image]]:
        for file in files:
            try:
                with Image.open(file) as picture:
                    picture.load()
                    yield str(file), picture
            except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
                found = f"{file.stat().st_size} bytes that are no whole image"
                raise damaged(file, found, "a PNG, JPEG or the like", remedy) from error

    return stacked(opened(), len(files), resize=resize, channels=channels, remedy=remedy)


def stacked(
    pictures: Iterable[tuple[str, Image.Image]],
    count: int,
    *,
    resize: int | None = None,
    channels: int | None = None,
    remedy: str = MEND,
) -> Tensor:
    """So many named pictures, all of one size or brought to resize × resize.

    One channel where every picture is grey, else three, unless channels says it.
    """
    import numpy as np
    from PIL import Image

    pixels, grey = None, True
    for at, (name, picture) in enumerate(pictures):
        if picture.mode in DEEP:
            found = f"pixels of Pillow's mode {picture.mode!r}"
            raise damaged(name, found, "8 bits a channel", remedy)
        grey = grey and picture.mode in GREY
        coloured = picture.convert("RGB")
        if resize is not None:
            coloured = coloured.resize((resize, resize), Image.Resampling.BILINEAR)
        if pixels is None:
            pixels = np.empty((count, *coloured.size[::-1], 3), np.uint8)
        if coloured.size[::-1] != pixels.shape[1:3]:
            height, width = pixels.shape[1:3]
            raise damaged(
                name,
                f"an image of {coloured.width} × {coloured.height} pixels",
                f"{width} × {height} like the ones before",
                "Bring all to one size with resize, for example resize = 32.",
            )
        pixels[at] = np.asarray(coloured)
    if pixels is None:
        return torch.empty(0, channels or 3, resize or 0, resize or 0, dtype=torch.uint8)
    kept = channels or (1 if grey else 3)  # of a grey picture all three are the same
    return torch.from_numpy(pixels).permute(0, 3, 1, 2)[:, :kept].contiguous()


def statistics(images: Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each channel's pixels divided by 255, from their histogram."""
    level = torch.arange(256, dtype=torch.float64) / 255
    means, deviations = [], []
    for channel in range(images.shape[1]):
        counts = torch.bincount(images[:, channel].reshape(-1), minlength=256).double()
        mean = float(counts @ level / counts.sum())
        means.append(mean)
        # A channel of one colour has nothing to scale.
        deviations.append(float(counts @ (level - mean) ** 2 / counts.sum()) ** 0.5 or 1.0)
    return tuple(means), tuple(deviations)
