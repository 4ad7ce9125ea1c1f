"""Federated learning, written down once: what a client does, what the server does.

Everything here is pure: nothing that comes in is changed, so every engine must agree.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flatfed.errors import ClientError, CompositionError, FederationError, FlatfedError
from flatfed.mean import Mean, Upload
from flatfed.method import Method
from flatfed.oracle import Oracle, Workbench
from flatfed.part import Compressor, Part, View
from flatfed.vec import Layout, Named, Vec, lay_out
from flatfed.views import ClientSight, ServerSight, declared, refuse_upload

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class LocalData:
    """What one client brings to one round."""

    client: int
    batches: Sequence[Oracle]  # one mini-batch for every local step
    whole: Oracle | None = None  # all its data, for methods that ask for it
    samples: int = 1  # n_i, its weight if the method weighs by samples
    layout: Layout | None = None  # None: its oracles' own, or else one tensor called "weight"
    seed: int = 0  # the run's, for hooks that draw
    drawn: int | None = None  # clients drawn for this round

    def laid_out(self, x: Vec) -> Layout:
        """Where the module's tensors lie, as far as anybody knows."""
        own = self.layout or next((getattr(b, "layout", None) for b in self.batches), None)
        return own or lay_out({"weight": (x.numel(),)})


def broadcast(
    method: Method, state: Named, t: int, N: int, *, views: type[View] = View
) -> dict[str, Vec]:
    """What the server sends to every client of the cohort."""
    view = ServerSight(t, N, views=views).by(method.server, state)  # who answers, nobody knows
    x = method.server.start(state["x"], view)
    names = (*method.names("broadcast"), *method.names("push"))
    return {"x": x, **{name: state[name] for name in names}}


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
    observers = [part for part in method.parts if type(part).observe is not Part.observe]
    part: Part = method.local
    k = 0
    try:
        rates = method.local.rates(t, K)
        if not sum(rates) > 0:
            raise CompositionError(
                f"The rates of round {t} sum to {sum(rates)!r} over {K} steps, expected more than "
                f"0.\nLet lr(t, k, K) of {method.local!r} start above 0."
            )
        seen = ClientSight(method, sent, kept, data, t, rates, views)
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
            new = declared(part, part.finish(w, seen.by(part, K)), (*part.keep, *part.upload))
            seen.kept.update({name: new[name] for name in part.keep if name in new})
            done |= {name: new[name] for name in part.upload if name in new}
        vectors: dict[str, tuple[Tensor, ...]] = {}
        arrived: dict[str, Vec] = {}
        for name in method.uploads:
            refuse_upload(method, name, done.get(name), x)
            part = compressor = method.compressor(name)
            view = seen.encoding(name, done[name])
            vectors[name], new = compressor.encode(done[name], view)
            if not isinstance(vectors[name], tuple):
                raise CompositionError(
                    f"{type(part).__name__}.encode returned {type(vectors[name]).__name__} for "
                    f"{name}, expected a tuple of tensors.\nReturn (tensor,), {{}}."
                )
            for kind, vector in declared(part, new, part.keep).items():
                seen.kept[f"{kind}:{name}"] = vector
            if method.kept == "synced":
                arrived[name] = compressor.understood(vectors[name], done[name], view.layout, new)
        seen.remember(arrived if method.kept == "synced" else done)
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
    travel = method.local.travel(rates)
    return Upload(data.client, vectors, lengths, K, travel, data.samples), seen.kept


def server_round(
    method: Method,
    state: Named,
    mean: View,
    t: int,
    N: int,
    *,
    drawn: int | None = None,
    seed: int = 0,
    workbench: Workbench | None = None,
    views: type[View] = View,
) -> dict[str, Vec]:
    """What the server does with the cohort's mean: its next state.

    Methods that draw on the server need the run's seed, those that train there a workbench, and
    those whose noise depends on the cohort how many were drawn.
    """
    S = mean.S
    if S is not None and S > N * (1 + 1e-9):  # a sum of n_i/n̄ may round
        raise FederationError(
            f"Round {t} has S={S:g} uploads of N={N!r} clients in all, expected at most N.\n"
            "Give the number of all clients as N, and the mean of all their n_i as mean_samples."
        )
    sight = ServerSight(t, N, S, drawn, seed, workbench, views)
    mean, gathered = _gathered(method, state, mean, sight)
    # Each of the three sees the state as the one before left it: the order of parts is irrelevant.
    absorbed = dict(state)
    for part in method.parts:
        new = part.absorb(mean, sight.by(part, state))
        absorbed |= declared(part, new, part.server)
    view = sight.by(method.server, absorbed)
    x = method.server.step(state["x"], mean, view)
    if getattr(x, "shape", None) != state["x"].shape:
        raise CompositionError(
            f"{type(method.server).__name__}.step returned {type(x).__name__} of shape "
            f"{tuple(getattr(x, 'shape', ()))}, expected a vector like x.\n"
            "Return the next global model."
        )
    settled = {**absorbed, **gathered, "x": x}
    for part in method.parts:
        new = part.settle(x, sight.by(part, absorbed))
        settled |= declared(part, new, part.server)
    return settled


def _gathered(
    method: Method, state: Named, mean: View, sight: ServerSight
) -> tuple[View, dict[str, Vec]]:
    """The mean that hooks see, and what the compressor keeps on the server."""
    compress = method.compress
    if type(compress).gather is Compressor.gather:
        return mean, {}
    seen = dict(vars(mean))
    kept: dict[str, Vec] = {}
    for name in method.uploads:
        if name not in method.apart:
            seen[name], new = compress.gather(seen[name], sight.gathering(compress, name, state))
            new = declared(compress, new, compress.server)
            kept |= {f"{kind}:{name}": vector for kind, vector in new.items()}
    return type(mean)("mean", seen), kept


def one_round(
    method: Method,
    state: Named,
    kept: Mapping[int, Named],
    cohort: Iterable[LocalData],
    t: int,
    N: int,
    *,
    mean_samples: float | None = None,
    seed: int = 0,
    workbench: Workbench | None = None,
) -> tuple[dict[str, Vec], dict[int, Named]]:
    """A whole round in one place: (the server's next state, what every client keeps).

    `mean_samples` is n̄ over all N clients, for methods that weigh by samples (`Mean`).
    """
    cohort = sorted(cohort, key=lambda data: data.client)
    sent = broadcast(method, state, t, N)
    kept = dict(kept)
    layout = next((data.laid_out(state["x"]) for data in cohort), None)
    mean = Mean(method, state, layout=layout, mean_samples=mean_samples)
    for data in cohort:
        upload, kept[data.client] = client_round(method, sent, kept.get(data.client, {}), data, t)
        mean.add(upload)
    drawn = next((data.drawn for data in cohort), None)
    arrived = mean.result()
    new = server_round(method, state, arrived, t, N, drawn=drawn, seed=seed, workbench=workbench)
    return new, kept
