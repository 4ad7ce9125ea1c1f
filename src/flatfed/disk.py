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
        sync_folder(path.parent)


def _write(path: Path, content: bytes, *, sync: bool) -> None:
    with path.open("wb") as file:
        file.write(content)
        if sync:
            file.flush()
            os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """A rename is on the disk once its folder is."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_vectors(path: Path, vectors: Named, *, sync: bool = True) -> None:
    """Named vectors as safetensors; bytes first, so that a full disk is an OSError."""
    plain = {name: vector.detach().contiguous() for name, vector in vectors.items()}
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
