"""A method is a composition of parts, checked when it is built."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from flatfed.bill import Bill
from flatfed.composition import check_axes, check_declarations, check_owners, check_readers
from flatfed.errors import CompositionError
from flatfed.part import (
    Compressor,
    Correction,
    Local,
    Objective,
    Part,
    Perturbation,
    ServerUpdate,
    Topology,
)
from flatfed.parts.compress import Dense
from flatfed.parts.objective import DataLoss
from flatfed.parts.perturb import Plain
from flatfed.parts.server import Average
from flatfed.parts.topology import Star
from flatfed.references import REFERENCES
from flatfed.vec import Layout, Named, Vec, lay_out

DENSE = Dense()


@dataclass(frozen=True, kw_only=True)
class Method:
    """What runs: one part on every axis, any number of corrections and of parts that only keep
    a shared vector."""

    local: Local  # steps, rate η(t, k, K), clip, weight decay
    perturb: Perturbation = Plain()  # where the gradient is taken
    correct: tuple[Correction, ...] = ()  # what is added to it
    server: ServerUpdate = Average()  # how x moves
    compress: Compressor = DENSE  # what travels instead of a vector
    topology: Topology = Star()  # who talks to whom
    objective: Objective = DataLoss()  # what is minimised on a batch
    also: tuple[Part, ...] = ()  # parts that only keep a shared vector
    # Of the cohort's mean. "samples" counts client i n_i/n̄ times, in every mean and in S: then
    # stateful methods settle where Σ n_i·∇F_i = 0, with everybody there or not.
    weights: Literal["uniform", "samples"] = "uniform"
    # What clients remember of what they sent: as it was, or as the server decodes it.
    kept: Literal["exact", "synced"] = "exact"
    name: str = "unnamed"
    paper: str = ""  # key of flatfed.references
    family: str = ""

    def __post_init__(self) -> None:
        check_axes(self)
        check_declarations(self)
        check_owners(self)
        check_readers(self)
        for part in (*self.parts, self.compress):
            part.fits(self)

    @property
    def parts(self) -> tuple[Part, ...]:
        """Every part, in the order in which their hooks run."""
        return (self.objective, self.perturb, *self.correct, self.local, *self.also, self.server)

    def names(self, kind: str) -> tuple[str, ...]:
        """Every vector of one kind, each once, in the parts' order.

        >>> from flatfed import methods
        >>> methods.scaffold().names("broadcast")
        ('c',)
        """
        return tuple(dict.fromkeys(name for name, _ in self.owned(kind)))

    @property
    def uploads(self) -> tuple[str, ...]:
        """What client i sends, dx first."""
        sent = (name for part in self.parts for name in part.upload)
        return tuple(dict.fromkeys(("dx", *sent)))

    @cached_property
    def apart(self) -> frozenset[str]:
        """Vectors of a length of their own: they travel as they are."""
        return frozenset(n for part in self.parts for n in (*part.scalars, *part.apart))

    def compressor(self, upload: str) -> Compressor:
        """What makes an upload smaller, and whole again."""
        return DENSE if upload in self.apart else self.compress

    def owned(self, kind: str) -> Iterator[tuple[str, Part]]:
        """Every vector of one kind with the part that declares it."""
        for part in self.parts:
            for name in getattr(part, kind):
                yield name, part
        # A compressor keeps what it keeps of every upload; its first value comes with the upload.
        for name in getattr(self.compress, kind):
            for upload in (u for u in self.uploads if u not in self.apart):
                yield f"{name}:{upload}", self.compress

    def fresh(self, kind: str, x: Vec) -> dict[str, Vec]:
        """First values of every vector of one kind."""
        return {name: part.init(name, x) for part in self.parts for name in getattr(part, kind)}

    def start(self, x: Vec, **given: Vec) -> dict[str, Vec]:
        """The server's state before round 0; `given` replaces first values (buffers, for one)."""
        unknown = set(given) - set(self.names("server"))
        if unknown:
            raise CompositionError(
                f"{self.name} got a first value for {', '.join(sorted(unknown))}, which no part "
                f"owns on the server.\nIt owns: {', '.join(self.names('server')) or 'nothing'}."
            )
        owned = ((n, part) for n, part in self.owned("server") if n not in given)
        first = {name: part.init(name.split(":")[0], x) for name, part in owned}
        return {"x": x, **first, **given}

    def logged(self, state: Named) -> dict[str, float]:
        """The server's scalars that are written down every round."""
        return {n: float(state[n]) for part in self.parts for n in part.logged}

    def result(self, state: Named) -> Vec:
        """The model that is evaluated and saved."""
        return state[next((part.result for part in self.parts if part.result), "x")]

    def bill(
        self, d: int = 1, *, itemsize: int = 4, layout: Layout | None = None, **sizes: int
    ) -> Bill:
        """What one client costs in one round; `sizes` gives vectors that are not d long.

        `layout` says where the module's d scalars lie, for compressors that work by tensors.

        >>> from flatfed import methods
        >>> methods.fedtoga().bill(1_000_000).bytes_down
        8000000
        """
        vectors = {*self.names("server"), *self.uploads, *self.names("keep")}
        if unknown := set(sizes) - vectors:
            raise CompositionError(
                f"{self.name} got sizes of {', '.join(sorted(unknown))}, which it does not send or "
                f"keep.\nIts vectors: {', '.join(sorted(vectors))}."
            )
        layout = layout or lay_out({"weight": (d,)})
        sizes = {n: 1 for part in self.parts for n in part.scalars if n in vectors} | sizes
        for name in self.compress.keep:
            size = self.compress.kept_size(name, layout)
            sizes |= {n: size for n in vectors if n.startswith(f"{name}:")} if size != d else {}
        # What a part sends in place of y − x says nothing about the rest.
        replaced = any("dx" in part.upload for part in self.parts)
        derivable = () if replaced else self.names("derivable")
        return Bill(
            down=("x", *self.names("broadcast")),
            up=self.uploads,
            up_minimal=tuple(name for name in self.uploads if name not in derivable),
            kept=self.names("keep"),
            push=self.names("push"),
            gradients_per_step=self.perturb.gradients * self.objective.gradients,
            gradients_least=(self.perturb.gradients_least or self.perturb.gradients)
            * self.objective.gradients,
            forwards_per_step=self.perturb.gradients * self.objective.forwards
            + self.perturb.forwards,
            gradients_per_round=self.names("asks"),
            d=d,
            sizes=sizes,
            itemsize=itemsize,
            sent=self.compress.nbytes(layout, itemsize),
            sent_as="" if self.compress == DENSE else repr(self.compress),
        )

    def describe(self) -> str:
        """The algorithm box: every equation line, in the order in which they run."""
        from flatfed.box import algorithm_box

        return algorithm_box(self)

    def cite(self) -> str:
        """References of the method and of every part used, the method's own first."""
        parts = (*self.parts, self.compress)
        keys = (self.paper, *(key for part in parts for key in part.references))
        return "\n".join(REFERENCES.get(key, key) for key in dict.fromkeys(keys) if key)
