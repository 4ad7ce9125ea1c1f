"""A federation of three dimensions, and a few rounds on it with everything that happened."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from flatfed.flatmodel import BatchOracle, FlatModel
from flatfed.mean import Mean, Upload
from flatfed.method import Method
from flatfed.oracle import Oracle, Pass
from flatfed.part import View
from flatfed.parts.local import SGD
from flatfed.rounds import LocalData, broadcast, client_round, server_round
from flatfed.vec import Named, Vec, lay_out

D, N, ROUNDS = 3, 4, 4
LAYOUT = lay_out({"weight": (2,), "bias": (1,)})
SAMPLES = (10, 11, 12, 13)
COHORTS = ((0, 1, 2), (1, 3), (0, 2, 3), (1, 2))


@dataclass
class Quadratic:
    """∇F(w) = A(w − b), and a count of how often it is asked.

    For more than that gradient, it is a batch of four samples for the toy's classifier.
    """

    A: Vec
    b: Vec
    calls: int = 0
    forwards: int = 0
    answers: list[tuple[Vec, Vec]] = field(default_factory=list)

    def __call__(self, w: Vec) -> Vec:
        return self._answer(self.A @ (w - self.b))

    def _answer(self, answer: Vec) -> Vec:
        self.calls += 1
        self.answers.append((answer, answer.clone()))
        return answer

    @property
    def _samples(self) -> BatchOracle:
        inputs = torch.cat([self.b, self.b[:1]]).view(4, 1)
        return classifier(self.b.dtype).oracle((inputs, torch.tensor([0, 1, 2, 0])))

    def gradient(self, w: Vec, loss: Callable[[Pass], Tensor], *, features: bool = False) -> Vec:
        return self._answer(self._samples.gradient(w, loss, features=features))

    def outputs(self, w: Vec) -> Tensor:
        self.forwards += 1
        return self._samples.outputs(w)

    shape: ClassVar[tuple[int, ...]] = (1,)

    def on(self, inputs: Tensor, targets: Tensor) -> Oracle:
        other = self._samples.on(inputs, targets)
        return lambda w: self._answer(other(w))

    def observe(self, w: Vec, buffers: Vec) -> Vec:
        return 0.9 * buffers + 0.1 * w.mean()


class _Classifier(nn.Module):
    """Three parameters, one input, three classes, one layer of features."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(D))
        self.cut = nn.ReLU()

    def forward(self, inputs: Tensor) -> Tensor:
        z = inputs * self.weight
        outputs: Tensor = z + self.cut(z)
        return outputs


@cache
def classifier(dtype: torch.dtype) -> FlatModel:
    """The toy's model, for whoever asks for more than the quadratics' gradient."""
    return FlatModel(_Classifier().to(dtype))


@dataclass(frozen=True)
class Bench:
    """The server's workbench on the toy."""

    model: FlatModel
    shape: tuple[int, ...] = (1,)
    classes: int = D

    def ready(self, inputs: Tensor) -> Tensor:
        return inputs

    def spent(self, gradients: int) -> None:
        """Nobody pays."""

    def tell(self, what: str, done: int, total: int) -> None:
        """Nobody listens."""


def cohort(t: int, dtype: torch.dtype = torch.float64) -> list[LocalData]:
    clients = []
    for i in COHORTS[t % len(COHORTS)]:
        random = torch.Generator().manual_seed(100 * t + i)

        def quadratic(random: torch.Generator = random) -> Quadratic:
            B = torch.randn(D, D, generator=random, dtype=torch.float64)
            b = torch.randn(D, generator=random, dtype=torch.float64)
            return Quadratic((B @ B.T / D + torch.eye(D)).to(dtype), b.to(dtype))

        batches = [quadratic() for _ in range(2 + i % 2)]
        drawn = len(COHORTS[t % len(COHORTS)])
        whole = quadratic()
        clients.append(LocalData(i, batches, whole, SAMPLES[i], LAYOUT, drawn=drawn))
    return clients


def first_model(dtype: torch.dtype = torch.float64) -> Vec:
    return torch.tensor([0.5, -1.0, 2.0], dtype=dtype)


def first_state(method: Method, dtype: torch.dtype = torch.float64) -> dict[str, Vec]:
    x = first_model(dtype)
    # Running statistics start at the model's own: here, at a vector of any length.
    given = {"buffers": x.new_ones(D)} if "buffers" in method.names("server") else {}
    return method.start(x, **given)


def tame(method: Method) -> Method:
    """The method at a rate at which the toy neither explodes nor stands still, in few rounds."""
    quick = {axis: getattr(method, axis).quick() for axis in ("perturb", "objective", "server")} | {
        axis: tuple(p.quick() for p in getattr(method, axis)) for axis in ("correct", "also")
    }
    method = replace(method, **quick)
    local = method.local
    if isinstance(local, SGD) and not callable(local.lr):
        return replace(method, local=replace(local, lr=0.1))
    return method


@dataclass
class Trace:
    """A few rounds on the toy, with everything that was read, sent and returned."""

    state: dict[str, Vec]
    kept: dict[int, Named] = field(default_factory=dict)
    reads: set[tuple[str, str, str]] = field(default_factory=set)
    arrived: list[tuple[int, Upload]] = field(default_factory=list)
    decoded: list[tuple[int, Named]] = field(default_factory=list)
    counted: list[tuple[int, int, int, int]] = field(default_factory=list)
    # client, K, gradients, forward passes without one
    bits: list[float] = field(default_factory=list)  # of compressed messages, nominal and entropy
    changed: list[str] = field(default_factory=list)
    shown: dict[int, tuple[str, Vec, Vec]] = field(default_factory=dict)  # and as it was then
    disturbed: list[str] = field(default_factory=list)
    stirred: bool = False  # torch's global generator

    def look_again(self, where: str) -> None:
        """Whatever a hook was shown must still be what it was."""
        for what, now, then in self.shown.values():
            if not torch.equal(now, then):
                self.changed.append(f"{where}: {what}")
        self.shown.clear()

    downs: list[Named] = field(default_factory=list)
    renewed: set[tuple[str, str]] = field(default_factory=set)  # (kind, name) that a hook returned


