"""What clients keep: every version apart, until the ledger has moved on."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
import torch

from flatfed.disk import write_vectors
from flatfed.engines.store import Disk, Memory
from flatfed.errors import RunError


def kept(number: float) -> dict[str, torch.Tensor]:
    return {"c_i": torch.full((3,), number), "error:dx": torch.arange(2.0) + number}


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


@pytest.fixture(params=["memory", "disk"])
def store(request, tmp_path):
    return Memory() if request.param == "memory" else Disk(tmp_path / "kept")


def test_versions_are_apart_and_dropped_one_by_one(store) -> None:
    for client, version in ((0, 0), (0, 4), (1234, 4)):
        store.write(client, version, kept(client + version))
    for client, version in ((0, 0), (0, 4), (1234, 4)):
        read = store.read(client, version)
        assert read.keys() == kept(0).keys()
        assert all(torch.equal(read[name], v) for name, v in kept(client + version).items())
    store.drop(0, 0)
    store.drop(0, 0)  # it may have been dropped before the run was killed
    assert torch.equal(store.read(0, 4)["c_i"], torch.full((3,), 4.0))
    with pytest.raises((KeyError, OSError)):
        store.read(0, 0)


def test_a_version_that_is_written_again_is_the_last_one(store) -> None:
    store.write(2, 1, kept(1))
    store.write(2, 1, kept(5))
    assert torch.equal(store.read(2, 1)["c_i"], torch.full((3,), 5.0))


def test_what_is_written_does_not_change_with_the_callers_dict(store) -> None:
    mine = kept(1)
    store.write(2, 1, mine)
    del mine["c_i"]
    assert "c_i" in store.read(2, 1)


def test_a_million_clients_do_not_share_a_folder(tmp_path) -> None:
    disk = Disk(tmp_path)
    assert disk.path(999, 3).parent != disk.path(1000, 3).parent
    assert disk.path(0, 3).parent == disk.path(999, 3).parent
    assert len({disk.path(c, v) for c in (1, 11, 111) for v in (1, 11, 111)}) == 9


def test_prune_leaves_what_the_ledger_names(tmp_path) -> None:
    disk = Disk(tmp_path)
    disk.prune({})  # nothing was ever kept
    for client, version in ((0, 1), (0, 2), (5, 2), (1500, 7), (10, 1)):
        disk.write(client, version, kept(version))
    write_vectors(tmp_path / "0000" / ".5-3.safetensors.4242", kept(3), sync=False)  # a killed one
    (tmp_path / "0000" / "notes.txt").write_text("somebody's own")
    disk.prune({0: 1, 5: 2, 1500: 7})
    assert files(tmp_path) == [
        "0-1.safetensors", "1500-7.safetensors", "5-2.safetensors", "notes.txt"
    ]  # fmt: skip
    assert torch.equal(disk.read(1500, 7)["c_i"], torch.full((3,), 7.0))


def test_sync_reaches_every_file_and_every_folder(tmp_path, monkeypatch) -> None:
    disk = Disk(tmp_path / "kept")
    written = [(0, 1), (5, 1), (1500, 1)]
    for client, version in written:
        disk.write(client, version, kept(version))
    synced = set()
    monkeypatch.setattr(
        os, "fsync", lambda handle: synced.add(os.readlink(f"/proc/self/fd/{handle}"))
    )
    disk.sync(written)
    paths = {disk.path(*one) for one in written}
    assert synced == {str(p) for p in (*paths, *(p.parent for p in paths), disk.folder)}
    synced.clear()
    disk.sync([])
    assert not synced
    with pytest.raises(FileNotFoundError):
        disk.sync([(7, 1)])


def test_a_disk_that_fills_leaves_the_version_before_and_no_half(tmp_path, monkeypatch) -> None:
    disk = Disk(tmp_path)
    disk.write(3, 1, kept(1))

    def half(self: Path, content: bytes) -> int:
        with self.open("wb") as file:
            file.write(content[:10])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", half)
    for version in (1, 2):
        with pytest.raises(OSError, match="No space"):
            disk.write(3, version, kept(9))
    assert files(tmp_path) == ["3-1.safetensors"]
    assert torch.equal(disk.read(3, 1)["c_i"], torch.full((3,), 1.0))


def test_a_version_that_was_cut_off_is_refused(tmp_path) -> None:
    disk = Disk(tmp_path)
    disk.write(3, 1, kept(1))
    path = disk.path(3, 1)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(RunError, match="start the run again in another folder"):
        disk.read(3, 1)
