"""The contract: what an ingredient of a method declares, and what its hooks may read and return."""

from __future__ import annotations

import abc
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NoReturn, Self

from flatfed.errors import UndeclaredName
from flatfed.oracle import Oracle, Samples, Workbench
from flatfed.vec import Layout, Named, Vec, length_of

if TYPE_CHECKING:
    from torch import Tensor

    from flatfed.method import Method


class View:
    """What one hook may read: the round's constants, and the vectors its part declared."""

    # on both sides
    x: Vec  # the model this round started from
    t: int  # round
    # on the client
    k: int  # local step; K after the last
    K: int  # this client's local steps in the round
    lr: float  # η_k
    travel: float  # Ση_k over the round
    layout: Layout  # where the module's tensors lie in the vector
    whole: Oracle  # gradient over all local data, if the part asks for it
    first: Oracle  # gradient on the round's first mini-batch, if the part asks for it
    batch: Samples  # this step's mini-batch, for more than the objective's gradient
    # on both sides
    seed: Callable[[str], int]  # of a purpose, at this client, round and step: all randomness
    drawn: int  # clients drawn for this round, whoever answers
    # on the server
    S: float  # clients whose uploads arrived this round, each counted by its weight n_i/n̄
    N: int  # clients in all
    workbench: Workbench  # the model, for hooks that train on the server

    def __init__(self, reader: str, names: dict[str, Any]) -> None:
        # The dict becomes the view itself: one is made for every hook of every step.
        names["_reader"] = reader
        object.__setattr__(self, "__dict__", names)

    def __getattr__(self, name: str) -> Vec:
        if name.startswith("_"):  # copy and pickle look for these
            raise AttributeError(name)
        reader = self.__dict__["_reader"]
        legal = ", ".join(sorted(n for n in self.__dict__ if n[0] != "_"))
        said = f"{reader} reads v.{name} without declaring it."
        remedy = f"Declare it in one of the part's tuples: {', '.join(DECLARATIONS)}."
        if reader == "mean":
            said = f"A server hook reads mean.{name}, and no part declares it."
            remedy = f"Declare it in the part that reads it: means = ({name!r},), or as an upload."
        elif name == "S" and "N" in self.__dict__ and "k" not in self.__dict__:
            said = f"{reader} reads v.S, which is not known here."
            remedy = (
                "It is from absorb on; with weights='samples', give Mean or one_round "
                "mean_samples, the mean of n_i over all N clients."
            )
        elif name in ("drawn", "workbench"):
            said = f"{reader} reads v.{name}, which was not given."
            remedy = f"Give {name}= to whoever runs the round, as Training does."
        elif name in ("S", "N", "k", "K", "lr", "travel", "layout", "batch"):
            side = "server" if name in ("S", "N") else "client"
            said = f"{reader} reads v.{name}, which only hooks of the {side} have."
            remedy = "Move what needs it to the other side, or do without."
        raise UndeclaredName(f"{said}\nIt may read: {legal}.\n{remedy}")

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"Views are read-only: return {{{name!r}: ...}} from the hook.")


def brief(part: object) -> str:
    """A part as it would be written: what is left at its default is left out."""
    shown = [
        f"{f.name}={value!r}"
        for f in fields(part)  # type: ignore[arg-type]  # parts are dataclasses
        if (value := getattr(part, f.name)) != f.default
    ]
    return f"{type(part).__name__}({', '.join(shown)})"


_LABELLED = re.compile(r"^(?:\[([^]]*)\])?(.*)$")  # [a field's value] equation

DECLARATIONS = (
    "server", "broadcast", "push", "uses", "keep", "notes", "upload", "means", "asks",
)  # fmt: skip


class Part:
    """One ingredient of a method. Its tuples are its whole communication bill.

    A hook's docstring is its equation. Where a field chooses between forms, there is one line for
    each, opening with the field's value in brackets; `describe` prints the line that is true.
    """

    server: ClassVar[tuple[str, ...]] = ()  # this part owns these on the server
    broadcast: ClassVar[tuple[str, ...]] = ()  # clients must receive these (own or another's)
    push: ClassVar[tuple[str, ...]] = ()  # every client receives these when they change, once
    uses: ClassVar[tuple[str, ...]] = ()  # server hooks read these, which another part owns
    keep: ClassVar[tuple[str, ...]] = ()  # client i keeps these between participations
    notes: ClassVar[tuple[str, ...]] = ()  # these live through one round's local steps
    upload: ClassVar[tuple[str, ...]] = ()  # client i sends these beside dx; "dx" replaces dx
    means: ClassVar[tuple[str, ...]] = ()  # server hooks read these means: "dx_K", "dx_travel"
    asks: ClassVar[tuple[str, ...]] = ()  # extra gradients, one a round: "whole", "first"
    derivable: ClassVar[tuple[str, ...]] = ()  # uploads the server could work out from dx, K and Ση
    scalars: ClassVar[tuple[str, ...]] = ()  # of all these, the vectors of one element
    apart: ClassVar[tuple[str, ...]] = ()  # of all these, those of a length of their own
    logged: ClassVar[tuple[str, ...]] = ()  # server scalars that are written down every round
    result: ClassVar[str] = ""  # the server vector that is evaluated and saved in place of x
    cohorts: ClassVar[Literal["any", "random", "everybody"]] = "any"  # of whom it is true
    references: ClassVar[tuple[str, ...]] = ()  # who invented it (keys of flatfed.references)

    def fits(self, method: Method) -> None:
        """Refuse a composition in which this part would not do what it says."""

    def init(self, name: str, x: Vec) -> Vec:
        """First value of a declared vector: zero, unless a part says otherwise."""
        return x.new_zeros(1 if name in self.scalars else x.shape)

    def quick(self) -> Self:
        """The part as the conformance suite runs it: what takes many rounds, in few."""
        return self

    def observe(self, w: Vec, batch: Oracle, v: View) -> Named:
        """Client, every step, before it moves: new values of notes."""
        return {}

    def finish(self, y: Vec, v: View) -> Named:
        """Client, after its last step: new values of keep and upload."""
        return {}

    def remember(self, sent: View, v: View) -> Named:
        """Client, when it has sent dx and its uploads: new values of keep that follow from them.

        `sent` holds them as they were, or as the server decodes them (Method.kept).
        """
        return {}

    def absorb(self, mean: View, v: View) -> Named:
        """Server, when the cohort's mean is in: new values of server."""
        return {}

    def settle(self, x: Vec, v: View) -> Named:
        """Server, when the model has moved to x (v.x is where it was): new values of server."""
        return {}

    def equations(self, hook: str) -> tuple[str, ...]:
        """The equation lines of one hook that are true for this part's fields."""
        if getattr(type(self), hook) is getattr(Part, hook, None):
            return ()
        doc = getattr(type(self), hook).__doc__ or ""
        true = {str(value) for value in vars(self).values()}
        labelled = (_LABELLED.findall(line.strip())[0] for line in doc.splitlines())
        return tuple(eq.strip() for label, eq in labelled if "←" in eq and label in {"", *true})


