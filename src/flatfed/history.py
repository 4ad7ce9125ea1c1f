"""What a run measured, round by round."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from math import isfinite
from typing import Any


def finite(value: Any) -> Any:
    """The value, or None for a number that is none: JSON has no word for NaN and infinity.

    >>> finite(0.5), finite(float("nan")), finite("word")
    (0.5, None, 'word')
    """
    return None if isinstance(value, float) and not isfinite(value) else value


@dataclass(frozen=True, kw_only=True)
class Round:
    """One round in numbers; accuracy and losses are None where nothing was measured."""

    round: int  # t, from 0: test numbers are of the model after it
    test_accuracy: float | None
    test_loss: float | None
    train_loss: float | None  # the mean over the local steps, of each step's first gradient
    bytes_up: int  # what uploads took, all clients together
    bytes_down: int
    gradients: int  # mini-batch gradients, all clients together, failed attempts left out
    seconds: float
    clients: int  # whose uploads are in the mean
    failed: int  # drawn, but without an upload: not to be had, or failed twice
    failures: Mapping[int, str] = field(default_factory=dict)  # why, of those that failed

    def as_dict(self) -> dict[str, Any]:
        """For JSON, which has no NaN; without `failures` where there are none."""
        return {k: finite(v) for k, v in asdict(self).items() if k != "failures" or v}


class History(tuple[Round, ...]):
    """All rounds of a run."""

    @property
    def measured(self) -> Iterable[tuple[int, float]]:
        """Rounds done and the test accuracy then, wherever it was measured."""
        return ((r.round + 1, r.test_accuracy) for r in self if r.test_accuracy is not None)

    @property
    def accuracy(self) -> float | None:
        """The last that was measured."""
        return max(self.measured, default=(0, None))[1]

    @property
    def best(self) -> float | None:
        """The highest that was measured."""
        return max((accuracy for _, accuracy in self.measured), default=None)

    def rounds_to(self, target: float) -> int | None:
        """Rounds until the test accuracy first reached the target; None if it never did."""
        return next((done for done, accuracy in self.measured if accuracy >= target), None)

    def total(self, name: str) -> float:
        """The sum of one number over all rounds."""
        total: float = sum(getattr(record, name) for record in self)
        return total
