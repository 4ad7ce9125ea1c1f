"""Who talks to whom."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from flatfed.part import Topology


@dataclass(frozen=True)
class Star(Topology):
    """Everybody with the server, nobody with each other."""

    def weights(self, i: int, t: int) -> Mapping[int, float]:
        """w_ii ← 1"""
        return {i: 1.0}
