"""A federation deals batches: whose they are, in which order, and what they cost."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from time import monotonic

import pytest
import torch
from torch import nn

from flatfed import methods
from flatfed.batches import Tally
from flatfed.data.hands import IID
from flatfed.data.sets import Split
from flatfed.data.shares import Shares
from flatfed.errors import ClientError, FederationError, ModelError, NonFiniteError
from flatfed.federation import EVALUATED_AT_ONCE, Federation, Score
from flatfed.parts.local import SGD
from flatfed.rounds import client_round
from flatfed.vec import seed_for
from tiny import batchnorm_net, drawn, dropout_net, images, in_turn, numbers, seeded, vectors


def linear() -> nn.Module:
    return seeded(lambda: nn.Linear(5, 3))


def batches(federation, local, client=1, t=0, seed=0) -> list[torch.Tensor]:
    """The inputs of every step."""
    steps = federation.local_data(client, t, local, seed=seed).batches
    return [steps.batch(k)[0][0].clone() for k in range(len(steps))]


def who(inputs: torch.Tensor) -> list[int]:
    """Which samples these are: each carries its number."""
    return (100 * inputs[:, 0]).round().int().tolist()


def mine(federation, client) -> list[int]:
    return federation.shares.of(client).tolist()


# Batches


def test_every_epoch_is_a_permutation_of_the_clients_own_samples() -> None:
    federation = numbers(linear())
    for client in range(8):
        steps = [who(b) for b in batches(federation, SGD(lr=1, epochs=3, batch_size=3), client)]
        assert [len(step) for step in steps] == [3, 3, 1] * 3  # the short last one is kept
        epochs = [list(chain(*steps[e : e + 3])) for e in (0, 3, 6)]
        assert all(sorted(epoch) == mine(federation, client) for epoch in epochs)
        assert len({tuple(epoch) for epoch in epochs}) == 3


def test_steps_are_the_first_of_as_many_epochs_as_they_need() -> None:
    federation = numbers(linear())
    steps = [who(b) for b in batches(federation, SGD(lr=1, steps=5, batch_size=3))]
    assert steps == [who(b) for b in batches(federation, SGD(lr=1, epochs=2, batch_size=3))][:5]


@pytest.mark.parametrize("batch_size", [None, 7, 100])
def test_a_whole_batch_is_the_data_as_it_lies(batch_size) -> None:
    federation = numbers(linear())
    local = SGD(lr=1, steps=3, batch_size=batch_size)
    assert [who(b) for b in batches(federation, local)] == [mine(federation, 1)] * 3


def test_the_order_is_drawn_by_seed_client_round_and_epoch_alone() -> None:
    local = SGD(lr=1, epochs=2, batch_size=2)

    def order(augmented=False, model=linear, local=local, **at):
        data = vectors(n=56)
        # Everybody holds the same seven samples: whatever differs is the order.
        shares = Shares(torch.arange(7).repeat(4), torch.arange(0, 29, 7))
        augment = "flip-crop" if augmented else "none"
        federation = Federation(data, model(), shares, augment=augment)
        return [who(b) for b in batches(federation, local, **at)]

    first = order()
    assert first == order()
    assert first == order(augmented=True) == order(model=dropout_net)
    assert first[:3] == order(local=replace(local, epochs=5))[:3]
    others = [order(client=2), order(t=1), order(seed=1), first[4:] + first[:4]]
    assert all(other != first for other in others)


def test_a_step_is_the_same_whenever_it_is_asked_for() -> None:
    federation = Federation(images(), batchnorm_net(), IID(clients=4), augment="flip-crop-half")
    local = SGD(lr=1, epochs=2, batch_size=5)
    steps = federation.local_data(1, 0, local, seed=0).batches
    w = federation.model.x0
    forwards = [steps[k](w) for k in range(len(steps))]
    backwards = [steps[k](w) for k in reversed(range(len(steps)))]
    assert all(torch.equal(a, b) for a, b in zip(forwards, reversed(backwards), strict=True))
    for k in (-1, len(steps)):
        with pytest.raises(IndexError):
            steps[k]


def test_augmentation_and_dropout_do_not_shift_each_other() -> None:
    """What is drawn at a step is that step's, whatever was drawn before it."""

    def first_image(t=0, k=1, **given):
        local = SGD(lr=1, steps=3, **given)
        return batches(federation, local, t=t)[k]

    federation = Federation(images(), batchnorm_net(), IID(clients=4), augment="flip-crop-half")
    still = Federation(images(), batchnorm_net(), IID(clients=4))
    moved = batches(federation, SGD(lr=1, steps=2))
    assert not torch.equal(moved[0], moved[1])  # a whole batch, moved about anew
    assert not torch.equal(first_image(t=0), first_image(t=1))
    assert torch.equal(*batches(still, SGD(lr=1, steps=2)))
    draw = torch.Generator().manual_seed(seed_for(0, "augmentation", 0, 1, 1))
    assert torch.equal(moved[1], federation.take(federation.shares.of(1), draw)[0])

    seeds = [
        [f.local_data(1, 0, SGD(lr=1, steps=3), seed=0).batches.batch(k)[1] for k in range(3)]
        for f in (
            Federation(images(), nn.Sequential(batchnorm_net(), nn.Dropout()), IID(clients=4)),
            Federation(
                images(),
                nn.Sequential(batchnorm_net(), nn.Dropout()),
                IID(clients=4),
                augment="flip-crop",
            ),
        )
    ]
    assert seeds[0] == seeds[1]
    assert len(set(seeds[0])) == 3
    assert still.local_data(1, 0, SGD(lr=1, steps=1), seed=0).batches.batch(0)[1] is None


