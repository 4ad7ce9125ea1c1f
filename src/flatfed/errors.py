"""What can go wrong, as a tree.

    FlatfedError
    ├── CompositionError   a method that cannot work: wrong value, wrong axis, missing vector
    ├── UndeclaredName     a hook read or returned a vector its part did not declare
    ├── SpecError          a wrong name or value in a file, a flag or a call
    ├── ModelError         a module that cannot be seen as one flat vector
    ├── FederationError    data, a split or a cohort that cannot be trained on
    ├── ClientError        something failed inside one client (carries client, round, step, part)
    ├── NonFiniteError     a NaN or an infinity where a number must be
    ├── EngineError        the machinery that runs clients failed
    └── RunError           a run's folder cannot be read, written or continued

Every message says what was given, what was expected and what to do, in at most three lines.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from numbers import Integral, Real
from typing import ClassVar, NoReturn


class FlatfedError(Exception):
    """Anything flatfed raises on purpose."""

    exit_code: ClassVar[int] = 2  # of the command line: 2 the request was wrong, 1 the run failed


class CompositionError(FlatfedError):
    """A method that cannot work."""


class UndeclaredName(FlatfedError):
    """A hook read or returned a vector its part did not declare."""


class SpecError(FlatfedError):
    """A wrong name or value in a file, a flag or a call."""


class ModelError(FlatfedError):
    """A module that cannot be seen as one flat vector."""


class FederationError(FlatfedError):
    """Data, a split or a cohort that cannot be trained on."""


class ClientError(FlatfedError):
    """Something failed inside one client; the original error is its `__cause__`."""

    exit_code = 1

    def __init__(self, message: str, *, client: int, t: int, k: int, part: str) -> None:
        super().__init__(message)
        self.client, self.t, self.k, self.part = client, t, k, part

    def __reduce__(self) -> tuple[object, ...]:
        # Exceptions pickle by their positional arguments; ours carry keywords across processes.
        return _client_error, (str(self), self.client, self.t, self.k, self.part)


def _client_error(message: str, client: int, t: int, k: int, part: str) -> ClientError:
    return ClientError(message, client=client, t=t, k=k, part=part)


class NonFiniteError(FlatfedError):
    """A NaN or an infinity where a number must be."""

    exit_code = 1


class EngineError(FlatfedError):
    """The machinery that runs clients failed."""

    exit_code = 1


class RunError(FlatfedError):
    """A run's folder cannot be read, written or continued."""

    exit_code = 1


def refuse(owner: object, name: str, expected: str, hint: str = "") -> NoReturn:
    """Refuse a field's value in the words of every such message: given, expected, what to do."""
    value = getattr(owner, name)
    message = f"{type(owner).__name__} got {name}={value!r}, expected {expected}."
    raise CompositionError(message + (f"\n{hint}" if hint else ""))


def within(owner: object, name: str, interval: str, hint: str = "") -> None:
    """Refuse a field that is no number of an interval, written as in a book: "[0, 1)", "(0, ∞)"."""
    value = getattr(owner, name)
    low, high = (float(end.replace("∞", "inf")) for end in interval[1:-1].split(","))
    number = isinstance(value, Real) and not isinstance(value, bool)
    try:
        at = float(value) if number else float("nan")
    except OverflowError:  # a whole number beyond every float
        at = float("nan")
    open_ends = [low] * (interval[0] == "(") + [high] * (interval[-1] == ")")
    if not low <= at <= high or at in open_ends:
        refuse(owner, name, f"a number in {interval}", hint)


def nearest(name: str, known: Iterable[str]) -> str:
    """A line that lists the right names, led by the one that was probably meant."""
    listed = sorted(known)
    names = {known_name.lower(): known_name for known_name in listed}
    close = difflib.get_close_matches(name.lower(), names, n=1)
    said = f"Did you mean {names[close[0]]!r}? " if close else ""
    return said + f"Known: {', '.join(listed)}."


def whole(owner: object, name: str, least: int) -> None:
    """Refuse a field that is no whole number of at least so much."""
    value = getattr(owner, name)
    if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
        refuse(owner, name, f"a whole number ≥ {least}")


def one_of(owner: object, name: str, value: object, *allowed: object) -> None:
    """Refuse an option that is none of these; `owner` is a part, or a method's name."""
    if value not in allowed:
        who = owner if isinstance(owner, str) else type(owner).__name__
        raise CompositionError(
            f"{who} got {name}={value!r}, expected {' or '.join(map(repr, allowed))}."
        )
