"""Who takes part in a round, and who of them does not answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from flatfed.errors import CompositionError, FederationError, one_of, whole, within
from flatfed.vec import seed_for


@dataclass(frozen=True, kw_only=True)
class Cohort:
    """S of N clients a round: a number or a fraction of them, or everybody.

    "uniform" draws them without replacement, "cyclic" takes them in turns. `drop` is the
    probability with which a drawn client is not to be had (simulated unavailability).
    """

    size: int | None = None
    fraction: float | None = None
    sampling: Literal["uniform", "cyclic"] = "uniform"
    drop: float = 0.0

    def __post_init__(self) -> None:
        if self.size is not None:
            whole(self, "size", 1)
        if self.fraction is not None:
            within(self, "fraction", "(0, 1]")
        if self.size is not None and self.fraction is not None:
            raise CompositionError(
                f"Cohort got both of size={self.size!r} and fraction={self.fraction!r}, expected "
                "one.\nLeave one out."
            )
        one_of(self, "sampling", self.sampling, "uniform", "cyclic")
        within(self, "drop", "[0, 1)")

    def count(self, N: int) -> int:
        """S of N clients; a fraction is of at least one.

        >>> Cohort(fraction=0.1).count(100), Cohort(size=7).count(100), Cohort().count(100)
        (10, 7, 100)
        """
        if self.size is not None and self.size > N:
            raise FederationError(
                f"Cohort got size={self.size!r} of {N} clients, expected at most {N}.\n"
                "Draw a smaller cohort, or deal the data to more clients."
            )
        if self.fraction is not None:
            return max(1, round(self.fraction * N))
        return N if self.size is None else self.size

    def draw(self, N: int, t: int, seed: int) -> list[int]:
        """The clients of round t, in order; those that drop out among them."""
        import numpy as np

        S = self.count(N)
        if S == N:
            return list(range(N))
        if self.sampling == "cyclic":
            return sorted((t * S + k) % N for k in range(S))
        rng = np.random.Generator(np.random.PCG64(seed_for(seed, "cohort", t)))
        # Unshuffled, it costs what the cohort costs and not what the population does.
        drawn: list[int] = np.sort(rng.choice(N, S, replace=False, shuffle=False)).tolist()
        return drawn

    def present(self, cohort: list[int], t: int, seed: int) -> list[int]:
        """Those of them that are to be had."""
        if not self.drop:
            return cohort
        import numpy as np

        rng = np.random.Generator(np.random.PCG64(seed_for(seed, "drop", t)))
        there = rng.random(len(cohort)) >= self.drop
        return [client for client, here in zip(cohort, there.tolist(), strict=True) if here]
