"""Which published sets are there, whole or not; needs no torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from flatfed.data.files import chunks, digest, length, plain_or_gz
from flatfed.data.known import KNOWN, Known, Piece, known_set


@dataclass(frozen=True)
class Finding:
    """One set and its folder; wrong holds a line for every piece that is not as it should be."""

    name: str
    folder: Path
    state: Literal["present", "absent", "damaged"]
    wrong: tuple[str, ...] = ()


def check(
    home: str | Path | None = None, names: Sequence[str] = (), *, thorough: bool = False
) -> list[Finding]:
    """Every published set, or those named: by the sizes of its files, or by their hashes too."""
    known = [known_set(name) for name in names or KNOWN]
    return [examined(one, one.where(home), thorough=thorough) for one in known]


def examined(known: Known, folder: Path, *, thorough: bool = False) -> Finding:
    """What a folder holds of a set."""
    if not any(_held(folder, piece) for piece in known.pieces):
        return Finding(known.name, folder, "absent")
    wrong = tuple(line for piece in known.pieces for line in _faults(folder, piece, thorough))
    return Finding(known.name, folder, "damaged" if wrong else "present", wrong)


def found(folder: Path, piece: Piece) -> Iterator[Path]:
    """The files of a piece that are there; a compressed one does as well."""
    if "*" in piece.path:
        yield from folder.glob(piece.path)
    elif (file := plain_or_gz(folder / piece.path)).is_file():
        yield file


def _held(folder: Path, piece: Piece) -> bool:
    return next(found(folder, piece), None) is not None


def _faults(folder: Path, piece: Piece, thorough: bool) -> Iterator[str]:
    files = list(found(folder, piece))
    if "*" in piece.path:
        if len(files) != piece.count:
            yield f"{piece.path}: {len(files)} files, expected {piece.count}"
    elif not files:
        yield f"{piece.path}: not there"
    elif piece.size and (held := length(files[0])) != piece.size:
        size = "broken gzip" if held < 0 else f"{held} bytes"
        yield f"{files[0].name}: {size}, expected {piece.size} bytes"
    elif piece.count and (lines := _lines(files[0])) != piece.count:
        yield f"{files[0].name}: {lines} rows, expected {piece.count}"
    elif thorough and piece.sha256 and (hashed := digest(files[0])) != piece.sha256:
        yield f"{files[0].name}: sha256 {hashed}, expected {piece.sha256}"


def _lines(file: Path) -> int:
    """Rows of a CSV without line breaks in its fields, the last of which may lack its end."""
    ends, last = 0, b"\n"
    for chunk in chunks(file, unpacked=True):
        ends, last = ends + chunk.count(b"\n"), chunk[-1:]
    return ends + (last != b"\n")
