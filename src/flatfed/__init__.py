"""Federated learning that lands in flat minima."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flatfed.errors import FlatfedError

if TYPE_CHECKING:
    from flatfed import data, methods, models
    from flatfed.check import check_method
    from flatfed.cohort import Cohort
    from flatfed.federation import Federation
    from flatfed.flatmodel import FlatModel
    from flatfed.method import Method
    from flatfed.training import fit

__version__ = "0.1.0"
__all__ = [
    "Cohort",
    "Federation",
    "FlatModel",
    "FlatfedError",
    "Method",
    "check_method",
    "data",
    "fit",
    "methods",
    "models",
]

_HOME = {
    "Cohort": "flatfed.cohort",
    "Federation": "flatfed.federation",
    "FlatModel": "flatfed.flatmodel",
    "Method": "flatfed.method",
    "check_method": "flatfed.check",
    "fit": "flatfed.training",
}


def __getattr__(name: str) -> Any:
    """Import on first use: torch takes a second, and `flatfed --help` needs none of it."""
    from importlib import import_module

    if name in ("data", "methods", "models"):
        return import_module(f"flatfed.{name}")
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'flatfed' has no attribute {name!r}")
