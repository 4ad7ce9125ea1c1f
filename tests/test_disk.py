"""Files are whole or not there."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
import torch

from flatfed import disk
from flatfed.disk import read_vectors, write_vectors, write_whole
from flatfed.errors import RunError


def full(*args) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def half(self: Path, content: bytes) -> int:
    with self.open("wb") as file:
        file.write(content[: len(content) // 2])
    raise OSError(errno.ENOSPC, "No space left on device")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("sync", [True, False])
def test_a_file_is_written_and_written_over(sync, tmp_path) -> None:
    for content in (b"first", b"second and longer", b"3"):
        write_whole(tmp_path / "file", content, sync=sync)
        assert (tmp_path / "file").read_bytes() == content
        assert names(tmp_path) == ["file"]


@pytest.mark.parametrize("fails", [(Path, "write_bytes", half), (os, "fsync", full)])
def test_a_disk_that_fills_leaves_the_old_file_and_nothing_else(
    fails, tmp_path, monkeypatch
) -> None:
    write_whole(tmp_path / "file", b"old")
    monkeypatch.setattr(*fails)
    with pytest.raises(OSError, match="No space"):
        write_whole(tmp_path / "file", b"new")
    with pytest.raises(OSError, match="No space"):
        write_vectors(tmp_path / "vectors", {"x": torch.ones(3)})
    assert (tmp_path / "file").read_bytes() == b"old"
    assert names(tmp_path) == ["file"]


def test_a_file_is_synced_before_it_takes_its_name_and_its_folder_after(
    tmp_path, monkeypatch
) -> None:
    seen = []
    monkeypatch.setattr(disk, "sync_path", lambda path: seen.append((path.name, names(tmp_path))))
    write_whole(tmp_path / "file", b"new")
    assert seen == [(".file.part", [".file.part"]), (tmp_path.name, ["file"])]
    write_whole(tmp_path / "file", b"newer", sync=False)
    assert len(seen) == 2


def test_a_leftover_of_a_killed_run_is_written_over(tmp_path) -> None:
    (tmp_path / ".file.part").write_bytes(b"much longer than what comes after it")
    write_whole(tmp_path / "file", b"new")
    assert names(tmp_path) == ["file"]
    assert (tmp_path / "file").read_bytes() == b"new"


def test_vectors_come_back_bit_by_bit_in_memory_of_their_own(tmp_path) -> None:
    whole = torch.randn(40, generator=torch.Generator().manual_seed(0))
    vectors = {
        "x": whole,
        "half": whole[20:],
        "twice": whole,
        "every second": whole[::2],
        "double": torch.full((3,), 0.1, dtype=torch.float64),
        "odd": torch.tensor([float("nan"), -0.0]),
        "empty": torch.empty(0),
        "learns": torch.ones(2, requires_grad=True),
    }
    write_vectors(tmp_path / "v", vectors)
    read = read_vectors(tmp_path / "v")
    assert read.keys() == vectors.keys()
    for name, vector in vectors.items():
        assert read[name].dtype == vector.dtype
        assert read[name].numpy().tobytes() == vector.detach().numpy().tobytes()
        # Kernels round by it: what is read must lie as what was never written.
        assert read[name].data_ptr() % 64 == 0
    read["x"].zero_()
    assert bool(read["twice"].any())


def test_a_file_that_was_cut_off_is_refused_wherever_it_was_cut(tmp_path) -> None:
    path = tmp_path / "3-7.safetensors"
    write_vectors(path, {"c_i": torch.ones(5)})
    content = path.read_bytes()
    for length in range(len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(RunError, match=r"3-7\.safetensors is no complete safe") as caught:
            read_vectors(path)
        assert f"({length} bytes)" in str(caught.value)
        assert len(str(caught.value).splitlines()) <= 3
