"""The whole catalogue against the conformance suite, and the suite against broken methods."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
import torch

from flatfed import FlatModel, check_method, methods
from flatfed.check import CLAIMS, examine
from flatfed.errors import CompositionError, FlatfedError, UndeclaredName
from flatfed.method import Method
from flatfed.methods.fedasam import LateAverage, size
from flatfed.methods.fedspeed import LocalDual
from flatfed.part import (
    Compressor,
    Correction,
    Objective,
    Part,
    Perturbation,
    ServerUpdate,
    View,
)
from flatfed.parts.correct import ControlVariates
from flatfed.parts.local import SGD, Falling
from flatfed.parts.objective import DataLoss
from flatfed.parts.perturb import SAM, Reusing
from flatfed.parts.topology import Star
from flatfed.parts.track import PseudoGradient, RunningStatistics
from flatfed.rounds import LocalData, client_round, one_round
from flatfed.toy import cohort, trace
from flatfed.vec import lay_out, unit
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
    for _, K, gradients in trace(method).counted:
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
class Bystander(Correction):
    def direction(self, g, w, v):
        """g ← g"""
        return g + 0


@dataclass(frozen=True)
class Short(Bystander):
    upload, server = ("total",), ("sum",)

    def init(self, name, x):
        return torch.zeros_like(x[:1])

    def finish(self, y, v):
        """total ← Σy"""
        return {"total": y.sum().reshape(1)}

    def absorb(self, mean, v):
        """sum ← sum + mean(total)"""
        return {"sum": v.sum + mean.total}


@dataclass(frozen=True)
class Heavy(Bystander):
    """Sends its own, keeps too little."""

    keep = ("a_i",)

    def direction(self, g, w, v):
        """g ← g + a_i"""
        return g + v.a_i.sum()

    def finish(self, y, v):
        """a_i ← y"""
        return {"a_i": y[:1]}


@dataclass(frozen=True)
class Broadcasting(Bystander):
    """Sends down less than a vector."""

    server, broadcast = ("b",), ("b",)

    def init(self, name, x):
        return x[:1]

    def direction(self, g, w, v):
        """g ← g + b"""
        return g + v.b

    def absorb(self, mean, v):
        """b ← mean(dx)"""
        return {"b": mean.dx[:1]}


@dataclass(frozen=True)
class Square(Bystander):
    """Keeps a matrix."""

    keep = ("a_i",)

    def direction(self, g, w, v):
        """g ← g + a_i"""
        return g + v.a_i.sum()

    def finish(self, y, v):
        """a_i ← y"""
        return {"a_i": y.reshape(-1, 1)}


@dataclass(frozen=True)
class Miser(Bystander):
    """Owns what nobody reads."""

    server = ("c",)

    def absorb(self, mean, v):
        """c ← mean(dx)"""
        return {"c": mean.dx}


@dataclass(frozen=True)
class Shouting(Bystander):
    """Sends what nobody reads."""

    upload = ("dz",)

    def finish(self, y, v):
        """dz ← y"""
        return {"dz": y}


@dataclass(frozen=True)
class Stubborn(Bystander):
    """Keeps what never changes."""

    keep = ("a_i",)

    def direction(self, g, w, v):
        """g ← g + a_i"""
        return g + v.a_i


@dataclass(frozen=True)
class Absent(Perturbation):
    """Notes what never changes."""

    notes = ("last",)

    def gradient(self, w, grad, v):
        """g ← ∇F(w) + last"""
        return grad(w) + v.last, {}


@dataclass(frozen=True, eq=False)
class Unequal(Correction):
    """Compares by identity."""

    def direction(self, g, w, v):
        """g ← g"""
        return g + 0


class Loose(Correction):
    """No dataclass."""

    def direction(self, g, w, v):
        """g ← g"""
        return g + 0


@dataclass(frozen=True)
class Ranked(Correction):
    """Counts who came before it in the round."""

    rank: list = field(default_factory=lambda: [-1, 0], compare=False, repr=False)

    def direction(self, g, w, v):
        """g ← g·rank"""
        if v.k == 0:
            self.rank[:] = [v.t, self.rank[1] + 1 if self.rank[0] == v.t else 1]
        return g * self.rank[1]


@dataclass(frozen=True)
class Smuggler(Bystander):
    """Returns what it does not declare."""

    def finish(self, y, v):
        """surprise ← y"""
        return {"surprise": y}


@dataclass(frozen=True)
class Dividing(Bystander):
    """Fails on the server."""

    def absorb(self, mean, v):
        """fails ← 1/0"""
        return {"c": 1 / 0}


@dataclass(frozen=True)
class Grudge(Bystander):
    """Remembers what clients keep, and changes it later."""

    keep = ("a_i",)
    seen: list = field(default_factory=list, compare=False, repr=False)

    def direction(self, g, w, v):
        """g ← g + a_i"""
        return g + v.a_i

    def finish(self, y, v):
        """a_i ← y"""
        for vector in self.seen:
            vector.add_(1.0)
        new = y.clone()
        self.seen.append(new)
        return {"a_i": new}


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


BROKEN = {
    "what is declared is read": (Hoarder(), "Hoarder declares broadcast 'c' and never reads v.c"),
    "what is declared is returned": (
        Promiser(),
        "Promiser declares server 'c', and in 4 rounds no hook returned a new one",
    ),
    "what is declared is sent, byte for byte": (
        Short(),
        "client 0 sends dx, total in 32 bytes, the bill says 48",
    ),
    "no hook changes what it was given": (Mutator(), "was changed in place"),
    "every hook opens with its equation": (Silent(), "Silent.direction has no equation line"),
    "vectors keep the model's type and shape": (
        Doubling(),
        "torch.float64, expected torch.float32",
    ),
    "equal runs are equal to the bit": (Dice(), "two equal runs end with different 'x'"),
    "the order of the clients is irrelevant": (
        Ranked(),
        "the order in which the clients train changes",
    ),
    "clients that do not take part are untouched": (
        Grudge(),
        "that did not take part, has changed",
    ),
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
        trace(Method(correct=(Reader(),), local=LOCAL))
    assert "It may read: K, k, layout, lr, t, travel, x." in str(error.value)
    assert len(str(error.value).splitlines()) <= 3


def test_check_method_raises_for_the_first_broken_claim() -> None:
    with pytest.raises(CompositionError, match="unnamed: "):
        check_method(Method(correct=(Silent(),), local=LOCAL))
    check_method(methods.fedtoga())


def test_every_claim_is_broken_by_some_method() -> None:
    covered = {*BROKEN, "gradients asked for are gradients billed", *(claim for claim, *_ in MORE)}
    assert set(CLAIMS) == covered


def test_running_statistics_keep_every_claim() -> None:
    method = replace(methods.fedsam(), also=(RunningStatistics(),))
    assert [f for f in examine(method) if f.wrong] == []


def test_errors_are_flatfed_errors() -> None:
    assert issubclass(UndeclaredName, FlatfedError)


MORE = [
    (
        "what is declared is sent, byte for byte",
        Heavy(),
        "client 0 keeps 8 bytes, the bill says 24",
    ),
    ("what is declared is sent, byte for byte", Broadcasting(), "x, b go down in 32 bytes"),
    ("vectors keep the model's type and shape", Square(), "['a_i'] has shape (3, 1), expected"),
    ("what is declared is read", Miser(), "Miser owns 'c' on the server and nobody reads it"),
    ("what is declared is read", Shouting(), "Shouting declares 'dz' and no server hook reads"),
    (
        "what is declared is returned",
        Stubborn(),
        "Stubborn declares keep 'a_i', and in 4 rounds no hook",
    ),
    ("it pickles, and comes back equal", Unequal(), "comes back from pickling as another method"),
    (
        "its hooks run on a toy federation",
        Smuggler(),
        "Smuggler returned surprise without declaring it",
    ),
    (
        "its hooks run on a toy federation",
        Dividing(),
        "ZeroDivisionError in absorb (test_conformance.py, line ",
    ),
    ("it pickles, and comes back equal", Loose(), "Loose is no frozen dataclass"),
]


@pytest.mark.parametrize(
    ("claim", "part", "message"), MORE, ids=[type(p).__name__ for _, p, _ in MORE]
)
def test_the_suite_also_catches(claim, part, message) -> None:
    wrong = {f.claim: f.wrong for f in examine(Method(correct=(part,), local=LOCAL))}
    assert message in wrong[claim]


def test_the_suite_catches_a_note_that_never_changes() -> None:
    wrong = {f.claim: f.wrong for f in examine(Method(perturb=Absent(), local=LOCAL))}
    assert "Absent declares notes 'last', and in 4 rounds" in wrong["what is declared is returned"]


def test_a_bare_part_does_nothing() -> None:
    part, x = Part(), torch.ones(2)
    v = View("Part", {"x": x})
    assert torch.equal(part.init("c", x), torch.zeros(2))
    assert part.observe(x, torch.neg, v) == part.finish(x, v) == {}
    assert part.absorb(v, v) == part.settle(x, v) == {}
    assert part.equations("finish") == ()


def test_a_view_has_no_private_names_to_offer() -> None:
    v = View("SAM", {"x": torch.ones(2), "t": 3})
    with pytest.raises(AttributeError):
        _ = v.__missing__


@dataclass(frozen=True)
class Ridge(Objective):
    """An objective of a user's own, with a vector from the server."""

    omega: float
    broadcast = ("m",)

    def value(self, w, batch, v):
        """∇F(w) ← ∇loss(w; batch) + ω(w − m)"""
        return batch(w) + self.omega * (w - v.m)


