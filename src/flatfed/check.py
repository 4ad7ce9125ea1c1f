"""The conformance suite: what every method must keep to, tried on a toy of three dimensions."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from flatfed.errors import CompositionError, FlatfedError
from flatfed.method import Method
from flatfed.part import Part, View
from flatfed.rounds import (
    LocalData,
    Mean,
    Upload,
    broadcast,
    client_round,
    one_round,
    server_round,
)
from flatfed.vec import Named, Vec, lay_out

D, N, ROUNDS = 3, 4, 4
COHORTS = ((0, 1, 2), (1, 3), (0, 2, 3), (1, 2))
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
        findings.append(Finding(claim, wrong))
    return findings


@dataclass
class _Quadratic:
    """∇F(w) = A(w − b), and a count of how often it is asked."""

    A: Vec
    b: Vec
    calls: int = 0
    answers: list[tuple[Vec, Vec]] = field(default_factory=list)

    def __call__(self, w: Vec) -> Vec:
        self.calls += 1
        answer = self.A @ (w - self.b)
        self.answers.append((answer, answer.clone()))
        return answer

    def observe(self, w: Vec, buffers: Vec) -> Vec:
        return 0.9 * buffers + 0.1 * w.mean()


def _toy(t: int, dtype: torch.dtype = torch.float64) -> list[LocalData]:
    cohort = []
    for i in COHORTS[t % len(COHORTS)]:
        random = torch.Generator().manual_seed(100 * t + i)

        def quadratic(random: torch.Generator = random) -> _Quadratic:
            B = torch.randn(D, D, generator=random, dtype=torch.float64)
            b = torch.randn(D, generator=random, dtype=torch.float64)
            return _Quadratic((B @ B.T / D + torch.eye(D)).to(dtype), b.to(dtype))

        layout = lay_out({"weight": (2,), "bias": (1,)})
        batches = [quadratic() for _ in range(2 + i % 2)]
        cohort.append(LocalData(i, batches, quadratic(), samples=10 + i, layout=layout))
    return cohort


def _x(dtype: torch.dtype = torch.float64) -> Vec:
    return torch.tensor([0.5, -1.0, 2.0], dtype=dtype)


@dataclass
class _Run:
    """A few rounds on the toy, with everything that was read, sent and returned."""

    state: dict[str, Vec]
    kept: dict[int, Named] = field(default_factory=dict)
    reads: set[tuple[str, str, str]] = field(default_factory=set)
    uploads: list[Upload] = field(default_factory=list)
    counted: list[tuple[int, int, int]] = field(default_factory=list)  # client, K, gradients
    changed: list[str] = field(default_factory=list)
    downs: list[Named] = field(default_factory=list)


def _recording(reads: set[tuple[str, str, str]], side: str) -> type[View]:
    class Recording(View):
        """A View that writes down (side, reader, name) of all that is read."""

        def __getattribute__(self, name: str) -> Any:
            names = object.__getattribute__(self, "__dict__")
            if name in names:
                reads.add((side, names["_reader"], name))
            return object.__getattribute__(self, name)

    return Recording


def _run(method: Method, dtype: torch.dtype = torch.float64) -> _Run:
    run = _Run(method.start(_x(dtype)))

    client, server = (_recording(run.reads, side) for side in ("client", "server"))
    for t in range(ROUNDS):
        down = broadcast(method, run.state, t, N)
        run.downs.append(down)
        mean = Mean(method, run.state)
        for data in _toy(t, dtype):
            mine = run.kept.get(data.client, {})
            watched = {"sent": down, "kept": mine}
            before = _copies(watched)
            upload, run.kept[data.client] = client_round(method, down, mine, data, t, views=client)
            oracles = [*data.batches, data.whole]
            asked = [o for o in oracles if isinstance(o, _Quadratic)]
            run.counted.append((data.client, upload.K, sum(o.calls for o in asked)))
            run.changed += _changes(watched, before, f"round {t}, client {data.client}")
            if any(not torch.equal(a, b) for o in asked for a, b in o.answers):
                run.changed.append(f"round {t}, client {data.client}: a gradient it was given")
            run.uploads.append(upload)
            mean.add(upload)
        averaged = mean.result(server)
        watched = {"state": run.state, "mean": _vectors(averaged)}
        before = _copies(watched)
        new = server_round(method, run.state, averaged, t, N, views=server)
        run.changed += _changes(watched, before, f"round {t}, server")
        run.state = new
    return run


def _vectors(view: View) -> Named:
    return {n: v for n, v in vars(view).items() if isinstance(v, torch.Tensor)}


def _copies(watched: Mapping[str, Named]) -> dict[tuple[str, str], Vec]:
    return {(w, n): v.clone() for w, names in watched.items() for n, v in names.items()}


def _changes(
    watched: Mapping[str, Named], before: Mapping[tuple[str, str], Vec], where: str
) -> list[str]:
    return [
        f"{where}: {what}[{name!r}]"
        for (what, name), old in before.items()
        if name not in watched[what] or not torch.equal(watched[what][name], old)
    ]


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
        return
    if same != method or repr(same) != repr(method):
        yield (
            "it comes back from pickling as another method.\nMake every part a frozen dataclass "
            "whose fields are all it depends on."
        )


def _declared(method: Method) -> Iterator[str]:
    run = _run(method)  # undeclared reads and returns raise here
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
    run = _run(method)
    first = method.start(_x())
    for name, part in method.owned("server"):
        if run.state[name] is first[name] or torch.equal(run.state[name], first[name]):
            yield (
                f"{type(part).__name__} owns {name!r} on the server, and after {ROUNDS} rounds it "
                f"is what it was.\nReturn {{{name!r}: ...}} from absorb or settle."
            )
    for client, mine in run.kept.items():
        if set(mine) != set(method.names("keep")):
            yield (
                f"client {client} keeps {', '.join(sorted(mine)) or 'nothing'}, declared is "
                f"{', '.join(method.names('keep')) or 'nothing'}."
            )


def _billed(method: Method) -> Iterator[str]:
    run, bill = _run(method), method.bill(D)
    for down in run.downs:
        if tuple(down) != bill.down:
            yield f"it sends {', '.join(down)} down, its bill says {', '.join(bill.down)}."
    for upload in run.uploads:
        if tuple(upload.vectors) != bill.up:
            yield f"it sends {', '.join(upload.vectors)} up, its bill says {', '.join(bill.up)}."


def _shapes(method: Method) -> Iterator[str]:
    for dtype in (torch.float32, torch.float64):
        run = _run(method, dtype)
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
    for client, K, gradients in _run(method).counted:
        expected = K * bill.gradients_per_step + len(bill.gradients_per_round)
        if gradients != expected:
            who = type(method.perturb).__name__
            yield (
                f"client {client} asked for {gradients} gradients in {K} steps, its bill says "
                f"{expected}.\nSet {who}.gradients to what its gradient hook asks for in one step."
            )


def _pure(method: Method) -> Iterator[str]:
    for change in _run(method).changed:
        yield f"{change} was changed in place.\nReturn new vectors: v + a, not v.add_(a)."


def _repeatable(method: Method) -> Iterator[str]:
    one, two = _run(method), _run(method)
    for name, vector in one.state.items():
        if not torch.equal(vector, two.state[name]):
            yield (
                f"two equal runs end with different {name!r}.\nDraw randomness only from seeds "
                "that come with the round, never from a global generator."
            )


def _orderless(method: Method) -> Iterator[str]:
    ends = []
    for turn in (1, -1):
        state, kept = method.start(_x()), dict[int, Named]()
        for t in range(ROUNDS):
            state, kept = one_round(method, state, kept, _toy(t)[::turn], t, N)
        ends.append(state)
    for name, vector in ends[0].items():
        if not torch.equal(vector, ends[1][name]):
            yield f"the order of the clients changes {name!r}."


def _bystanders(method: Method) -> Iterator[str]:
    state, kept = method.start(_x()), dict[int, Named]()
    for t in range(ROUNDS):
        idle = {i: dict(kept[i]) for i in kept if i not in COHORTS[t]}
        copies = _copies({str(i): mine for i, mine in idle.items()})
        state, kept = one_round(method, state, kept, _toy(t), t, N)
        after = {str(i): kept[i] for i in idle}
        for change in _changes(after, copies, f"round {t}"):
            yield f"{change}, of a client that did not take part, has changed."


CLAIMS: dict[str, Callable[[Method], Iterator[str]]] = {
    "every hook opens with its equation": _equations,
    "it pickles, and comes back equal": _pickles,
    "what is declared is read": _declared,
    "what is declared is returned": _returned,
    "what is declared is sent": _billed,
    "vectors keep the model's type and shape": _shapes,
    "gradients asked for are gradients billed": _counted,
    "no hook changes what it was given": _pure,
    "equal runs are equal to the bit": _repeatable,
    "the order of the clients is irrelevant": _orderless,
    "clients that do not take part are untouched": _bystanders,
}
