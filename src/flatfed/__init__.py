"""Federated learning that lands in flat minima."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flatfed.errors import FlatfedError

if TYPE_CHECKING:
    from flatfed import methods
    from flatfed.check import check_method
    from flatfed.flatmodel import FlatModel
    from flatfed.method import Method

__version__ = "0.1.0"
__all__ = ["FlatModel", "FlatfedError", "Method", "check_method", "methods"]

_HOME = {
    "FlatModel": "flatfed.flatmodel",
    "Method": "flatfed.method",
    "check_method": "flatfed.check",
}


def __getattr__(name: str) -> Any:
    """Import on first use: torch takes a second, and `flatfed --help` needs none of it."""
    from importlib import import_module

    if name == "methods":
        return import_module("flatfed.methods")
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'flatfed' has no attribute {name!r}")