def test_an_objective_is_an_axis_like_the_others() -> None:
    method = methods.fedavgm(steps=2)
    ridge = replace(method, objective=Ridge(0.1), perturb=SAM(0.1))
    assert [f for f in examine(ridge) if f.wrong] == []
    assert "∇F(w) ← ∇loss(w; batch) + ω(w − m)" in ridge.describe()
    assert "∇loss" not in method.describe()
    assert ridge.bill().down == ("x", "m")


@dataclass(frozen=True)
class Rounded(Compressor):
    """Whole hundredths travel as integers; what is left over is added next time."""

    keep = ("e_i",)

    def encode(self, a, v):
        """sent ← round(100·(a + e_i));  e_i ← a + e_i − sent/100"""
        a = a + v.e_i
        sent = (100 * a).round().to(torch.int64)
        return (sent,), {"e_i": a - sent / 100}

    def decode(self, sent, like):
        """a ← sent/100"""
        return (sent[0] / 100).to(like.dtype)


def test_a_compressor_is_an_axis_like_the_others() -> None:
    method = replace(methods.scaffold(steps=2), compress=Rounded())
    assert [f for f in examine(method) if f.wrong] == []
    assert "sent ← round(100·(a + e_i));  e_i ← a + e_i − sent/100" in method.describe()
    assert method.bill().kept == ("c_i", "e_i:dx", "e_i:dc")