class Perturbation(Part, abc.ABC):
    """Where the gradient is taken."""

    gradients: ClassVar[int] = 1  # times `gradient` asks the oracle, at most
    gradients_least: ClassVar[int | None] = None  # where that is not always so
    forwards: ClassVar[int] = 0  # times it asks the batch for outputs alone

    @abc.abstractmethod
    def gradient(self, w: Vec, grad: Oracle, v: View) -> tuple[Vec, Named]:
        """Client, every step: the descent gradient, and new values of keep and notes."""


class Correction(Part, abc.ABC):
    """What is added to the gradient."""

    @abc.abstractmethod
    def direction(self, g: Vec, w: Vec, v: View) -> Vec:
        """Client, every step: g, corrected. Corrections apply in the order listed."""


class Objective(Part, abc.ABC):
    """What is minimised on a batch."""

    gradients: ClassVar[int] = 1  # times `value` asks the batch
    forwards: ClassVar[int] = 0  # times it asks for outputs alone

    @abc.abstractmethod
    def value(self, w: Vec, batch: Samples, v: View) -> Vec:
        """Client, whenever a gradient is asked for: the objective's gradient at w."""


class Local(Part, abc.ABC):
    """How a client walks: how many steps, how long, with what decay and clipping."""

    batch_size: int | None  # samples in a mini-batch; None: all that the client holds

    @abc.abstractmethod
    def steps_for(self, samples: int) -> int:
        """K of a client that holds this many samples."""

    @abc.abstractmethod
    def rates(self, t: int, K: int) -> Sequence[float]:
        """η_k of every step of round t."""

    def travel(self, rates: Sequence[float]) -> float:
        """How far a constant gradient of length 1 would carry the client: Ση without momentum."""
        return sum(rates)

    @abc.abstractmethod
    def prepare(self, g: Vec, w: Vec, v: View) -> Vec:
        """Client, every step, before the corrections: the data gradient as they see it."""

    @abc.abstractmethod
    def step(self, w: Vec, g: Vec, v: View) -> tuple[Vec, Named]:
        """Client, every step: the next local iterate, and new values of notes."""


class ServerUpdate(Part, abc.ABC):
    """How the global model moves."""

    def start(self, x: Vec, v: View) -> Vec:
        """Server, before it sends: the model clients start from, x unless a method looks ahead."""
        return x

    @abc.abstractmethod
    def step(self, x: Vec, mean: View, v: View) -> Vec:
        """Server, after every absorb: the next global model."""


class Compressor(Part, abc.ABC):
    """What travels instead of a vector. What it keeps, on either side, it keeps of every upload."""

    @abc.abstractmethod
    def encode(self, a: Vec, v: View) -> tuple[tuple[Tensor, ...], Named]:
        """Client: the tensors that travel instead of a, and what to keep (error feedback)."""

    @abc.abstractmethod
    def decode(self, sent: tuple[Tensor, ...], like: Vec, layout: Layout) -> Vec:
        """Server: the vector those tensors stand for."""

    @abc.abstractmethod
    def nbytes(self, layout: Layout, width: int) -> int:
        """Bytes that travel for a vector of this layout, of floats of so many bytes."""

    @abc.abstractmethod
    def nominal(self, layout: Layout, width: int) -> float:
        """The same in bits, as papers count it."""

    @abc.abstractmethod
    def entropy(self, sent: tuple[Tensor, ...], layout: Layout) -> float:
        """The same in bits, had an ideal code packed this very message."""

    def kept_size(self, name: str, layout: Layout) -> int:
        """Elements of one of the vectors it keeps."""
        return length_of(layout)

    def understood(self, sent: tuple[Tensor, ...], like: Vec, layout: Layout, kept: Named) -> Vec:
        """Client: what the server takes its vector to be, now that this was sent and kept."""
        return self.decode(sent, like, layout)

    def gather(self, mean: Vec, v: View) -> tuple[Vec, Named]:
        """Server, of every upload: the mean that its hooks see, and new values of server."""
        return mean, {}


class Topology(Part, abc.ABC):
    """Who talks to whom."""

    @abc.abstractmethod
    def weights(self, i: int, t: int) -> Mapping[int, float]:
        """Whose models node i averages in round t, and how much."""