@pytest.mark.parametrize("name", ["fedavg", "fedtoga"])
def test_the_same_turn_twice_is_the_same_bytes(name) -> None:
    method = methods.build(name, lr=0.1, epochs=2, batch_size=3)
    federation = numbers()
    sent = method.start(federation.model.x0)

    def turn() -> bytes:
        data = federation.local_data(3, 2, method.local, seed=9)
        return client_round(method, sent, {}, data, 2)[0].vectors["dx"][0].numpy().tobytes()

    first = turn()
    torch.rand(100)
    assert turn() == first


def test_whole_is_the_gradient_over_all_of_a_clients_data() -> None:
    federation = numbers(linear())
    tally = Tally()
    local = SGD(lr=1, steps=1, batch_size=3)
    data = federation.local_data(2, 0, local, seed=0, tally=tally)
    w = drawn(federation.model.d)
    expected = federation.model.grad(w, federation.take(federation.shares.of(2)))
    assert torch.allclose(data.whole(w), expected, atol=1e-6)
    assert tally == Tally(gradients=3)  # three mini-batches, and no step
    assert data.samples == 7


def test_whole_draws_from_no_generator_of_the_callers() -> None:
    federation = numbers()
    assert federation.random
    whole = federation.local_data(2, 0, SGD(lr=1, steps=1, batch_size=3), seed=0).whole
    w = drawn(federation.model.d)
    first = whole(w)
    torch.rand(3)
    assert torch.equal(whole(w), first)
    other = federation.local_data(2, 1, SGD(lr=1, steps=1, batch_size=3), seed=0).whole
    assert not torch.equal(other(w), first)


# What it costs


@pytest.mark.parametrize(
    ("name", "options", "gradients"),
    [("fedavg", {}, 6), ("fedsam", {}, 12), ("fedlesam", {}, 6), ("fedmo", {"option": "I"}, 9),
     ("fedmo", {"option": "I-batch"}, 7), ("fedmo", {"option": "II"}, 6)],
)  # fmt: skip
def test_the_tally_counts_every_gradient_and_a_loss_a_step(name, options, gradients) -> None:
    method = methods.build(name, lr=0.1, epochs=2, batch_size=3, **options)
    federation = numbers(linear())
    tally = Tally()
    data = federation.local_data(0, 1, method.local, seed=0, tally=tally)
    state = method.start(federation.model.x0)
    client_round(method, state, {}, data, 1)
    assert (tally.gradients, tally.steps) == (gradients, 6)
    assert 0 < tally.losses < 6 * 5


def test_the_loss_of_a_step_is_that_of_its_first_gradient() -> None:
    federation = numbers(linear())
    tally = Tally()
    steps = federation.local_data(0, 0, SGD(lr=1, steps=2), seed=0, tally=tally).batches
    w, far = drawn(federation.model.d), 9 * drawn(federation.model.d, seed=1)
    steps[0](w), steps[0](far), steps[1](w), steps[0](far)
    assert tally.gradients == 4
    assert tally.steps == 2
    assert tally.losses == 2 * float(federation.model.loss(w, steps.batch(0)[0]))


