"""Rounds, one after the other: what a run measures, and what it survives."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from flatfed import Cohort, Federation, data, fit, methods, models
from flatfed.data.partition import build
from flatfed.engines.inprocess import Alone, InProcess
from flatfed.engines.processes import Processes
from flatfed.engines.store import Memory
from flatfed.errors import (
    ClientError,
    CompositionError,
    FederationError,
    NonFiniteError,
    SpecError,
)
from flatfed.history import History
from flatfed.parts.server import Average
from flatfed.training import Training
from flatfed.vec import digest
from spotted import Broken, Picky, write_images

LOCAL = {"steps": 3, "batch_size": 10, "lr": 0.1}


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    return data.load(str(write_images(tmp_path_factory.mktemp("data") / "images.npz")))


def federation(images, model="mlp2", partition="dirichlet", clients=8, **options) -> Federation:
    if isinstance(model, str):
        model = models.build(model, seed=0, **images.sizes)
    return Federation(images, model, build(partition, clients=clients, **options))


def test_a_few_rounds_learn_the_task(images) -> None:
    result = fit(methods.fedavg(**LOCAL), federation(images), rounds=12, cohort=4)
    assert result.accuracy == result.history[-1].test_accuracy > 0.9
    module = result.module()
    right = module(torch.as_tensor(images.test.inputs)[:0].float()).shape
    assert right == (0, 4)


def test_a_seed_fixes_every_byte_and_another_changes_them(images) -> None:
    runs = [
        fit(methods.scaffold(**LOCAL), federation(images), rounds=3, cohort=4, seed=seed)
        for seed in (0, 0, 1)
    ]
    assert runs[0].params_sha256 == runs[1].params_sha256 != runs[2].params_sha256
    assert [r.test_loss for r in runs[0].history] == [r.test_loss for r in runs[1].history]


@pytest.mark.parametrize("name", ["scaffold", "fedsmoo", "fedtoga"])
def test_workers_change_no_byte(images, name) -> None:
    method = methods.build(name, **LOCAL)
    alone = fit(method, federation(images), rounds=4, cohort=4)
    both = fit(method, federation(images), rounds=4, cohort=4, engine=Processes(workers=2))
    assert alone.params_sha256 == both.params_sha256
    assert [replace(r, seconds=0) for r in alone.history] == [
        replace(r, seconds=0) for r in both.history
    ]


class Recording:
    """InProcess, which also remembers who was asked."""

    needs_disk, timeout = False, None

    def __init__(self) -> None:
        self.asked: list[tuple[int, ...]] = []

    def open(self, task):
        asked = self.asked

        class Crew(Alone):
            def train(self, sent, work):
                asked.append(tuple(one.client for one in work))
                return super().train(sent, work)

        return Crew(task)


def test_who_is_drawn_does_not_depend_on_the_method(images) -> None:
    drawn = []
    for name in ("fedavg", "scaffold"):
        method, engine = methods.build(name, **LOCAL), Recording()
        fit(method, federation(images), rounds=4, cohort=3, engine=engine)
        drawn.append(engine.asked)
    assert drawn[0] == drawn[1]
    assert len({*drawn[0]}) > 1
    assert all([*cohort] == sorted({*cohort}) for cohort in drawn[0])


def test_accuracy_is_measured_when_asked_and_after_the_last_round(images) -> None:
    result = fit(methods.fedavg(**LOCAL), federation(images), rounds=7, evaluate_every=3)
    measured = [record.round for record in result.history if record.test_accuracy is not None]
    assert measured == [2, 5, 6]
    assert [done for done, _ in result.history.measured] == [3, 6, 7]


@pytest.mark.parametrize("name", methods.CATALOGUE)
def test_bytes_and_gradients_are_those_of_the_bill(images, name) -> None:
    method = methods.build(name, **LOCAL)
    fed = federation(images)
    record = fit(method, fed, rounds=1, cohort=4).history[0]
    bill = method.bill(fed.model.d)
    assert (record.bytes_up, record.bytes_down) == (4 * bill.bytes_up, 4 * bill.bytes_down)
    if not bill.gradients_per_round:
        least, most = bill.gradients_least, bill.gradients_per_step
        assert 4 * 3 * least <= record.gradients <= 4 * 3 * most
    assert record.forwards == 4 * 3 * bill.forwards_per_step


def test_running_statistics_travel_and_are_averaged(images) -> None:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.BatchNorm1d(64), torch.nn.Linear(64, 4))
    fed = federation(images, net)
    result = fit(methods.fedavg(**LOCAL), fed, rounds=4, cohort=4)
    assert result.state["buffers"].shape == fed.model.b0.shape
    assert not torch.equal(result.state["buffers"], fed.model.b0)
    assert torch.equal(result.module()[1].running_mean, result.state["buffers"][:64])
    assert result.history[0].bytes_up == 4 * 4 * (fed.model.d + fed.model.b0.numel())


def loss_of(result, images) -> float:
    """Of the result as plain PyTorch, on all test samples."""
    inputs = result.training.federation.prepare(images.test.inputs)
    with torch.no_grad():
        outputs = result.module()(inputs)
    return float(torch.nn.functional.cross_entropy(outputs, images.test.targets))


def test_what_is_measured_is_what_is_saved(images) -> None:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.BatchNorm1d(64), torch.nn.Linear(64, 4))
    normed = fit(methods.fedavg(**LOCAL), federation(images, net), rounds=4)
    averaged = fit(methods.fedasam(**LOCAL, swa_start=1, swa_cycle=1), federation(images), rounds=4)
    assert not torch.equal(averaged.x, averaged.state["x"])
    for result in (normed, averaged):
        assert loss_of(result, images) == pytest.approx(result.history[-1].test_loss, abs=1e-6)


def test_clients_that_drop_out_are_counted_and_the_rest_goes_on(images) -> None:
    cohort = Cohort(size=4, drop=0.3)
    result = fit(methods.scaffold(**LOCAL), federation(images), rounds=20, cohort=cohort)
    assert all(record.clients + record.failed == 4 for record in result.history)
    d = result.x.numel()
    assert all(r.bytes_down == r.bytes_up == r.clients * 4 * 2 * d for r in result.history)
    assert 10 <= result.history.total("failed") <= 40
    assert result.accuracy > 0.9


def test_a_round_in_which_nobody_is_there_moves_nothing(images) -> None:
    cohort = Cohort(size=1, drop=0.9)
    result = fit(methods.fedavg(**LOCAL), federation(images), rounds=6, cohort=cohort)
    losses = [record.test_loss for record in result.history]
    empty = [record.round for record in result.history if record.clients == 0]
    assert empty
    assert all(losses[t] == losses[t - 1] for t in empty if t)
    assert all(result.history[t].train_loss is None for t in empty)


def test_a_client_that_fails_is_left_out_and_named(images) -> None:
    model = Picky(**{key: images.sizes[key] for key in ("shape", "classes")})
    fed = federation(images, model, "pathological_cover", clients=8)
    result = fit(methods.fedavg(**LOCAL), fed, rounds=3)
    assert [(record.clients, record.failed) for record in result.history] == [(6, 2)] * 3
    for why in result.history[0].failures.values():
        assert "ValueError: too bright" in why
    assert result.history[0].as_dict()["failures"]


def test_a_federation_in_which_every_client_fails_is_one_error(images) -> None:
    model = Broken(**{key: images.sizes[key] for key in ("shape", "classes")})
    with pytest.raises(ClientError) as error:
        fit(methods.fedavg(**LOCAL), federation(images, model), rounds=3)
    assert str(error.value).startswith("All 8 clients of round 0 failed, each of them twice.")
    assert error.value.exit_code == 1


def test_a_run_that_diverges_says_so(images) -> None:
    method = methods.fedavg(steps=3, batch_size=10, lr=1e30, clip=None)
    with pytest.raises(ClientError, match=r"loss is (nan|inf) at step"):
        fit(method, federation(images), rounds=3)


@dataclass(frozen=True)
class Bursting(Average):
    """A server that leaves the finite, though not on the toy that every method is tried on."""

    def step(self, x, mean, v):
        """x ← x + ∞"""
        return x + float("inf") if x.numel() > 3 else super().step(x, mean, v)


def test_a_server_that_diverges_says_so(images) -> None:
    method = replace(methods.fedavg(**LOCAL), server=Bursting())
    with pytest.raises(NonFiniteError, match="The server's model is not finite after round 0"):
        fit(method, federation(images), rounds=4)


def test_versions_that_nobody_needs_are_dropped(images) -> None:
    store = Memory()
    training = Training(
        method=methods.scaffold(**LOCAL), federation=federation(images), rounds=9,
        cohort=Cohort(size=3),
    )  # fmt: skip
    before = training.start()
    for standing, _ in training.go_on(before, InProcess(), store, None):
        assert {*standing.ledger.items()} <= {*store._kept}
        assert {*before.ledger.items()} <= {*store._kept}  # who is interrupted now stands there
        before = standing
    assert {*store._kept} == {*standing.ledger.items()}


def test_a_standing_that_was_interrupted_can_be_gone_on_with(images) -> None:
    training = Training(
        method=methods.fedsmoo(**LOCAL), federation=federation(images), rounds=5,
        cohort=Cohort(size=4),
    )  # fmt: skip
    store = Memory()
    rounds = training.go_on(training.start(), InProcess(), store, None)
    for _ in range(3):
        standing, _ = next(rounds)
    rounds.close()  # as Ctrl-C does: what the third round superseded is still there
    *_, (last, _) = training.go_on(standing, InProcess(), store, None)
    whole = fit(training.method, training.federation, rounds=5, cohort=4)
    assert digest(dict(last.state)) == digest(dict(whole.state))


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"rounds": 0}, SpecError, "Training got rounds=0, expected a whole number ≥ 1."),
        ({"seed": -1}, SpecError, "Training got seed=-1, expected a whole number ≥ 0."),
        ({"evaluate_every": 0}, SpecError, "Training got evaluate_every=0, expected a whole"),
        ({"cohort": 9}, FederationError, "Cohort got size=9 of 8 clients, expected at most 8."),
        ({"cohort": 0}, CompositionError, "Cohort got size=0, expected a whole number ≥ 1."),
    ],
)
def test_a_wrong_request_is_refused_before_anything_runs(images, given, error, message) -> None:
    with pytest.raises(error) as raised:
        fit(methods.fedavg(**LOCAL), federation(images), **{"rounds": 1, **given})
    assert str(raised.value).startswith(message)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"fraction": 0.0}, r"Cohort got fraction=0.0, expected a number in \(0, 1\]"),
        ({"drop": 1.0}, r"Cohort got drop=1.0, expected a number in \[0, 1\)"),
        ({"size": 1, "fraction": 0.1}, "Cohort got both of size=1 and fraction=0.1"),
        ({"sampling": "random"}, "Cohort got sampling='random', expected 'uniform' or 'cyclic'"),
    ],
)
def test_a_wrong_cohort_is_refused(given, message) -> None:
    with pytest.raises(CompositionError, match=message):
        Cohort(**given)


def test_cyclic_cohorts_take_their_turns() -> None:
    cohort = Cohort(size=3, sampling="cyclic")
    assert [cohort.draw(7, t, 0) for t in range(3)] == [[0, 1, 2], [3, 4, 5], [0, 1, 6]]


def test_every_client_is_drawn_as_often_as_any_other() -> None:
    counts = np.zeros(20)
    for t in range(2000):
        counts[Cohort(size=5).draw(20, t, 1)] += 1
    assert abs(counts / 500 - 1).max() < 0.15


def test_dropping_out_shifts_no_other_draw() -> None:
    assert Cohort(size=5, drop=0.5).draw(50, 3, 7) == Cohort(size=5).draw(50, 3, 7)
    there = [len(Cohort(drop=0.3).present([*range(100)], t, 0)) for t in range(50)]
    assert 65 < np.mean(there) < 75


def test_a_cohort_of_a_million_costs_what_the_cohort_costs() -> None:
    import time

    start = time.perf_counter()
    drawn = Cohort(size=100).draw(1_000_000, 0, 0)
    assert len({*drawn}) == 100
    assert time.perf_counter() - start < 0.5


def test_a_history_knows_its_last_best_and_first() -> None:
    fed = [0.1, None, 0.5, 0.4]
    history = History(_round(t, accuracy) for t, accuracy in enumerate(fed))
    assert (history.accuracy, history.best) == (0.4, 0.5)
    assert history.rounds_to(0.5) == 3
    assert history.rounds_to(0.6) is None
    assert History().accuracy is None
    assert history.total("clients") == 8


def _round(t, accuracy):
    from flatfed.history import Round

    return Round(
        round=t, test_accuracy=accuracy, test_loss=accuracy, train_loss=1.0, bytes_up=1,
        bytes_down=1, gradients=1, seconds=1.0, clients=2, failed=0,
    )  # fmt: skip


def test_means_by_samples_are_of_this_federation(images) -> None:
    def run(weights, fed):
        return fit(methods.build("fedavg", **LOCAL, weights=weights), fed, rounds=2).x

    even, uneven = federation(images), federation(images, partition="class_split", min_size=5)
    assert torch.allclose(run("uniform", even), run("samples", even), atol=1e-6)  # thirty each
    assert not torch.allclose(run("uniform", uneven), run("samples", uneven), atol=1e-3)
