"""Something of a user's own by its dotted name: a method, a model, a data set."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

from flatfed.errors import FlatfedError, SpecError, nearest


def imported(target: str, expected: str, fits: Callable[[Any], bool] = callable) -> Any:
    """What module:name names; refused unless it fits, which `expected` says in words."""
    module_name, colon, name = target.partition(":")
    if not colon or not module_name or not name:
        raise SpecError(
            f"{target!r} names nothing to import, expected MODULE:NAME of {expected}.\n"
            "For make in mine.py write mine:make."
        )
    if "" not in sys.path:
        # It stays: worker processes inherit the path, and look the module's class up by its name.
        sys.path.insert(0, "")
    try:
        module = import_module(module_name)
    except FlatfedError:
        raise
    except (Exception, SystemExit) as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing and f"{module_name}.".startswith(f"{missing}."):
            raise SpecError(
                f"no module {missing!r} found for {target!r}.\n"
                "Run from the folder that holds it, and leave out .py."
            ) from error
        raise SpecError(failed(f"importing {module_name}", error)) from error
    if not hasattr(module, name):
        own = [n for n, v in vars(module).items() if getattr(v, "__module__", "") == module_name]
        # What is no function or class of the module's own may still be what is meant: a Method.
        own += [n for n, v in vars(module).items() if n not in own and not callable(v) and fits(v)]
        listed = nearest(name, own) if own else "It defines none."
        raise SpecError(f"{module_name} has no {name!r}, expected {expected}.\n{listed}")
    found = getattr(module, name)
    if not fits(found):
        raise SpecError(f"{target} is {type(found).__name__}, expected {expected}.")
    return found


def called(target: str, factory: Callable[[], Any]) -> Any:
    """What a factory makes when it is called without arguments."""
    try:
        return factory()
    except FlatfedError:
        raise
    except (Exception, SystemExit) as error:
        raise SpecError(failed(f"calling {target} without arguments", error)) from error


def failed(doing: str, error: BaseException) -> str:
    """Why code of a user's own did not do what it should, and where to look."""
    first = next(iter(str(error).splitlines()), "")
    return f"{doing} failed with {type(error).__name__}: {first}\nflatfed --debug shows where."
