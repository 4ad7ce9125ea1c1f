"""Every method agrees with the straight-line NumPy version of its paper."""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import get_args, get_type_hints

import numpy as np
import pytest

from flatfed import methods
from problems import NoisyNet, Quadratics, Run, TanhNet

# Distilled in time for a test of a dozen rounds.
SMALL = {"warmup": 4, "iterations": 3, "ipc": 2, "inner_steps": 2}

# Every method at its defaults, and every option of every method at least once.
CASES = [
    *((name, {}) for name in methods.CATALOGUE),
    ("fedavg", {"weights": "samples", "global_lr": 0.7}),
    ("fedavgm", {"nesterov": True, "beta": 0.6, "global_lr": 0.8}),
    ("fedadam", {"first_v": "zero"}),
    ("fedadam", {"first_v": "zero", "bias_correction": True, "tau": 0.1, "global_lr": 0.1}),
    ("fedadam", {"bias_correction": True}),
    ("fedyogi", {"first_v": "zero"}),
    ("fedyogi", {"bias_correction": True}),
    ("scaffold", {"option": "I"}),
    ("scaffold", {"global_lr": 0.5}),
    ("scaffold", {"increment": "derived"}),
    ("fedcm", {"decay": "outside"}),
    ("fedcm", {"alpha": 0.6, "global_lr": 1.3}),
    ("feddyn", {"lam": 0.02}),
    ("fedacg", {"lookahead": 0.5, "lam": 0.3}),
    ("mofedsam", {"decay": "outside"}),
    ("fedasam", {"swa_start": 4, "swa_cycle": 4, "lr_decay": 0.9}),
    ("fedasam", {"swa_start": 3, "swa_cycle": 1}),
    ("fedasam", {"weights": "uniform", "rho": 0.1, "zeta": 0.01}),
    ("fedgamma", {"increment": "derived"}),
    ("fedspeed", {"mixture": 0.4}),
    ("fedspeed", {"server": "mean"}),
    ("fedspeed", {"ascent": "N"}),
    ("fedspeed", {"ascent": "N", "server": "mean"}),
    ("fedsmoo", {"form": "simplified"}),
    ("fedsmoo", {"ascent": "N"}),
    ("fedsmoo", {"ascent": "N", "form": "simplified"}),
    ("fedlesam", {"reference": "last_round", "rho": 0.2}),
    ("fedlesam", {"rho": 0.5}),
    ("fedlesam-s", {"reference": "last_round", "increment": "derived"}),
    ("fedlesam-d", {"reference": "last_round", "increment": "sent"}),
    ("fedtoga", {"ascent": "N"}),
    ("fedtoga", {"ascent": "F"}),
    ("fedtoga", {"delta_scale": "gradient", "kappa": 0.1, "beta": 0.08}),
    ("fedtoga", {"ascent": "F", "delta_scale": "gradient", "kappa": 0.3}),
    ("fedtoga", {"kappa": 4.0, "beta": 0.1}),
    ("fedvssam", {"decay": "outside"}),
    ("fedvssam", {"gamma_l": 0.1, "gamma_g": 0.6}),
    *(
        ("fedvssam", {"lf": lf, "lu": lu, "gu": gu, "server_lr": "absolute", "global_lr": 0.3})
        for lf in (True, False)
        for lu in (True, False)
        for gu in (True, False)
    ),
    ("fedswa", {"ratio": 0.5, "alpha": 0.8}),
    ("fedmoswa", {"option": "I"}),
    ("fedmoswa", {"option": "I-batch"}),
    ("fedmoswa", {"ratio": 0.0, "gamma": 1.0}),
    ("fednova", {"weights": "uniform"}),
    ("fednova", {"momentum": 0.7}),
    ("fednova", {"mu": 0.8}),
    ("fednova", {"mu": 2.0, "weights": "uniform"}),
    ("fedgf", {"threshold": 0.25, "window": 3, "rho": 0.1, "rho_g": 0.4}),
    ("fedgf", {"threshold": 0.0, "rho": 0.02}),
    ("fedgf", {"threshold": float("inf")}),
    ("fedgloss", {"rise": 5, "rho_s": 0.3, "rho_l": 0.2}),
    ("fedgloss", {"rise": 0, "lam": 0.5, "global_lr": 0.7}),
    ("fedgloss", {"rise": 4, "rho_0": 0.1, "rho_s": 0.2, "rho_l": 0.05, "lam": 0.01}),
    ("fedwmsam", {"anchor_scale": "rate", "rho": 0.2, "alpha": 0.4}),
    ("fedwmsam", {"rho": 0.3, "alpha": 0.8, "global_lr": 0.6}),
    ("fedmo", {"option": "I"}),
    ("fedmo", {"option": "I-batch"}),
    ("fedrcl", {"pairs": "all", "threshold": 0.3}),
    ("fedrcl", {"tau": 0.3, "threshold": -0.2, "contrast": 0.5, "relax": 2.0}),
    ("fedrcl", {"epochs": 2, "steps": None, "batch_size": 4, "epoch_decay": 0.7}),
    ("fedgmt", {"alpha": 0.3, "gamma": 2.0, "tau": 1.5, "lam": 0.4, "momentum": 0.0}),
    ("fedgmt", {"weights": "uniform", "alpha": 0.6}),
    ("fedsol", {"strength": "fixed", "rho": 0.3, "weights": "uniform"}),
    ("fedsol", {"rho": 3.0, "tau": 1.0, "momentum": 0.0}),
    ("fedsynsam", {**SMALL, "beta": 0.4, "measure": "sse", "batch_size": 4}),
    ("fedsynsam", {**SMALL, "optimiser": "sgd", "lr_images": 10.0, "measure": "mse"}),
    ("fedsynsam", {**SMALL, "beta": 0.0, "synthetic_batch": "all", "gap": 3, "alpha": None}),
    ("fedsynsam", {**SMALL, "beta": 1.0, "global_lr": 0.7, "lr_alpha": 0.1, "alpha": 0.3}),
    ("dynafed", {**SMALL, "epochs_server": 2, "lr_server": 0.01, "batch_server": 4}),
    ("dynafed", {**SMALL, "labels": "soft", "epochs_server": 1, "alpha": 0.4, "global_lr": 0.8}),
    ("dynafed", {**SMALL, "labels": "soft", "optimiser": "sgd", "lr_images": 5.0, "gap": 1}),
    ("dp-fedsam", {"ascent": "plain", "rho": 0.2, "bound": 0.6}),
    ("dp-fedsam", {"sigma": 0.0, "momentum": 0.0}),
    ("dp-fedsam", {"sigma": 0.3, "bound": 1.5, "rho": 0.1, "delta": 0.01}),
]  # fmt: skip

