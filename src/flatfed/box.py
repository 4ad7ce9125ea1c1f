"""The algorithm box of a method: its parts' equation lines, in the order in which they run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from flatfed.part import Part

if TYPE_CHECKING:
    from flatfed.method import Method

Line = tuple[str, str]  # an equation, and whose it is


def algorithm_box(method: Method) -> str:
    """Every equation line in execution order, with the bill on top."""
    walk: tuple[tuple[Sequence[Part], str], ...] = (
        (method.parts, "observe"),
        ((method.objective,), "value"),
        ((method.perturb,), "gradient"),
        ((method.local,), "prepare"),
        (method.correct, "direction"),
        ((method.local,), "step"),
    )
    parts = method.parts
    blocks: list[tuple[str, list[Line]]] = [
        ("server, first", list(_lines((method.server,), "start"))),
        (f"server → client   {', '.join(('x', *method.names('broadcast')))}{_pushed(method)}", []),
        ("client, for k = 0..K−1", [line for ps, hook in walk for line in _lines(ps, hook)]),
        ("client, then", list(_lines(parts, "finish"))),
        (
            f"client → server   {', '.join(method.uploads)}",
            list(_lines((method.compress,), "encode")),
        ),
        (
            "client, when it has sent"
            + ("" if method.kept == "exact" else "   (all as the server decodes it)"),
            list(_lines(parts, "remember")),
        ),
        (
            "server" + ("" if method.weights == "uniform" else "   (means weighted by samples)"),
            [
                *_lines((method.compress,), "gather"),
                *_lines(parts, "absorb"),
                *_lines((method.server,), "step"),
                *_lines(parts, "settle"),
            ],
        ),
    ]
    width = max(len(equation) for _, lines in blocks for equation, _ in lines)
    out = [f"{method.name}   {method.bill()}"]
    for title, lines in blocks:
        if lines or "→" in title:
            out.append(title)
            out += [f"    {equation:<{width}}   {owner}" for equation, owner in lines]
    return "\n".join(out)


def _lines(parts: Sequence[Part], hook: str) -> Iterator[Line]:
    for part in parts:
        for equation in part.equations(hook):
            # Objective and compressor are worth a line only where they do something.
            if equation not in ("∇F(w) ← ∇loss(w; batch)", "sent ← a"):
                yield equation, repr(part)


def _pushed(method: Method) -> str:
    names = ", ".join(method.names("push"))
    return f"   (once, when new: {names})" if names else ""
