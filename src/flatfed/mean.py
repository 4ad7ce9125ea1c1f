"""What clients send, and its mean: all that a server ever sees of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flatfed.errors import FederationError, NonFiniteError
from flatfed.method import Method
from flatfed.part import View
from flatfed.vec import Layout, Named, Vec, lay_out, non_finite

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Upload:
    """What one client sends back: its vectors as they travel, and what they are divided by."""

    client: int
    vectors: Mapping[str, tuple[Tensor, ...]]
    lengths: Mapping[str, int]  # of the vectors that those tensors stand for
    K: int
    travel: float
    samples: int

    @property
    def nbytes(self) -> int:
        """What its vectors take as they travel."""
        return sum(tensor.nbytes for several in self.vectors.values() for tensor in several)


class Mean:
    """The cohort's mean as a running sum: memory for one vector of each name, however many come.

    Uploads must come in the order of their clients, so that arrival cannot change a bit.

    Where a method weighs by samples, a client counts n_i/n̄ times, in the mean and in S: only with
    n̄ over all N clients, `mean_samples`, does (S/N)·mean(dc) sum to a mean over everybody. Without
    it there is no S to read.
    """

    def __init__(
        self,
        method: Method,
        state: Named,
        *,
        layout: Layout | None = None,
        mean_samples: float | None = None,
    ) -> None:
        if mean_samples is not None and not mean_samples > 0:
            raise FederationError(
                f"The mean got mean_samples={mean_samples!r}, expected a number above 0.\n"
                "It is the mean of n_i over all clients; leave it out if no method weighs by them."
            )
        self._method, self._x, self._mean_samples = method, state["x"], mean_samples
        self._layout = layout or lay_out({"weight": (self._x.numel(),)})
        self._wanted = method.names("means")
        self._sums: dict[str, Vec] = {}
        self._weight = self._travel = 0.0
        self._last = -1
        self._count = 0

    def add(self, upload: Upload) -> None:
        """Take in one client's upload."""
        if self._method.weights == "samples" and upload.samples < 1:
            raise FederationError(
                f"Client {upload.client} has samples={upload.samples}, expected at least 1, for "
                "means are weighted by samples.\nGive its count, or weights='uniform'."
            )
        if upload.client <= self._last:
            raise FederationError(
                f"Client {upload.client}'s upload came after client {self._last}'s, expected each "
                "client once and in order.\nSort uploads by client before adding them."
            )
        weight = float(upload.samples) if self._method.weights == "samples" else 1.0
        # All of it is looked at before any of it is added: a refused upload leaves no trace.
        vectors = {name: self._decoded(upload, name) for name in self._method.uploads}
        self._last = upload.client
        for name, vector in vectors.items():
            self._accumulate(name, vector, weight)
        # Ratios are averaged, not divided once: clients may differ in K and in Ση.
        if "dx_K" in self._wanted:
            self._accumulate("dx_K", vectors["dx"], weight / upload.K)
        if "dx_travel" in self._wanted:
            self._accumulate("dx_travel", vectors["dx"], weight / upload.travel)
        self._weight += weight
        self._travel += weight * upload.travel
        self._count += 1

    def _accumulate(self, name: str, vector: Vec, weight: float) -> None:
        if name in self._sums:
            self._sums[name].add_(vector, alpha=weight)
        else:
            self._sums[name] = vector * weight

    def _decoded(self, upload: Upload, name: str) -> Vec:
        client = upload.client
        if name not in upload.vectors:
            raise FederationError(
                f"Client {client} sent {', '.join(upload.vectors) or 'nothing'}, expected "
                f"{', '.join(self._method.uploads)}.\nIt runs another method: check its "
                "configuration."
            )
        length = upload.lengths.get(name, -1)
        apart = name in self._method.apart
        came = sum(tensor.numel() for tensor in upload.vectors[name])
        expected = self._x.numel() if not apart else came
        if name in self._sums:
            expected = self._sums[name].numel()
        elif any(name in part.scalars for part in self._method.parts):
            expected = 1
        found = came if apart and length == expected else length
        if found != expected:
            raise FederationError(
                f"Client {client} sent {name} with {found} elements, expected {expected}.\n"
                "It trained another model: check its configuration."
            )
        how = self._method.compressor(name)
        like = self._x.new_empty(expected) if apart else self._x
        try:
            vector = how.decode(upload.vectors[name], like, self._layout)
        except FederationError as error:
            raise FederationError(f"Client {client}'s {name}: {error}") from None
        if bad := non_finite(vector):
            raise NonFiniteError(
                f"Client {client} sent {name} with {bad} of {vector.numel()} elements NaN or "
                "infinite, expected finite numbers.\nLower its learning rate, set clip, or leave "
                "the client out."
            )
        return vector

    def _cohort(self) -> float | None:
        """S, each client counted by its weight."""
        if self._method.weights == "uniform":
            return self._count
        return None if self._mean_samples is None else self._weight / self._mean_samples

    def result(self, views: type[View] = View) -> View:
        """mean(·) of every upload, and of Ση."""
        if self._count == 0:
            raise FederationError(
                "The cohort is empty: 0 uploads arrived, expected at least 1.\n"
                "Draw a larger cohort, or lower cohort.drop."
            )
        means: dict[str, Any] = {name: s / self._weight for name, s in self._sums.items()}
        means |= {"travel": self._travel / self._weight, "S": self._cohort()}
        return views("mean", means)
