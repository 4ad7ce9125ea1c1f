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
    push: tuple[str, ...]  # to everybody, once, when they change: not in bytes_down
    gradients_per_step: int  # at most
    gradients_least: int
    forwards_per_step: int
    gradients_per_round: tuple[str, ...]  # extra ones: "whole" passes over all local data
    d: int
    sizes: Mapping[str, int]  # elements of the vectors that are not d long
    itemsize: int
    sent: int  # bytes that travel for an upload of d elements
    sent_as: str  # by which compressor

    def _bytes(self, names: Iterable[str]) -> int:
        return self.itemsize * sum(self.sizes.get(name, self.d) for name in names)

    def full(self, names: Iterable[str]) -> int:
        """How many of these are as long as the model."""
        return sum(name not in self.sizes for name in names)

    @property
    def bytes_down(self) -> int:
        return self._bytes(self.down)

    @property
    def bytes_up(self) -> int:
        return sum(
            self.itemsize * self.sizes[name] if name in self.sizes else self.sent
            for name in self.up
        )

    @property
    def bytes_kept(self) -> int:
        return self._bytes(self.kept)

    def asked(self) -> str:
        """What a step asks for: gradients, and forward passes beside them."""
        least, most = self.gradients_least, self.gradients_per_step
        gradients = str(most) if least == most else f"{least} to {most}"
        forwards = f" + {self.forwards_per_step} forward" if self.forwards_per_step else ""
        return gradients + forwards

    def _vectors(self, names: Sequence[str]) -> str:
        other = sum(self.sizes[name] for name in names if name in self.sizes)
        return f"{self.full(names)}d" + (f" + {other}" if other else "")

    def __str__(self) -> str:
        fewer = len(self.up_minimal) < len(self.up)
        minimal = f" ({self._vectors(self.up_minimal)} would do)" if fewer else ""
        minimal += f" as {self.sent_as}" if self.sent_as else ""
        down = f"{self._vectors(self.down)}" + "".join(f" and once {name}" for name in self.push)
        gradients, _, forwards = self.asked().partition(" + ")
        gradients += " gradient" + ("" if gradients == "1" else "s")
        forwards = f" and {forwards}" if forwards else ""
        extra = {"whole": ", one full local gradient a round", "first": ", one more a round"}
        return (
            f"down {down}, up {self._vectors(self.up)}{minimal}, "
            f"kept {self._vectors(self.kept)}, {gradients}{forwards} a step"
            + "".join(extra[name] for name in self.gradients_per_round)
        )
