"""The conformance suite: what every method must keep to, tried on a toy of three dimensions."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from flatfed.errors import CompositionError, FlatfedError
from flatfed.method import Method
from flatfed.part import Part
from flatfed.rounds import one_round
from flatfed.toy import COHORTS, ROUNDS, D, N, changes, cohort, copies, first_model, trace
from flatfed.vec import Named

HOOKS = (
    "value",
    "observe",
    "gradient",
    "prepare",
    "direction",
    "step",
    "finish",
    "encode",
    "absorb",
    "settle",
    "start",
)


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
    """Every claim of the suite, held against one method."""
    findings = []
    for claim, contradictions in CLAIMS.items():
        try:
            wrong = next(contradictions(method), "")
        except FlatfedError as error:
            wrong = str(error)
        except Exception as error:  # a hook of the server failed: that is a finding too
            wrong = f"a server hook failed with {type(error).__name__}: {error}"
        findings.append(Finding(claim, wrong))
    return findings


def _equations(method: Method) -> Iterator[str]:
    for part in (*method.parts, method.compress):
        if type(part).equations is not Part.equations:
            continue  # it writes its own lines
        for hook in HOOKS:
            own = getattr(type(part), hook, None)
            if own is not None and own is not _inherited(part, hook) and not part.equations(hook):
                yield (
                    f"{type(part).__name__}.{hook} has no equation line that is true for "
                    f"{part!r}.\nOpen its docstring with one, for example "
                    '"""g ← ∇F(w)""".'
                )
    method.describe()


def _inherited(part: Part, hook: str) -> Any:
    """The hook as the contract itself defines it, where it does."""
    from flatfed import part as contract

    axes = (base for base in type(part).__mro__ if base.__module__ == contract.__name__)
    return next((vars(axis)[hook] for axis in axes if hook in vars(axis)), None)


def _pickles(method: Method) -> Iterator[str]:
    try:
        same = pickle.loads(pickle.dumps(method))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        yield (
            f"it does not pickle: {error}.\nDefine its parts and rates as classes at the top of a "
            "module, not in a function, and use no lambdas."
        )
    else:
        if same != method or repr(same) != repr(method):
            yield (
                "it comes back from pickling as another method.\nMake every part a frozen "
                "dataclass whose fields are all it depends on."
            )


def _declared(method: Method) -> Iterator[str]:
    run = trace(method)  # undeclared reads and returns raise here
    averaged = {name for _, reader, name in run.reads if reader == "mean"}
    shared = {*method.names("broadcast"), *method.names("uses")}
    for part in (*method.parts, method.compress):
        who = type(part).__name__
        client, server = (
            {name for at, reader, name in run.reads if (at, reader) == (side, who)}
            for side in ("client", "server")
        )
        for kind, read in (
            ("broadcast", client),
            ("keep", client),
            ("notes", client),
            ("asks", client),
            ("uses", server),
        ):
            for name in getattr(part, kind):
                if name not in read:
                    yield f"{who} declares {kind} {name!r} and never reads v.{name}.\nTake it out."
        for name in part.server:
            if name not in server | shared | {part.result}:
                yield f"{who} owns {name!r} on the server and nobody reads it.\nTake it out."
        for name in (*part.upload, *part.means):
            if name not in averaged:
                yield f"{who} declares {name!r} and no server hook reads mean.{name}.\nTake it out."


def _returned(method: Method) -> Iterator[str]:
    run = trace(method)
    first = method.start(first_model())
    for name, part in method.owned("server"):
        if torch.equal(run.state[name], first[name]):
            yield (
                f"{type(part).__name__} owns {name!r} on the server, and after {ROUNDS} rounds it "
                f"is what it was.\nReturn {{{name!r}: ...}} from absorb or settle."
            )
    for kind, hooks in (("keep", "finish or gradient"), ("notes", "gradient")):
        for name, part in method.owned(kind):
            values = run.reads.get(("client", type(part).__name__, name), [])
            if values and all(torch.equal(value, values[0]) for value in values):
                yield (
                    f"{type(part).__name__} declares {kind} {name!r}, and it never changes.\n"
                    f"Return {{{name!r}: ...}} from {hooks}."
                )


def _billed(method: Method) -> Iterator[str]:
    run = trace(method)
    bill = method.bill(D, itemsize=first_model().itemsize)
    for down in run.downs:
        size = sum(v.nbytes for v in down.values())
        if size != bill.bytes_down:
            yield f"{', '.join(down)} go down in {size} bytes, the bill says {bill.bytes_down}."
    for upload in run.uploads:
        size = sum(piece.nbytes for sent in upload.vectors.values() for piece in sent)
        if size != bill.bytes_up:
            yield (
                f"client {upload.client} sends {', '.join(upload.vectors)} in {size} bytes, the "
                f"bill says {bill.bytes_up}."
            )
    for client, mine in run.kept.items():
        size = sum(v.nbytes for v in mine.values())
        if size != bill.bytes_kept:
            yield f"client {client} keeps {size} bytes, the bill says {bill.bytes_kept}."


def _shapes(method: Method) -> Iterator[str]:
    for dtype in (torch.float32, torch.float64):
        run = trace(method, dtype)
        like = run.state["x"]
        everything = [("state", run.state), *((f"client {i}", k) for i, k in run.kept.items())]
        everything += [
            (f"client {u.client}'s upload", {n: s[0] for n, s in u.vectors.items()})
            for u in run.uploads
        ]
        for where, names in everything:
            for name, v in names.items():
                if v.dtype != dtype:
                    yield (
                        f"{where}[{name!r}] is {v.dtype}, expected {dtype} like the model.\nMake "
                        "new vectors from old ones (x.new_zeros), not from numbers."
                    )
                if v.dim() != 1 or (name in ("x", "dx") and v.shape != like.shape):
                    yield f"{where}[{name!r}] has shape {tuple(v.shape)}, expected ({D},)."


def _counted(method: Method) -> Iterator[str]:
    bill = method.bill(D)
    for client, K, gradients in trace(method).counted:
        expected = K * bill.gradients_per_step + len(bill.gradients_per_round)
        if gradients != expected:
            who = type(method.perturb).__name__
            yield (
                f"client {client} asked for {gradients} gradients in {K} steps, its bill says "
                f"{expected}.\nSet {who}.gradients to what its gradient hook asks for in one step."
            )


def _pure(method: Method) -> Iterator[str]:
    for change in trace(method).changed:
        yield f"{change} was changed in place.\nReturn new vectors: v + a, not v.add_(a)."


def _repeatable(method: Method) -> Iterator[str]:
    one, two = trace(method), trace(method)
    for name, vector in one.state.items():
        if not torch.equal(vector, two.state[name]):
            yield (
                f"two equal runs end with different {name!r}.\nDraw randomness only from seeds "
                "that come with the round, never from a global generator."
            )


def _orderless(method: Method) -> Iterator[str]:
    ends = []
    for turn in (1, -1):
        state, kept = method.start(first_model()), dict[int, Named]()
        for t in range(ROUNDS):
            state, kept = one_round(method, state, kept, cohort(t)[::turn], t, N)
        ends.append(state)
    for name, vector in ends[0].items():
        if not torch.equal(vector, ends[1][name]):
            yield f"the order of the clients changes {name!r}."


def _bystanders(method: Method) -> Iterator[str]:
    state, kept = method.start(first_model()), dict[int, Named]()
    for t in range(ROUNDS):
        idle = {i: dict(kept[i]) for i in kept if i not in COHORTS[t]}
        before = copies({str(i): mine for i, mine in idle.items()})
        state, kept = one_round(method, state, kept, cohort(t), t, N)
        after = {str(i): kept[i] for i in idle}
        for change in changes(after, before, f"round {t}"):
            yield f"{change}, of a client that did not take part, has changed."


CLAIMS: dict[str, Callable[[Method], Iterator[str]]] = {
    "every hook opens with its equation": _equations,
    "it pickles, and comes back equal": _pickles,
    "what is declared is read": _declared,
    "what is declared is returned": _returned,
    "what is declared is sent, byte for byte": _billed,
    "vectors keep the model's type and shape": _shapes,
    "gradients asked for are gradients billed": _counted,
    "no hook changes what it was given": _pure,
    "equal runs are equal to the bit": _repeatable,
    "the order of the clients is irrelevant": _orderless,
    "clients that do not take part are untouched": _bystanders,
}
