"""Published sets over a web server on this machine: verified, gone on with, whole or not there."""

from __future__ import annotations

import hashlib
import io
import shutil
import sys
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import written
from flatfed.cli import main
from flatfed.data.download import get, unpack
from flatfed.data.fetch import fetch, unfinished
from flatfed.data.files import digest
from flatfed.data.inventory import check
from flatfed.data.known import KNOWN, Download, Piece
from flatfed.errors import FederationError, SpecError


@dataclass
class Web:
    """Files that a server on this machine gives away, and what was asked of it."""

    url: str
    files: dict[str, bytes] = field(default_factory=dict)
    ranges: bool = True
    shifted: bool = False  # answers with another range than was asked for
    cut_after: int | None = None  # bytes, after which the connection is closed
    sized: bool = True
    asked: list[tuple[str, str | None]] = field(default_factory=list)


def handler(web: Web) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name, wanted = self.path.rsplit("/", 1)[-1], self.headers.get("Range")
            web.asked.append((self.path, wanted))
            if name not in web.files:
                self.send_error(404)
                return
            body, start = web.files[name], 0
            if wanted and web.ranges:
                start = int(wanted.removeprefix("bytes=").removesuffix("-"))
                if start >= len(body):
                    self.send_error(416)
                    return
                start = 0 if web.shifted else start
                self.send_response(206)
                self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
            else:
                self.send_response(200)
            if web.sized:
                self.send_header("Content-Length", str(len(body) - start))
            self.end_headers()
            self.wfile.write(body[start : web.cut_after])

        def log_message(self, *args: object) -> None:
            """Nothing: the output of tests is theirs."""

    return Handler