def test_error_feedback_is_kept_of_every_upload_apart() -> None:
    """Sent + left over = asked, for dx and for dc, over all of a client's rounds."""
    method = replace(methods.scaffold(steps=2), compress=Rounded())
    plain = methods.scaffold(steps=2)
    client = cohort(0)[0]
    x = torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64)
    sent = {"x": x, "c": 0 * x}
    kept: dict = {}
    totals = {"dx": 0 * x, "dc": 0 * x}
    asked = {"dx": 0 * x, "dc": 0 * x}
    for t in range(3):
        exact, _ = client_round(
            plain, sent, {k: v for k, v in kept.items() if k == "c_i"}, client, t
        )
        upload, kept = client_round(method, sent, kept, client, t)
        for name in totals:
            totals[name] = totals[name] + upload.vectors[name][0] / 100
            asked[name] = asked[name] + exact.vectors[name][0]
    for name in totals:
        assert float(kept[f"e_i:{name}"].abs().max()) <= 0.005
        torch.testing.assert_close(totals[name] + kept[f"e_i:{name}"], asked[name])


def test_a_compressed_upload_of_another_length_comes_back_in_its_length() -> None:
    method = replace(methods.fedavg(steps=2), also=(RunningStatistics(),), compress=Rounded())
    state = method.start(torch.ones(3, dtype=torch.float64), buffers=torch.ones(7).double())
    new, _ = one_round(method, state, {}, cohort(0), 0, 4)
    assert new["buffers"].shape == (7,)


