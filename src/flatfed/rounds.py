"""Federated learning, written down once: what a client does, what the server does.

Everything here is pure: nothing that comes in is changed, so every engine must agree.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from flatfed.errors import (
    ClientError,
    CompositionError,
    FederationError,
    FlatfedError,
    UndeclaredName,
)
from flatfed.mean import Mean, Upload
from flatfed.method import Method
from flatfed.part import Objective, Oracle, Part, View
from flatfed.parts.objective import DataLoss
from flatfed.vec import Layout, Named, Vec, lay_out

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class LocalData:
    """What one client brings to one round."""

    client: int
    batches: Sequence[Oracle]  # one mini-batch for every local step
    whole: Oracle | None = None  # all its data, for methods that ask for it
    samples: int = 1  # n_i, its weight if the method weighs by samples
    layout: Layout | None = None  # None: one tensor called "weight"


def broadcast(
    method: Method, state: Named, t: int, N: int, *, views: type[View] = View
) -> dict[str, Vec]:
    """What the server sends to every client of the cohort."""
    view = _server_view(method.server, state, t, None, N, views)  # who will answer, nobody knows
    x = method.server.start(state["x"], view)
    return {"x": x, **{name: state[name] for name in method.names("broadcast")}}


def client_round(
    method: Method,
    sent: Named,
    kept: Named,
    data: LocalData,
    t: int,
    *,
    views: type[View] = View,
) -> tuple[Upload, dict[str, Vec]]:
    """What client i does with what it received: (what it sends, what it keeps)."""
    x = w = sent["x"]
    K = len(data.batches)
    if K == 0:
        raise ClientError(
            f"Client {data.client} has 0 local steps in round {t}, expected at least 1.\n"
            "Give it data, or leave it out of the cohort.",
            client=data.client,
            t=t,
            k=0,
            part=type(method.local).__name__,
        )
    rates = method.local.rates(t, K)
    if not sum(rates) > 0:
        raise CompositionError(
            f"The rates of round {t} sum to {sum(rates)!r} over {K} steps, expected more than 0.\n"
            f"Let lr(t, k, K) of {method.local!r} start above 0."
        )
    seen = _Client(method, sent, kept, data, t, rates, views)
    observers = [part for part in method.parts if type(part).observe is not Part.observe]
    part: Part = method.perturb
    k = 0
    try:
        for k, batch in enumerate(data.batches):
            for part in observers:
                seen.note(part, part.observe(w, batch, seen.by(part, k)))
            part = method.perturb
            g, new = part.gradient(w, seen.oracle(batch, k), seen.by(part, k))
            seen.note(part, new)
            part = local = method.local
            view = seen.by(local, k)
            g = local.prepare(g, w, view)
            for part in method.correct:
                g = part.direction(g, w, seen.by(part, k))
            part = local
            w, new = local.step(w, g, view)
            seen.note(part, new)
        k = K
        done: dict[str, Vec] = {"dx": w - x}
        for part in method.parts:
            new = _declared(part, part.finish(w, seen.by(part, K)), (*part.keep, *part.upload))
            seen.kept.update({name: new[name] for name in part.keep if name in new})
            done |= {name: new[name] for name in part.upload if name in new}
        part = method.compress
        vectors: dict[str, tuple[Tensor, ...]] = {}
        for name in method.uploads:
            if name not in done:
                raise _missing(method, name)
            vectors[name], new = method.compress.encode(done[name], seen.encoding(name, done[name]))
            for kind, vector in _declared(part, new, part.keep).items():
                seen.kept[f"{kind}:{name}"] = vector
    except FlatfedError:
        raise
    except Exception as error:
        where = f"step {k} of {K}" if k < K else "the end of its steps"
        raise ClientError(
            f"Client {data.client} failed in round {t} at {where}, in {type(part).__name__}: "
            f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}\n"
            "What raised it is this error's cause (__cause__).",
            client=data.client,
            t=t,
            k=k,
            part=type(part).__name__,
        ) from error
    lengths = {name: done[name].numel() for name in vectors}
    return Upload(data.client, vectors, lengths, K, sum(rates), data.samples), seen.kept


class _Client:
    """What one client knows during one round.

    No closures: functions that refer to each other would keep the round's vectors alive until the
    garbage collector finds them.
    """

    def __init__(
        self,
        method: Method,
        sent: Named,
        kept: Named,
        data: LocalData,
        t: int,
        rates: Sequence[float],
        views: type[View],
    ) -> None:
        x = sent["x"]
        self._method, self._data, self._rates, self._views = method, data, rates, views
        self._sent = sent
        self.kept = dict(kept) or method.fresh("keep", x)
        self.notes = method.fresh("notes", x)
        layout = data.layout or lay_out({"weight": (x.numel(),)})
        self._constants: dict[str, Any] = {
            "x": x, "t": t, "K": len(rates), "travel": sum(rates), "layout": layout
        }  # fmt: skip

    def by(self, part: Part, k: int) -> View:
        """The view of one part at step k."""
        rates = self._rates
        names = {**self._constants, "k": k, "lr": rates[k] if k < len(rates) else rates[-1]}
        for name in part.broadcast:
            names[name] = self._sent[name]
        for name in part.keep:
            names[name] = self.kept[name]
        for name in part.notes:
            names[name] = self.notes[name]
        for name in part.asks:
            names[name] = getattr(self, "_" + name)(part)
        return self._views(type(part).__name__, names)

    def encoding(self, name: str, a: Vec) -> View:
        """The compressor's view while it encodes one upload: what it keeps, it keeps of each."""
        part = self._method.compress
        names = {**self._constants, "k": len(self._rates), "lr": self._rates[-1]}
        for kind in part.keep:
            kept = self.kept.get(f"{kind}:{name}")
            names[kind] = part.init(kind, a) if kept is None else kept
        return self._views(type(part).__name__, names)

    def note(self, part: Part, new: Named) -> None:
        """Take over what a part returned during the steps."""
        for name, vector in (new or _declared(part, new, ())).items():
            if name in part.keep:
                self.kept[name] = vector
            elif name in part.notes:
                self.notes[name] = vector
            else:
                _declared(part, new, (*part.keep, *part.notes))

    def oracle(self, batch: Oracle, k: int) -> Oracle:
        """The objective's gradient on a batch."""
        objective = self._method.objective
        if type(objective) is DataLoss:  # the batch's own gradient: no view to make at every step
            return batch
        return partial(_objective, objective, batch, self.by(objective, k))

    def _first(self, part: Part) -> Oracle:
        return self.oracle(self._data.batches[0], 0)

    def _whole(self, part: Part) -> Oracle:
        if self._data.whole is None:
            raise FederationError(
                f"{type(part).__name__} asks client {self._data.client} for the gradient over all "
                "its data, expected LocalData(whole=...).\n"
                "Give one, or choose an option without it."
            )
        return self.oracle(self._data.whole, len(self._rates))