# What they minimise, or ascend, is made of outputs or of features, which no quadratic has: these
# meet their transcripts on a net with fresh, noisy mini-batches instead.
OF_OUTPUTS = {"fedrcl", "fedgmt", "fedsol", "fedsynsam", "dynafed"}

RENAMED = {"weighting": "weights", "v0": "first_v"}


def transcript(name: str, settings: dict, problem, rounds: int) -> tuple[np.ndarray, np.ndarray]:
    """(models, evaluated models) of the transcript under the library's settings."""
    word = name.replace("-", "_")
    function = getattr(import_module(f"transcripts.{word}"), word)
    wanted = inspect.signature(function).parameters
    given = {**methods.parameters(name), **settings}
    if "decay" in wanted:
        given.setdefault("decay", methods.build(name).local.decay)
    if "momentum" in wanted:
        given.setdefault("momentum", methods.build(name).local.momentum)
    given = {new: given[RENAMED.get(new, new)] for new in wanted if RENAMED.get(new, new) in given}
    unheard = {RENAMED.get(key, key) for key in given} ^ {*settings, *methods.parameters(name)}
    ours = {"decay", "clip", "increment", "momentum", "images", "steps", "epochs", "batch_size"}
    assert unheard <= ours, unheard
    xs = function(problem, rounds, **given)
    return xs if isinstance(xs, tuple) else (xs, xs)


LOCAL = {"lr": 0.05, "lr_decay": 0.95, "weight_decay": 0.02, "clip": None}


def agrees(name: str, settings: dict, problem, rounds: int, **local) -> None:
    settings = {**LOCAL, **local, **settings}
    run = Run(methods.build(name, **{"steps": 1, **settings}), problem, rounds)
    xs, evaluated = transcript(name, settings, problem, rounds)
    assert np.isfinite(xs).all()
    moved = np.abs(np.diff(xs, axis=0)).max()
    assert moved > 1e-4, "the problem does not exercise the method"
    np.testing.assert_allclose(run.xs, xs, rtol=0, atol=1e-10)
    np.testing.assert_allclose(run.results, evaluated, rtol=0, atol=1e-10)


def label(case) -> str:
    name, settings = case
    return name + "".join(f",{key}={value}" for key, value in settings.items())


@pytest.mark.parametrize("case", [c for c in CASES if c[0] not in OF_OUTPUTS], ids=label)
@pytest.mark.parametrize("seed", range(3))
def test_a_method_is_its_transcript_on_noisy_quadratics(case, seed) -> None:
    agrees(*case, Quadratics(seed), rounds=14)


@pytest.mark.parametrize("case", [c for c in CASES if c[0] in OF_OUTPUTS], ids=label)
@pytest.mark.parametrize("seed", range(3))
def test_a_method_is_its_transcript_on_a_noisy_net(case, seed) -> None:
    agrees(*case, NoisyNet(seed), rounds=14, lr=0.15)


@pytest.mark.parametrize("case", CASES, ids=label)
def test_a_method_is_its_transcript_on_a_tanh_net(case) -> None:
    agrees(*case, TanhNet(), rounds=12, lr=0.2)


@pytest.mark.parametrize("case", CASES, ids=label)
def test_a_method_is_its_transcript_with_an_active_clip(case) -> None:
    problem = NoisyNet(7) if case[0] in OF_OUTPUTS else Quadratics(7)
    agrees(*case, problem, rounds=12, clip=0.5)


def test_every_catalogue_entry_has_a_transcript() -> None:
    for name in methods.CATALOGUE:
        word = name.replace("-", "_")
        assert callable(getattr(import_module(f"transcripts.{word}"), word))


def test_every_option_of_every_method_is_held_against_its_transcript() -> None:
    """Every value that a parameter may choose from appears in CASES, or is its default."""
    for name, factory in methods.CATALOGUE.items():
        hints = get_type_hints(factory)
        for key, default in methods.parameters(name).items():
            choices = {True, False} if hints[key] is bool else set(get_args(hints[key]))
            choices = {c for c in choices if isinstance(c, (str, bool))}
            tried = {default, *(s[key] for n, s in CASES if n == name and key in s)}
            assert choices <= tried, f"{name}({key}=...): {choices - tried}"
