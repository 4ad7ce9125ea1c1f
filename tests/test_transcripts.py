"""Every method agrees with the straight-line NumPy version of its paper."""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import get_args, get_type_hints

import numpy as np
import pytest

from flatfed import methods
from problems import Quadratics, Run, TanhNet

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
    ("fedmo", {"option": "I"}),
    ("fedmo", {"option": "I-batch"}),
]  # fmt: skip

RENAMED = {"weighting": "weights", "v0": "first_v"}


def transcript(name: str, settings: dict, problem, rounds: int) -> tuple[np.ndarray, np.ndarray]:
    """(models, evaluated models) of the transcript under the library's settings."""
    word = name.replace("-", "_")
    function = getattr(import_module(f"transcripts.{word}"), word)
    wanted = inspect.signature(function).parameters
    given = {**methods.parameters(name), **settings}
    if "decay" in wanted:
        given.setdefault("decay", methods.build(name).local.decay)
    given = {new: given[RENAMED.get(new, new)] for new in wanted if RENAMED.get(new, new) in given}
    unheard = {RENAMED.get(key, key) for key in given} ^ {*settings, *methods.parameters(name)}
    assert unheard <= {"decay", "clip", "increment"}, unheard
    xs = function(problem, rounds, **given)
    return xs if isinstance(xs, tuple) else (xs, xs)


LOCAL = {"lr": 0.05, "lr_decay": 0.95, "weight_decay": 0.02, "clip": None}


def agrees(name: str, settings: dict, problem, rounds: int, **local) -> None:
    settings = {**LOCAL, **local, **settings}
    run = Run(methods.build(name, **settings, steps=1), problem, rounds)
    xs, evaluated = transcript(name, settings, problem, rounds)
    assert np.isfinite(xs).all()
    moved = np.abs(np.diff(xs, axis=0)).max()
    assert moved > 1e-4, "the problem does not exercise the method"
    np.testing.assert_allclose(run.xs, xs, rtol=0, atol=1e-10)
    np.testing.assert_allclose(run.results, evaluated, rtol=0, atol=1e-10)


def label(case) -> str:
    name, settings = case
    return name + "".join(f",{key}={value}" for key, value in settings.items())


@pytest.mark.parametrize("case", CASES, ids=label)
@pytest.mark.parametrize("seed", range(3))
def test_a_method_is_its_transcript_on_noisy_quadratics(case, seed) -> None:
    agrees(*case, Quadratics(seed), rounds=14)


@pytest.mark.parametrize("case", CASES, ids=label)
def test_a_method_is_its_transcript_on_a_tanh_net(case) -> None:
    agrees(*case, TanhNet(), rounds=12, lr=0.2)


@pytest.mark.parametrize("case", CASES, ids=label)
def test_a_method_is_its_transcript_with_an_active_clip(case) -> None:
    agrees(*case, Quadratics(7), rounds=12, clip=0.5)


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