@pytest.fixture
def web() -> Iterator[Web]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    held = Web(f"http://127.0.0.1:{server.server_port}")
    server.RequestHandlerClass = handler(held)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield held
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(autouse=True)
def no_mirror(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FLATFED_MIRROR", "http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def tar(files: dict[str, bytes], mode: str = "w:gz") -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode=mode) as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def zipped(files: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return packed.getvalue()


CONTENT = bytes(range(256)) * 4000  # about a megabyte, to be cut off in the middle
INSIDE = {"a.bin": CONTENT, "b.bin": b"small"}
PIECES = tuple(Piece(name, len(held), sha256(held)) for name, held in INSIDE.items())


@pytest.fixture
def archive(web: Web, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """cifar-10, made of two small files in a tar that is served."""
    packed = tar({f"cifar-10-batches-bin/{name}": held for name, held in INSIDE.items()})
    web.files["set.tar.gz"] = packed
    source = Download(f"{web.url}/far/set.tar.gz", f"sha256:{sha256(packed)}")
    small = replace(KNOWN["cifar-10"], downloads=(source,), pieces=PIECES)
    monkeypatch.setitem(KNOWN, "cifar-10", small)
    return packed


@pytest.fixture
def singles(web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """fashion-mnist, made of few images in the true format."""
    folder = written.fashion(tmp_path / "served")
    packed = sorted(folder.iterdir())
    web.files |= {file.name: file.read_bytes() for file in packed}
    downloads = [Download(f"{web.url}/{f.name}", f"sha256:{digest(f)}", True) for f in packed]
    pieces = [Piece(f.stem, sha256=digest(f)) for f in packed]
    small = replace(
        KNOWN["fashion-mnist"],
        downloads=tuple(downloads),
        pieces=tuple(pieces),
        samples=(20, 10),
    )
    monkeypatch.setitem(KNOWN, "fashion-mnist", small)
    return folder


def left(home: Path) -> list[str]:
    return sorted(file.name for file in home.iterdir())


def holds(home: Path) -> bool:
    where = home / "cifar-10-batches-bin"
    return {f.name: f.read_bytes() for f in where.iterdir()} == INSIDE


# Fetching.


def test_a_set_is_fetched_verified_and_unpacked_and_nothing_else_is_left(
    web: Web, archive: bytes, tmp_path: Path
) -> None:
    seen: list[tuple[str, int, int]] = []
    home = tmp_path / "new" / "home"
    assert get("cifar-10", home=home, progress=lambda *step: seen.append(step))
    assert holds(home)
    assert left(home) == ["cifar-10-batches-bin"]
    assert seen[0] == ("set.tar.gz", 0, len(archive))
    assert seen[-1] == ("set.tar.gz", len(archive), len(archive))
    assert not get("cifar-10", home=home)
    assert len(web.asked) == 1


def test_compressed_files_stay_as_they_are(web: Web, singles: Path, tmp_path: Path) -> None:
    from flatfed.data import load

    assert get("fashion-mnist", home=tmp_path)
    assert left(tmp_path / "fashion-mnist") == left(singles)
    assert len(load("fashion-mnist", home=tmp_path).train) == 20
    assert len(web.asked) == 4


def test_only_what_is_missing_or_damaged_is_fetched(
    web: Web, singles: Path, tmp_path: Path
) -> None:
    where = tmp_path / "fashion-mnist"
    shutil.copytree(singles, where)
    (where / "t10k-labels-idx1-ubyte.gz").unlink()
    (where / "t10k-labels-idx1-ubyte").write_bytes(b"damaged")
    (where / "train-labels-idx1-ubyte.gz").unlink()
    assert get("fashion-mnist", home=tmp_path)
    assert sorted(path for path, _ in web.asked) == [
        "/t10k-labels-idx1-ubyte.gz",
        "/train-labels-idx1-ubyte.gz",
    ]
    assert left(where) == left(singles)


def test_what_was_cut_off_is_gone_on_with(web: Web, archive: bytes, tmp_path: Path) -> None:
    half = web.cut_after = len(archive) // 2
    with pytest.raises(FederationError, match=rf"was cut off after {half} of {len(archive)} bytes"):
        get("cifar-10", home=tmp_path)
    assert (tmp_path / ".unfinished-set.tar.gz").read_bytes() == archive[:half]
    web.cut_after = None
    seen: list[int] = []
    assert get("cifar-10", home=tmp_path, progress=lambda file, done, total: seen.append(done))
    assert web.asked[-1] == ("/far/set.tar.gz", f"bytes={half}-")
    assert seen[0] == half
    assert holds(tmp_path)


def test_a_server_that_cannot_go_on_starts_over(web: Web, archive: bytes, tmp_path: Path) -> None:
    (tmp_path / ".unfinished-set.tar.gz").write_bytes(archive[:100])
    web.ranges = False
    assert get("cifar-10", home=tmp_path)
    assert web.asked == [("/far/set.tar.gz", "bytes=100-")]
    assert holds(tmp_path)


def test_another_range_than_was_asked_for_is_not_appended(
    web: Web, archive: bytes, tmp_path: Path
) -> None:
    (tmp_path / ".unfinished-set.tar.gz").write_bytes(archive[:100])
    web.shifted = True
    assert get("cifar-10", home=tmp_path)
    assert [wanted for _, wanted in web.asked] == ["bytes=100-", None]
    assert holds(tmp_path)


def test_an_unfinished_file_that_is_too_long_is_fetched_anew(
    web: Web, archive: bytes, tmp_path: Path
) -> None:
    (tmp_path / ".unfinished-set.tar.gz").write_bytes(archive + b"more")
    assert get("cifar-10", home=tmp_path)
    assert [wanted for _, wanted in web.asked] == [f"bytes={len(archive) + 4}-", None]
    assert holds(tmp_path)


def test_a_server_may_not_say_how_long_a_file_is(web: Web, tmp_path: Path) -> None:
    web.files["any"], web.sized = b"content", False
    seen: list[int] = []
    part = fetch(f"{web.url}/any", tmp_path / "any", lambda f, done, total: seen.append(total))
    assert part == unfinished(tmp_path / "any")
    assert part.read_bytes() == b"content"
    assert set(seen) == {0}


def test_a_file_with_another_hash_is_removed(web: Web, archive: bytes, tmp_path: Path) -> None:
    web.files["set.tar.gz"] = archive[:-1] + b"x"
    with pytest.raises(FederationError, match=r"with another hash, expected sha256:.*removed") as e:
        get("cifar-10", home=tmp_path)
    assert len(str(e.value).splitlines()) == 3
    assert left(tmp_path) == []


def test_the_part_of_another_file_is_removed_and_not_kept_for_ever(
    web: Web, archive: bytes, tmp_path: Path
) -> None:
    (tmp_path / ".unfinished-set.tar.gz").write_bytes(b"other content")
    with pytest.raises(FederationError, match="another hash"):
        get("cifar-10", home=tmp_path)
    assert get("cifar-10", home=tmp_path)
    assert holds(tmp_path)


def test_a_missing_file_is_said_with_its_url_and_what_else_to_do(
    web: Web, archive: bytes, tmp_path: Path
) -> None:
    del web.files["set.tar.gz"]
    with pytest.raises(FederationError, match=r"/far/set.tar.gz answered 404 Not Found") as caught:
        get("cifar-10", home=tmp_path)
    assert "--mirror URL, or --from FOLDER" in str(caught.value)
    assert len(str(caught.value).splitlines()) == 3


def test_without_a_network_the_message_says_so(web: Web, archive: bytes, tmp_path: Path) -> None:
    (tmp_path / ".unfinished-set.tar.gz").write_bytes(archive[:100])
    with pytest.raises(FederationError, match=r"cannot be reached: .*\nCheck the network") as e:
        get("cifar-10", home=tmp_path, mirror="http://127.0.0.1:9")  # nobody listens there
    assert len(str(e.value).splitlines()) == 3
    assert (tmp_path / ".unfinished-set.tar.gz").read_bytes() == archive[:100]


@pytest.mark.parametrize("how", ["argument", "environment"])
def test_a_mirror_takes_the_place_of_the_url(
    web: Web, archive: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    base = f"{web.url}/near/"
    monkeypatch.setenv("FLATFED_MIRROR", "http://127.0.0.1:9" if how == "argument" else base)
    assert get("cifar-10", home=tmp_path, mirror=base if how == "argument" else None)
    assert web.asked == [("/near/set.tar.gz", None)]
    with pytest.raises(SpecError, match=r"the mirror is '/srv', expected a URL .*\n.*--from"):
        get("cifar-100", home=tmp_path, mirror="/srv")


def test_a_full_disk_is_an_error_of_the_disk_and_keeps_what_is_there(
    web: Web, archive: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Path.open

    def full(self: Path, mode: str = "r", *args: object, **kwargs: object):
        stream = real(self, mode, *args, **kwargs)
        if mode != "wb":
            return stream

        class Full:
            def __enter__(self) -> Full:
                return self

            def __exit__(self, *args: object) -> None:
                stream.close()

            def write(self, chunk: bytes) -> None:
                stream.write(chunk[:50])
                raise OSError(28, "No space left on device")

        return Full()

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", full)
        with pytest.raises(OSError, match="No space left"):
            get("cifar-10", home=tmp_path)
    assert (tmp_path / ".unfinished-set.tar.gz").read_bytes() == archive[:50]
    assert get("cifar-10", home=tmp_path)


# Unpacking.


@pytest.mark.parametrize("kind", ["tar.gz", "tgz", "tar", "zip"])
@pytest.mark.parametrize("inner", ["cifar-10-batches-bin/", ""])
def test_archives_hold_the_folder_or_what_is_in_it(
    web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, inner: str
) -> None:
    files = {inner + name: held for name, held in INSIDE.items()}
    packed = zipped(files) if kind == "zip" else tar(files, "w" if kind == "tar" else "w:gz")
    web.files[f"set.{kind}"] = packed
    source = Download(f"{web.url}/set.{kind}", f"md5:{hashlib.md5(packed).hexdigest()}")
    small = replace(KNOWN["cifar-10"], downloads=(source,), pieces=PIECES)
    monkeypatch.setitem(KNOWN, "cifar-10", small)
    assert get("cifar-10", home=tmp_path)
    assert holds(tmp_path)
    assert left(tmp_path) == ["cifar-10-batches-bin"]


@pytest.mark.parametrize("name", ["../outside", "a/../../outside"])
def test_nothing_is_unpacked_outside_of_its_folder(tmp_path: Path, name: str) -> None:
    for ending, packed in (("tar", tar({name: b"x"}, "w")), ("zip", zipped({name: b"x"}))):
        (tmp_path / f"set.{ending}").write_bytes(packed)
        with pytest.raises(FederationError, match=rf"set.{ending} holds something that cannot be"):
            unpack(tmp_path / f"set.{ending}", tmp_path / f"in-{ending}")
    assert left(tmp_path) == ["in-tar", "in-zip", "set.tar", "set.zip"]


def test_a_link_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "set.tar", "w") as archive:
        member = tarfile.TarInfo("link")
        member.type, member.linkname = tarfile.SYMTYPE, "/etc"
        archive.addfile(member)
    with pytest.raises(FederationError, match="cannot be unpacked"):
        unpack(tmp_path / "set.tar", tmp_path / "in")


def test_a_broken_archive_leaves_nothing_behind(
    web: Web, archive: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = tmp_path / "cifar-10-batches-bin"
    old.mkdir()
    (old / "a.bin").write_bytes(b"old")
    inside = {f"cifar-10-batches-bin/{name}": held for name, held in INSIDE.items()}
    less = dict(list(inside.items())[:1])
    for packed, said in (
        (archive[: len(archive) // 2], "cannot be unpacked"),
        (b"no archive", "cannot be unpacked"),
        (tar(less), "b.bin: not there, expected cifar-10 whole"),
    ):
        web.files["set.tar.gz"] = packed
        source = Download(f"{web.url}/set.tar.gz", f"sha256:{sha256(packed)}")
        small = replace(KNOWN["cifar-10"], downloads=(source,))
        monkeypatch.setitem(KNOWN, "cifar-10", small)
        with pytest.raises(FederationError, match=said):
            get("cifar-10", home=tmp_path)
        assert (old / "a.bin").read_bytes() == b"old"
        assert left(tmp_path) == ["cifar-10-batches-bin", "set.tar.gz"]


def test_a_damaged_set_is_replaced(web: Web, archive: bytes, tmp_path: Path) -> None:
    (tmp_path / "cifar-10-batches-bin").mkdir()
    (tmp_path / "cifar-10-batches-bin" / "a.bin").write_bytes(b"old")
    assert get("cifar-10", home=tmp_path)
    assert holds(tmp_path)


def test_a_verified_archive_in_the_home_is_not_fetched_again(
    web: Web, archive: bytes, tmp_path: Path
) -> None:
    (tmp_path / "set.tar.gz").write_bytes(archive)
    assert get("cifar-10", home=tmp_path)
    assert web.asked == []
    assert holds(tmp_path)


# From a folder.


@pytest.mark.parametrize("held", ["archive", "files", "inside"])
def test_a_folder_takes_the_place_of_the_network(
    web: Web, archive: bytes, tmp_path: Path, held: str
) -> None:
    folder, home = tmp_path / "folder", tmp_path / "home"
    folder.mkdir()
    if held == "archive":
        (folder / "set.tar.gz").write_bytes(archive)
    else:
        inside = folder if held == "files" else folder / "cifar-10-batches-bin"
        inside.mkdir(exist_ok=True)
        for name, content in INSIDE.items():
            (inside / name).write_bytes(content)
    before = sorted(folder.rglob("*"))
    assert get("cifar-10", home=home, folder=folder)
    assert holds(home)
    assert left(home) == ["cifar-10-batches-bin"]
    assert web.asked == []
    assert sorted(folder.rglob("*")) == before


def test_single_files_are_taken_from_a_folder(web: Web, singles: Path, tmp_path: Path) -> None:
    assert get("fashion-mnist", home=tmp_path / "home", folder=singles)
    assert left(tmp_path / "home" / "fashion-mnist") == left(singles)
    plain = written.fashion(tmp_path / "plain", packed=False)
    assert get("fashion-mnist", home=tmp_path / "other", folder=plain)
    assert left(tmp_path / "other" / "fashion-mnist") == left(plain)
    assert web.asked == []


def test_a_folder_is_verified_too(web: Web, archive: bytes, tmp_path: Path) -> None:
    folder, home = tmp_path / "folder", tmp_path / "home"
    folder.mkdir()
    with pytest.raises(FederationError, match=r"set.tar.gz is not there, expected set.tar.gz, or"):
        get("cifar-10", home=home, folder=folder)
    (folder / "set.tar.gz").write_bytes(archive[:-1])
    with pytest.raises(FederationError, match="bytes with another hash, expected sha256:"):
        get("cifar-10", home=home, folder=folder)
    (folder / "set.tar.gz").unlink()
    (folder / "a.bin").write_bytes(CONTENT[::-1])
    (folder / "b.bin").write_bytes(b"small")
    with pytest.raises(FederationError, match=r"a.bin: sha256 \w+, expected \w+, expected cifar"):
        get("cifar-10", home=home, folder=folder)
    assert left(home) == []


# Checking.


def test_a_check_tells_present_from_absent_from_damaged(archive: bytes, tmp_path: Path) -> None:
    where = tmp_path / "cifar-10-batches-bin"
    assert {finding.state for finding in check(tmp_path)} == {"absent"}
    assert [finding.name for finding in check(tmp_path)] == list(KNOWN)
    get("cifar-10", home=tmp_path)
    (one,) = check(tmp_path, ["cifar-10"], thorough=True)
    assert (one.state, one.folder, one.wrong) == ("present", where, ())
    (where / "a.bin").write_bytes(CONTENT[::-1])
    assert check(tmp_path, ["cifar-10"])[0].state == "present"
    (one,) = check(tmp_path, ["cifar-10"], thorough=True)
    assert one.state == "damaged"
    assert one.wrong[0].startswith("a.bin: sha256 ")
    (where / "a.bin").write_bytes(b"abc")
    (where / "b.bin").unlink()
    (one,) = check(tmp_path, ["cifar-10"])
    assert one.wrong == (f"a.bin: 3 bytes, expected {len(CONTENT)} bytes", "b.bin: not there")


def test_a_check_counts_files_and_rows_and_unpacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces = (Piece("t/*/*.png", count=2), Piece("r.csv", count=3), Piece("x", 4))
    monkeypatch.setitem(KNOWN, "cifar-10", replace(KNOWN["cifar-10"], pieces=pieces))
    where = tmp_path / "cifar-10-batches-bin"
    for name in "ab":
        written.picture(where / "t" / name / "0.png", 4)
    (where / "r.csv").write_text("a\nb\nc")
    written.idx(where / "x.gz", np.zeros(0), packed=True)
    (one,) = check(tmp_path, ["cifar-10"])
    assert one.wrong == ("x.gz: 8 bytes, expected 4 bytes",)
    (where / "x.gz").write_bytes(b"no gzip")
    (where / "r.csv").write_text("a\nb\n")
    (where / "t" / "b" / "0.png").unlink()
    (one,) = check(tmp_path, ["cifar-10"])
    assert one.wrong == (
        "t/*/*.png: 1 files, expected 2",
        "r.csv: 2 rows, expected 3",
        "x.gz: broken gzip, expected 4 bytes",
    )


def test_every_published_set_is_described_whole() -> None:
    for name, known in KNOWN.items():
        assert known.name == name
        assert known.downloads
        assert known.pieces
        assert len(known.mean) == len(known.std) in (0, 1, 3)
        for download in known.downloads:
            algorithm, _, value = download.digest.partition(":")
            assert len(bytes.fromhex(value)) == hashlib.new(algorithm).digest_size


# The commands.


def run(*arguments: str):
    return CliRunner().invoke(main, ["data", *arguments])


def test_the_command_gets_a_set_and_says_how_far_it_is(archive: bytes, tmp_path: Path) -> None:
    done = run("get", "cifar-10", "--home", str(tmp_path))
    assert done.exit_code == 0, done.output
    assert "set.tar.gz: 0.0 of 0.0 MB" in done.stderr
    assert done.stdout == f"cifar-10 is complete in {tmp_path}/cifar-10-batches-bin.\n"
    again = run("get", "cifar-10", "--home", str(tmp_path))
    assert "already complete" in again.stdout
    assert again.stderr == ""


def test_the_command_passes_mirror_and_folder_on(web: Web, archive: bytes, tmp_path: Path) -> None:
    wrong = run("get", "cifar-10", "--home", str(tmp_path), "--mirror", "here")
    assert wrong.exit_code == 2
    assert wrong.stderr.startswith("flatfed: the mirror is 'here'")
    wrong = run("get", "cifar-10", "--home", str(tmp_path), "--from", str(tmp_path / "no"))
    assert "is not there, expected set.tar.gz" in wrong.stderr
    wrong = run("get", "cifar")
    assert wrong.exit_code == 2
    assert "Did you mean 'cifar-10" in wrong.stderr


def test_a_terminal_shows_bars(
    archive: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flatfed.cli.data import shown

    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with shown() as progress:
        get("cifar-10", home=tmp_path, progress=progress)
    assert holds(tmp_path)


def test_the_command_checks_all_sets_or_one(archive: bytes, tmp_path: Path) -> None:
    home = ("--home", str(tmp_path))
    nothing = run("check", *home)
    assert nothing.exit_code == 0
    assert nothing.stdout.count("absent") == len(KNOWN)
    assert run("check", "cifar-10", *home).exit_code == 1
    run("get", "cifar-10", *home)
    assert run("check", "cifar-10", "--thorough", *home).exit_code == 0
    (tmp_path / "cifar-10-batches-bin" / "b.bin").unlink()
    damaged = run("check", *home)
    assert damaged.exit_code == 1
    assert "✗ cifar-10" in damaged.stdout
    assert (
        "    b.bin: not there\n    Get it again with: flatfed data get cifar-10" in damaged.stdout
    )


def test_a_connection_that_breaks_while_reading_keeps_what_came(
    web: Web, archive: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: object, amount: int) -> bytes:
        raise ConnectionResetError(104, "Connection reset by peer")

    with monkeypatch.context() as patch:
        patch.setattr("http.client.HTTPResponse.read", broken)
        with pytest.raises(FederationError, match=r"was cut off after 0 bytes .*reset by peer"):
            get("cifar-10", home=tmp_path)
    assert get("cifar-10", home=tmp_path)
    assert holds(tmp_path)
