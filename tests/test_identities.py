"""What each method's card promises beside the equality graph: closed forms, fixed points, means."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import pytest
import torch

from flatfed import methods
from flatfed.method import Method
from flatfed.methods.fedvssam import AnchoredSAM
from flatfed.part import View
from flatfed.parts.correct import Dual, Proximal
from flatfed.parts.local import SGD
from flatfed.parts.track import PseudoGradient
from flatfed.rounds import LocalData, one_round
from problems import Quadratics, Run
from test_methods import CONSTANT, ROUNDS, frozen, m, replace_owner, run, same
from test_rules import asked


@dataclass(frozen=True, kw_only=True, repr=False)
class Watched(SGD):
    """SGD that writes down every step it takes, as (client's K, k, η, direction, w)."""

    log: list = field(default_factory=list, compare=False)

    def step(self, w, g, v):
        self.log.append((v.K, v.k, v.lr, g, w))
        return super().step(w, g, v)


def watched(method: Method) -> tuple[Method, list]:
    local = method.local
    settings = {name: getattr(local, name) for name in SGD.__dataclass_fields__}
    walk = Watched(**settings)
    return replace(method, local=walk), walk.log


def per_client(log: list) -> list[list]:
    """The log, cut where a client's steps begin."""
    starts = [n for n, (_, k, *_) in enumerate(log) if k == 0]
    return [log[a:b] for a, b in zip(starts, [*starts[1:], len(log)], strict=True)]


def weighted_mean(steps: list) -> torch.Tensor:
    return sum(lr * g for _, _, lr, g, _ in steps) / sum(lr for _, _, lr, *_ in steps)


@pytest.mark.parametrize("name", ["fedavg", "fedsam", "fedprox"])
def test_identical_clients_train_as_one(name) -> None:
    class Identical(Quadratics):
        def grad(self, i, t, k, w):
            return super().grad(0, t, k, w)

    several, alone = Identical(3, K=4), Identical(3, K=4, N=6)
    alone.cohort = lambda t: [0]
    np.testing.assert_allclose(run(m(name), several), run(m(name), alone), rtol=0, atol=1e-12)


def test_adam_with_a_huge_tau_is_fedavg() -> None:
    """β₁ = 0 and η_g = c·τ with τ → ∞: x + c·mean(dx)."""
    tau = 1e9
    adam = m("fedadam", beta1=0.0, tau=tau, global_lr=0.7 * tau, first_v="zero")
    np.testing.assert_allclose(run(adam), run(m("fedavg", global_lr=0.7)), rtol=0, atol=1e-8)


def test_yogi_lowers_a_large_v_by_exactly_the_newest_square() -> None:
    yogi, avg = m("fedyogi", tau=10.0), m("fedavg")
    problem = Quadratics(3)
    dx = run(avg, problem)[0] - problem.x0
    v = Run(yogi, problem, 1).state["v"].numpy()
    np.testing.assert_allclose(v, 100.0 - 0.01 * dx**2, rtol=0, atol=1e-12)


def test_fedcm_with_one_step_averages_gradients_exponentially() -> None:
    """K = 1, nobody absent: delta ← (1−α)·delta + α·mean(∇F)."""
    problem = Quadratics(3, K=1, full=True)
    r = Run(m("fedcm", alpha=0.3), problem, ROUNDS)
    delta = np.zeros(problem.d)
    for t in range(ROUNDS):
        x = r.states[t]["x"].numpy()
        mean = np.mean([problem.grad(i, t, 0, x) for i in range(problem.N)], axis=0)
        delta = 0.7 * delta + 0.3 * mean
        np.testing.assert_allclose(r.states[t + 1]["delta"].numpy(), delta, rtol=0, atol=1e-12)


def test_scaffold_stays_at_its_fixed_point() -> None:
    """Full batches, c_i = ∇F_i(x*) and c = 0: nothing moves, with either option."""
    problem = Quadratics(3, K=4, noise=0.0)
    A, Ab = problem.A.mean(0), np.einsum("nij,nj->i", problem.A, problem.b) / problem.N
    problem.x0 = np.linalg.solve(A, Ab)
    kept = {i: {"c_i": torch.from_numpy(problem.whole(i, problem.x0))} for i in range(problem.N)}
    for option in ("I", "II"):
        method = m("scaffold", option=option)
        state, after = method.start(torch.from_numpy(problem.x0)), kept
        for t in range(4):
            cohort = [problem.data(i, t) for i in problem.cohort(t)]
            state, after = one_round(method, state, after, cohort, t, problem.N)
        np.testing.assert_allclose(state["x"].numpy(), problem.x0, rtol=0, atol=1e-12)
        np.testing.assert_allclose(state["c"].numpy(), 0, rtol=0, atol=1e-12)
        for i in kept:
            torch.testing.assert_close(after[i]["c_i"], kept[i]["c_i"], rtol=0, atol=1e-12)


def test_feddc_variate_is_the_mean_of_gradient_and_drift() -> None:
    """c_i⁺ = mean over k of ∇F + λ(w − x + h_i), which is the direction less c − c_i."""
    problem, rounds = Quadratics(3), 6
    method, log = watched(m("feddc", lam=0.2))
    r = Run(method, problem, rounds)
    clients = iter(per_client(log))
    for t in range(rounds):
        for i in problem.cohort(t):
            c = r.states[t]["c"]
            c_i = r.kepts[t].get(i, {"c_i": torch.zeros_like(c)})["c_i"]
            expected = weighted_mean(next(clients)) - (c - c_i)
            torch.testing.assert_close(r.kepts[t + 1][i]["c_i"], expected, rtol=0, atol=1e-12)


def test_feddc_without_its_drift_is_scaffold() -> None:
    dc, scaffold = m("feddc"), m("scaffold")
    variates = tuple(part for part in dc.correct if not isinstance(part, Dual))
    same(replace(dc, correct=variates, server=scaffold.server), scaffold)


def test_sam_on_a_quadratic_has_its_closed_form() -> None:
    """F = ½wᵀAw: the gradient is A(w + ρ·Aw/‖Aw‖)."""
    random = torch.Generator().manual_seed(0)
    B = torch.randn(4, 4, generator=random, dtype=torch.float64)
    A, x = B @ B.T, torch.randn(4, generator=random, dtype=torch.float64)
    method = m("fedsam", rho=0.3)
    cohort = [LocalData(0, [lambda w: A @ w])]
    state, _ = one_round(method, method.start(x), {}, cohort, 0, 1)
    expected = x - 0.05 * A @ (x + 0.3 * (A @ x) / (A @ x).norm())
    torch.testing.assert_close(state["x"], expected, rtol=0, atol=1e-8)  # ε₀ under the norm


def test_asam_asks_at_distance_rho_in_its_own_metric() -> None:
    """‖T⁻¹ε‖ = ρ, T = |w| + ζ on weights and 1 on biases."""
    problem = Quadratics(1)
    for (w, _), (up, _) in asked(m("fedasam", rho=0.7, zeta=0.2), 1):
        T = np.where(problem.adaptive, np.abs(w.numpy()) + 0.2, 1.0)
        assert np.linalg.norm((up - w).numpy() / T) == pytest.approx(0.7, abs=1e-12)


def test_fedspeed_with_frozen_duals_is_fedprox_with_sam() -> None:
    speed = replace(frozen(m("fedspeed", lam=0.3)), server=m("fedavg").server)
    speed = replace(speed, correct=(replace_owner(speed.correct[0]),))
    same(speed, replace(m("fedsam", rho=0.1), correct=(Proximal(0.3),)))


@pytest.mark.parametrize("name", ["fedlesam", "fedlesam-s", "fedlesam-d"])
def test_lesam_ascends_equally_at_every_step_and_by_rho_once_it_has_a_reference(name) -> None:
    points: dict[tuple[int, int], list] = {}

    class Listening(Quadratics):
        def grad(self, i, t, k, w):
            points.setdefault((t, i), []).append(w)
            return super().grad(i, t, k, w)

    method, log = watched(m(name, rho=0.3))
    problem = Listening(1, K=3)
    Run(method, problem, 6)
    seen: set[int] = set()
    clients = iter(per_client(log))
    for t in range(6):
        for i in problem.cohort(t):
            walked = [w.numpy() for *_, w in next(clients)]
            eps = [asked - w for asked, w in zip(points[t, i], walked, strict=True)]
            for one in eps[1:]:
                np.testing.assert_allclose(one, eps[0], rtol=0, atol=1e-12)
            expected = 0.3 if i in seen else 0.0
            assert np.linalg.norm(eps[0]) == pytest.approx(expected, abs=1e-6)
        seen |= set(problem.cohort(t))
    assert len(seen) == problem.N


def test_fedvssam_direction_is_the_mean_of_the_directions_walked() -> None:
    """With the server part off, delta is the mean over clients of their rate-weighted D_k."""
    problem, rounds = Quadratics(3), 6
    method, log = watched(m("fedvssam", gamma_l=0.3, gu=False))
    r = Run(method, problem, rounds)
    clients = iter(per_client(log))
    for t in range(rounds):
        means = [weighted_mean(next(clients)) for _ in problem.cohort(t)]
        expected = torch.stack(means).mean(0)
        torch.testing.assert_close(r.states[t + 1]["delta"], expected, rtol=0, atol=1e-12)


def test_fedvssam_direction_is_a_momentum_of_the_perturbed_gradients() -> None:
    """H ← (1−γ_lγ_g)·H + γ_lγ_g·mean(g̃), in every round and not only the first."""
    gamma_l, gamma_g = 0.3, 0.6
    answers: dict[int, list] = {}

    class Listening(Quadratics):
        def grad(self, i, t, k, w):
            g = super().grad(i, t, k, w)
            answers.setdefault(t, []).append(g)
            return g

    problem = Listening(3, K=3)
    method = methods.fedvssam(gamma_l=gamma_l, gamma_g=gamma_g, rho=0.1, **CONSTANT)
    r = Run(method, problem, 6)
    share = gamma_l * gamma_g
    for t in range(6):
        perturbed = np.mean(answers[t][1::2], axis=0)  # every second answer is the descent's
        expected = (1 - share) * r.states[t]["delta"].numpy() + share * perturbed
        np.testing.assert_allclose(r.states[t + 1]["delta"].numpy(), expected, rtol=0, atol=1e-12)


def test_fedvssam_damps_the_noise_of_a_step_by_gamma_squared() -> None:
    """Var(D_k | past) = γ_l²·Var(g̃_k): the direction is affine in the gradient."""
    (blend,) = m("fedvssam", gamma_l=0.4).correct
    random = torch.Generator().manual_seed(0)
    delta, one, two = (torch.randn(5, generator=random, dtype=torch.float64) for _ in range(3))
    view = View("Blend", {"delta": delta})
    gap = blend.direction(one, one, view) - blend.direction(two, two, view)
    torch.testing.assert_close(gap, 0.4 * (one - two), rtol=0, atol=1e-12)


def test_fedvssam_first_ascent_is_sams_for_any_gamma() -> None:
    """delta = 0 in round 0, and an ascent is a direction only: its scale is lost (up to ε₀)."""
    plain = run(m("fedsam", rho=0.1))[0]
    for gamma in (0.1, 0.9):
        anchored = replace(m("fedavg"), perturb=AnchoredSAM(0.1, gamma), also=(PseudoGradient(),))
        np.testing.assert_allclose(run(anchored)[0], plain, rtol=0, atol=1e-6)
        assert np.abs(run(anchored)[1:] - run(m("fedsam", rho=0.1))[1:]).max() > 1e-4
