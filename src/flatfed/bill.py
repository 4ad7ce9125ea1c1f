"""What a method costs one client in one round."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Bill:
    """What one client costs in one round, by name."""

    down: tuple[str, ...]
    up: tuple[str, ...]
    up_minimal: tuple[str, ...]  # of these, what the server could not work out from the rest
    kept: tuple[str, ...]
    gradients_per_step: int
    gradients_per_round: tuple[str, ...]  # extra ones: "whole" passes over all local data
    d: int
    sizes: Mapping[str, int]  # elements of the vectors that are not d long
    itemsize: int

    def _bytes(self, names: Iterable[str]) -> int:
        return self.itemsize * sum(self.sizes.get(name, self.d) for name in names)

    @property
    def bytes_down(self) -> int:
        return self._bytes(self.down)

    @property
    def bytes_up(self) -> int:
        return self._bytes(self.up)

    @property
    def bytes_kept(self) -> int:
        return self._bytes(self.kept)

    def _vectors(self, names: Sequence[str]) -> str:
        other = sum(self.sizes[name] for name in names if name in self.sizes)
        full = sum(name not in self.sizes for name in names)
        return f"{full}d" + (f" + {other}" if other else "")

    def __str__(self) -> str:
        fewer = len(self.up_minimal) < len(self.up)
        minimal = f" ({self._vectors(self.up_minimal)} would do)" if fewer else ""
        plural = "" if self.gradients_per_step == 1 else "s"
        extra = {"whole": ", one full local gradient a round", "first": ", one more a round"}
        return (
            f"down {self._vectors(self.down)}, up {self._vectors(self.up)}{minimal}, "
            f"kept {self._vectors(self.kept)}, "
            f"{self.gradients_per_step} gradient{plural} a step"
            + "".join(extra[name] for name in self.gradients_per_round)
        )
