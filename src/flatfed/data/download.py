"""Published sets brought into their folder: fetched, verified, unpacked, and only then in place."""

from __future__ import annotations

import gzip
import os
import shutil
import tarfile
import zipfile
import zlib
from pathlib import Path

from flatfed.data.fetch import Progress, fetch, unfinished
from flatfed.data.files import absent, damaged, data_home, digest, plain_or_gz
from flatfed.data.inventory import examined, found
from flatfed.data.known import Download, Known, known_set
from flatfed.errors import FederationError, SpecError

BROKEN = (tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error, gzip.BadGzipFile)


def _silent(file: str, done: int, total: int) -> None:
    """Nobody watches."""


def get(
    name: str,
    *,
    home: str | Path | None = None,
    mirror: str | None = None,
    folder: str | Path | None = None,
    progress: Progress = _silent,
) -> bool:
    """Bring a published set into home; False where it was there already.

    mirror, or FLATFED_MIRROR, is the URL of a folder of the same files. folder is one on this
    machine that holds them, packed or unpacked; then nothing is fetched.
    """
    known = known_set(name)
    where = known.where(home)
    if examined(known, where).state == "present":
        return False
    data_home(home).mkdir(parents=True, exist_ok=True)
    if folder is not None:
        _from_folder(known, where, Path(folder).expanduser())
        return True
    base = _base(mirror or os.environ.get("FLATFED_MIRROR"))
    for download in known.downloads:
        url = f"{base}/{download.file}" if base else download.url
        if download.unpacked:
            where.mkdir(exist_ok=True)
            if not _verified(download, plain_or_gz(where / Path(download.file).stem)):
                file = where / download.file
                _place(_fetched(download, url, file, progress), file)
        else:
            archive = where.parent / download.file
            if not _verified(download, archive):
                _fetched(download, url, archive, progress).rename(archive)
            _install(known, where, archive)
            archive.unlink()
    _refuse_incomplete(known, where)
    return True


def _base(mirror: str | None) -> str:
    if mirror and not mirror.startswith(("http://", "https://")):
        raise SpecError(
            f"the mirror is {mirror!r}, expected a URL that begins with http:// or https://.\n"
            "A folder on this machine is named with --from."
        )
    return (mirror or "").rstrip("/")


def _verified(download: Download, file: Path) -> bool:
    algorithm, _, expected = download.digest.partition(":")
    return file.is_file() and digest(file, algorithm, unpacked=download.unpacked) == expected


def _fetched(download: Download, url: str, file: Path, progress: Progress) -> Path:
    """The file under its unfinished name, verified; one with other content is removed."""
    part = fetch(url, file, progress)
    if _verified(download, part):
        return part
    size = part.stat().st_size
    part.unlink()
    raise FederationError(
        f"{url} gave {size} bytes with another hash, expected {download.digest}; they are removed."
        "\nCall it again.\nIf that repeats, the file has changed: take another source with "
        "--mirror or --from."
    )


def _place(part: Path, file: Path) -> None:
    """A verified file that is read as it is, in place of what was there before."""
    part.rename(file)
    # What is there unpacked would be read first, and it is damaged.
    file.with_suffix("").unlink(missing_ok=True)


def _install(known: Known, where: Path, archive: Path) -> None:
    """Unpack beside the folder, look whether all is there, and only then take its place."""
    made = unfinished(where)
    shutil.rmtree(made, ignore_errors=True)
    try:
        unpack(archive, made)
        inner = made / known.folder  # some archives hold a folder, some what is in it
        root = inner if inner.is_dir() else made
        _refuse_incomplete(known, root)
        shutil.rmtree(where, ignore_errors=True)
        root.rename(where)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def unpack(archive: Path, into: Path) -> None:
    """A tar, compressed or not, or a zip; nothing in it may reach outside of the folder."""
    into.mkdir()
    try:
        if archive.suffix == ".zip":
            with zipfile.ZipFile(archive) as packed:
                for name in packed.namelist():
                    if not (into / name).resolve().is_relative_to(into.resolve()):
                        raise zipfile.BadZipFile(f"{name!r} is outside")
                packed.extractall(into)
        else:
            with tarfile.open(archive) as packed_tar:
                packed_tar.extractall(into, filter="data")
    except BROKEN as error:
        what = f"something that cannot be unpacked ({error})"
        raise damaged(archive, what, "a whole archive", "Get the file again.") from error


def _refuse_incomplete(known: Known, folder: Path) -> None:
    finding = examined(known, folder)
    if finding.state != "present":
        first = finding.wrong[0] if finding.wrong else "none of its files"
        expected = f"{known.name} whole"
        raise damaged(folder, first, expected, "Get it again, or from another source.")


def _from_folder(known: Known, where: Path, folder: Path) -> None:
    """From archives or unpacked files on this machine, which stay as they are."""
    archives = [folder / download.file for download in known.downloads]
    if all(archive.is_file() for archive in archives):
        for download, archive in zip(known.downloads, archives, strict=True):
            if not _verified(download, archive):
                raise damaged(
                    archive,
                    f"{archive.stat().st_size} bytes with another hash",
                    download.digest,
                    "Get that file again.",
                )
            if download.unpacked:
                where.mkdir(exist_ok=True)
                file = where / archive.name
                shutil.copyfile(archive, unfinished(file))
                _place(unfinished(file), file)
            else:
                _install(known, where, archive)
        return
    for root in (folder, folder / known.folder):
        finding = examined(known, root, thorough=True)
        if finding.state == "damaged":
            raise damaged(root, finding.wrong[0], f"{known.name} whole", "Mend that file.")
        if finding.state == "present":
            return _copied(known, root, where)
    named = ", ".join(archive.name for archive in archives)
    raise absent(folder / archives[0].name, f"{named}, or what they hold", "Name another folder.")


def _copied(known: Known, root: Path, where: Path) -> None:
    made = unfinished(where)
    shutil.rmtree(made, ignore_errors=True)
    try:
        for piece in known.pieces:
            for file in found(root, piece):
                to = made / file.relative_to(root)
                to.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, to)
        shutil.rmtree(where, ignore_errors=True)
        made.rename(where)
    finally:
        shutil.rmtree(made, ignore_errors=True)
