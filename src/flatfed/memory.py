"""Keep glibc from giving freed pages back.

Every step makes a few new vectors. With malloc's defaults the kernel takes the pages of the old
ones back and hands out zeroed ones, which at ten million parameters costs several times the
arithmetic (benchmarks/README.md). Engines call this once in every process that trains.
"""

from __future__ import annotations

import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h
_NEVER = -1
_A_GIBIBYTE = 1 << 30


def keep_pages() -> bool:
    """Keep freed memory in this process; False where the C library has no such setting."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # musl, macOS, Windows
        return False
    kept = bool(mallopt(_M_TRIM_THRESHOLD, _NEVER))
    # glibc has had an upper limit of 32 MiB for this one.
    return kept and any(mallopt(_M_MMAP_THRESHOLD, size) for size in (_A_GIBIBYTE, 32 << 20))