def test_a_deadline_is_kept_at_the_next_gradient() -> None:
    method = methods.fedavg(lr=0.1, steps=4)
    federation = numbers(linear())
    data = federation.local_data(0, 3, method.local, seed=0, tally=Tally(deadline=monotonic()))
    with pytest.raises(ClientError, match="Client 0 failed in round 3 at step 0 of 4") as caught:
        client_round(method, {"x": federation.model.x0}, {}, data, 3)
    assert "longer than engine.timeout" in str(caught.value)
    assert isinstance(caught.value.__cause__, TimeoutError)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_loss_that_is_no_number_ends_the_turn(value) -> None:
    federation = numbers(linear())
    steps = federation.local_data(4, 3, SGD(lr=1, steps=4), seed=0).batches
    w = federation.model.x0.clone()
    w[0] = value
    with pytest.raises(NonFiniteError, match=r"Client 4's loss is nan at step 2 of round 3"):
        steps[2](w)


# What it refuses


def test_a_model_for_other_inputs_is_refused_at_once() -> None:
    with pytest.raises(ModelError, match=r"two inputs of numbers, each of shape \(5,\): mat1") as e:
        numbers(nn.Linear(6, 3))
    assert e.value.__cause__ is not None

    class Particular(nn.Linear):
        def forward(self, inputs):
            raise AssertionError

    with pytest.raises(ModelError, match=r"shape \(5,\): AssertionError"):
        numbers(Particular(5, 3))


@pytest.mark.parametrize("targets", [[0, 1], [2, 2]])  # whether the first samples need it or not
def test_a_model_with_too_few_outputs_is_refused_at_once(targets) -> None:
    data = vectors()
    data.train.targets[:2] = torch.tensor(targets)
    with pytest.raises(ModelError, match=r"2 outputs and numbers 3 classes, .*\nBuild it for 3"):
        Federation(data, nn.Linear(5, 2), IID(clients=8))


def test_a_client_without_samples_is_refused() -> None:
    with pytest.raises(FederationError, match="1 of 3 clients hold no sample"):
        Federation(vectors(), linear(), in_turn([3, 0, 4]))


def test_shares_of_another_data_set_are_refused() -> None:
    with pytest.raises(FederationError, match=r"samples 0 to 59, expected numbers in \[0, 56\)"):
        Federation(vectors(), linear(), in_turn([30, 30]))


def test_a_data_set_without_test_samples_is_refused() -> None:
    data = vectors()
    empty = Split(data.test.inputs[:0], data.test.targets[:0])
    with pytest.raises(FederationError, match="numbers has 0 test samples, expected at least 1"):
        Federation(replace(data, test=empty), linear(), IID(clients=8))


# What it says


@pytest.mark.parametrize("moved", [False, True])
def test_a_score_is_what_a_plain_loop_says(moved) -> None:
    data = images(n=24, test=EVALUATED_AT_ONCE + 30)
    federation = Federation(data, batchnorm_net(), IID(clients=4))
    w, b = federation.model.x0, federation.model.b0
    b = b + 0.5 if moved else None
    score = Score()
    for start in federation.test_starts:
        score += federation.evaluate(w, b, start)
    module = federation.model.module_at(w, b)
    right, losses = 0, 0.0
    with torch.no_grad():
        for image, target in zip(data.test.inputs, data.test.targets, strict=True):
            mean, std = (torch.tensor(v).view(2, 1, 1) for v in (data.mean, data.std))
            outputs = module(((image / 255 - mean) / std).unsqueeze(0))
            right += int(outputs.argmax()) == int(target)
            losses += float(nn.functional.cross_entropy(outputs, target.unsqueeze(0)))
    assert score.samples == EVALUATED_AT_ONCE + 30
    assert score.right == right
    assert score.accuracy == right / score.samples
    assert score.loss == pytest.approx(losses / score.samples, rel=1e-5)


def test_a_fingerprint_tells_federations_apart() -> None:
    def made(data=None, seed=0, init=0, model=batchnorm_net, **given) -> dict:
        partition = IID(clients=4)
        module = seeded(lambda: model(), init)
        if init:
            nn.init.ones_(module[4].bias)
        return Federation(
            data or images(), module, partition, partition_seed=seed, **given
        ).fingerprint()

    def moved():
        module = batchnorm_net()
        module[1].running_mean += 1
        return module

    assert made() == made()
    others = [made(seed=1), made(augment="flip-crop"), made(init=1), made(model=moved),
              made(data=replace(images(), name="other"))]  # fmt: skip
    assert all(other != made() for other in others)
    assert made()["clients"] == 4


def test_a_federation_counts_its_clients_and_their_samples() -> None:
    federation = Federation(vectors(), linear(), in_turn([1, 2, 6]))
    assert federation.N == 3
    assert federation.mean_samples == 3.0
    assert [len(federation.shares.of(i)) for i in range(3)] == [1, 2, 6]
