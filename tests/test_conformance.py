"""The whole catalogue against the conformance suite, and the suite against broken methods."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
import torch

from flatfed import check_method, methods
from flatfed.check import CLAIMS, _run, examine
from flatfed.errors import CompositionError, FlatfedError, UndeclaredName
from flatfed.method import Method
from flatfed.part import Correction, Perturbation
from flatfed.parts.correct import ControlVariates
from flatfed.parts.local import SGD
from flatfed.parts.perturb import SAM, Reusing
from flatfed.parts.track import RunningStatistics
from test_transcripts import CASES, label

LOCAL = SGD(lr=0.1, steps=2)


@pytest.mark.parametrize("case", CASES, ids=label)
def test_a_method_keeps_every_claim(case) -> None:
    name, settings = case
    wrong = [f for f in examine(methods.build(name, **settings)) if f.wrong]
    assert wrong == []


@pytest.mark.parametrize("case", CASES, ids=label)
def test_gradients_counted_are_gradients_billed(case) -> None:
    name, settings = case
    method = methods.build(name, **settings)
    bill = method.bill()
    for _, K, gradients in _run(method).counted:
        assert gradients == K * bill.gradients_per_step + len(bill.gradients_per_round)


def test_the_published_bill() -> None:
    """Columns extra down, extra up, client state and gradients of the decomposition table."""
    published = {
        "fedavg": (1, 1, 0, 1), "fedavgm": (1, 1, 0, 1), "fedprox": (1, 1, 0, 1),
        "fedadam": (1, 1, 0, 1), "fedyogi": (1, 1, 0, 1), "scaffold": (2, 2, 1, 1),
        "fedcm": (2, 1, 0, 1), "feddyn": (1, 1, 1, 1), "feddc": (2, 2, 2, 1),
        "fedacg": (1, 1, 0, 1), "fedsam": (1, 1, 0, 2), "mofedsam": (2, 1, 0, 2),
        "fedasam": (1, 1, 0, 2), "fedspeed": (1, 1, 1, 2), "fedgamma": (2, 2, 1, 2),
        "fedsmoo": (2, 2, 2, 2), "fedlesam": (1, 1, 1, 1), "fedlesam-s": (2, 2, 2, 1),
        "fedlesam-d": (1, 1, 2, 1), "fedtoga": (2, 1, 1, 2), "fedvssam": (2, 1, 0, 2),
        "fedswa": (1, 1, 0, 1), "fedmoswa": (2, 2, 1, 1), "fedmo": (2, 2, 1, 1),
    }  # fmt: skip
    assert published.keys() == methods.CATALOGUE.keys()
    for name, expected in published.items():
        bill = methods.build(name).bill()
        counted = len(bill.down), len(bill.up), len(bill.kept), bill.gradients_per_step
        assert counted == expected, name
    gu = methods.fedvssam(lf=False, lu=False).bill()
    assert (gu.down, gu.up) == (("x",), ("dx",))
    assert methods.fedlesam(reference="last_round").bill().down == ("x", "x_last")
    assert methods.fedtoga(ascent="N").bill().gradients_per_step == 1
    assert methods.scaffold(option="I").bill().gradients_per_round == ("whole",)


def test_bytes_follow_the_vectors() -> None:
    bill = methods.fedsmoo().bill(1000, itemsize=8)
    assert (bill.bytes_down, bill.bytes_up, bill.bytes_kept) == (16_000, 16_000, 16_000)
    batchnorm = replace(methods.fedavg(), also=(RunningStatistics(),))
    bill = batchnorm.bill(1000, buffers=10, buffers_i=10)
    assert (bill.down, bill.bytes_down) == (("x", "buffers"), 4 * 1010)
    assert (bill.up, bill.bytes_up) == (("dx", "buffers_i"), 4 * 1010)


@pytest.mark.parametrize("perturb", [Reusing(SAM(0.1)), Reusing(SAM(0.1), "F"), SAM(0.1)], ids=repr)
def test_any_composition_keeps_every_claim(perturb) -> None:
    mine = Method(perturb=perturb, correct=(ControlVariates(),), local=LOCAL)
    assert [f for f in examine(mine) if f.wrong] == []


# ---- what the suite must catch


@dataclass(frozen=True)
class Reader(Correction):
    def direction(self, g, w, v):
        """g ← g + c"""
        return g + v.c


@dataclass(frozen=True)
class Hoarder(Correction):
    server, broadcast = ("c",), ("c",)

    def direction(self, g, w, v):
        """g ← g"""
        return g + 0

    def absorb(self, mean, v):
        """c ← c + mean(dx)"""
        return {"c": v.c + mean.dx}


@dataclass(frozen=True)
class Promiser(Correction):
    server, broadcast = ("c",), ("c",)

    def direction(self, g, w, v):
        """g ← g + c"""
        return g + v.c


@dataclass(frozen=True)
class Sender(Correction):
    upload = ("dc",)

    def direction(self, g, w, v):
        """g ← g"""
        return g + 0

    def finish(self, y, v):
        """dc ← y"""
        return {"dc": y, "surprise": y}


@dataclass(frozen=True)
class Mutator(Correction):
    def direction(self, g, w, v):
        """g ← g + w"""
        return g.add_(w)


@dataclass(frozen=True)
class Silent(Correction):
    def direction(self, g, w, v):
        return g + w


@dataclass(frozen=True)
class Mislabelled(Correction):
    form: str = "new"

    def direction(self, g, w, v):
        """[old] g ← g + w"""
        return g + w


@dataclass(frozen=True)
class Careless(Perturbation):
    def gradient(self, w, grad, v):
        """g ← ∇F(w) + ∇F(w)"""
        return grad(w) + grad(w), {}


@dataclass(frozen=True)
class Doubling(Correction):
    keep = ("a_i",)

    def direction(self, g, w, v):
        """g ← g + a_i"""
        return g + v.a_i.to(g.dtype)

    def finish(self, y, v):
        """a_i ← y"""
        return {"a_i": y.double()}


@dataclass(frozen=True)
class Dice(Correction):
    def direction(self, g, w, v):
        """g ← g + noise"""
        return g + torch.randn(g.shape, dtype=g.dtype)


@dataclass(frozen=True)
class Counter(Correction):
    seen: list = field(default_factory=list, compare=False, repr=False)

    def direction(self, g, w, v):
        """g ← g·calls"""
        self.seen.append(1)
        return g * len(self.seen)


BROKEN = {
    "what is declared is read": (Hoarder(), "Hoarder declares broadcast 'c' and never reads v.c"),
    "what is declared is returned": (Promiser(), "Promiser owns 'c' on the server, and after"),
    "what is declared is sent": (Sender(), "Sender returned surprise without declaring it"),
    "no hook changes what it was given": (Mutator(), "was changed in place"),
    "every hook opens with its equation": (Silent(), "Silent.direction has no equation line"),
    "vectors keep the model's type and shape": (
        Doubling(),
        "torch.float64, expected torch.float32",
    ),
    "equal runs are equal to the bit": (Dice(), "two equal runs end with different 'x'"),
    "the order of the clients is irrelevant": (Counter(), "the order of the clients changes"),
}


@pytest.mark.parametrize("claim", BROKEN, ids=lambda claim: claim.replace(" ", "_"))
def test_the_suite_catches(claim) -> None:
    part, message = BROKEN[claim]
    wrong = {f.claim: f.wrong for f in examine(Method(correct=(part,), local=LOCAL))}
    assert message in wrong[claim]


def test_the_suite_catches_an_equation_that_is_not_true_for_the_part() -> None:
    wrong = {f.claim: f.wrong for f in examine(Method(correct=(Mislabelled(),), local=LOCAL))}
    assert "no equation line that is true for" in wrong["every hook opens with its equation"]


def test_the_suite_catches_gradients_that_are_not_billed() -> None:
    wrong = {f.claim: f.wrong for f in examine(Method(perturb=Careless(), local=LOCAL))}
    assert (
        "asked for 4 gradients in 2 steps, its bill says 2"
        in (wrong["gradients asked for are gradients billed"])
    )


def test_the_suite_catches_what_does_not_pickle() -> None:
    method = Method(local=SGD(lr=lambda t, k, K: 0.1, steps=2))
    wrong = {f.claim: f.wrong for f in examine(method)}
    assert "use no lambdas" in wrong["it pickles, and comes back equal"]


def test_an_undeclared_read_names_what_may_be_read() -> None:
    with pytest.raises(UndeclaredName, match=r"Reader reads v\.c without declaring it") as error:
        _run(Method(correct=(Reader(),), local=LOCAL))
    assert "It may read: K, k, layout, lr, t, travel, x." in str(error.value)
    assert len(str(error.value).splitlines()) <= 3


def test_check_method_raises_for_the_first_broken_claim() -> None:
    with pytest.raises(CompositionError, match="unnamed: "):
        check_method(Method(correct=(Silent(),), local=LOCAL))
    check_method(methods.fedtoga())


def test_every_claim_is_broken_by_some_method() -> None:
    covered = {*BROKEN, "gradients asked for are gradients billed",
               "it pickles, and comes back equal"}  # fmt: skip
    # A part cannot reach the state of a client that is not in the round: the engine's claim.
    assert CLAIMS.keys() - covered == {"clients that do not take part are untouched"}


def test_running_statistics_keep_every_claim() -> None:
    method = replace(methods.fedsam(), also=(RunningStatistics(),))
    assert [f for f in examine(method) if f.wrong] == []


def test_errors_are_flatfed_errors() -> None:
    assert issubclass(UndeclaredName, FlatfedError)
