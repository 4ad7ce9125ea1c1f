"""The published sets, each from the files its publishers give away."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from flatfed.data.draws import first_of_each
from flatfed.data.files import absent, content, damaged
from flatfed.data.folders import folders, pictures
from flatfed.data.images import read_cifar, read_idx_split, read_pictures
from flatfed.data.known import Known
from flatfed.data.sets import DataSet, Split
from flatfed.data.tables import in_row, long_fields, rows
from flatfed.data.texts import encode

VOCABULARY, LENGTH = 30_000, 128  # of DBpedia-14 (spec, recipes section 2)


def read_published(known: Known, home: str | Path | None = None) -> DataSet:
    """A published set from its folder, whole or refused."""
    where = known.where(home)
    if not where.is_dir():
        raise absent(where, f"the files of {known.name}", known.remedy)
    data = READERS[known.name](known, where)
    for part, split, samples in zip(
        ("training", "test"), (data.train, data.test), known.samples, strict=True
    ):
        if len(split) != samples:
            found, expected = f"{len(split)} {part} samples", f"{samples} of {known.name}"
            raise damaged(where, found, expected, known.remedy)
    return data


def _fashion(known: Known, where: Path) -> DataSet:
    train, test = (
        read_idx_split(where, part, len(known.classes), known.remedy) for part in ("train", "t10k")
    )
    return DataSet(known.name, train, test, known.classes, known.mean, known.std)


def _cifar_10(known: Known, where: Path) -> DataSet:
    batches = [where / f"data_batch_{number}.bin" for number in range(1, 6)]
    train = read_cifar(batches, len(known.classes), remedy=known.remedy)
    test = read_cifar([where / "test_batch.bin"], len(known.classes), remedy=known.remedy)
    return DataSet(known.name, train, test, known.classes, known.mean, known.std)


def _cifar_100(known: Known, where: Path) -> DataSet:
    train, test = (
        read_cifar([where / f"{part}.bin"], len(known.classes), 2, known.remedy)
        for part in ("train", "test")
    )
    return DataSet(known.name, train, test, known.classes, known.mean, known.std)


def _cinic_10(known: Known, where: Path) -> DataSet:
    def split(part: str) -> Split:
        files, targets = pictures(where / part, known.classes)
        return Split(read_pictures(files, channels=3, remedy=known.remedy), targets)

    return DataSet(known.name, split("train"), split("test"), known.classes, known.mean, known.std)


def _tiny_imagenet(known: Known, where: Path) -> DataSet:
    if not (where / "train").is_dir():
        raise absent(where / "train", "a folder for each class", known.remedy)
    numbers = folders(where / "train")  # of WordNet, such as n01443537
    lines = _lines(where / "words.txt", "words by their number of WordNet", known)
    words = dict(line.split("\t", 1) for line in lines if "\t" in line)
    classes = tuple(words.get(number, number).split(",")[0] for number in numbers)
    files, targets = pictures(where / "train", numbers, "images")
    train = Split(read_pictures(files, channels=3, remedy=known.remedy), targets)
    annotations = where / "val" / "val_annotations.txt"
    expected = "lines of image, class and box"
    places = {number: place for place, number in enumerate(numbers)}
    files, asked = [], []
    for row, line in enumerate(_lines(annotations, expected, known), 1):
        name, number, *_ = [*line.split("\t"), "", ""]
        if number not in places or not (where / "val" / "images" / name).is_file():
            raise in_row(annotations, row, repr(line[:40]), expected, known.remedy)
        files.append(where / "val" / "images" / name)
        asked.append(places[number])
    test = Split(read_pictures(files, channels=3, remedy=known.remedy), torch.tensor(asked))
    return DataSet(known.name, train, test, classes, known.mean, known.std)


def _lines(file: Path, expected: str, known: Known) -> list[str]:
    return content(file, expected, known.remedy).decode(errors="replace").splitlines()


def _dbpedia(known: Known, where: Path) -> DataSet:
    texts, targets = [], []
    for file, samples in zip(("train.csv", "test.csv"), known.samples, strict=True):
        chosen, labels = _chosen(known, where / file, samples // len(known.classes))
        texts.append(chosen)
        targets.append(labels)
    inputs, asked, ids = encode(*texts, vocabulary=VOCABULARY, length=LENGTH)
    train, test = Split(inputs, targets[0]), Split(asked, targets[1])
    return DataSet(known.name, train, test, known.classes, vocabulary=ids)


@long_fields()
def _chosen(known: Known, file: Path, per_class: int) -> tuple[list[str], Tensor]:
    """Of each class the first texts after a shuffle: the paper does not say which it took."""
    if not file.is_file():
        raise absent(file, "rows of class, title and content", known.remedy)
    classes, texts = len(known.classes), []
    labels = []
    for row, fields in rows(file, strict=False):
        if len(fields) != 3:
            found = f"{len(fields)} fields"
            raise in_row(file, row, found, "3: class, title, content", known.remedy)
        if not fields[0].isdecimal() or not 1 <= int(fields[0]) <= classes:
            found = f"the class {fields[0]!r}"
            raise in_row(file, row, found, f"1 to {classes}", known.remedy)
        labels.append(int(fields[0]) - 1)
        texts.append(f"{fields[1]} {fields[2]}")
    expected = next((piece.count for piece in known.pieces if piece.path == file.name), 0)
    if expected and len(labels) != expected:
        raise damaged(file, f"{len(labels)} rows", f"{expected}", known.remedy)
    targets = torch.tensor(labels)
    places = first_of_each(targets, classes, per_class, f"dbpedia-14/{file.name}")
    kept = places.flatten().sort().values
    return [texts[at] for at in kept.tolist()], targets[kept]


READERS: dict[str, Callable[[Known, Path], DataSet]] = {
    "fashion-mnist": _fashion,
    "cifar-10": _cifar_10,
    "cifar-100": _cifar_100,
    "cinic-10": _cinic_10,
    "tiny-imagenet": _tiny_imagenet,
    "dbpedia-14": _dbpedia,
}