def _objective(objective: Objective, batch: Oracle, v: View, w: Vec) -> Vec:
    return objective.value(w, batch, v)


def server_round(
    method: Method, state: Named, mean: View, t: int, N: int, *, views: type[View] = View
) -> dict[str, Vec]:
    """What the server does with the cohort's mean: its next state."""
    S = mean.S
    # Each of the three sees the state as the one before left it: the order of parts is irrelevant.
    absorbed = dict(state)
    for part in method.parts:
        new = part.absorb(mean, _server_view(part, state, t, S, N, views))
        absorbed |= _declared(part, new, part.server)
    view = _server_view(method.server, absorbed, t, S, N, views)
    x = method.server.step(state["x"], mean, view)
    settled = {**absorbed, "x": x}
    for part in method.parts:
        new = part.settle(x, _server_view(part, absorbed, t, S, N, views))
        settled |= _declared(part, new, part.server)
    return settled


def one_round(
    method: Method,
    state: Named,
    kept: Mapping[int, Named],
    cohort: Iterable[LocalData],
    t: int,
    N: int,
    *,
    mean_samples: float | None = None,
) -> tuple[dict[str, Vec], dict[int, Named]]:
    """A whole round in one place: (the server's next state, what every client keeps).

    `mean_samples` is n̄ over all N clients, for methods that weigh by samples (`Mean`).
    """
    sent = broadcast(method, state, t, N)
    kept = dict(kept)
    mean = Mean(method, state, mean_samples=mean_samples)
    for data in sorted(cohort, key=lambda data: data.client):
        upload, kept[data.client] = client_round(method, sent, kept.get(data.client, {}), data, t)
        mean.add(upload)
    return server_round(method, state, mean.result(), t, N), kept


def _server_view(
    part: Part, state: Named, t: int, S: float | None, N: int, views: type[View]
) -> View:
    names: dict[str, Any] = {"x": state["x"], "t": t, "N": N}
    if S is not None:
        names["S"] = S
    for name in (*part.server, *part.broadcast, *part.uses):
        names[name] = state[name]
    return views(type(part).__name__, names)


def _declared(part: Part, new: Named, allowed: Iterable[str]) -> Named:
    if not isinstance(new, Mapping):
        raise CompositionError(
            f"A hook of {type(part).__name__} returned {new!r}, expected a dict of vectors.\n"
            "Return {} where there is nothing new."
        )
    if new:
        extra = set(new) - set(allowed)
        if extra:
            raise UndeclaredName(
                f"{type(part).__name__} returned {', '.join(sorted(extra))} without declaring it.\n"
                f"From this hook it may return: {', '.join(allowed) or 'nothing'}.\n"
                "Declare it in the part's tuples, or do not return it."
            )
    return new


def _missing(method: Method, name: str) -> CompositionError:
    owner = next(type(part).__name__ for owned, part in method.owned("upload") if owned == name)
    return CompositionError(
        f"{owner} declares upload {name!r}, but its finish returned no {name!r}.\n"
        f"Return {{{name!r}: ...}} from {owner}.finish, or take it out of upload."
    )