@dataclass(frozen=True)
class Watcher(Correction):
    """Sees the batch before the step, from the axis of corrections."""

    notes = ("seen",)

    def observe(self, w, batch, v):
        """seen ← seen + w"""
        return {"seen": v.seen + w}

    def direction(self, g, w, v):
        """g ← g + 0·seen"""
        return g + 0 * v.seen


def test_any_part_may_observe() -> None:
    method = Method(correct=(Watcher(),), local=LOCAL)
    assert [f for f in examine(method) if f.wrong] == []
    assert "seen ← seen + w" in method.describe()


@dataclass(frozen=True)
class Ahead(ServerUpdate):
    """Reads its vector only before it sends, and sets it last of all."""

    server = ("m",)

    def start(self, x, v):
        """start ← x + m"""
        return x + v.m

    def step(self, x, mean, v):
        """x ← x + mean(dx)"""
        return x + mean.dx

    def settle(self, x, v):
        """m ← x − x_before"""
        return {"m": x - v.x}


def test_what_is_read_before_sending_is_read() -> None:
    assert [f for f in examine(Method(server=Ahead(), local=LOCAL)) if f.wrong] == []


@dataclass(frozen=True)
class Doubly(Objective):
    """Asks the batch twice."""

    gradients = 2

    def value(self, w, batch, v):
        """∇F(w) ← ½·∇loss(w; batch) + ½·∇loss(w; batch)"""
        return 0.5 * batch(w) + 0.5 * batch(w)


def test_gradients_of_an_objective_are_billed() -> None:
    for name in ("fedsam", "scaffold"):
        method = replace(methods.build(name, steps=2), objective=Doubly())
        assert [f for f in examine(method) if f.wrong] == []
    assert replace(methods.fedsam(), objective=Doubly()).bill().gradients_per_step == 4


def test_a_method_that_fails_on_the_toy_gets_one_finding() -> None:
    findings = examine(Method(correct=(Dividing(),), local=LOCAL))
    assert [bool(f.wrong) for f in findings] == [False, False, True]


def test_the_second_uplink_of_option_ii_is_derivable() -> None:
    for name in ("scaffold", "fedgamma", "fedlesam-s", "feddc"):
        assert methods.build(name).bill().up_minimal == ("dx",)
        assert "up 2d (1d would do)" in str(methods.build(name).bill())
    assert methods.scaffold(option="I").bill().up_minimal == ("dx", "dc")
    assert methods.fedmoswa().bill().up_minimal == ("dx", "dm")


def test_a_fused_ascent_keeps_its_brackets() -> None:
    from flatfed.methods.fedspeed import MixedSAM

    (line,) = Reusing(MixedSAM(0.1, 0.25), "F").equations("gradient")
    assert line.startswith("g ← (1−a)·(∇F(w) + g_last) + a·∇F(w + ρ·unit(∇F(w) + g_last))")
    (line,) = Reusing(SAM(0.1), "F").equations("gradient")
    assert line == "g ← ∇F(w + ρ·unit(∇F(w) + g_last));  g_last ← g"
    mixed = Method(perturb=Reusing(MixedSAM(0.1, 0.25)), local=LOCAL)
    assert [f for f in examine(mixed) if f.wrong] == []


