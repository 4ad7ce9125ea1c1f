"""Files of data: where they lie, how they are opened and hashed, how a damaged one is refused."""

from __future__ import annotations

import gzip
import hashlib
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

from flatfed.errors import FederationError

MEND = "Make the file again, or leave it out."
CHUNK = 1 << 20
BROKEN_GZIP = (EOFError, gzip.BadGzipFile, zlib.error)


def data_home(home: str | Path | None = None) -> Path:
    """Where the known sets lie: the argument, else FLATFED_DATA, else a folder of the user's."""
    return Path(home or os.environ.get("FLATFED_DATA") or "~/.cache/flatfed/data").expanduser()


def damaged(file: Path | str, found: str, expected: str, remedy: str = MEND) -> FederationError:
    """The error for a file that is not what it should be; the caller raises it."""
    return FederationError(f"{file} holds {found}, expected {expected}.\n{remedy}")


def absent(file: Path, expected: str, remedy: str) -> FederationError:
    """The error for a file that is not there; the caller raises it."""
    return FederationError(f"{file} is not there, expected {expected}.\n{remedy}")


def plain_or_gz(file: Path) -> Path:
    """The file itself, or its compressed form where only that is there."""
    packed = file.with_name(file.name + ".gz")
    return packed if packed.is_file() and not file.is_file() else file


def opened(file: Path) -> BinaryIO:
    """The file for reading; a compressed one is unpacked on the way."""
    return cast(BinaryIO, gzip.open(file)) if file.suffix == ".gz" else file.open("rb")


def content(file: Path, expected: str, remedy: str = MEND) -> bytes:
    """All that a file holds, unpacked."""
    try:
        with opened(file) as stream:
            return stream.read()
    except FileNotFoundError as error:
        raise absent(file, expected, remedy) from error
    except BROKEN_GZIP as error:
        found = f"{file.stat().st_size} bytes of broken gzip ({error})"
        raise damaged(file, found, expected, remedy) from error


def chunks(file: Path, unpacked: bool) -> Iterator[bytes]:
    with opened(file) if unpacked else file.open("rb") as stream:
        while chunk := stream.read(CHUNK):
            yield chunk


def digest(file: Path, algorithm: str = "sha256", *, unpacked: bool = True) -> str:
    """The hash of what a file holds; a broken gzip says so in place of a hash."""
    found = hashlib.new(algorithm)
    try:
        for chunk in chunks(file, unpacked):
            found.update(chunk)
    except BROKEN_GZIP as error:
        return f"broken gzip ({error})"
    return found.hexdigest()


def length(file: Path) -> int:
    """How many bytes a file holds, unpacked; -1 where it cannot be unpacked."""
    if file.suffix != ".gz":
        return file.stat().st_size
    try:
        return sum(map(len, chunks(file, unpacked=True)))
    except BROKEN_GZIP:
        return -1
