"""FedGF: SAM between its own ascent and the server's, by how far clients drift."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Unpack

from flatfed.errors import whole, within
from flatfed.method import Method
from flatfed.oracle import Oracle
from flatfed.part import Perturbation, View
from flatfed.parts.local import SHARED, LocalWork, work
from flatfed.parts.perturb import NO_ASCENT
from flatfed.vec import Named, Vec, ascend, norm


@dataclass(frozen=True)
class GlobalAscent(Perturbation):
    """SAM, whose point moves to one uphill of the global model in as many rounds as clients
    lately walked far."""

    rho: float
    rho_g: float
    threshold: float  # of the mean distance walked in a round
    window: int  # rounds that count
    server, broadcast = ("x_far", "c", "far"), ("x_far", "c")
    upload = ("distance",)
    scalars, apart, logged = ("c", "distance"), ("far",), ("c",)
    gradients = 2
    references = ("fedgf",)

    def __post_init__(self) -> None:
        within(self, "rho", "[0, ∞)", NO_ASCENT)
        within(self, "rho_g", "[0, ∞)", "rho_g=0 puts x_far on the model itself.")
        within(self, "threshold", "[0, ∞]", "An infinite one is never crossed: FedSAM.")
        whole(self, "window", 1)

    def init(self, name: str, x: Vec) -> Vec:
        if name == "far":
            return x.new_full((self.window,), -1.0)  # rounds that have not been
        return x if name == "x_far" else super().init(name, x)

    def gradient(self, w: Vec, grad: Oracle, v: View) -> tuple[Vec, Named]:
        """g ← ∇F(c·x_far + (1−c)·(w + ρ·unit(∇F(w))))"""
        return grad(ascend(w, grad(w), self.rho).lerp(v.x_far, v.c)), {}

    def finish(self, y: Vec, v: View) -> Named:
        """distance ← ‖y − x‖"""
        return {"distance": norm(y - v.x).reshape(1)}

    def absorb(self, mean: View, v: View) -> Named:
        """far ← its last W−1, and 1 if mean(distance) > T_D, else 0;  c ← mean(far)"""
        far = v.far.roll(-1)
        far[-1:] = mean.distance > self.threshold
        return {"far": far, "c": far[far >= 0].mean().reshape(1)}

    def settle(self, x: Vec, v: View) -> Named:
        """x_far ← x + ρ_g·unit(x_before − x)"""
        return {"x_far": ascend(x, v.x - x, self.rho_g)}


def fedgf(
    *,
    rho: float = 0.05,
    rho_g: float | None = None,
    threshold: float = 0.2,
    window: int = 30,
    **local: Unpack[LocalWork],
) -> Method:
    """FedSAM pulled to a perturbed global model when clients drift (Lee and Yoon, ICML 2024).

    rho from {0.02, 0.05, 0.1} and threshold, the paper's T_D, from {0.2, 0.3} are the grids of
    the authors' code, window = 30 (W) its value; rho_g is rho unless given. threshold is a
    distance between models: another architecture or rate needs another one. Local work is the
    code's too. Their w̃ is our x_far; c is written down every round.

    Differs from the paper:
        Nothing in its rules. x_far stays where it is while a client walks, so that with c near 1
        the gradient is not taken within ρ of w; at c = 1 it is the same point in every step
        (test_fedgf_with_c_at_one_asks_for_every_gradient_at_the_far_point).
        Before the second round there is no x_far, and c = 0
        (test_fedgf_first_round_is_fedsams).
        The experiment script of the authors' code passes the threshold under a name its parser
        does not know.
        Clients send ‖y − x‖ as a number, where the code's server works it out from each model;
        so it works from means, and no compressor touches it.
    """
    paper: LocalWork = {
        **SHARED,
        "lr": 0.01,
        "lr_decay": 1.0,
        "epochs": 1,
        "batch_size": 64,
        "weight_decay": 4e-4,
        "clip": None,
    }
    return Method(
        name="fedgf",
        paper="fedgf",
        family="sharpness-aware",
        perturb=GlobalAscent(rho, rho if rho_g is None else rho_g, threshold, window),
        local=work(paper, local),
    )