def test_the_star_mixes_nobody() -> None:
    assert Star().weights(3, t=7) == {3: 1.0}


def test_the_data_loss_is_the_batchs_own_gradient() -> None:
    assert torch.equal(DataLoss().value(torch.ones(2), torch.neg, None), -torch.ones(2))


def test_a_bill_speaks() -> None:
    assert str(methods.scaffold(option="I").bill()) == (
        "down 2d, up 2d, kept 1d, 1 gradient a step, one full local gradient a round"
    )
    assert str(methods.fedmo(option="I-batch").bill()).endswith(
        "1 gradient a step, one more a round"
    )


def test_citations_name_the_method_and_its_parts() -> None:
    assert [line.split(" et al.")[0] for line in methods.fedgamma().cite().splitlines()] == [
        "Dai", "Foret", "Karimireddy"
    ]  # fmt: skip
    assert all(methods.build(name).cite() for name in methods.CATALOGUE)


def test_epochs_and_steps_replace_each_other() -> None:
    assert methods.fedavg().local.steps_for(510) == 55
    assert methods.fedavg(steps=7).local.steps_for(510) == 7
    assert methods.fedavg(epochs=1).local.steps_for(510) == 11
    assert methods.fedavg(epochs=1, steps=None, batch_size=10).local.steps_for(510) == 51


@dataclass(frozen=True)
class Copycat(Part):
    """Settles on what another part's vector was when the model moved."""

    source: str
    server = ("copy",)

    def __post_init__(self) -> None:
        object.__setattr__(self, "uses", (self.source,))

    def settle(self, x, v):
        """copy ← source"""
        return {"copy": getattr(v, self.source)}


def test_the_order_of_parts_is_irrelevant_on_the_server() -> None:
    late = LateAverage(start=0, cycle=1)
    ends = []
    for also in ((late, Copycat("x_swa")), (Copycat("x_swa"), late)):
        ends.append(trace(Method(local=LOCAL, also=also)).state)
    assert torch.equal(ends[0]["copy"], ends[1]["copy"])
    assert not torch.equal(ends[0]["copy"], ends[0]["x_swa"])


@dataclass(frozen=True)
class Anchored(SAM):
    """Keeps the model it first saw."""

    keep = ("x_first",)

    def init(self, name, x):
        return x

    def gradient(self, w, grad, v):
        """g ← ∇F(w + ρ·unit(∇F(w) + x_first))"""
        return grad(w + self.rho * unit(grad(w) + v.x_first)), {}


def test_reusing_keeps_the_first_values_of_its_ascent() -> None:
    reusing, x = Reusing(Anchored(0.1)), torch.ones(3)
    assert torch.equal(reusing.init("x_first", x), x)
    assert torch.equal(reusing.init("g_last", x), 0 * x)


ENDS = [
    ("fedsmoo", {"rho": 0.0}),
    ("fedcm", {"alpha": 0.0}),
    ("fedadam", {"beta2": 1.0}),
    ("fedyogi", {"beta2": 1.0}),
    ("fedvssam", {"gamma_g": 0.0}),
    ("fedvssam", {"gamma_l": 0.0}),
    ("fedmo", {"gamma": 0.0}),
    ("fedmoswa", {"gamma": 0.0}),
    ("fedavg", {"lr": 1000.0, "clip": None}),
    ("scaffold", {"lr": 1e-50}),
]


@pytest.mark.parametrize("case", ENDS, ids=label)
def test_a_method_at_the_end_of_its_range_keeps_every_claim(case) -> None:
    name, settings = case
    assert [f for f in examine(methods.build(name, **settings)) if f.wrong] == []


@dataclass(frozen=True)
class Masking(Correction):
    """Holds a tensor."""

    mask: torch.Tensor

    def direction(self, g, w, v):
        """g ← g·mask"""
        return g * self.mask


