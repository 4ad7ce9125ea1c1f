"""What fits together: a method's parts, held against each other when the method is built."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import fields
from inspect import signature
from typing import TYPE_CHECKING, Any

from flatfed.errors import CompositionError, one_of
from flatfed.history import Round
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

if TYPE_CHECKING:
    from flatfed.method import Method

# Names a vector cannot take: the View's constants, and what every client sends.
RESERVED = frozenset(View.__annotations__) | {"dx", "dx_K", "dx_travel"}


# What every round, or a run's manifest, writes down.
MEASURED = {field.name for field in fields(Round)} | {
    "rounds", "best_test_accuracy", "rounds_to_target"
}  # fmt: skip


def check_axes(method: Method) -> None:
    """Every part sits on the axis it is made for."""
    axes: dict[str, Any] = {
        "local": Local,
        "perturb": Perturbation,
        "server": ServerUpdate,
        "compress": Compressor,
        "topology": Topology,
        "objective": Objective,
    }
    slots = [(axis, kind, getattr(method, axis)) for axis, kind in axes.items()]
    for axis, kind in (("correct", Correction), ("also", Part)):
        several = getattr(method, axis)
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
    one_of("Method", "weights", method.weights, "uniform", "samples")
    one_of("Method", "kept", method.kept, "exact", "synced")


def check_declarations(method: Method) -> None:
    """Every part's tuples are tuples, of names that its hooks could tell apart."""
    for part in (*method.parts, method.compress):
        for kind in (*DECLARATIONS, "derivable", "scalars", "apart", "logged"):
            if not isinstance(getattr(part, kind), tuple):
                raise CompositionError(
                    f"{_name(part)} declares {kind}={getattr(part, kind)!r}, expected a tuple "
                    f"of names.\nWrite {kind} = ({getattr(part, kind)!r},)."
                )
        read = Counter((*part.broadcast, *part.push, *part.keep, *part.notes))
        for name, count in read.items():
            if count > 1:
                raise CompositionError(
                    f"{_name(part)} declares {name!r} {count} times among broadcast, push, keep "
                    f"and notes, expected once.\nv.{name} could only be one of them: rename the "
                    "others."
                )
        for name in part.logged:
            if name not in part.server or name not in part.scalars or name in MEASURED:
                raise CompositionError(
                    f"{_name(part)} wants {name!r} written down, expected one of its scalars on "
                    "the server, of a name that no line of a run has yet.\n"
                    f"Declare it: server = ({name!r},) and scalars = ({name!r},)."
                )
    for kind in DECLARATIONS:
        declared = getattr(method.compress, kind)
        if declared and kind not in ("keep", "server"):
            raise CompositionError(
                f"{_name(method.compress)} declares {kind}={declared!r}, expected a compressor to "
                "declare nothing but keep and server.\n"
                "Put what it shares into a part of its own: Method(..., also=(...,))."
            )
    for kind, known in (("means", ("dx_K", "dx_travel")), ("asks", ("first", "whole"))):
        for name, part in method.owned(kind):
            if name not in known:
                raise CompositionError(
                    f"{_name(part)} declares {kind} {name!r}, expected names among "
                    f"{', '.join(known)}.\nUse one of those; mean.dx and every upload's mean "
                    "need no declaration."
                )


def check_owners(method: Method) -> None:
    """Every vector has one owner, and a name of its own."""
    for kind in ("server", "keep", "notes", "upload"):
        for name, part in method.owned(kind):
            if name in RESERVED and not (kind, name) == ("upload", "dx"):
                raise CompositionError(
                    f"{_name(part)} calls a vector {name!r}, which every View already has.\n"
                    f"Choose another name than {', '.join(sorted(RESERVED))}."
                )
        counts = Counter(name for name, _ in method.owned(kind))
        for name, count in counts.items():
            if count > 1:
                owners = [_name(part) for owned, part in method.owned(kind) if owned == name]
                raise CompositionError(
                    f"{name!r} ({kind}) is owned by {' and by '.join(owners)}, expected one "
                    "owner.\nTake one of them out, or rename the vector in one; any number "
                    "of parts may read it."
                )
    results = [(part.result, _name(part)) for part in method.parts if part.result]
    for result, owner in results:
        if len(results) > 1 or result not in method.names("server"):
            raise CompositionError(
                f"{owner} wants {result!r} evaluated in place of x, expected one such part, and a "
                f"vector that the server owns.\n"
                f"Parts that want it: {', '.join(f'{o} ({r!r})' for r, o in results)}."
            )


def check_readers(method: Method) -> None:
    """What a part reads from the server, another part owns."""
    on_server = method.names("server")
    for kind, sentence in (
        ("broadcast", "needs {!r} from the server"),
        ("push", "needs {!r} from the server"),
        ("uses", "reads {!r} on the server"),
    ):
        for name, part in method.owned(kind):
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
        if child is Compressor:  # what one keeps on the server, it keeps for itself
            continue
        if isinstance(child.server, tuple) and name in child.server:
            yield child
        yield from _known_owners(child, name)
