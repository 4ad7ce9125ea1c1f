"""Where the gradient is taken."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from flatfed.errors import CompositionError, one_of, within
from flatfed.oracle import Oracle
from flatfed.part import DECLARATIONS, Perturbation, View
from flatfed.vec import Named, Vec, ascend

if TYPE_CHECKING:
    from flatfed.method import Method

NO_ASCENT = "rho=0 switches the ascent off."


@dataclass(frozen=True)
class Plain(Perturbation):
    """Where the client stands."""

    def gradient(self, w: Vec, grad: Oracle, v: View) -> tuple[Vec, Named]:
        """g ← ∇F(w)"""
        return grad(w), {}


@dataclass(frozen=True)
class SAM(Perturbation):
    """At distance ρ, along the gradient of the same mini-batch."""

    rho: float
    gradients = 2
    references = ("sam",)

    def __post_init__(self) -> None:
        within(self, "rho", "[0, ∞)", NO_ASCENT)

    def gradient(self, w: Vec, grad: Oracle, v: View) -> tuple[Vec, Named]:
        """g ← ∇F(w + ρ·unit(∇F(w)))"""
        return grad(ascend(w, grad(w), self.rho)), {}


@dataclass(frozen=True)
class Reusing(Perturbation):
    """Any ascent, led by the last perturbed gradient ("N") or by both ("F").

    It answers the ascent's question for ∇F(w) itself, asked with the very vector w it was given:
    with g_last, which costs nothing, or with ∇F(w) + g_last. g_last is the last answer to any other
    question: the raw perturbed gradient, zero at the first step of every round.
    """

    ascent: Perturbation
    form: str = "N"
    references = ("fedtoga",)

    def __post_init__(self) -> None:
        one_of(self, "form", self.form, "N", "F")
        if self.ascent.gradients < 2:
            raise CompositionError(
                f"Reusing got ascent={self.ascent!r}, which never asks for the gradient at w.\n"
                "It can only stand in for an ascent that does, for example Reusing(SAM(rho=0.1))."
            )
        kinds = (*DECLARATIONS, "scalars", "apart", "logged", "result", "cohorts", "forwards")
        for name in kinds:
            object.__setattr__(self, name, getattr(self.ascent, name))
        object.__setattr__(self, "notes", (*self.ascent.notes, "g_last"))
        spared = int(self.form == "N")
        object.__setattr__(self, "gradients", self.ascent.gradients - spared)
        if self.ascent.gradients_least is not None:
            object.__setattr__(self, "gradients_least", self.ascent.gradients_least - spared)
        object.__setattr__(self, "references", (*self.ascent.references, *self.references))

    def init(self, name: str, x: Vec) -> Vec:
        return super().init(name, x) if name == "g_last" else self.ascent.init(name, x)

    def gradient(self, w: Vec, grad: Oracle, v: View) -> tuple[Vec, Named]:
        """The ascent's own line, with g_last in place of ∇F(w), or added to it."""
        answers = [v.g_last]

        def at(point: Vec) -> Vec:
            if point is w:
                return v.g_last if self.form == "N" else grad(w) + v.g_last
            answers.append(grad(point))
            return answers[-1]

        g, new = self.ascent.gradient(w, at, v)
        return g, {**new, "g_last": answers[-1]}

    def observe(self, w: Vec, batch: Oracle, v: View) -> Named:
        """The ascent's own."""
        return self.ascent.observe(w, batch, v)

    def quick(self) -> Self:
        return replace(self, ascent=self.ascent.quick())

    def fits(self, method: Method) -> None:
        self.ascent.fits(method)

    def finish(self, y: Vec, v: View) -> Named:
        """The ascent's own."""
        return self.ascent.finish(y, v)

    def remember(self, sent: View, v: View) -> Named:
        """The ascent's own."""
        return self.ascent.remember(sent, v)

    def absorb(self, mean: View, v: View) -> Named:
        """The ascent's own."""
        return self.ascent.absorb(mean, v)

    def settle(self, x: Vec, v: View) -> Named:
        """The ascent's own."""
        return self.ascent.settle(x, v)

    def equations(self, hook: str) -> tuple[str, ...]:
        lines = self.ascent.equations(hook)
        if hook != "gradient":
            return lines
        plain, factor = ("g_last", "g_last")
        if self.form == "F":
            plain, factor = "∇F(w) + g_last", "(∇F(w) + g_last)"
        *before, last = (
            re.sub(r"([·−²T]?)∇F\(w\)", lambda m: m[1] + (factor if m[1] else plain), line)
            for line in lines
        )
        memory = "g" if last.startswith("g ← ∇F(") else "its perturbed gradient"
        return (*before, f"{last};  g_last ← {memory}")