def test_the_suite_catches_a_tensor_among_the_fields() -> None:
    mask = torch.ones(3, dtype=torch.float64)
    wrong = {f.claim: f.wrong for f in examine(Method(correct=(Masking(mask),), local=LOCAL))}
    assert "a field holds a tensor" in wrong["it pickles, and comes back equal"]


@dataclass(frozen=True)
class Unclosed(Correction):
    def direction(self, g, w, v):
        """[old g ← g + w"""
        return g + w


def test_a_label_without_its_bracket_is_part_of_the_line() -> None:
    assert Unclosed().equations("direction") == ("[old g ← g + w",)


@dataclass(frozen=True)
class Crashing(Correction):
    def direction(self, g, w, v):
        """g ← g"""
        return g + 0

    def equations(self, hook):
        raise ValueError("no\nlines\nof\nmine")


def test_a_claim_that_cannot_be_looked_at_is_a_finding() -> None:
    wrong = {f.claim: f.wrong for f in examine(Method(correct=(Crashing(),), local=LOCAL))}
    assert wrong["every hook opens with its equation"].startswith("ValueError in equations (test_")
    assert wrong["every hook opens with its equation"].endswith(": no")


def two_arguments(t, k):
    return 0.1


def test_a_rate_of_the_wrong_shape_is_named() -> None:
    wrong = {f.claim: f.wrong for f in examine(Method(local=SGD(lr=two_arguments, steps=2)))}
    message = wrong["its hooks run on a toy federation"]
    assert message.startswith("Client 0 failed in round 0 at step 0 of 2, in SGD: TypeError: two_")


@dataclass(frozen=True)
class Worn(Bystander):
    """Wears out, in place, what its client keeps."""

    keep = ("a_i",)

    def direction(self, g, w, v):
        """g ← g + a_i"""
        return g + v.a_i.sub_(0.5)

    def finish(self, y, v):
        """a_i ← y"""
        return {"a_i": y.clone()}


@dataclass(frozen=True)
class Averaging(Bystander):
    """Changes the mean it was given."""

    server = ("c",)
    uses = ("c",)

    def absorb(self, mean, v):
        """c ← c + mean(dx)"""
        return {"c": v.c + mean.dx.mul_(2.0)}


@dataclass(frozen=True)
class Hammer(Bystander):
    """Changes the state it was given."""

    server = ("c",)
    uses = ("c",)

    def absorb(self, mean, v):
        """c ← c + mean(dx)"""
        v.c.add_(mean.dx)
        return {"c": v.c.clone()}


@pytest.mark.parametrize(
    ("part", "message"),
    [
        (Worn(), "client 1: kept['a_i'] was changed in place"),
        (Averaging(), "server: mean['dx'] was changed in place"),
        (Hammer(), "server: state['c'] was changed in place"),
    ],
    ids=lambda v: type(v).__name__,
)
def test_the_suite_catches_a_change_in_place_of(part, message) -> None:
    wrong = {f.claim: f.wrong for f in examine(Method(correct=(part,), local=LOCAL))}
    assert message in wrong["no hook changes what it was given"]


@dataclass(frozen=True)
class Lottery(Bystander):
    """Random where the model does not notice."""

    server = ("c",)
    uses = ("c",)

    def absorb(self, mean, v):
        """c ← noise + 0·c"""
        return {"c": torch.randn(v.c.shape, dtype=v.c.dtype) + 0 * v.c}


def test_the_suite_catches_randomness_beside_the_model() -> None:
    wrong = {f.claim: f.wrong for f in examine(Method(correct=(Lottery(),), local=LOCAL))}
    assert "end with different 'c'" in wrong["equal runs are equal to the bit"]


