"""DP-FedSAM: clipped and noisy updates, found where clipping and noise do the least harm."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isinf, sqrt
from typing import Literal, Unpack

from flatfed.errors import CompositionError, one_of, refuse, within
from flatfed.method import DENSE, Method
from flatfed.oracle import Oracle
from flatfed.part import Part, Perturbation, View
from flatfed.parts.local import SHARED, LocalWork, work
from flatfed.parts.perturb import NO_ASCENT, SAM
from flatfed.privacy import epsilon
from flatfed.vec import Named, Vec, clip, norm

TINY = 1e-12  # under a norm


@dataclass(frozen=True)
class RelativeSAM(Perturbation):
    """At a distance measured in each weight's own size, biases among them."""

    rho: float
    gradients = 2
    references = ("asam",)

    def __post_init__(self) -> None:
        within(self, "rho", "[0, ∞)", NO_ASCENT)

    def gradient(self, w: Vec, grad: Oracle, v: View) -> tuple[Vec, Named]:
        """g ← ∇F(w + ρ·w²⊙∇F(w)/‖|w|⊙∇F(w)‖)"""
        scaled = w * grad(w)
        length = norm(scaled) + TINY
        return grad(w.addcmul(scaled.mul_(w), self.rho / length)), {}


@dataclass(frozen=True)
class NoisyUpdate(Part):
    """Updates of bounded length under Gaussian noise, and what their sum has given away so far.

    The noises of all drawn clients add up to σ·C; where fewer answer, there is less, and ε counts
    it so: every round is a release at rate q = drawn/N under σ·sqrt(S/drawn).
    """

    bound: float
    sigma: float
    delta: float | None = None  # None: N^−1.1
    server, upload = ("answers", "epsilon"), ("dx",)
    scalars, apart, logged = ("epsilon",), ("answers",), ("epsilon",)
    cohorts = "random"
    references = ("dpfedsam", "rdp")

    def __post_init__(self) -> None:
        within(self, "bound", "(0, ∞]")
        within(self, "sigma", "[0, ∞)", "sigma=0 adds no noise, and ε is infinite.")
        if self.delta is not None:
            within(self, "delta", "(0, 1)")
        if self.sigma and isinf(self.bound):
            refuse(self, "bound", "a finite length where there is noise of sigma times it")

    def fits(self, method: Method) -> None:
        others = [name for name in method.uploads if name != "dx"]
        wrong = ""
        if method.compress != DENSE:
            wrong = f"compress={method.compress!r}: of what each client rounds off, no noise hides"
        elif method.weights != "uniform":
            wrong = f"weights={method.weights!r}: a client then counts for more than its bound"
        elif others:
            wrong = f"uploads without noise: {', '.join(others)}"
        if wrong:
            raise CompositionError(
                f"NoisyUpdate got {wrong}, expected nothing but dx, whole and of equal weight, or "
                "ε would be wrong.\nLeave that out; running statistics are an upload, GroupNorm "
                "has none."
            )

    def init(self, name: str, x: Vec) -> Vec:
        return x.new_zeros(0) if name == "answers" else super().init(name, x)

    def finish(self, y: Vec, v: View) -> Named:
        """dx ← (y − x)·min(1, C/‖y − x‖) + N(0, (σC)²/drawn)"""
        dx = clip(y - v.x, self.bound)
        if not self.sigma:
            return {"dx": dx}
        import torch

        random = torch.Generator().manual_seed(v.seed("noise"))
        noise = torch.randn(dx.numel(), generator=random, dtype=dx.dtype).to(dx.device)
        return {"dx": dx.add_(noise, alpha=self.sigma * self.bound / sqrt(v.drawn))}

    def absorb(self, mean: View, v: View) -> Named:
        """
        answers ← answers, and once more that S of the drawn clients answered
        epsilon ← ε of all rounds so far, at δ
        """
        counts = {(d, s): n for d, s, n in v.answers.view(-1, 3).int().tolist()}
        now = v.drawn, round(v.S)
        counts[now] = counts.get(now, 0) + 1
        delta = v.N**-1.1 if self.delta is None else self.delta
        spent = inf  # without noise, at once
        if self.sigma:
            releases = [(d / v.N, self.sigma * sqrt(s / d), n) for (d, s), n in counts.items()]
            spent = epsilon(releases, delta)
        return {
            "answers": v.x.new_tensor(
                [number for key, n in counts.items() for number in (*key, n)]
            ),
            "epsilon": v.x.new_tensor([spent]),
        }


def dp_fedsam(
    *,
    rho: float = 0.5,
    ascent: Literal["adaptive", "plain"] = "adaptive",
    bound: float = 0.2,
    sigma: float = 0.95,
    delta: float | None = None,
    weights: Literal["uniform"] = "uniform",
    **local: Unpack[LocalWork],
) -> Method:
    """FedSAM under client-level differential privacy (Shi et al., CVPR 2023).

    Settings are the authors' for 500 clients, a tenth a round: bound (C) 0.2, sigma 0.95, rho 0.5
    of the adaptive ascent, 30 epochs, momentum 0.5, ω 5e-4, no clipping of gradients. δ is N^−1.1
    (0.0011 of 500 clients); their own example has 0.005, which is more than 1/N. `epsilon` is
    written down every round; it needs pip install 'flatfed[privacy]'. In the mean, the noise
    is about σ·C·sqrt(d)/drawn long: small cohorts and large models drown in it.

    What ε says: whether one client, with all its data, took part changes the probability of any
    sequence of global models by at most e^ε, save for δ. What it does not:
        Cohorts of a fixed size, drawn uniformly, are counted as if each client came with
        probability drawn/N: usual, and an approximation. Cyclic cohorts are not drawn at all, and
        are refused.
        The server sees every update by itself, under a fraction 1/drawn of the variance: it must
        be trusted, or see sums only.
        The noise follows from the run's seed: who knows the seed can take it away. It is made of
        floating-point numbers by no cryptographic generator.
        Sizes n_i, steps, and what a run records beside the models (train_loss, who failed) are
        outside.

    Differs from the paper:
        The whole update is clipped once. The authors' code clips each tensor to C, so that one
        client counts sqrt(tensors) times as much as its ε says
        (test_the_clip_is_of_the_whole_update).
        Means are uniform: weighted by samples, a large client would count for more than C.
        It never sparsifies updates, which the paper's DP-FedSAM-top_k does before the clip.
    """
    one_of("dp-fedsam", "weights", weights, "uniform")
    one_of("dp-fedsam", "ascent", ascent, "adaptive", "plain")
    paper = LocalWork(epochs=30, momentum=0.5, weight_decay=5e-4, clip=None)
    return Method(
        name="dp-fedsam",
        paper="dpfedsam",
        family="privacy",
        perturb=RelativeSAM(rho) if ascent == "adaptive" else SAM(rho),
        also=(NoisyUpdate(bound, sigma, delta),),
        local=work({**SHARED, **paper}, local),
    )
