"""Data sets: the published ones, your own, and how they are shared out among clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flatfed.data.sets import DataSet, Split
    from flatfed.data.sources import load, options_of

__all__ = ["DataSet", "Split", "load", "options_of"]


def __getattr__(name: str) -> Any:
    # Only when asked for: fetching and checking files needs no torch.
    from importlib import import_module

    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = "sets" if name in ("DataSet", "Split") else "sources"
    return getattr(import_module(f"{__name__}.{home}"), name)