@dataclass(frozen=True)
class Widening(Bystander):
    """Sends in another precision than the model's."""

    server, upload = ("c",), ("dz",)
    uses = ("c",)

    def finish(self, y, v):
        """dz ← y"""
        return {"dz": y.double()}

    def absorb(self, mean, v):
        """c ← c + mean(dz)"""
        return {"c": v.c + mean.dz.to(v.c.dtype)}


def test_the_suite_catches_an_upload_of_another_precision() -> None:
    wrong = {f.claim: f.wrong for f in examine(Method(correct=(Widening(),), local=LOCAL))}
    message = wrong["vectors keep the model's type and shape"]
    assert message.startswith("client 0's upload['dz'] is torch.float64, expected torch.float32")


def test_extra_gradients_of_a_round_go_through_the_objective() -> None:
    """Option I of SCAFFOLD under an objective that asks twice: 2·(K + 1) gradients."""
    method = replace(methods.scaffold(option="I", steps=2), objective=Doubly())
    assert [f for f in examine(method) if f.wrong] == []
    assert {(K, gradients) for _, K, gradients in trace(method).counted} == {(2, 6), (3, 8)}


@dataclass(frozen=True)
class Timed(Objective):
    """Tells where in the round it was asked."""

    def value(self, w, batch, v):
        """∇F(w) ← ∇loss(w; batch) + k"""
        return batch(w) + v.k


def test_the_gradient_over_all_data_is_asked_after_the_last_step() -> None:
    data = replace(cohort(0)[0], whole=torch.zeros_like)
    x = torch.ones(3, dtype=torch.float64)
    method = replace(methods.scaffold(option="I", steps=2), objective=Timed())
    _, kept = client_round(method, {"x": x, "c": 0 * x}, {}, data, 0)
    assert torch.equal(kept["c_i"], torch.full_like(x, len(data.batches)))


@dataclass(frozen=True)
class Scaled(Correction):
    by: float

    def direction(self, g, w, v):
        """g ← by·g"""
        return self.by * g


@dataclass(frozen=True)
class Shifted(Correction):
    by: float

    def direction(self, g, w, v):
        """g ← g + by"""
        return g + self.by


def test_corrections_apply_in_the_order_listed() -> None:
    x, data = torch.zeros(1), LocalData(0, [torch.ones_like])
    local = SGD(lr=1.0, steps=1)
    for correct, g in (((Scaled(3.0), Shifted(1.0)), 4.0), ((Shifted(1.0), Scaled(3.0)), 6.0)):
        upload, _ = client_round(Method(correct=correct, local=local), {"x": x}, {}, data, 0)
        assert float(upload.vectors["dx"][0]) == -g


@dataclass(frozen=True)
class LastRate(Bystander):
    """Sends the rate it sees at the end."""

    server, upload = ("c",), ("rate",)

    def finish(self, y, v):
        """rate ← η"""
        return {"rate": y.new_tensor([v.lr])}

    def absorb(self, mean, v):
        """c ← mean(rate)"""
        return {"c": mean.rate}


def test_the_rate_after_the_last_step_is_the_last_steps() -> None:
    x, data = torch.zeros(1), LocalData(0, [torch.ones_like] * 4)
    method = Method(correct=(LastRate(),), local=SGD(lr=Falling(1.0, 0.0), steps=4))
    upload, _ = client_round(method, {"x": x}, {}, data, 0)
    assert float(upload.vectors["rate"][0]) == pytest.approx(0.25)


@dataclass(frozen=True)
class Following(Part):
    """Absorbs what another part's vector was when the round began."""

    source: str
    server = ("copy",)

    def __post_init__(self) -> None:
        object.__setattr__(self, "uses", (self.source,))

    def absorb(self, mean, v):
        """copy ← source"""
        return {"copy": getattr(v, self.source)}


def test_the_order_of_parts_is_irrelevant_while_they_absorb() -> None:
    sums = PseudoGradient()
    ends = [
        trace(Method(local=LOCAL, also=also)).state
        for also in ((sums, Following("delta")), (Following("delta"), sums))
    ]
    assert torch.equal(ends[0]["copy"], ends[1]["copy"])
    assert not torch.equal(ends[0]["copy"], ends[0]["delta"])


