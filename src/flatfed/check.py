"""The conformance suite: what every method must keep to, tried on a toy of three dimensions."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import torch

from flatfed.claims_of_compressors import encodes_purely, sizes_are_true
from flatfed.claims_of_form import opens_with_equations, pickles
from flatfed.errors import CompositionError, FlatfedError
from flatfed.method import Method
from flatfed.toy import LAYOUT, ROUNDS, D, Trace, first_model, trace


@dataclass(frozen=True)
class Finding:
    """One claim of the suite, and what contradicts it; nothing, if it holds."""

    claim: str
    wrong: str = ""


def check_method(method: Method) -> None:
    """Raise for the first claim that does not hold."""
    for finding in examine(method):
        if finding.wrong:
            raise CompositionError(f"{method.name}: {finding.wrong}")


def examine(method: Method) -> list[Finding]:
    """Every claim of the suite, held against one method.

    A method whose hooks fail on the toy gets that finding, and what can be said without a run.
    """
    findings = [_finding(claim, wrong, method) for claim, wrong in BEFORE.items()]
    runs: list[Runs] = []

    def run(method: Method) -> Iterator[str]:
        runs.append(Runs(method, trace(method), trace(method), trace(method, torch.float32)))
        return iter(())

    findings.append(_finding(RUNS, run, method))
    return findings + [_finding(claim, wrong, runs[0]) for claim, wrong in AFTER.items() if runs]


Subject = TypeVar("Subject", Method, "Runs")


def _finding(claim: str, wrong: Callable[[Subject], Iterator[str]], subject: Subject) -> Finding:
    """What contradicts a claim; what fails while it is looked at does."""
    try:
        return Finding(claim, next(wrong(subject), ""))
    except FlatfedError as error:
        return Finding(claim, str(error))
    except Exception as error:
        first = next(iter(str(error).splitlines()), "")
        at = traceback.extract_tb(error.__traceback__)[-1]
        where = f"in {at.name} ({Path(at.filename).name}, line {at.lineno})"
        return Finding(claim, f"{type(error).__name__} {where}: {first}")


@dataclass(frozen=True)
class Runs:
    """A method with what a few rounds on the toy left behind: twice the same, and in float32."""

    method: Method
    one: Trace
    two: Trace
    single: Trace


def _declared(runs: Runs) -> Iterator[str]:
    method = runs.method
    run = runs.one
    averaged = {name for _, reader, name in run.reads if reader == "mean"}
    shared = {n for kind in ("broadcast", "push", "uses") for n in method.names(kind)}
    for part in (*method.parts, method.compress):
        who = type(part).__name__
        client, server = (
            {name for at, reader, name in run.reads if (at, reader) == (side, who)}
            for side in ("client", "server")
        )
        for kind, read in (
            ("broadcast", client),
            ("push", client),
            ("keep", client),
            ("notes", client),
            ("asks", client),
            ("uses", server),
        ):
            for name in getattr(part, kind):
                if name not in read:
                    yield f"{who} declares {kind} {name!r} and never reads v.{name}.\nTake it out."
        for name in part.server:
            if name not in server | shared | {part.result, *part.logged}:
                yield f"{who} owns {name!r} on the server and nobody reads it.\nTake it out."
        for name in (*part.upload, *part.means):
            if name not in averaged:
                yield f"{who} declares {name!r} and no server hook reads mean.{name}.\nTake it out."


def _returned(runs: Runs) -> Iterator[str]:
    method = runs.method
    run = runs.one
    for kind, where in (
        ("server", "absorb or settle"),
        ("keep", "finish or remember"),
        ("notes", "gradient"),
    ):
        for name, part in method.owned(kind):
            if (kind, name) not in run.renewed:
                yield (
                    f"{type(part).__name__} declares {kind} {name!r}, and in {ROUNDS} rounds no "
                    f"hook returned a new one.\nReturn {{{name!r}: ...}}, for example from {where}."
                )


def _billed(runs: Runs) -> Iterator[str]:
    run = runs.one
    bill = runs.method.bill(D, itemsize=first_model().itemsize, layout=LAYOUT)
    for down in run.downs:
        regular = {name: v for name, v in down.items() if name not in bill.push}
        size = sum(v.nbytes for v in regular.values())
        if size != bill.bytes_down:
            yield f"{', '.join(regular)} go down in {size} bytes, the bill says {bill.bytes_down}."
    for client, upload in run.arrived:
        size = upload.nbytes
        if size != bill.bytes_up:
            yield (
                f"client {client} sends {', '.join(upload.vectors)} in {size} bytes, the bill "
                f"says {bill.bytes_up}."
            )
    for client, mine in run.kept.items():
        size = sum(v.nbytes for v in mine.values())
        if size != bill.bytes_kept:
            yield f"client {client} keeps {size} bytes, the bill says {bill.bytes_kept}."


def _shapes(runs: Runs) -> Iterator[str]:
    for dtype, run in ((torch.float32, runs.single), (torch.float64, runs.one)):
        like = run.state["x"]
        everything = [("state", run.state), *((f"client {i}", k) for i, k in run.kept.items())]
        everything += [(f"client {client}'s upload", sent) for client, sent in run.decoded]
        for where, names in everything:
            for name, v in names.items():
                if v.dtype != dtype:
                    yield (
                        f"{where}[{name!r}] is {v.dtype}, expected {dtype} like the model.\nMake "
                        "new vectors from old ones (x.new_zeros), not from numbers."
                    )
                if v.dim() != 1 or (name == "x" and v.shape != like.shape):
                    yield f"{where}[{name!r}] has shape {tuple(v.shape)}, expected ({D},)."


def _counted(runs: Runs) -> Iterator[str]:
    method = runs.method
    bill = method.bill(D)
    asks = len(bill.gradients_per_round)
    for client, K, gradients, forwards in runs.one.counted:
        extra = asks * method.objective.gradients
        least, most = (K * n + extra for n in (bill.gradients_least, bill.gradients_per_step))
        if not least <= gradients <= most:
            said = f"{most}" if least == most else f"{least} to {most}"
            yield (
                f"client {client} asked for {gradients} gradients in {K} steps, its bill says "
                f"{said}.\nSet gradients of {type(method.perturb).__name__}, or of the "
                "objective, to what it asks for in one step."
            )
        passes = K * bill.forwards_per_step + asks * method.objective.forwards
        if forwards != passes:
            yield (
                f"client {client} asked for {forwards} forward passes in {K} steps, its bill says "
                f"{passes}.\nSet forwards of {type(method.perturb).__name__}, or of the objective."
            )


def _pure(runs: Runs) -> Iterator[str]:
    for change in runs.one.changed:
        yield f"{change} was changed in place.\nReturn new vectors: v + a, not v.add_(a)."


def _quiet(runs: Runs) -> Iterator[str]:
    if runs.one.stirred:
        yield (
            "its hooks draw from torch's global generator.\nMake a generator of your own with "
            "v.seed(purpose)."
        )


def _repeatable(runs: Runs) -> Iterator[str]:
    for name, vector in runs.one.state.items():
        if not torch.equal(vector, runs.two.state[name]):
            yield (
                f"two equal runs end with different {name!r}.\nDraw randomness only from seeds "
                "that come with the round, never from a global generator."
            )


def _orderless(runs: Runs) -> Iterator[str]:
    backwards = trace(runs.method, backwards=True)
    for name, vector in runs.one.state.items():
        if not torch.equal(vector, backwards.state[name]):
            yield (
                f"the order in which the clients train changes {name!r}.\nKeep no memory between "
                "calls of a hook: what a client remembers belongs in keep."
            )


def _bystanders(runs: Runs) -> Iterator[str]:
    for change in runs.one.disturbed:
        yield f"{change}, of a client that did not take part, has changed."


RUNS = "its hooks run on a toy federation"
BEFORE: dict[str, Callable[[Method], Iterator[str]]] = {
    "every hook opens with its equation": opens_with_equations,
    "it pickles, and comes back equal": pickles,
}
AFTER: dict[str, Callable[[Runs], Iterator[str]]] = {
    "what is declared is read": _declared,
    "what is declared is returned": _returned,
    "what is declared is sent, byte for byte": _billed,
    "vectors keep the model's type and shape": _shapes,
    "gradients asked for are gradients billed": _counted,
    "no hook changes what it was given": _pure,
    "no compressor changes what it was given": lambda runs: encodes_purely(runs.method),
    "a compressor's bytes are counted on any layout": lambda runs: sizes_are_true(runs.method),
    "no hook touches the caller's random numbers": _quiet,
    "equal runs are equal to the bit": _repeatable,
    "the order of the clients is irrelevant": _orderless,
    "clients that do not take part are untouched": _bystanders,
}
CLAIMS = (*BEFORE, RUNS, *AFTER)
