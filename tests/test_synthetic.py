"""Samples distilled from a trajectory, and the methods that use them (spec 1.1 to 1.3)."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from flatfed import methods
from flatfed.data.hands import IID
from flatfed.disk import read_vectors
from flatfed.distillation import (
    Recipe,
    distil,
    loss_of,
    mismatch,
    soft_cross_entropy,
    train_on,
)
from flatfed.errors import CompositionError, FederationError, NonFiniteError, RunError
from flatfed.federation import Federation
from flatfed.flatmodel import FlatModel
from flatfed.parts import compressors
from flatfed.parts.distil import Distillation, hard_labels, samples
from flatfed.run import run
from flatfed.spec import Spec
from flatfed.training import fit
from problems import NoisyNet, Run
from spotted import tables
from tiny import CLASSES, drawn, images, vectors

SOON = {"warmup": 4, "iterations": 5, "ipc": 2, "inner_steps": 2}
WALK = {"lr": 0.15, "lr_decay": 0.95, "weight_decay": 0.02, "steps": 1}
RECIPE = Recipe(
    iterations=60,
    inner_steps=2,
    gap=2,
    optimiser="adam",
    momentum=0.5,
    lr_images=0.05,
    lr_alpha=1e-3,
    lr_labels=0.01,
    measure="normalised",
)


def net(inputs: int = 4, hidden: int = 5) -> FlatModel:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        module = nn.Sequential(nn.Linear(inputs, hidden), nn.Tanh(), nn.Linear(hidden, 3))
    return FlatModel(module.double())


def planted(model: FlatModel, steps: int = 3, alpha: float = 0.4):
    """Samples, and a trajectory that their gradient steps make."""
    X, Y = drawn(6, 4, seed=1).double(), hard_labels(3, 2)
    trajectory = [model.x0]
    for _ in range(steps):
        trajectory.append(trajectory[-1] - alpha * model.grad(trajectory[-1], (X, Y)))
    return X, Y, torch.stack(trajectory)


def end(name: str, problem, rounds: int = 12, **settings) -> np.ndarray:
    method = methods.build(name, **{**WALK, **settings})
    return Run(method, problem, rounds).xs


# FedSynSAM between its relatives


def test_fedsynsam_with_beta_1_is_fedsam_in_every_round() -> None:
    problem = NoisyNet()
    mine = end("fedsynsam", problem, rho=0.2, beta=1.0, **SOON)
    np.testing.assert_array_equal(mine, end("fedsam", problem, rho=0.2, clip=None))


def test_fedsynsam_is_fedsam_until_there_are_samples() -> None:
    problem = NoisyNet(1)
    mine = end("fedsynsam", problem, rho=0.2, beta=0.3, **SOON)
    theirs = end("fedsam", problem, rho=0.2, clip=None)
    np.testing.assert_array_equal(mine[:4], theirs[:4])
    assert np.abs(mine[4:] - theirs[4:]).max() > 1e-4
    long = end("fedsynsam", problem, rho=0.2, beta=0.3, **{**SOON, "warmup": 12})
    np.testing.assert_array_equal(long, theirs)


def test_fedsynsam_without_ascent_is_fedavg_under_the_same_compressor() -> None:
    problem = NoisyNet(2)
    how = compressors.build("qsgd", bits=3)
    mine = replace(methods.build("fedsynsam", rho=0.0, beta=0.3, **SOON, **WALK), compress=how)
    theirs = replace(methods.build("fedavg", clip=None, **WALK), compress=how)
    np.testing.assert_array_equal(Run(mine, problem, 12).xs, Run(theirs, problem, 12).xs)


def test_with_everybody_the_next_model_is_the_mean_of_the_clients() -> None:
    problem = NoisyNet(3, full=True)
    run = Run(methods.build("fedsynsam", rho=0.2, **SOON, **WALK), problem, 6)
    for before, after in zip(run.states[:-1], run.states[1:], strict=True):
        assert set(after) == {"x", "trajectory", "syn", "alpha", "matching"}
        assert after["x"].shape == before["x"].shape
    assert run.states[4]["trajectory"].numel() == 0
    assert run.states[4]["syn"].numel() == 6 * 3


def test_the_trajectory_holds_every_model_since_the_first() -> None:
    problem = NoisyNet()
    run = Run(methods.build("dynafed", **SOON, **WALK), problem, 6)
    for done in range(4):
        expected = torch.cat([state["x"] for state in run.states[: done + 1]])
        torch.testing.assert_close(run.states[done]["trajectory"], expected, rtol=0, atol=0)


def test_dynafed_without_epochs_is_fedavg() -> None:
    problem = NoisyNet(4)
    mine = end("dynafed", problem, epochs_server=0, **SOON)
    np.testing.assert_array_equal(mine, end("fedavg", problem, clip=None))


# The matching loss


def test_with_alpha_0_nothing_moves_and_the_loss_is_1() -> None:
    model = net()
    X, Y, trajectory = planted(model)
    loss = mismatch(model, trajectory[0], trajectory[3], X, Y, torch.tensor(0.0), steps=3)
    assert float(loss.detach()) == pytest.approx(1.0, abs=1e-9)


def test_planted_samples_match_exactly_and_nothing_pulls_at_them() -> None:
    model = net()
    X, Y, trajectory = planted(model)
    X, alpha = X.requires_grad_(), torch.tensor(0.4, dtype=torch.float64).requires_grad_()
    loss = mismatch(model, trajectory[0], trajectory[3], X, Y, alpha, steps=3)
    slopes = torch.autograd.grad(loss, (X, alpha))
    assert float(loss.detach()) < 1e-24
    assert max(float(slope.abs().max()) for slope in slopes) < 1e-10


def test_after_one_step_the_slope_by_alpha_is_the_closed_form() -> None:
    """∂L/∂α = −2⟨θ_1 − θ*, ∇F(θ_0)⟩ / ‖θ_0 − θ*‖²"""
    model = net()
    X, Y, trajectory = planted(model)
    first, target = trajectory[0], trajectory[2]
    alpha = torch.tensor(0.3, dtype=torch.float64).requires_grad_()
    loss = mismatch(model, first, target, X, Y, alpha, steps=1)
    (slope,) = torch.autograd.grad(loss, alpha)
    g = model.grad(first, (X, Y))
    expected = -2 * (first - 0.3 * g - target) @ g / (first - target).square().sum()
    assert float(slope.detach()) == pytest.approx(float(expected), rel=1e-9)


@pytest.mark.parametrize("measure", ["normalised", "sse", "mse"])
@pytest.mark.parametrize("soft", [False, True])
def test_the_slope_by_the_samples_agrees_with_central_differences(measure, soft) -> None:
    model = net()
    X, Y, trajectory = planted(model)
    X = drawn(6, 4, seed=2).double()
    labels = drawn(6, 3, seed=4).double() if soft else Y

    def loss(X, labels, alpha=0.3):
        first, target, rate = trajectory[0], trajectory[3], torch.tensor(alpha, dtype=X.dtype)
        return mismatch(model, first, target, X, labels, rate, steps=3, measure=measure)

    X = X.requires_grad_()
    value = loss(X, labels.requires_grad_(soft))
    slope = torch.autograd.grad(value, (X, labels) if soft else (X,))
    X, labels, h = X.detach(), labels.detach(), 1e-5
    for given, found in zip((X, labels), slope, strict=False):
        for j in range(given.numel()):
            step = torch.zeros_like(given).view(-1)
            step[j] = h
            step = step.view_as(given)
            up = (X + step, labels) if given is X else (X, labels + step)
            down = (X - step, labels) if given is X else (X, labels - step)
            by_hand = (loss(*up) - loss(*down)).detach() / (2 * h)
            assert float(found.view(-1)[j]) == pytest.approx(float(by_hand), rel=1e-4, abs=1e-8)


def test_soft_labels_that_are_hard_give_the_hard_loss_over_the_classes() -> None:
    model = net()
    outputs, Y = drawn(6, 3).double(), hard_labels(3, 2)
    sure = 1000.0 * nn.functional.one_hot(Y, 3).double()
    expected = nn.functional.cross_entropy(outputs, Y) / 3
    torch.testing.assert_close(soft_cross_entropy(outputs, sure), expected)
    torch.testing.assert_close(loss_of(model, outputs, Y), 3 * expected)


@pytest.mark.parametrize("optimiser", ["adam", "sgd"])
def test_after_distillation_the_samples_match_better_than_standing_still(optimiser) -> None:
    model = net()
    _, Y, trajectory = planted(model, steps=8)
    recipe = replace(RECIPE, optimiser=optimiser, lr_images=0.05 if optimiser == "adam" else 3.0)
    found = distil(model, trajectory, drawn(6, 4, seed=9).double(), Y, 0.1, recipe, seed=0)
    after = [
        float(mismatch(model, trajectory[r], trajectory[r + 2], found.inputs, Y,
                       torch.tensor(found.alpha, dtype=torch.float64), steps=2).detach())
        for r in range(len(trajectory) - 2)
    ]  # fmt: skip
    assert np.mean(after) < 0.9
    assert np.mean(after) < np.mean(found.losses[:5])
    assert len(found.losses) == 60


def test_a_first_inner_rate_that_overshoots_matches_worse_than_standing_still() -> None:
    """Why alpha does not start at η_g·Ση: noise of d pixels is d times as curved as one."""
    model = net(inputs=200)
    trajectory = model.x0 + 0.02 * drawn(6, model.d, seed=5).double().cumsum(0)
    noise, Y = drawn(6, 200, seed=6).double(), hard_labels(3, 2)
    ends = {}
    for alpha in (0.01, 1.0):
        recipe = replace(RECIPE, iterations=20)
        ends[alpha] = distil(model, trajectory, noise, Y, alpha, recipe, seed=0).losses[-1]
    assert ends[0.01] < 1 < ends[1.0]


def test_distillation_changes_nothing_that_it_was_given_and_repeats_to_the_bit() -> None:
    model = net()
    X, Y, trajectory = planted(model)
    before = X.clone(), trajectory.clone()
    told = []
    one, two = (
        distil(model, trajectory, X, Y, 0.2, replace(RECIPE, iterations=4), seed=7,
               progress=lambda done, total: told.append((done, total)))
        for _ in range(2)
    )  # fmt: skip
    assert torch.equal(X, before[0])
    assert torch.equal(trajectory, before[1])
    assert torch.equal(one.inputs, two.inputs)
    assert told[:4] == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_alpha_stays_above_zero() -> None:
    model = net()
    X, Y, trajectory = planted(model)
    backwards = torch.flip(trajectory, (0,))  # only walking uphill would match
    recipe = replace(RECIPE, lr_images=0.0, lr_alpha=0.5, iterations=30)
    assert distil(model, backwards, X, Y, 0.2, recipe, seed=0).alpha == pytest.approx(1e-6)


def test_fine_tuning_lowers_the_loss_on_the_samples() -> None:
    model = net()
    X, Y, _ = planted(model)
    w, steps = train_on(model, model.x0, X, Y, epochs=20, lr=0.01, batch_size=4, seed=0)
    assert steps == 40
    assert float(model.loss(w, (X, Y))) < float(model.loss(model.x0, (X, Y)))


# In a federation


def linear_images() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Flatten(), nn.Linear(2 * 8 * 8, 3))


def federation() -> Federation:
    return Federation(images(), linear_images(), IID(clients=4))


QUICK = {"warmup": 2, "iterations": 4, "ipc": 2, "inner_steps": 1, "steps": 2, "batch_size": 8}


def test_synthetic_samples_are_billed_once_to_everybody() -> None:
    method = methods.fedsynsam(**{**QUICK, "inner_steps": 2})
    result = fit(method, federation(), rounds=4, cohort=2)
    d = result.x.numel()
    down = [record.bytes_down for record in result.history]
    synthetic = 6 * 2 * 8 * 8 * 4
    assert down == [2 * 4 * d, 2 * 4 * d + 4 * synthetic, 2 * 4 * d, 2 * 4 * d]
    assert [record.gradients for record in result.history] == [8, 8, 12, 12]
    assert [record.server_gradients for record in result.history] == [0, 8, 0, 0]
    assert result.history[0].logged["matching"] == 1.0
    assert result.history[3].logged["matching"] != 1.0


def test_what_is_written_down_is_the_matching_loss_of_the_last_tenth() -> None:
    from flatfed.account import Bench

    settings = {**QUICK, "iterations": 20, "warmup": 1}
    run = fit(methods.fedsynsam(**settings), federation(), rounds=1, cohort=2)
    part = run.training.method.also[0]
    before = run.training.start().state
    trajectory = torch.stack([before["x"], run.state["x"]])
    recipe = replace(RECIPE, iterations=20, inner_steps=1, gap=1, lr_alpha=1e-5)
    from flatfed.vec import seed_for

    noise = torch.Generator().manual_seed(seed_for(0, "first samples", 0))
    first = torch.randn((6, 2, 8, 8), generator=noise)
    model = run.training.federation.model
    found = distil(
        model, trajectory, first, hard_labels(3, 2), 0.01, recipe,
        seed=seed_for(0, "distillation", 0),
    )  # fmt: skip
    assert part.iterations == 20
    torch.testing.assert_close(found.inputs.reshape(-1), run.state["syn"])
    assert run.history[0].logged["matching"] == pytest.approx(np.mean(found.losses[-2:]), rel=1e-5)
    bench = Bench(run.training.federation, lambda what, done, total: None)
    bench.spent(2)
    bench.spent(3)
    assert bench.gradients == 5


def test_dynafeds_samples_stay_on_the_server() -> None:
    settings = {**QUICK, "epochs_server": 3, "batch_server": 4}
    result = fit(methods.dynafed(**settings), federation(), rounds=4, cohort=2)
    d = result.x.numel()
    assert {record.bytes_down for record in result.history} == {2 * 4 * d}
    assert [record.server_gradients for record in result.history] == [0, 4, 6, 6]


def test_a_round_without_clients_delays_the_distillation() -> None:
    """The trajectory counts models, not rounds."""
    from flatfed.cohort import Cohort

    cohort = Cohort(size=1, drop=0.6)
    result = fit(methods.fedsynsam(**QUICK), federation(), rounds=12, cohort=cohort, seed=3)
    moved = np.cumsum([record.clients > 0 for record in result.history])
    assert 0 in [record.clients for record in result.history[:4]]
    distilled = [record.round for record in result.history if record.server_gradients]
    assert distilled == [int(np.argmax(moved == 2))]


def test_samples_start_from_a_file(tmp_path) -> None:
    data = images()
    path = str(tmp_path / "start.npz")
    np.savez(path, inputs=data.train.inputs.numpy(), targets=data.train.targets.numpy())
    method = methods.fedsynsam(**{**QUICK, "images": path, "lr_images": 0.0})
    result = fit(method, federation(), rounds=2)
    inputs, labels = samples(result.state["syn"], (2, 8, 8), 2)
    prepared = federation().prepare(data.train.inputs)
    for image, label in zip(inputs, labels, strict=True):
        found = [(prepared[j] - image).abs().max() < 1e-6 for j in range(len(prepared))]
        assert bool(found[int(torch.tensor(found).int().argmax())])
        assert int(data.train.targets[torch.tensor(found).int().argmax()]) == int(label)


def test_what_cannot_be_distilled_is_said_in_the_first_round(tmp_path) -> None:
    def refused(match: str, **settings) -> None:
        method = methods.fedsynsam(**{**QUICK, **settings})
        with pytest.raises(FederationError, match=match):
            fit(method, federation(), rounds=1)

    refused("cannot be read", images=str(tmp_path / "nothing.npz"))
    few = tmp_path / "few.npz"
    np.savez(few, inputs=np.zeros((2, 2, 8, 8), np.uint8), targets=np.array([0, 1]))
    refused("has 1 samples of class 0, expected at least ipc=2", images=str(few))
    other = tmp_path / "other.npz"
    np.savez(other, inputs=np.zeros((2, 3), np.float32), targets=np.array([0, 1]))
    refused(r"expected one target each and inputs of shape \(n, 2, 8, 8\)", images=str(other))


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(9, 3)

    def forward(self, inputs):
        return self.embedding(inputs).mean(1)


def test_words_cannot_be_distilled() -> None:
    words = vectors()
    inputs = (words.train.inputs.abs() * 3).long().clamp(0, 8)
    train, test = replace(words.train, inputs=inputs), words.test
    test = replace(test, inputs=(test.inputs.abs() * 3).long().clamp(0, 8))
    texts = replace(words, train=train, test=test)
    with pytest.raises(FederationError, match="the model fails on inputs of real numbers"):
        fit(methods.fedsynsam(**QUICK), Federation(texts, Words(), IID(clients=4)), rounds=1)


def test_samples_that_explode_are_refused() -> None:
    method = methods.fedsynsam(**{**QUICK, "optimiser": "sgd", "lr_images": 1e30, "iterations": 30})
    with pytest.raises(NonFiniteError, match=r"matching loss is (nan|inf) in iteration"):
        fit(method, federation(), rounds=2)


def test_a_gap_that_the_warm_up_does_not_cover_is_refused() -> None:
    with pytest.raises(CompositionError, match="gap of 5 rounds after warmup=4"):
        methods.fedsynsam(warmup=4, inner_steps=5)
    assert Distillation(
        warmup=4, iterations=1, ipc=1, inner_steps=5, gap=4, lr_images=0.1, lr_alpha=0.0
    ).rounds == 4  # fmt: skip


def test_1_minus_the_cosine_is_at_most_the_lemmas_bound() -> None:
    """1 − cos(u, v) ≤ ‖u − v‖² / (2‖u‖‖v‖), for every u and v (spec 1.3)."""
    u, v = drawn(200, 5, seed=1).double(), drawn(200, 5, seed=2).double()
    lengths = u.norm(dim=1) * v.norm(dim=1)
    cosines = (u * v).sum(1) / lengths
    assert bool((1 - cosines <= (u - v).square().sum(1) / (2 * lengths) + 1e-12).all())


def test_classes_come_one_after_the_other() -> None:
    inputs, labels = samples(torch.arange(12.0), (2,), 2)
    assert inputs.shape == (6, 2)
    assert labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert len(CLASSES) == 3


# What a run leaves


def soon(folder, **more) -> Spec:
    method = {"name": "fedsynsam", "warmup": 2, "iterations": 4, "ipc": 2, "inner_steps": 1}
    return Spec.of(tables(folder, method={**method, **more}, run={"checkpoint_every": 1}))


def test_a_runs_folder_holds_the_samples_and_their_picture(tmp_path) -> None:
    result = run(soon(tmp_path), out=tmp_path / "r")
    saved = read_vectors(tmp_path / "r" / "synthetic.safetensors")
    classes = len(result.training.federation.data.classes)
    assert saved["labels"].tolist() == [c for c in range(classes) for _ in range(2)]
    torch.testing.assert_close(saved["inputs"].reshape(-1), result.state["syn"])
    picture = (tmp_path / "r" / "figures" / "synthetic.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    lines = [json.loads(x) for x in (tmp_path / "r" / "rounds.jsonl").read_text().splitlines()]
    assert [line.get("server_gradients", 0) for line in lines[:3]] == [0, 4, 0]
    assert set(lines[0]["logged"]) == {"alpha", "matching"}


def test_soft_labels_are_saved_as_logits(tmp_path) -> None:
    run(soon(tmp_path, name="dynafed", labels="soft"), out=tmp_path / "r")
    saved = read_vectors(tmp_path / "r" / "synthetic.safetensors")
    assert saved["labels"].dim() == 2
    assert saved["labels"].is_floating_point()


@pytest.mark.parametrize("after", [1, 2, 3])
def test_a_run_that_was_interrupted_around_its_distillation_ends_the_same(tmp_path, after) -> None:
    whole = run(soon(tmp_path).replaced(run={"rounds": 5}), out=tmp_path / "whole")
    run(soon(tmp_path).replaced(run={"rounds": after}), out=tmp_path / "parts")
    again = run(soon(tmp_path).replaced(run={"rounds": 5}), out=tmp_path / "parts", resume=True)
    assert again.params_sha256 == whole.params_sha256
    one, two = (tmp_path / name / "synthetic.safetensors" for name in ("whole", "parts"))
    assert one.read_bytes() == two.read_bytes()


def test_a_run_says_how_far_its_distillation_has_come(tmp_path, capsys) -> None:
    from rich.console import Console

    from flatfed.run.display import Plain

    run(soon(tmp_path, iterations=9), out=tmp_path / "r", watchers=[Plain(Console(), "r")])
    said = capsys.readouterr().out.splitlines()
    told = [line for line in said if "distillation" in line]
    assert told == [f"r: distillation {done}/9" for done in (3, 5, 7, 9)]  # at every quarter


def test_an_interrupted_run_has_its_samples_already(tmp_path) -> None:
    class Interrupting:
        def begin(self, training, history):
            pass

        def round(self, record):
            if record.round == 2:
                raise KeyboardInterrupt

        def end(self, status):
            pass

    with pytest.raises(KeyboardInterrupt):
        run(soon(tmp_path), out=tmp_path / "r", watchers=[Interrupting()])
    assert (tmp_path / "r" / "synthetic.safetensors").exists()
    assert (tmp_path / "r" / "figures" / "synthetic.png").exists()


def test_a_full_disk_is_said_when_the_samples_cannot_be_written(tmp_path, monkeypatch) -> None:
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("flatfed.run.synthetic.write_vectors", full)
    with pytest.raises(RunError, match=r"samples could not be written: No space left.*\nMake room"):
        run(soon(tmp_path), out=tmp_path / "r")
