"""The papers' own settings, typed in from the spec: a method by its name alone is the paper's."""

from __future__ import annotations

import pytest

from flatfed import methods
from flatfed.parts.local import SGD

SHARED = {
    "lr": 0.1, "lr_decay": 0.998, "steps": None, "epochs": 5, "batch_size": 50, "momentum": 0.0,
    "weight_decay": 1e-3, "decay": "outside", "clip": 10.0, "clip_scope": "direction",
}  # fmt: skip
INSIDE = {**SHARED, "decay": "inside"}
SLOW = {**SHARED, "lr_decay": 0.9995}
TEN_STEPS = {
    **SHARED, "lr_decay": 1.0, "epochs": None, "steps": 10, "batch_size": 128, "weight_decay": 0.0,
    "clip": None,
}  # fmt: skip
DISTILLED = {
    "warmup": 30, "iterations": 200, "ipc": 20, "inner_steps": 3, "gap": None, "optimiser": "adam",
    "lr_images": 0.05, "lr_alpha": 1e-5, "images": "noise", "alpha": 0.01, "global_lr": 1.0,
}  # fmt: skip
SMALL = {
    **SHARED, "lr": 0.01, "lr_decay": 1.0, "epochs": 1, "batch_size": 64, "weight_decay": 4e-4,
    "clip": None,
}  # fmt: skip

