"""One file from a web server, gone on with where an earlier attempt was cut off."""

from __future__ import annotations

from collections.abc import Callable
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import TypeAlias, cast
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from flatfed import __version__
from flatfed.data.files import CHUNK
from flatfed.errors import FederationError

Progress: TypeAlias = Callable[[str, int, int], None]  # file, bytes done, bytes in all or 0
PATIENCE = 30  # seconds without a byte
ELSEWHERE = "Or take another source: --mirror URL, or --from FOLDER that holds the file."


def unfinished(file: Path) -> Path:
    """The name of a file as long as it is not whole and verified."""
    return file.with_name(f".unfinished-{file.name}")


def fetch(url: str, file: Path, progress: Progress) -> Path:
    """All bytes of url, under the unfinished name of file, which is returned."""
    part = unfinished(file)
    done = part.stat().st_size if part.is_file() else 0
    response = _asked(url, done)
    if response is None:  # there is nothing after what we have, or no going on from there
        done = 0
        response = cast(HTTPResponse, _asked(url, done))
    with response:
        done = done if response.status == 206 else 0  # 200: all of it, from the start
        length = response.headers.get("Content-Length", "")
        total = done + int(length) if length.isdecimal() else 0
        progress(file.name, done, total)
        with part.open("ab" if done else "wb") as stream:
            while chunk := _next(response, url, done):
                stream.write(chunk)
                done += len(chunk)
                progress(file.name, done, total)
    if done < total:
        raise _cut_off(url, done, f"of {total} bytes")
    return part


def _asked(url: str, start: int) -> HTTPResponse | None:
    """The answer to a request for the bytes from start on; None where it cannot be given."""
    headers = {"User-Agent": f"flatfed/{__version__}"}
    if start:
        headers["Range"] = f"bytes={start}-"
    try:
        response: HTTPResponse = urlopen(Request(url, headers=headers), timeout=PATIENCE)
    except HTTPError as error:
        error.close()
        if start and error.code == 416:
            return None
        raise FederationError(
            f"{url} answered {error.code} {error.reason}, expected the file.\n"
            f"Try again later.\n{ELSEWHERE}"
        ) from error
    except (OSError, HTTPException) as error:
        why = getattr(error, "reason", error)
        raise FederationError(
            f"{url} cannot be reached: {why}.\nCheck the network and call it again: what is "
            f"fetched stays.\n{ELSEWHERE}"
        ) from error
    begins = response.headers.get("Content-Range", "").startswith(f"bytes {start}-")
    if start and response.status == 206 and not begins:
        response.close()
        return None
    return response


def _next(response: HTTPResponse, url: str, done: int) -> bytes:
    # Apart from writing: a full disk is an OSError too, but not the network's.
    try:
        return response.read(CHUNK)
    except (OSError, HTTPException) as error:
        raise _cut_off(url, done, f"bytes ({error})") from error


def _cut_off(url: str, done: int, rest: str) -> FederationError:
    return FederationError(
        f"{url} was cut off after {done} {rest}.\nCall it again: it goes on from there.\n"
        f"{ELSEWHERE}"
    )
