"""Files that are whole or not there: written beside, synced, renamed."""

from __future__ import annotations

import os
from pathlib import Path

import safetensors.torch
import torch
from safetensors import SafetensorError

from flatfed.errors import RunError
from flatfed.vec import Named, Vec


def write_whole(path: Path, content: bytes, *, sync: bool = True) -> None:
    """A file that is either as it was or as it shall be, whatever happens in between."""
    unfinished = path.with_name(f".{path.name}.part")
    _write(unfinished, content, sync=sync)
    unfinished.rename(path)
    if sync:
        sync_path(path.parent)


def _write(path: Path, content: bytes, *, sync: bool) -> None:
    try:
        path.write_bytes(content)
        if sync:
            sync_path(path)
    except OSError:
        path.unlink(missing_ok=True)  # half a file on a full disk takes the room of a whole one
        raise


def sync_path(path: Path) -> None:
    """What was written to a file is on the disk; a rename is once its folder is."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_vectors(path: Path, vectors: Named, *, sync: bool = True) -> None:
    """Named vectors as safetensors; bytes first, so that a full disk is an OSError."""
    plain: dict[str, Vec] = {}
    seen: set[int] = set()
    for name, vector in vectors.items():
        plain[name] = vector.detach().contiguous()
        memory = vector.untyped_storage().data_ptr()
        # Two names may stand for one vector; safetensors refuses that.
        plain[name] = plain[name].clone() if memory in seen else plain[name]
        seen.add(memory)
    _write(path, safetensors.torch.save(plain), sync=sync)


def read_vectors(path: Path) -> dict[str, Vec]:
    """Named vectors, each in memory of its own."""
    content = path.read_bytes()
    try:
        loaded = safetensors.torch.load(content)
    except SafetensorError as error:
        raise RunError(
            f"{path} is no complete safetensors file ({len(content)} bytes): {error}.\n"
            "It was cut off or changed; start the run again in another folder."
        ) from error
    # Kernels round by how their input is aligned in memory: a copy is aligned as every vector is.
    return {name: torch.clone(vector) for name, vector in loaded.items()}
