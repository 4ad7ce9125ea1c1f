"""Data sets of the Hugging Face hub; needs the extra flatfed[huggingface]."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any

from flatfed.data.images import stacked, statistics
from flatfed.data.labels import class_names, class_numbers, client_numbers
from flatfed.data.sets import DataSet, Split
from flatfed.data.texts import encode
from flatfed.dotted import failed
from flatfed.errors import FederationError, SpecError, nearest

if TYPE_CHECKING:
    from PIL import Image

USUAL = ("image", "img", "text", "sentence", "content")


def read_hub(
    name: str,
    *,
    subset: str | None = None,
    train: str = "train",
    test: str = "test",
    inputs: str | None = None,
    label: str = "label",
    owner: str | None = None,
    resize: int | None = None,
    vocabulary: int = 30_000,
    length: int = 128,
) -> DataSet:
    """Images or texts and their labels; the column of inputs is found by its usual names."""
    try:
        datasets: Any = import_module("datasets")
    except ImportError as error:
        raise SpecError(
            f"hf:{name} needs the package datasets, which is not installed.\n"
            "Install it with: pip install 'flatfed[huggingface]'"
        ) from error
    try:
        held, asked = (datasets.load_dataset(name, subset, split=part) for part in (train, test))
    except Exception as error:  # of the hub, its network and its file formats
        raise FederationError(failed(f"loading hf:{name}", error)) from error
    known = list(held.column_names)
    column = inputs or next((usual for usual in USUAL if usual in known), USUAL[0])
    for wanted in (column, label, *([owner] if owner else [])):
        if wanted not in known:
            raise SpecError(f"hf:{name} has no column {wanted!r}.\n{nearest(wanted, known)}")
    labels, asked_labels = [str(v) for v in held[label]], [str(v) for v in asked[label]]
    # Where the hub knows the names of classes, labels are their numbers.
    names = tuple(getattr(held.features[label], "names", None) or ())
    classes = tuple(map(str, range(len(names)))) if names else class_names(labels)
    targets, asked_targets = (
        class_numbers(values, classes, lambda at, value: _no_class(name, at, value, classes))
        for values in (labels, asked_labels)
    )
    owners = client_numbers([str(value) for value in held[owner]]) if owner else None
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    ids = 0
    if isinstance(held[0][column], str):
        x, asked_x, ids = encode(held[column], asked[column], vocabulary=vocabulary, length=length)
    else:
        both = stacked(_pictures(name, column, held, asked), len(held) + len(asked), resize=resize)
        x, asked_x = both[: len(held)], both[len(held) :]
        mean, std = statistics(x)
    splits = Split(x, targets, owners), Split(asked_x, asked_targets)
    return DataSet(f"hf:{name}", *splits, names or classes, mean, std, ids)


def _no_class(name: str, at: int, value: str, classes: tuple[str, ...]) -> FederationError:
    return FederationError(
        f"hf:{name} has the label {value!r} in sample {at}, expected one of {len(classes)} classes "
        "of the training split.\nSamples without a label (-1) and new classes cannot be used."
    )


def _pictures(name: str, column: str, *parts: Any) -> Iterator[tuple[str, Image.Image]]:
    from PIL import Image

    for part in parts:
        for at, picture in enumerate(part[column]):
            if not isinstance(picture, Image.Image):
                raise FederationError(
                    f"hf:{name} has {type(picture).__name__} in column {column!r}, expected images "
                    'or texts.\nName another column: inputs = "text".'
                )
            yield f"hf:{name}, sample {at},", picture
