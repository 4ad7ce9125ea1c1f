"""A folder of images, one folder in it for each class."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from flatfed.data.draws import put_aside
from flatfed.data.files import absent, damaged
from flatfed.data.images import read_pictures, statistics
from flatfed.data.labels import class_names
from flatfed.data.sets import DataSet, Split
from flatfed.errors import SpecError, nearest

PICTURES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"}


def folders(root: Path) -> list[str]:
    """The names of the folders in this one, without hidden ones."""
    if not root.is_dir():
        raise absent(root, "a folder with a folder of images for each class", "Mend the path.")
    return [at.name for at in sorted(root.iterdir()) if at.is_dir() and at.name[0] != "."]


def pictures(root: Path, classes: Sequence[str], within: str = "") -> tuple[list[Path], Tensor]:
    """Image files of each class in the order of their names, and the number of their class."""
    files: list[Path] = []
    targets: list[int] = []
    for number, name in enumerate(classes):
        folder = root / name / within
        held = sorted(folder.iterdir()) if folder.is_dir() else []
        found = [at for at in held if at.suffix.lower() in PICTURES and at.name[0] != "."]
        files += found
        targets += [number] * len(found)
    return files, torch.tensor(targets, dtype=torch.int64)


def read_folder(
    root: Path, *, resize: int | None = None, test_fraction: float | None = None
) -> DataSet:
    """train/CLASS/* and test/CLASS/*, or CLASS/* of which a fraction is put aside for the test."""
    parts = root / "train", root / "test"
    apart = all(part.is_dir() for part in parts)
    if apart == (test_fraction is not None):
        held = "train and test" if apart else "no train and test"
        todo = "Leave it out" if apart else "Put some aside: test_fraction = 0.2"
        raise SpecError(
            f"{root} has {held} folders and got test_fraction={test_fraction!r}, expected one of "
            f"both.\n{todo}."
        )
    classes = class_names(folders(parts[0] if apart else root))
    if not apart:
        files, targets = _held(root, classes)
        images = read_pictures(files, resize=resize)
        kept, aside = put_aside(targets, len(classes), test_fraction or 0.0)
        splits = Split(images[kept], targets[kept]), Split(images[aside], targets[aside])
    else:
        for name in folders(parts[1]):
            if name not in classes:
                raise damaged(
                    parts[1], f"the class {name!r}", "those of train", nearest(name, classes)
                )
        files, targets = _held(parts[0], classes)
        asked_files, asked = pictures(parts[1], classes)
        # Read at once: whether all are grey, and of one size, is a question about all.
        images = read_pictures(files + asked_files, resize=resize)
        at = len(files)
        splits = Split(images[:at], targets), Split(images[at:], asked)
    return DataSet(root.resolve().name, *splits, classes, *statistics(splits[0].inputs))


def _held(root: Path, classes: Sequence[str]) -> tuple[list[Path], Tensor]:
    files, targets = pictures(root, classes)
    empty = [name for number, name in enumerate(classes) if not (targets == number).any()]
    if empty or not classes:
        found = f"no image in {empty[0]!r}" if empty else "no folders"
        expected = "a folder for each class with images in it"
        raise damaged(root, found, expected, f"Images end in {', '.join(sorted(PICTURES))}.")
    return files, targets