@dataclass(frozen=True, kw_only=True)
class _Marked(Method):
    """The method, remembering which first values of notes it gave out."""

    first: list[Vec] = field(default_factory=list)

    def fresh(self, kind: str, x: Vec) -> dict[str, Vec]:
        values = super().fresh(kind, x)
        if kind == "notes":
            self.first.extend(values.values())
        return values


def _recording(run: Trace, side: str, method: _Marked) -> type[View]:
    notes = method.names("notes")

    class Recording(View):
        """A View that writes down every name read, as (side, reader, name), and notes renewed."""

        def __getattribute__(self, name: str) -> Any:
            names = object.__getattribute__(self, "__dict__")
            value = object.__getattribute__(self, name)
            if name in names:
                run.reads.add((side, names["_reader"], name))
                if isinstance(value, Tensor):
                    run.shown.setdefault(id(value), (f"{side}, {name!r}", value, value.clone()))
                if name in notes and not any(value is one for one in method.first):
                    run.renewed.add(("notes", name))
            return value

    return Recording


def trace(method: Method, dtype: torch.dtype = torch.float64, *, backwards: bool = False) -> Trace:
    """A few rounds; `backwards` lets the clients of a cohort train in the opposite order."""
    tamed = tame(method)
    method = _Marked(**{field.name: getattr(tamed, field.name) for field in fields(Method)})
    run = Trace(first_state(method, dtype))
    random = torch.get_rng_state()
    client, server = (_recording(run, side, method) for side in ("client", "server"))
    for t in range(ROUNDS):
        before_sending = copies({"state": run.state})
        down = broadcast(method, run.state, t, N, views=server)
        run.changed += changes({"state": run.state}, before_sending, f"round {t}, server, at start")
        run.downs.append(down)
        idle = {str(i): run.kept[i] for i in run.kept if i not in COHORTS[t]}
        before_round = copies(idle)
        uploads = []
        for data in cohort(t, dtype)[:: -1 if backwards else 1]:
            mine = run.kept.get(data.client, {})
            watched = {"sent": down, "kept": mine}
            before = copies(watched)
            upload, run.kept[data.client] = client_round(method, down, mine, data, t, views=client)
            oracles = [*data.batches, data.whole]
            asked = [o for o in oracles if isinstance(o, Quadratic)]
            calls, forwards = sum(o.calls for o in asked), sum(o.forwards for o in asked)
            run.counted.append((data.client, upload.K, calls, forwards))
            run.renewed |= {("keep", n) for n in mine if run.kept[data.client][n] is not mine[n]}
            run.changed += changes(watched, before, f"round {t}, client {data.client}")
            if any(not torch.equal(a, b) for o in asked for a, b in o.answers):
                run.changed.append(f"round {t}, client {data.client}: a gradient it was given")
            run.look_again(f"round {t}, client {data.client}")
            uploads.append(upload)
            run.arrived.append((data.client, upload))
            where = f"round {t}, client {data.client}"
            messages = {n: {str(k): a for k, a in enumerate(v)} for n, v in upload.vectors.items()}
            before = copies(messages)
            run.decoded.append((data.client, _decoded(method, upload, run.state["x"])))
            run.bits.append(_bits(method, upload))
            run.changed += changes(messages, before, f"{where}, its message of")
        mean = Mean(method, run.state, layout=LAYOUT, mean_samples=sum(SAMPLES) / N)
        for upload in sorted(uploads, key=lambda upload: upload.client):
            mean.add(upload)
        averaged = mean.result(server)
        watched = {"state": run.state, "mean": _vectors(averaged)}
        before = copies(watched)
        bench = Bench(classifier(dtype))
        drawn = len(uploads)
        new = server_round(
            method, run.state, averaged, t, N, drawn=drawn, workbench=bench, views=server
        )
        run.changed += changes(watched, before, f"round {t}, server")
        run.look_again(f"round {t}")
        run.renewed |= {("server", n) for n, v in new.items() if v is not run.state[n]}
        run.state = new
        run.disturbed += changes(idle, before_round, f"round {t}")
    run.stirred = not torch.equal(random, torch.get_rng_state())
    return run


def _decoded(method: Method, upload: Upload, x: Vec) -> Named:
    return {
        name: method.compressor(name).decode(sent, x.new_empty(upload.lengths[name]), LAYOUT)
        for name, sent in upload.vectors.items()
    }


def _bits(method: Method, upload: Upload) -> float:
    """Both bills of what was compressed: whatever they say, they must be numbers."""
    compress, width = method.compress, first_model().element_size()
    sent = (v for name, v in upload.vectors.items() if name not in method.apart)
    return sum(compress.nominal(LAYOUT, width) + compress.entropy(v, LAYOUT) for v in sent)


def _vectors(view: View) -> Named:
    return {n: v for n, v in vars(view).items() if isinstance(v, torch.Tensor)}


def copies(watched: Mapping[str, Named]) -> dict[tuple[str, str], Vec]:
    return {(w, n): v.clone() for w, names in watched.items() for n, v in names.items()}


def changes(
    watched: Mapping[str, Named], before: Mapping[tuple[str, str], Vec], where: str
) -> list[str]:
    return [
        f"{where}: {what}[{name!r}]"
        for (what, name), old in before.items()
        if name not in watched[what] or not torch.equal(watched[what][name], old)
    ]
