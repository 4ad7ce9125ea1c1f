"""CSV files of texts, row by row: what is wrong with one is said with its file and row."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from flatfed.data.draws import put_aside
from flatfed.data.files import absent, damaged
from flatfed.data.labels import class_names, class_numbers, client_numbers
from flatfed.data.sets import DataSet, Split
from flatfed.data.texts import encode
from flatfed.errors import FederationError, SpecError, nearest

LONGEST = 2**31 - 1  # characters in a field; Python's own limit is a short text


@contextmanager
def long_fields() -> Iterator[None]:
    """Fields of any length, for as long as this is open: the limit is the whole process's."""
    before = csv.field_size_limit(LONGEST)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def rows(file: Path, *, strict: bool = True) -> Iterator[tuple[int, list[str]]]:
    """Each row that is not empty, with its number from 1.

    strict refuses quotes that are not closed or not doubled, as in a file that was cut off.
    """
    row = 0
    try:
        # Bytes that are no UTF-8 pass as surrogates, so that their row can be named.
        with file.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as stream:
            for row, fields in enumerate(csv.reader(stream, strict=strict), 1):
                if not all(map(str.isascii, fields)):
                    "".join(fields).encode()
                if fields:
                    yield row, fields
    except FileNotFoundError as error:
        raise absent(file, "a CSV file", "Mend the path.") from error
    except UnicodeEncodeError as error:
        raise in_row(file, row, "bytes that are no UTF-8", "text in UTF-8") from error
    except csv.Error as error:
        found = f"broken quotes ({error})"
        raise in_row(file, row + 1, found, "whole rows, quotes in quotes doubled") from error


def in_row(
    file: Path, row: int, found: str, expected: str, remedy: str = "Mend the row."
) -> FederationError:
    """The error for one row; the caller raises it."""
    return damaged(f"{file}, row {row},", found, expected, remedy)


@dataclass(frozen=True)
class Table:
    """What the rows of a CSV of texts say, and which rows they were."""

    file: Path
    rows: list[int]
    texts: list[str]
    labels: list[str]
    owners: list[str]  # empty where no column was named

    def refused(self, classes: tuple[str, ...]) -> Callable[[int, str], FederationError]:
        """What is said of a label that is no class of the training texts."""
        return lambda at, label: in_row(
            self.file, self.rows[at], f"the label {label!r}", f"a class of {len(classes)} known",
            nearest(label, classes) if len(classes) <= 20 else "Train on some of that class too.",
        )  # fmt: skip


@long_fields()
def read_table(file: Path, text: str, label: str, owner: str | None = None) -> Table:
    """A CSV whose first row names its columns."""
    read = rows(file)
    _, header = next(read, (1, []))
    named = [text, label, *([] if owner is None else [owner])]
    for name in named:
        if name not in header:
            known = nearest(name, header) if header else "It is empty."
            raise FederationError(f"{file} has no column {name!r}.\n{known}")
    places = [header.index(name) for name in named]
    numbers, values = [], []
    for row, fields in read:
        if len(fields) != len(header):
            raise in_row(file, row, f"{len(fields)} fields", f"{len(header)}, as in the first row")
        for name, place in zip(named[1:], places[1:], strict=True):
            if not fields[place].strip():
                raise in_row(file, row, f"an empty {name!r}", "one in every row")
        numbers.append(row)
        values.append([fields[place] for place in places])
    if not values:
        raise damaged(file, "no rows below the first", "at least one text")
    texts, labels, *owners = map(list, zip(*values, strict=True))
    return Table(file, numbers, texts, labels, owners[0] if owners else [])


def read_csv(
    file: Path,
    *,
    text: str = "text",
    label: str = "label",
    owner: str | None = None,
    test: str | None = None,
    test_fraction: float | None = None,
    vocabulary: int = 30_000,
    length: int = 128,
) -> DataSet:
    """A CSV of texts, and for the test another of the same columns or a fraction of this one."""
    if (test is None) == (test_fraction is None):
        raise SpecError(
            f"{file} got test={test!r} and test_fraction={test_fraction!r}, expected one of them.\n"
            'Say where the test texts are (test = "test.csv"), or put some aside '
            "(test_fraction = 0.2)."
        )
    table = read_table(file, text, label, owner)
    classes = class_names(table.labels)
    targets = class_numbers(table.labels, classes, table.refused(classes))
    if test is not None:
        asked = read_table(Path(test).expanduser(), text, label)
        asked_targets = class_numbers(asked.labels, classes, asked.refused(classes))
        texts, asked_texts = table.texts, asked.texts
        owners = client_numbers(table.owners) if owner else None
    else:
        kept, aside = put_aside(targets, len(classes), test_fraction or 0.0)
        texts = [table.texts[at] for at in kept]
        asked_texts = [table.texts[at] for at in aside]
        asked_targets, targets = targets[aside], targets[kept]
        owners = client_numbers([table.owners[at] for at in kept]) if owner else None
    inputs, asked_inputs, ids = encode(texts, asked_texts, vocabulary=vocabulary, length=length)
    train = Split(inputs, targets, owners)
    return DataSet(file.stem, train, Split(asked_inputs, asked_targets), classes, vocabulary=ids)
