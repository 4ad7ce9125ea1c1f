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


SELDOM = (  # not every method has them
    "failures", "forwards", "server_gradients", "bits_up_nominal", "bits_up_entropy", "logged",
)  # fmt: skip


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
    forwards: int = 0  # forward passes without a gradient, counted alike
    server_gradients: int = 0  # the server's own, where a method trains there
    bits_up_nominal: float | None = None  # of compressed uploads, as papers count them
    bits_up_entropy: float | None = None  # and had an ideal code packed these very messages
    seconds: float
    clients: int  # whose uploads are in the mean
    failed: int  # drawn, but without an upload: not to be had, or failed twice
    failures: Mapping[int, str] = field(default_factory=dict)  # why, of those that failed
    logged: Mapping[str, float] = field(default_factory=dict)  # what the method writes down

    def as_dict(self) -> dict[str, Any]:
        """For JSON, which has no NaN; without what not every method has, where there is none."""
        said = {k: finite(v) for k, v in asdict(self).items() if k not in SELDOM or v}
        return said | (
            {"logged": {k: finite(v) for k, v in self.logged.items()}} if self.logged else {}
        )


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
