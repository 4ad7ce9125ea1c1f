"""What the conformance suite claims of a method before it has run: its equations, its parts."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import is_dataclass
from typing import Any

from flatfed.method import Method
from flatfed.part import Part

HOOKS = (
    "value",
    "observe",
    "gradient",
    "prepare",
    "direction",
    "step",
    "finish",
    "encode",
    "remember",
    "gather",
    "absorb",
    "settle",
    "start",
)


def opens_with_equations(method: Method) -> Iterator[str]:
    for part in (*method.parts, method.compress):
        if type(part).equations is not Part.equations:
            continue  # it writes its own lines
        for hook in HOOKS:
            own = getattr(type(part), hook, None)
            if own is not None and own is not _inherited(part, hook) and not part.equations(hook):
                yield (
                    f"{type(part).__name__}.{hook} has no equation line that is true for "
                    f"{part!r}.\nOpen its docstring with one, for example "
                    '"""g ← ∇F(w)""".'
                )
    method.describe()


def _inherited(part: Part, hook: str) -> Any:
    """The hook as the contract itself defines it, where it does."""
    from flatfed import part as contract

    axes = (base for base in type(part).__mro__ if base.__module__ == contract.__name__)
    return next((vars(axis)[hook] for axis in axes if hook in vars(axis)), None)


def pickles(method: Method) -> Iterator[str]:
    for part in (*method.parts, method.compress, method.topology):
        if not is_dataclass(part) or not part.__dataclass_params__.frozen:
            yield (
                f"{type(part).__name__} is no frozen dataclass, so it may change or print as "
                "another.\nWrite @dataclass(frozen=True) above the class."
            )
    try:
        same = pickle.loads(pickle.dumps(method))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        yield (
            f"it does not pickle: {error}.\nDefine its parts and rates as classes at the top of a "
            "module, not in a function, and use no lambdas."
        )
    else:
        yield from _same(method, same)


def _same(method: Method, other: Method) -> Iterator[str]:
    try:
        equal = method == other and repr(method) == repr(other)
    except RuntimeError:
        yield (
            "its parts cannot be compared: a field holds a tensor.\nKeep numbers in a tuple, or "
            "what changes in a declared vector."
        )
    else:
        if not equal:
            yield (
                "it comes back from pickling as another method.\nMake every part a frozen "
                "dataclass whose fields are all it depends on."
            )