# name: (its own parameters, its local work); the spec's sections in order
PAPERS = {
    "fedavg": ({"global_lr": 1.0, "weights": "uniform"}, SHARED),
    "fedavgm": ({"beta": 0.9, "global_lr": 1.0, "nesterov": False}, SHARED),
    "fedprox": ({"lam": 0.1, "global_lr": 1.0}, SHARED),
    "fedadam": (
        {"global_lr": 0.01, "beta1": 0.9, "beta2": 0.99, "tau": 1e-3, "first_v": "tau2",
         "bias_correction": False}, SHARED,
    ),
    "fedyogi": (
        {"global_lr": 0.01, "beta1": 0.9, "beta2": 0.99, "tau": 1e-3, "first_v": "tau2",
         "bias_correction": False}, SHARED,
    ),
    "scaffold": ({"option": "II", "global_lr": 1.0, "increment": "sent"}, SHARED),
    "fedcm": ({"alpha": 0.1, "global_lr": 1.0}, INSIDE),
    "feddyn": ({"lam": 0.1}, SLOW),
    "feddc": ({"lam": 0.1}, SHARED),
    "fedacg": ({"lookahead": 0.85, "lam": 0.01}, SHARED),
    "fedsam": ({"rho": 0.1, "global_lr": 1.0}, SHARED),
    "mofedsam": ({"rho": 0.1, "alpha": 0.1, "global_lr": 1.0}, INSIDE),
    "fedasam": (
        {"rho": 0.7, "zeta": 0.2, "swa_start": None, "swa_cycle": 10, "swa_low": 1e-4,
         "weights": "samples"},
        {**SHARED, "lr": 0.01, "lr_decay": 1.0, "epochs": 1, "batch_size": 64,
         "weight_decay": 4e-4, "clip": None},
    ),
    "fedspeed": (
        {"rho": 0.1, "lam": 0.1, "mixture": 1.0, "server": "dual", "ascent": "L"}, SHARED,
    ),
    "fedgamma": ({"rho": 0.05, "global_lr": 1.0, "increment": "sent"}, SHARED),
    "fedsmoo": ({"rho": 0.1, "lam": 0.1, "form": "printed", "ascent": "L"}, SLOW),
    "fedlesam": ({"rho": 0.01, "reference": "last_active", "global_lr": 1.0}, SLOW),
    "fedlesam-s": (
        {"rho": 0.1, "reference": "last_active", "global_lr": 1.0, "increment": "sent"},
        SLOW,
    ),
    "fedlesam-d": (
        {"rho": 0.1, "lam": 0.1, "reference": "last_active", "increment": "derived"},
        SLOW,
    ),
    "fedtoga": (
        {"rho": 0.1, "kappa": 1.0, "beta": 0.8, "lam": 0.1, "ascent": "G", "delta_scale": "step"},
        SHARED,
    ),
    "fedvssam": (
        {"rho": 0.05, "gamma_l": 0.4, "gamma_g": 0.6, "lf": True, "lu": True, "gu": True,
         "global_lr": 1.0, "server_lr": "relative"},
        {**INSIDE, "epochs": 10, "batch_size": 128},
    ),
    "fedswa": ({"ratio": 0.1, "alpha": 1.5}, SHARED),
    "fedmoswa": ({"ratio": 0.1, "alpha": 1.5, "gamma": 0.2, "option": "II"}, SHARED),
    "fedmo": ({"gamma": 0.2, "option": "II"}, SHARED),
    "fednova": ({"mu": 0.0, "weights": "samples"}, SHARED),
    "fedgf": ({"rho": 0.05, "rho_g": None, "threshold": 0.2, "window": 30}, SMALL),
    "fedgloss": (
        {"rho_s": 0.15, "rho_l": 0.15, "lam": 0.1, "rho_0": 0.001, "rise": 2000, "global_lr": 1.0},
        SMALL,
    ),
    "fedrcl": (
        {"tau": 0.05, "threshold": 0.7, "pairs": "hardest", "contrast": 1.0, "relax": 1.0,
         "epoch_decay": 0.998}, SHARED,
    ),
    "fedgmt": (
        {"alpha": 0.95, "gamma": 1.0, "tau": 3.0, "lam": 0.1, "weights": "samples"},
        {**SHARED, "lr": 0.01, "momentum": 0.9, "weight_decay": 1e-5},
    ),
    "fedsol": (
        {"rho": 1.0, "tau": 3.0, "strength": "adaptive", "weights": "samples"},
        {**SHARED, "lr": 0.01, "lr_decay": 0.99, "momentum": 0.9, "weight_decay": 1e-5,
         "clip": None},
    ),
    "dp-fedsam": (
        {"rho": 0.5, "ascent": "adaptive", "bound": 0.2, "sigma": 0.95, "delta": None,
         "weights": "uniform"},
        {**SHARED, "epochs": 30, "momentum": 0.5, "weight_decay": 5e-4, "clip": None},
    ),
    "dynafed": (
        {"epochs_server": 20, "lr_server": 1e-4, "batch_server": 256, **DISTILLED,
         "lr_labels": 0.01, "labels": "hard"}, TEN_STEPS,
    ),
    "fedsynsam": (
        {"rho": 0.05, "beta": 0.9, **DISTILLED, "momentum_images": 0.5, "measure": "normalised",
         "synthetic_batch": "local"}, TEN_STEPS,
    ),
    "fedwmsam": ({"rho": 0.01, "alpha": 0.1, "anchor_scale": "one", "global_lr": 1.0}, SHARED),
}  # fmt: skip


@pytest.mark.parametrize("name", methods.CATALOGUE)
def test_a_method_by_its_name_alone_has_its_papers_settings(name) -> None:
    parameters, local = PAPERS[name]
    assert methods.parameters(name) == parameters
    method = methods.build(name)
    assert (method.name, method.weights) == (name, parameters.get("weights", "uniform"))
    walk = {key: getattr(method.local, key) for key in SGD.__dataclass_fields__}
    if name in ("fedswa", "fedmoswa"):  # the same rate, falling within the round
        falling = walk["lr"]
        assert (falling.lr, falling.ratio) == (0.1, 0.1)
        walk["lr"] = falling.lr
    if name == "fedrcl":  # falling from epoch to epoch
        falling = walk["lr"]
        assert (falling.lr, falling.factor, falling.epochs) == (0.1, 0.998, 5)
        walk["lr"] = falling.lr
    assert walk == local