@dataclass(frozen=True)
class Whimsical(SAM):
    """Asks for everything, settles on something, and cites."""

    server, asks = ("p",), ("first",)
    references = ("fedprox",)

    def gradient(self, w, grad, v):
        """g ← ∇F(w + ρ·unit(∇F(w) + ∇F(x)))"""
        return grad(w + self.rho * unit(grad(w) + v.first(v.x))), {}

    def settle(self, x, v):
        """p ← x"""
        return {"p": x}


def test_reusing_passes_on_all_that_its_ascent_has() -> None:
    reusing, x = Reusing(Whimsical(0.1)), torch.ones(2)
    assert (reusing.asks, reusing.server) == (("first",), ("p",))
    assert reusing.references == ("fedprox", "fedtoga")
    assert torch.equal(reusing.settle(x, None)["p"], x)


@dataclass(frozen=True)
class Zigzag(Perturbation):
    """Asks at two other places."""

    gradients = 3

    def gradient(self, w, grad, v):
        """g ← ∇F(w − ∇F(w + ∇F(w)))"""
        return grad(w - grad(w + grad(w))), {}


def test_the_reused_gradient_is_the_last_that_was_answered() -> None:
    asked: list[torch.Tensor] = []

    def double(w):
        asked.append(w)
        return 2 * w

    x = torch.ones(1)
    method = Method(perturb=Reusing(Zigzag()), local=SGD(lr=0.1, steps=2))
    client_round(method, {"x": x}, {}, LocalData(0, [double] * 2), 0)
    # Step 0: g_last = 0, so w = 1 is asked first; g = 2·(1 − 2·1) = −2 is what is remembered.
    assert [float(w) for w in asked[:2]] == [1.0, -1.0]
    assert float(asked[2]) == pytest.approx(1.2 - 2.0)


def test_the_box_says_how_means_are_weighted() -> None:
    assert "\nserver   (means weighted by samples)\n" in methods.fedasam().describe()
    assert "\nserver\n" in methods.fedavg().describe()


def test_what_replaces_dx_leaves_nothing_to_derive() -> None:
    both = Method(correct=(LocalDual(0.1), ControlVariates()), local=LOCAL)
    assert both.bill().up_minimal == ("dx", "dc")


def test_a_bill_counts_vectors_of_another_length_apart() -> None:
    batchnorm = replace(methods.fedavg(), also=(RunningStatistics(),))
    assert str(batchnorm.bill(1000, buffers=10, buffers_i=10)).startswith("down 1d + 10, up 1d + 1")


def test_layouts_come_from_the_oracles_that_have_one() -> None:
    """FedASAM is the same method whether LocalData repeats the model's layout or not."""
    torch.manual_seed(0)
    model = FlatModel(torch.nn.Linear(3, 2))
    X, Y = torch.randn(8, 3), torch.randint(0, 2, (8,))
    method, ends = methods.fedasam(steps=1, lr=0.1, rho=2.0), []
    for layout in (None, model.layout):
        data = LocalData(0, [model.oracle((X, Y))], layout=layout)
        ends.append(one_round(method, method.start(model.x0), {}, [data], 0, 1)[0]["x"])
    assert torch.equal(*ends)


def test_asam_sizes_every_tensor_whose_name_contains_weight() -> None:
    w = torch.tensor([1.0, -2.0, 3.0, 4.0])
    layout = lay_out({"lstm.weight_ih_l0": (2,), "lstm.bias_ih_l0": (1,), "head.weight": (1,)})
    assert size(w, 0.5, layout).tolist() == [1.5, 2.5, 1.0, 4.5]


def test_before_its_first_capture_the_average_is_the_model() -> None:
    method = methods.fedasam(swa_start=5, steps=1)
    x = torch.ones(3)
    assert torch.equal(method.result(method.start(x)), x)
