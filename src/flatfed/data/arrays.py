"""Arrays of your own, in a file or from a function: images as bytes, anything else as floats."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from flatfed.data.files import absent, damaged
from flatfed.data.images import statistics
from flatfed.data.labels import client_numbers
from flatfed.data.sets import DataSet, Split
from flatfed.errors import FederationError

NEEDED = ("x_train", "y_train", "x_test", "y_test")
MOST_CHANNELS = 4


def read_npz(file: Path) -> DataSet:
    """x_train, y_train, x_test, y_test and, if clients are natural, owners_train.

    Images are uint8 (n, h, w), (n, h, w, channels) or (n, channels, h, w): channels are fewer than
    rows or columns, and at most 4; where last and second are as many, last. Floats stay in their
    shape.
    """
    arrays = {}
    expected = f"arrays of numbers: {', '.join(NEEDED)}, and owners_train if there are owners"
    name = ""
    try:
        # Nothing is ever unpickled: a pickle can run anything.
        with file.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
            for name in (*NEEDED, "owners_train"):
                if name in archive.files:
                    arrays[name] = archive[name]
    except FileNotFoundError as error:
        raise absent(file, expected, "Mend the path.") from error
    except (ValueError, EOFError, TypeError, AttributeError, zipfile.BadZipFile, zlib.error) as e:
        what = f"{name} with something that is no array of numbers" if name else "no arrays"
        remedy = f"Save it with np.savez({file.name!r}, x_train=..., ...); pickles are never read."
        raise damaged(file, f"{what} ({e})", expected, remedy) from e
    missing = [name for name in NEEDED if name not in arrays]
    if missing:
        raise damaged(file, f"no {' and no '.join(missing)}", expected)
    return of_arrays(file.stem, *(arrays[n] for n in NEEDED), owners=arrays.get("owners_train"))


def of_arrays(
    name: str, x_train: Any, y_train: Any, x_test: Any, y_test: Any, *, owners: Any = None
) -> DataSet:
    """A data set of arrays or tensors; classes are numbered as far as the training targets go."""
    targets = _targets(f"{name}: y_train", y_train)
    classes = int(targets.max()) + 1
    asked = _targets(f"{name}: y_test", y_test)
    if int(asked.max()) >= classes:
        raise FederationError(
            f"{name}: y_test holds the class {int(asked.max())}, expected 0 to {classes - 1} as in "
            "y_train.\nTrain on some of that class too."
        )
    inputs = _inputs(f"{name}: x_train", x_train)
    # Split counts them too, but without the names.
    numbers = None if owners is None else client_numbers(owners)
    train = Split(inputs, targets, numbers)
    mean, std = statistics(inputs) if inputs.dtype == torch.uint8 else ((), ())
    names = tuple(map(str, range(classes)))
    return DataSet(name, train, Split(_inputs(f"{name}: x_test", x_test), asked), names, mean, std)


def _plain(value: Any) -> np.ndarray:
    return np.asarray(value.detach().cpu() if isinstance(value, Tensor) else value)


def _targets(what: str, value: Any) -> Tensor:
    array = _plain(value)
    if array.ndim != 1 or array.dtype.kind not in "iu" or not len(array) or array.min() < 0:
        least = f" from {array.min()}" if array.size and array.dtype.kind in "iuf" else ""
        raise FederationError(
            f"{what} is of shape {array.shape} and {array.dtype}{least}, expected one whole number "
            "from 0 for every input.\nNumber the classes from 0 and save them as int64."
        )
    return torch.from_numpy(array.astype(np.int64))


def _inputs(what: str, value: Any) -> Tensor:
    array = _plain(value)
    if array.dtype == np.uint8 and array.ndim in (3, 4):
        return _images(what, array)
    if array.dtype.kind != "f" or array.ndim < 2:
        raise FederationError(
            f"{what} is of shape {array.shape} and {array.dtype}, expected images as uint8 "
            "(n, height, width) or (n, height, width, channels), or floats (n, ...).\n"
            "Save images as uint8 from 0 to 255, and other numbers as float32."
        )
    if not np.isfinite(array).all():
        raise FederationError(
            f"{what} holds NaN or infinity, expected finite numbers.\n"
            "Leave those samples out, or fill in what is missing."
        )
    return torch.from_numpy(np.array(array, np.float32))  # a copy: the caller's may change


def _images(what: str, array: np.ndarray) -> Tensor:
    if array.ndim == 3:
        array = array[..., None]
    _, second, _, last = array.shape
    if min(last, second) > MOST_CHANNELS:
        raise FederationError(
            f"{what} is of shape {array.shape}, expected at most {MOST_CHANNELS} channels, last or "
            "second.\nSave what is no colour image as floats (n, channels, height, width)."
        )
    if last <= second:
        array = array.transpose(0, 3, 1, 2)
    return torch.from_numpy(np.array(array, order="C"))
