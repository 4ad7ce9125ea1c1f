"""Where a run took place: versions, the commit, the machine."""

from __future__ import annotations

import os
import platform
import subprocess
from typing import Any

import numpy
import torch

import flatfed
from flatfed.engines.processes import cores


def machine() -> dict[str, Any]:
    """For a manifest."""
    return {
        "flatfed": flatfed.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "git": _commit(),
        "machine": {
            "system": platform.platform(),
            "processor": _processor(),
            "cores": cores(),
            "memory_gib": _memory(),
        },
    }


def _commit() -> str | None:
    """The commit of the folder that the run was started in, marked where it had changes."""
    try:
        head = _git("rev-parse", "HEAD")
        return f"{head} with changes" if _git("status", "--porcelain") else head
    except (OSError, subprocess.SubprocessError):  # no git, or no repository
        return None


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], capture_output=True, text=True, timeout=10, check=True)
    return done.stdout.strip()


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = (line.partition(":")[2].strip() for line in file if "model name" in line)
            return next(names, platform.processor())
    except OSError:  # not Linux
        return platform.processor()


def _memory() -> float | None:
    try:
        size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None
    return round(size / 2**30, 1)
