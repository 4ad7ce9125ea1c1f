"""One name for every source of data: published, embedded, your own files or function, the hub.

>>> from flatfed.data import load
>>> data = load("fashion-mnist-small")
>>> len(data.train), len(data.test), data.sizes["shape"]
(10000, 2000, (1, 28, 28))
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from flatfed.data.arrays import of_arrays, read_npz
from flatfed.data.embedded import NAME, read_embedded
from flatfed.data.folders import read_folder
from flatfed.data.hub import read_hub
from flatfed.data.known import KNOWN
from flatfed.data.published import read_published
from flatfed.data.sets import DataSet
from flatfed.data.tables import read_csv
from flatfed.dotted import failed, imported
from flatfed.errors import FederationError, FlatfedError, SpecError, nearest


def load(source: str, *, home: str | Path | None = None, **options: Any) -> DataSet:
    """The data set that a source names.

    - "fashion-mnist-small": 10 000 and 2 000 images inside the package
    - a published set, downloaded before into home: fashion-mnist, cifar-10, cifar-100, cinic-10,
      tiny-imagenet, dbpedia-14
    - a path ending .npz (arrays) or .csv (texts), or of a folder with a folder for each class
    - "hf:OWNER/NAME" of the Hugging Face hub
    - "MODULE:FUNCTION" of your own, called with the options: returns a DataSet, or
      (x_train, y_train, x_test, y_test)
    """
    read = _reader(source, home)
    allowed = _names(read)
    for name, value in options.items():
        if allowed is not None and name not in allowed:
            listed = nearest(name, allowed) if allowed else "It has no options."
            raise SpecError(f"{source} has no option {name!r}.\n{listed}")
        if _kind(source) != "function":
            _refuse(source, name, value)
    if _kind(source) == "function":
        return _made(source, read, options if home is None else {"home": home, **options})
    data: DataSet = read(**options)
    return data


def options_of(source: str) -> tuple[str, ...] | None:
    """The names of the options that a source takes; None where it takes any."""
    return _names(_reader(source, None))


def _kind(source: str) -> str:
    """What a source is, by how it is written."""
    if source in (NAME, *KNOWN):
        return source
    if source.startswith("hf:"):
        return "hub"
    path = Path(source).expanduser()
    if path.suffix in (".npz", ".csv"):
        return path.suffix
    if path.is_dir() or "/" in source:
        return "folder"
    if ":" in source:
        return "function"
    raise SpecError(
        f"no data source {source!r}.\n{nearest(source, [NAME, *KNOWN])}\n"
        "Or a path ending .npz or .csv, a folder, hf:OWNER/NAME, MODULE:FUNCTION."
    )


def _reader(source: str, home: str | Path | None) -> Callable[..., Any]:
    """What reads a source, to be called with its options."""
    path = Path(source).expanduser()
    match _kind(source):
        case "fashion-mnist-small":
            return read_embedded
        case "hub":
            return partial(read_hub, source.removeprefix("hf:"))
        case ".npz":
            return partial(read_npz, path)
        case ".csv":
            return partial(read_csv, path)
        case "folder":
            return partial(read_folder, path)
        case "function":
            function: Callable[..., Any] = imported(source, "a function that returns a data set")
            return function
        case name:
            return partial(read_published, KNOWN[name], home)


def _names(read: Callable[..., Any]) -> tuple[str, ...] | None:
    try:
        parameters = inspect.signature(read).parameters.values()
    except ValueError:  # written in C
        return None
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return None
    keyword = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return tuple(p.name for p in parameters if p.kind in keyword)


WORDS = {"text", "label", "owner", "test", "subset", "train", "inputs"}
OPTIONAL = {"owner", "subset", "inputs", "test", "test_fraction", "resize"}  # None leaves them out
LEAST = {"resize": 1, "vocabulary": 3, "length": 1}


def _refuse(source: str, name: str, value: object) -> None:
    """Refuse a value that an option of ours cannot have."""
    if value is None and name in OPTIONAL:
        return
    if name in WORDS:
        fits, expected = isinstance(value, str) and value != "", "a word"
    elif name == "test_fraction":
        fits, expected = isinstance(value, float) and 0 < value < 1, "a number in (0, 1)"
    else:
        fits = isinstance(value, int) and not isinstance(value, bool) and value >= LEAST[name]
        expected = f"a whole number ≥ {LEAST[name]}"
    if not fits:
        raise SpecError(f"{source} got {name}={value!r}, expected {expected}.")


def _made(source: str, function: Callable[..., Any], options: Mapping[str, Any]) -> DataSet:
    """What a function of the user's own returns."""
    try:
        made = function(**options)
    except FlatfedError:
        raise
    except (Exception, SystemExit) as error:
        raise SpecError(failed(f"calling {source}", error)) from error
    if isinstance(made, DataSet):
        return made
    if isinstance(made, tuple) and len(made) == 4:
        return of_arrays(source, *made)
    found = f"a tuple of {len(made)}" if isinstance(made, tuple) else type(made).__name__
    raise FederationError(
        f"{source} returned {found}, expected (x_train, y_train, x_test, y_test) or a DataSet.\n"
        "Return the four arrays in this order."
    )
