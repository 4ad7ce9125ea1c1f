"""What every hook is shown, and what it may give back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from flatfed.errors import CompositionError, FederationError, UndeclaredName
from flatfed.method import Method
from flatfed.oracle import Oracle, Samples, Workbench
from flatfed.part import Compressor, Objective, Part, View
from flatfed.parts.objective import DataLoss
from flatfed.vec import Named, Vec, seed_for

if TYPE_CHECKING:
    from flatfed.rounds import LocalData


class ClientSight:
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
        self._constants: dict[str, Any] = {
            "x": x, "t": t, "K": len(rates), "travel": method.local.travel(rates),
            "layout": data.laid_out(x),
        }  # fmt: skip
        if data.drawn is not None:
            self._constants["drawn"] = data.drawn

    def by(self, part: Part, k: int) -> View:
        """The view of one part at step k."""
        rates = self._rates
        names = {**self._constants, "k": k, "lr": rates[k] if k < len(rates) else rates[-1]}
        names["seed"] = partial(self._seed, k)
        if k < len(rates):
            names["batch"] = self._data.batches[k]
        for name in part.broadcast:
            names[name] = self._sent[name]
        for name in part.push:
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
        part = self._method.compressor(name)
        K = len(self._rates)
        names = {**self._constants, "k": K, "lr": self._rates[-1]}
        names["seed"] = partial(self._seed, K, of=f":{name}")
        for kind in part.keep:
            kept = self.kept.get(f"{kind}:{name}")
            names[kind] = part.init(kind, a) if kept is None else kept
        return self._views(type(part).__name__, names)

    def remember(self, sent: Named) -> None:
        """What clients keep of what they sent, as it was or as it arrived."""
        shown = self._views("sent", dict(sent))
        for part in self._method.parts:
            if type(part).remember is not Part.remember:
                new = part.remember(shown, self.by(part, len(self._rates)))
                self.kept.update(declared(part, new, part.keep))

    def note(self, part: Part, new: Named) -> None:
        """Take over what a part returned during the steps."""
        for name, vector in (new or declared(part, new, ())).items():
            if name in part.keep:
                self.kept[name] = vector
            elif name in part.notes:
                self.notes[name] = vector
            else:
                declared(part, new, (*part.keep, *part.notes))

    def oracle(self, batch: Oracle, k: int) -> Oracle:
        """The objective's gradient on a batch."""
        if not self._objective_of_its_own:  # the batch's gradient: no view to make at every step
            return batch
        objective = self._method.objective
        return partial(_objective, objective, cast(Samples, batch), self.by(objective, k))

    @property
    def _objective_of_its_own(self) -> bool:
        return type(self._method.objective) is not DataLoss

    def _first(self, part: Part) -> Oracle:
        return self.oracle(self._data.batches[0], 0)

    def _whole(self, part: Part) -> Oracle:
        if self._data.whole is None:
            raise FederationError(
                f"{type(part).__name__} asks client {self._data.client} for the gradient over all "
                "its data, expected LocalData(whole=...).\n"
                "Give one, or choose an option without it."
            )
        K = len(self._rates)
        # Another objective than the loss is asked for on every mini-batch of all the data.
        weighed = getattr(self._data.whole, "weighed", None)
        if weighed is None or not self._objective_of_its_own:
            return self.oracle(self._data.whole, K)
        return partial(weighed, gradient_on=partial(self.oracle, k=K))

    def _seed(self, k: int, purpose: str, of: str = "") -> int:
        return seed_for(self._data.seed, purpose + of, self._constants["t"], self._data.client, k)


def _objective(objective: Objective, batch: Samples, v: View, w: Vec) -> Vec:
    return objective.value(w, batch, v)


@dataclass(frozen=True)
class ServerSight:
    """What the server's hooks know during one round; before anybody has answered there is no S."""

    t: int
    N: int
    S: float | None = None
    drawn: int | None = None
    seed: int = 0
    workbench: Workbench | None = None
    views: type[View] = View

    def by(self, part: Part, state: Named) -> View:
        """The view of one part."""
        own = {n: state[n] for n in (*part.server, *part.broadcast, *part.push, *part.uses)}
        return self._view(part, state, own)

    def gathering(self, part: Compressor, name: str, state: Named) -> View:
        """The compressor's view of one upload's mean: what it keeps, it keeps of each."""
        own = {kind: state[f"{kind}:{name}"] for kind in part.server}
        return self._view(part, state, own)

    def _view(self, part: Part, state: Named, own: Named) -> View:
        names: dict[str, Any] = {"x": state["x"], "t": self.t, "N": self.N, **own}
        names["seed"] = self._seed_for
        for name in ("S", "drawn", "workbench"):
            if getattr(self, name) is not None:
                names[name] = getattr(self, name)
        return self.views(type(part).__name__, names)

    def _seed_for(self, purpose: str) -> int:
        return seed_for(self.seed, purpose, self.t)


def declared(part: Part, new: Named, allowed: Iterable[str]) -> Named:
    """What a hook returned, if it may return that."""
    if not isinstance(new, Mapping):
        raise CompositionError(
            f"A hook of {type(part).__name__} returned {new!r}, expected a dict of vectors.\n"
            "Return {} where there is nothing new."
        )
    if new:
        for name, vector in new.items():
            if not hasattr(vector, "numel"):
                raise CompositionError(
                    f"A hook of {type(part).__name__} returned {name}={vector!r}, expected a "
                    "vector.\nA number travels as a vector of one element: x.new_tensor([...])."
                )
        extra = set(new) - set(allowed)
        if extra:
            raise UndeclaredName(
                f"{type(part).__name__} returned {', '.join(sorted(extra))} without declaring it.\n"
                f"From this hook it may return: {', '.join(allowed) or 'nothing'}.\n"
                "Declare it in the part's tuples, or do not return it."
            )
    return new


def refuse_upload(method: Method, name: str, vector: Vec | None, x: Vec) -> None:
    """Say why an upload that was declared cannot be sent, if it cannot."""
    own_length = name in method.apart
    if vector is not None and vector.dtype == x.dtype and (own_length or vector.shape == x.shape):
        return
    owners = (type(part).__name__ for owned, part in method.owned("upload") if owned == name)
    owner = next(owners, type(method.local).__name__)
    if vector is None:
        raise CompositionError(
            f"{owner} declares upload {name!r}, but its finish returned no {name!r}.\n"
            f"Return {{{name!r}: ...}} from {owner}.finish, or take it out of upload."
        )
    raise CompositionError(
        f"{owner} sends {name!r} as {vector.dtype} of shape {tuple(vector.shape)}, expected "
        f"{x.dtype}{'' if own_length else f' of shape {tuple(x.shape)}'} like the model.\n"
        "Make new vectors from old ones (x.new_zeros); one of another length is declared in apart, "
        "or in scalars."
    )
