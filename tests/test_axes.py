"""Every axis filled with a part of a user's own, and the order in which hooks run."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from flatfed import FlatModel, methods
from flatfed.check import examine
from flatfed.method import Method
from flatfed.methods.fedasam import LateAverage
from flatfed.part import (
    Compressor,
    Correction,
    Objective,
    Part,
    Perturbation,
    ServerUpdate,
    View,
)
from flatfed.parts.local import SGD, Falling
from flatfed.parts.objective import DataLoss
from flatfed.parts.perturb import SAM, Reusing
from flatfed.parts.topology import Star
from flatfed.parts.track import PseudoGradient, RunningStatistics
from flatfed.rounds import LocalData, client_round, one_round
from flatfed.toy import cohort, trace
from flatfed.vec import length_of, unit
from test_suite import Bystander
from tiny import numbers

LOCAL = SGD(lr=0.1, steps=2)


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

    def decode(self, sent, like, layout):
        """a ← sent/100"""
        return (sent[0] / 100).to(like.dtype)

    def nbytes(self, layout, width):
        return 8 * length_of(layout)

    def nominal(self, layout, width):
        return 64 * length_of(layout)

    def entropy(self, sent, layout):
        return 64 * length_of(layout)


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


def test_the_star_mixes_nobody() -> None:
    assert Star().weights(3, t=7) == {3: 1.0}


def test_the_data_loss_is_the_batchs_own_gradient() -> None:
    assert torch.equal(DataLoss().value(torch.ones(2), torch.neg, None), -torch.ones(2))


@dataclass(frozen=True)
class Copying(Part):
    """Owns a copy of another part's vector."""

    source: str
    server = ("copy",)

    def __post_init__(self) -> None:
        object.__setattr__(self, "uses", (self.source,))


@dataclass(frozen=True)
class Copycat(Copying):
    """Settles on what another part's vector was when the model moved."""

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


@dataclass(frozen=True)
class Unclosed(Correction):
    def direction(self, g, w, v):
        """[old g ← g + w"""
        return g + w


def test_a_label_without_its_bracket_is_part_of_the_line() -> None:
    assert Unclosed().equations("direction") == ("[old g ← g + w",)


def test_extra_gradients_of_a_round_go_through_the_objective() -> None:
    """Option I of SCAFFOLD under an objective that asks twice: 2·(K + 1) gradients."""
    method = replace(methods.scaffold(option="I", steps=2), objective=Doubly())
    assert [f for f in examine(method) if f.wrong] == []
    assert {(K, gradients) for _, K, gradients, _ in trace(method).counted} == {(2, 6), (3, 8)}


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
class Following(Copying):
    """Absorbs what another part's vector was when the round began."""

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


@dataclass(frozen=True)
class Tempered(Objective):
    """Cross-entropy of outputs divided by 2: another gradient than the loss's on every batch."""

    def value(self, w, batch, v):
        """∇F(w) ← ∇CE(f(w)/2)"""
        return batch.gradient(w, lambda seen: cross_entropy(seen.outputs / 2, seen.targets))


def test_a_gradient_over_all_data_is_the_objectives_on_every_piece() -> None:
    """Clients of unequal pieces: the last mini-batch is short, and counts by its samples."""
    federation = numbers(nn.Linear(5, 3))
    method = replace(
        methods.scaffold(option="I", lr=0.1, steps=1, batch_size=4), objective=Tempered()
    )
    local = federation.local_data(0, 0, method.local, seed=0)
    sent = {"x": federation.model.x0, "c": torch.zeros_like(federation.model.x0)}
    upload, _ = client_round(method, sent, {}, local, 0)
    inputs, targets = federation.take(federation.shares.of(0))
    assert len(targets) % 4
    w = federation.model.x0.clone().requires_grad_()
    loss = cross_entropy(federation.model.outputs(w, inputs, train=True) / 2, targets)
    (expected,) = torch.autograd.grad(loss, w)
    torch.testing.assert_close(upload.vectors["dc"][0], expected)
