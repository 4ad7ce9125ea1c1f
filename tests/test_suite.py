"""The conformance suite against methods that break its claims, one by one."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
import torch

from flatfed import check_method, methods
from flatfed.check import CLAIMS, examine
from flatfed.errors import CompositionError, UndeclaredName
from flatfed.method import Method
from flatfed.part import Correction, Part, Perturbation, ServerUpdate
from flatfed.parts.compress import Dense
from flatfed.parts.local import SGD
from flatfed.toy import trace

LOCAL = SGD(lr=0.1, steps=2)


def found_in(method: Method) -> dict[str, str]:
    """What the suite says of every claim; nothing, where it holds."""
    return {finding.claim: finding.wrong for finding in examine(method)}


def found_with(part: Part) -> dict[str, str]:
    """The same, of a method whose one correction is this part."""
    return found_in(Method(correct=(part,), local=LOCAL))


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
    apart = ("total", "sum")  # and not in scalars, which the bill would know

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
class Square(Heavy):
    """Keeps a matrix."""

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
    wrong = found_with(part)
    assert message in wrong[claim]


def test_the_suite_catches_an_equation_that_is_not_true_for_the_part() -> None:
    wrong = found_with(Mislabelled())
    assert "no equation line that is true for" in wrong["every hook opens with its equation"]


def test_the_suite_catches_gradients_that_are_not_billed() -> None:
    wrong = found_in(Method(perturb=Careless(), local=LOCAL))
    assert (
        "asked for 4 gradients in 2 steps, its bill says 2"
        in (wrong["gradients asked for are gradients billed"])
    )


def test_the_suite_catches_what_does_not_pickle() -> None:
    method = Method(local=SGD(lr=lambda t, k, K: 0.1, steps=2))
    wrong = found_in(method)
    assert "use no lambdas" in wrong["it pickles, and comes back equal"]


def test_an_undeclared_read_names_what_may_be_read() -> None:
    with pytest.raises(UndeclaredName, match=r"Reader reads v\.c without declaring it") as error:
        trace(Method(correct=(Reader(),), local=LOCAL))
    assert "It may read: K, batch, drawn, k, layout, lr, seed, t, travel, x." in str(error.value)
    assert len(str(error.value).splitlines()) <= 3


def test_check_method_raises_for_the_first_broken_claim() -> None:
    with pytest.raises(CompositionError, match="unnamed: "):
        check_method(Method(correct=(Silent(),), local=LOCAL))
    check_method(methods.fedtoga())


def test_every_claim_is_broken_by_some_method() -> None:
    covered = {*BROKEN, "gradients asked for are gradients billed", *(claim for claim, *_ in MORE)}
    covered |= {*COMPRESSED}
    assert set(CLAIMS) == covered


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
        "ZeroDivisionError in absorb (test_suite.py, line ",
    ),
    ("it pickles, and comes back equal", Loose(), "Loose is no frozen dataclass"),
]


@pytest.mark.parametrize(
    ("claim", "part", "message"), MORE, ids=[type(p).__name__ for _, p, _ in MORE]
)
def test_the_suite_also_catches(claim, part, message) -> None:
    wrong = found_with(part)
    assert message in wrong[claim]


def test_the_suite_catches_a_note_that_never_changes() -> None:
    wrong = found_in(Method(perturb=Absent(), local=LOCAL))
    assert "Absent declares notes 'last', and in 4 rounds" in wrong["what is declared is returned"]


def test_a_method_that_fails_on_the_toy_gets_one_finding() -> None:
    findings = examine(Method(correct=(Dividing(),), local=LOCAL))
    assert [bool(f.wrong) for f in findings] == [False, False, True]


@dataclass(frozen=True)
class Masking(Correction):
    """Holds a tensor."""

    mask: torch.Tensor

    def direction(self, g, w, v):
        """g ← g·mask"""
        return g * self.mask


def test_the_suite_catches_a_tensor_among_the_fields() -> None:
    mask = torch.ones(3, dtype=torch.float64)
    wrong = found_with(Masking(mask))
    assert "a field holds a tensor" in wrong["it pickles, and comes back equal"]


@dataclass(frozen=True)
class Crashing(Bystander):
    def equations(self, hook):
        raise ValueError("no\nlines\nof\nmine")


def test_a_claim_that_cannot_be_looked_at_is_a_finding() -> None:
    wrong = found_with(Crashing())
    assert wrong["every hook opens with its equation"].startswith("ValueError in equations (test_")
    assert wrong["every hook opens with its equation"].endswith(": no")


def two_arguments(t, k):
    return 0.1


def test_a_rate_of_the_wrong_shape_is_named() -> None:
    wrong = found_in(Method(local=SGD(lr=two_arguments, steps=2)))
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
        (Worn(), "round 0, client 0: client, 'a_i' was changed in place"),
        (Averaging(), "server: mean['dx'] was changed in place"),
        (Hammer(), "server: state['c'] was changed in place"),
    ],
    ids=lambda v: type(v).__name__,
)
def test_the_suite_catches_a_change_in_place_of(part, message) -> None:
    wrong = found_with(part)
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
    wrong = found_with(Lottery())
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
    wrong = found_with(Widening())
    message = wrong["its hooks run on a toy federation"]
    assert message.startswith("Widening sends 'dz' as torch.float64 of shape (3,), expected torch.")


@dataclass(frozen=True)
class Looking(Perturbation):
    """Asks for outputs and does not say so."""

    def gradient(self, w, grad, v):
        """g ← ∇F(w) + mean(f(w))"""
        return grad(w) + v.batch.outputs(w).mean(), {}


@dataclass(frozen=True)
class Sometimes(Perturbation):
    """Asks once or twice, and says twice."""

    gradients = 2

    def gradient(self, w, grad, v):
        """g ← ∇F(w), twice in even rounds"""
        return (grad(w) if v.t % 2 else grad(w).add(grad(w))), {}


@dataclass(frozen=True)
class Honest(Sometimes):
    """The same, and says so."""

    gradients_least = 1


def test_the_suite_catches_forward_passes_that_are_not_billed() -> None:
    wrong = found_in(Method(perturb=Looking(), local=LOCAL))
    said = wrong["gradients asked for are gradients billed"]
    assert "asked for 2 forward passes in 2 steps, its bill says 0" in said


def test_the_suite_catches_gradients_that_are_asked_for_less_often_than_billed() -> None:
    said = found_in(Method(perturb=Sometimes(), local=LOCAL))
    message = said["gradients asked for are gradients billed"]
    assert message.startswith("client 1 asked for 3 gradients in 3 steps, its bill says 6.")
    assert not any(found_in(Method(perturb=Honest(), local=LOCAL)).values())


@dataclass(frozen=True)
class Pushing(Bystander):
    """Pushes what clients do not read."""

    server, push = ("c",), ("c",)

    def absorb(self, mean, v):
        """c ← c + mean(dx)"""
        return {"c": v.c + mean.dx}


def test_the_suite_catches_what_is_pushed_and_not_read() -> None:
    said = found_with(Pushing())["what is declared is read"]
    assert said.startswith("Pushing declares push 'c' and never reads v.c.")


@dataclass(frozen=True)
class Rewriting(Bystander):
    """Remembers what it has no right to."""

    keep = ("a_i",)

    def remember(self, sent, v):
        """a_i ← a_i + dx"""
        return {"a_i": v.a_i + sent.dx, "b_i": sent.dx}


def test_the_suite_catches_what_is_remembered_and_not_declared() -> None:
    said = found_with(Rewriting())["its hooks run on a toy federation"]
    assert said.startswith("Rewriting returned b_i without declaring it.")


# Compressors that break a claim of their own


@dataclass(frozen=True)
class Copying(Dense):
    """Like Dense, but sends a copy."""

    keep = ("e",)

    def encode(self, a, v):
        """sent ← a;  e ← a"""
        return (a + 0 * v.e,), {"e": a.clone()}


@dataclass(frozen=True)
class Adding(Copying):
    def encode(self, a, v):
        """sent ← a + e;  e ← a"""
        a.add_(v.e)
        return (a.clone(),), {"e": a.clone()}


@dataclass(frozen=True)
class Guessing(Copying):
    """Knows the toy by heart."""

    def nbytes(self, layout, width):
        return 24


@dataclass(frozen=True)
class Stirring(Copying):
    def encode(self, a, v):
        """sent ← a;  e ← a"""
        torch.manual_seed(0)
        return super().encode(a, v)


COMPRESSED = {
    "no compressor changes what it was given": (Adding(), "Adding.encode changes what it is given"),
    "a compressor's bytes are counted on any layout": (Guessing(), "its nbytes says 24"),
    "no hook touches the caller's random numbers": (Stirring(), "torch's global generator"),
}


@pytest.mark.parametrize("claim", COMPRESSED)
def test_the_suite_catches_a_compressor_that(claim) -> None:
    compress, said = COMPRESSED[claim]
    assert said in found_in(Method(local=LOCAL, compress=compress))[claim]
    assert not any(found_in(Method(local=LOCAL, compress=Copying())).values())


@dataclass(frozen=True)
class Unbilled(Copying):
    def entropy(self, sent, layout):
        raise RuntimeError("boom")


@dataclass(frozen=True)
class Spoiling(Copying):
    def decode(self, sent, like, layout):
        """a ← sent"""
        return sent[0].mul_(2)


def test_the_suite_calls_every_bill_and_looks_at_messages_again() -> None:
    wrong = found_in(Method(local=LOCAL, compress=Unbilled()))
    assert "boom" in wrong["its hooks run on a toy federation"]
    wrong = found_in(Method(local=LOCAL, compress=Spoiling()))
    assert "its message of" in wrong["no hook changes what it was given"]


@dataclass(frozen=True)
class Overwriting(Bystander):
    keep = ("a_i",)

    def remember(self, sent, v):
        """a_i ← a_i + dx"""
        return {"a_i": v.a_i + sent.dx.add_(1.0)}


@dataclass(frozen=True)
class Doubled(ServerUpdate):
    def start(self, x, v):
        """start ← 2·x"""
        return x.mul_(2)

    def step(self, x, mean, v):
        """x ← x + mean(dx)"""
        return x + mean.dx


def test_the_suite_catches_what_is_changed_before_and_after_a_round() -> None:
    claim = "no hook changes what it was given"
    assert "'dx' was changed in place" in found_with(Overwriting())[claim]
    assert "server, at start" in found_in(Method(local=LOCAL, server=Doubled()))[claim]
