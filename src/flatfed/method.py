"""A method is a composition of parts, checked when it is built."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from inspect import signature
from typing import Any, Literal

from flatfed.bill import Bill
from flatfed.errors import CompositionError
from flatfed.part import (
    DECLARATIONS,
    Compressor,
    Correction,
    Local,
    Objective,
    Part,
    Perturbation,
    ServerUpdate,
    Topology,
    View,
)
from flatfed.parts.compress import Dense
from flatfed.parts.objective import DataLoss
from flatfed.parts.perturb import Plain
from flatfed.parts.server import Average
from flatfed.parts.topology import Star
from flatfed.references import REFERENCES
from flatfed.vec import Named, Vec

# Names a vector cannot take: the View's constants, and what every client sends.
RESERVED = frozenset(View.__annotations__) | {"dx", "dx_K", "dx_travel"}


@dataclass(frozen=True, kw_only=True)
class Method:
    """What runs: one part on every axis, any number of corrections and of parts that only keep
    a shared vector."""

    local: Local  # steps, rate η(t, k, K), clip, weight decay
    perturb: Perturbation = Plain()  # where the gradient is taken
    correct: tuple[Correction, ...] = ()  # what is added to it
    server: ServerUpdate = Average()  # how x moves
    compress: Compressor = Dense()  # what travels instead of a vector
    topology: Topology = Star()  # who talks to whom
    objective: Objective = DataLoss()  # what is minimised on a batch
    also: tuple[Part, ...] = ()  # parts that only keep a shared vector
    # Of the cohort's mean. "samples" counts client i n_i/n̄ times, in every mean and in S: then
    # stateful methods settle where Σ n_i·∇F_i = 0, with everybody there or not.
    weights: Literal["uniform", "samples"] = "uniform"
    name: str = "unnamed"
    paper: str = ""  # key of flatfed.references
    family: str = ""

    def __post_init__(self) -> None:
        self._check_axes()
        self._check_owners()
        self._check_readers()

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

    def owned(self, kind: str) -> Iterator[tuple[str, Part]]:
        """Every vector of one kind with the part that declares it."""
        for part in self.parts:
            for name in getattr(part, kind):
                yield name, part
        # A compressor keeps what it keeps of every upload; its first value comes with the upload.
        for name in getattr(self.compress, kind):
            for upload in self.uploads if kind == "keep" else ("",):
                yield f"{name}:{upload}".rstrip(":"), self.compress

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
        return {"x": x, **self.fresh("server", x), **given}

    def result(self, state: Named) -> Vec:
        """The model that is evaluated and saved."""
        return state[next((part.result for part in self.parts if part.result), "x")]

    def bill(self, d: int = 1, *, itemsize: int = 4, **sizes: int) -> Bill:
        """What one client costs in one round; `sizes` gives vectors that are not d long.

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
        derivable = self.names("derivable")
        return Bill(
            down=("x", *self.names("broadcast")),
            up=self.uploads,
            up_minimal=tuple(name for name in self.uploads if name not in derivable),
            kept=self.names("keep"),
            gradients_per_step=self.perturb.gradients * self.objective.gradients,
            gradients_per_round=self.names("asks"),
            d=d,
            sizes=sizes,
            itemsize=itemsize,
        )

    def describe(self) -> str:
        """The algorithm box: every equation line, in the order in which they run."""
        from flatfed.box import algorithm_box

        return algorithm_box(self)

    def cite(self) -> str:
        """References of the method and of every part used, the method's own first."""
        keys = (self.paper, *(key for part in self.parts for key in part.references))
        return "\n".join(REFERENCES.get(key, key) for key in dict.fromkeys(keys) if key)

    def _check_axes(self) -> None:
        axes: dict[str, Any] = {
            "local": Local,
            "perturb": Perturbation,
            "server": ServerUpdate,
            "compress": Compressor,
            "topology": Topology,
            "objective": Objective,
        }
        slots = [(axis, kind, getattr(self, axis)) for axis, kind in axes.items()]
        for axis, kind in (("correct", Correction), ("also", Part)):
            several = getattr(self, axis)
            if not isinstance(several, tuple):
                raise CompositionError(
                    f"{axis}={several!r} is no tuple, expected a tuple of {kind.__name__}s.\n"
                    f"Write {axis}=({several!r},)."
                )
            slots += [(axis, kind, part) for part in several]
        for axis, kind, part in slots:
            if not isinstance(part, kind):
                belongs = [name for name, other in axes.items() if isinstance(part, other)]
                belongs += ["correct"] if isinstance(part, Correction) else []
                raise CompositionError(
                    f"{axis}={part!r} is no {kind.__name__}, which is what goes there.\n"
                    + (f"It belongs in {belongs[0]}." if belongs else "It is no flatfed part.")
                )
        if self.weights not in ("uniform", "samples"):
            raise CompositionError(
                f"Method got weights={self.weights!r}, expected 'uniform' or 'samples'."
            )

    def _check_owners(self) -> None:
        for part in (*self.parts, self.compress):
            for kind in (*DECLARATIONS, "derivable"):
                if not isinstance(getattr(part, kind), tuple):
                    raise CompositionError(
                        f"{_name(part)} declares {kind}={getattr(part, kind)!r}, expected a tuple "
                        f"of names.\nWrite {kind} = ({getattr(part, kind)!r},)."
                    )
        for part in (*self.parts, self.compress):
            read = Counter((*part.broadcast, *part.keep, *part.notes))
            for name, count in read.items():
                if count > 1:
                    raise CompositionError(
                        f"{_name(part)} declares {name!r} {count} times among broadcast, keep and "
                        "notes, expected once.\n"
                        f"v.{name} could only be one of them: rename the "
                        "others."
                    )
        for kind, known in (("means", ("dx_K", "dx_travel")), ("asks", ("first", "whole"))):
            for name, part in self.owned(kind):
                if name not in known:
                    raise CompositionError(
                        f"{_name(part)} declares {kind} {name!r}, expected names among "
                        f"{', '.join(known)}.\nUse one of those; mean.dx and every upload's mean "
                        "need no declaration."
                    )
        for kind in ("server", "keep", "notes", "upload"):
            for name, part in self.owned(kind):
                if name in RESERVED and not (kind, name) == ("upload", "dx"):
                    raise CompositionError(
                        f"{_name(part)} calls a vector {name!r}, which every View already has.\n"
                        f"Choose another name than {', '.join(sorted(RESERVED))}."
                    )
            counts = Counter(name for name, _ in self.owned(kind))
            for name, count in counts.items():
                if count > 1:
                    owners = [_name(part) for owned, part in self.owned(kind) if owned == name]
                    raise CompositionError(
                        f"{name!r} ({kind}) is owned by {' and by '.join(owners)}, expected one "
                        f"owner.\nTake one of them out, or rename the vector in one; any number "
                        f"of parts may read it."
                    )

    def _check_readers(self) -> None:
        on_server = {name for name, _ in self.owned("server")}
        for kind, sentence in (
            ("broadcast", "needs {!r} from the server"),
            ("uses", "reads {!r} on the server"),
        ):
            for name, part in self.owned(kind):
                if name not in on_server:
                    raise CompositionError(
                        f"{_name(part)} {sentence.format(name)}, but no part of this method owns "
                        f"it.\n{_owners_hint(name, part)}"
                    )


def _name(part: Part) -> str:
    return type(part).__name__


def _owners_hint(name: str, reader: Part) -> str:
    from flatfed import methods  # noqa: F401  # makes every published part known

    # The one that came with the reader, in its paper's file, is the likeliest.
    owners = sorted(
        _known_owners(Part, name),
        key=lambda kind: (kind.__module__ != type(reader).__module__, kind.__name__),
    )
    if not owners:
        return f"No known part owns {name!r}: write one with server = ({name!r},)."
    required = any(p.default is p.empty for p in signature(owners[0]).parameters.values())
    example = owners[0].__name__ + ("(...)" if required else "()")
    if issubclass(owners[0], Correction):
        slot = f"correct=({example},)"
    elif issubclass(owners[0], ServerUpdate):
        slot = f"server={example}"
    else:
        slot = f"also=({example},)"
    names = ", ".join(kind.__name__ for kind in owners)
    return f"Parts that own {name!r}: {names}.\nAdd one, for example: Method(..., {slot})."


def _known_owners(kind: type[Part], name: str) -> Iterator[type[Part]]:
    for child in kind.__subclasses__():
        if isinstance(child.server, tuple) and name in child.server:
            yield child
        yield from _known_owners(child, name)
