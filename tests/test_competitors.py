"""What the cards of FedNova, FedGF, FedGloSS and FedWMSAM promise."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from flatfed import methods
from flatfed.check import examine
from flatfed.errors import CompositionError
from flatfed.method import Method
from flatfed.methods.fedgf import GlobalAscent
from flatfed.methods.fedgloss import RisingSAM, UphillStart, risen
from flatfed.methods.fednova import NormalisedProximal
from flatfed.methods.fedwmsam import MomentumGuided
from flatfed.part import View
from flatfed.parts.correct import ControlVariates, Dual
from flatfed.parts.local import SGD
from flatfed.parts.track import PseudoGradient
from flatfed.rounds import LocalData, broadcast, client_round, one_round
from flatfed.vec import unit
from problems import Quadratics, Run
from test_methods import CONSTANT, EQUAL_K, EVERYBODY, ROUNDS, differ, m, run, same
from test_rules import asked

INF = float("inf")


def steps(method: Method, problem, rounds: int = 4) -> list[tuple[int, int, int, list]]:
    """(round, client, step, what it asked and was answered) of every step."""
    logs = iter(asked(method, problem, rounds))

    def walks() -> list[tuple[int, int, int, list]]:
        return [
            (t, i, k, next(logs))
            for t in range(rounds)
            for i in listened.cohort(t)
            for k in range(listened.steps(i, t))
        ]

    listened = Quadratics(problem)
    return walks()


# FedNova


def test_fednova_with_equal_steps_is_fedavg() -> None:
    for settings in ({}, {"momentum": 0.9}, {"weight_decay": 0.1, "clip": 0.5}):
        for weights in ("uniform", "samples"):
            nova = m("fednova", weights=weights, **settings)
            same(nova, m("fedavg", weights=weights, **settings), EQUAL_K)
            differ(nova, m("fedavg", weights=weights, **settings))


def test_fednova_has_its_published_test_vector() -> None:
    """w = 0, K = (1, 3), end points −1 and −6: d = (1, 2), τ_eff = 2, so −3; FedAvg has −3.5."""
    x = torch.zeros(1, dtype=torch.float64)
    cohort = [LocalData(0, [torch.ones_like]), LocalData(1, [lambda w: 2 * torch.ones_like(w)] * 3)]
    walk = {"lr": 1.0, "steps": 1, "weight_decay": 0.0, "clip": None, "weights": "uniform"}
    for name, end in (("fednova", -3.0), ("fedavg", -3.5)):
        method = methods.build(name, **walk)
        state, _ = one_round(method, method.start(x), {}, cohort, 0, 2)
        assert state["x"].item() == end


@dataclass(frozen=True)
class Fall:
    def __call__(self, t: int, k: int, K: int) -> float:
        return 0.1 / (1 + k)


@pytest.mark.parametrize("lr", [0.1, Fall()], ids=["constant", "falling"])
@pytest.mark.parametrize("own", [{}, {"momentum": 0.7}, {"mu": 3.0}], ids=str)
def test_fednova_sends_a_constant_gradient_whatever_the_number_of_steps(own, lr) -> None:
    x = torch.tensor([1.0, -2.0], dtype=torch.float64)
    g = torch.tensor([0.5, 3.0], dtype=torch.float64)
    method = methods.fednova(**own, lr=lr, lr_decay=1.0, steps=1, weight_decay=0.0, clip=None)
    for K in (1, 2, 7):
        upload, _ = client_round(method, {"x": x}, {}, LocalData(0, [lambda w: g] * K), 0)
        unit = 1.0 if "mu" in own else upload.travel  # by which the server divides
        torch.testing.assert_close(upload.vectors["dx"][0] / unit, -g, rtol=0, atol=1e-12)


def test_fednova_divides_by_the_papers_normaliser() -> None:
    """K, (K − ρ(1−ρ^K)/(1−ρ))/(1−ρ) and (1 − (1−ημ)^K)/(ημ), times η; tau is Kη for the last."""
    eta, rho, mu = 0.1, 0.7, 3.0
    x = torch.zeros(1, dtype=torch.float64)
    for K in (1, 2, 7):
        momentum = (K - rho * (1 - rho**K) / (1 - rho)) / (1 - rho)
        pulled = (1 - (1 - eta * mu) ** K) / (eta * mu)
        for own, a, tau in (
            ({}, K, K),
            ({"momentum": rho}, momentum, momentum),
            ({"mu": mu}, pulled, K),
        ):
            method = methods.fednova(**own, lr=eta, steps=1, weight_decay=0.0, clip=None)
            batches = [lambda w: w + 1.0] * K
            upload, _ = client_round(method, {"x": x}, {}, LocalData(0, batches), 0)
            plain = replace(method, server=methods.fedavg().server)
            walked, _ = client_round(plain, {"x": x}, {}, LocalData(0, batches), 0)
            (dx,), (end,) = upload.vectors["dx"], walked.vectors["dx"]
            if "mu" in own:
                torch.testing.assert_close(dx * eta * a, end, rtol=0, atol=1e-12)
                (sent,) = upload.vectors["tau"]
                assert sent.item() == pytest.approx(eta * tau, abs=1e-12)
            else:
                torch.testing.assert_close(dx, end, rtol=0, atol=0)
                assert upload.vectors.keys() == {"dx"}
                assert upload.travel == pytest.approx(eta * tau, abs=1e-12)


def test_fednova_with_a_pull_and_equal_steps_is_fedprox_with_a_larger_server_rate() -> None:
    mu, eta, K = 0.8, CONSTANT["lr"], EQUAL_K.K
    a = (1 - (1 - eta * mu) ** K) / (eta * mu)
    nova = methods.fednova(mu=mu, weights="uniform", **CONSTANT)
    prox = methods.fedprox(lam=mu, global_lr=K / a, **CONSTANT)
    assert K / a > 1
    same(nova, prox, EQUAL_K)
    differ(nova, methods.fedprox(lam=mu, **CONSTANT), EQUAL_K)
    same(nova, methods.fedprox(lam=mu, **CONSTANT), Quadratics(3, K=1))


@pytest.mark.parametrize("own", [{}, {"momentum": 0.7}, {"mu": 0.5}], ids=str)
def test_fednova_settles_where_the_weighted_mean_of_gradients_vanishes_as_rates_fall(own) -> None:
    """Up to the drift of several local steps, which is of order η; FedAvg's error is not."""

    class Unequal(Quadratics):
        def steps(self, i, t):
            return 1 + 3 * i

    problem = Unequal(3, noise=0.0, full=True)
    p = problem.samples / problem.samples.sum()
    A = np.einsum("n,nij->ij", p, problem.A)
    best = np.linalg.solve(A, np.einsum("n,nij,nj->i", p, problem.A, problem.b))

    def error(name: str, eta: float) -> float:
        local = {**CONSTANT, "lr": eta, "weights": "samples"}
        mine = own if name == "fednova" else {k: v for k, v in own.items() if k == "momentum"}
        method = methods.build(name, **local, **mine)

        def once(x):  # on noiseless quadratics a round is an affine map
            problem.x0 = x
            return Run(method, problem, 1).xs[0]

        zero = once(np.zeros(problem.d))
        M = np.stack([once(e) - zero for e in np.eye(problem.d)], axis=1)
        return float(np.linalg.norm(np.linalg.solve(np.eye(problem.d) - M, zero) - best))

    nova, avg = [[error(name, eta) for eta in (2e-3, 1e-3)] for name in ("fednova", "fedavg")]
    assert nova[1] == pytest.approx(nova[0] / 2, rel=0.1)
    assert avg[1] == pytest.approx(avg[0], rel=0.1)
    assert avg[1] > 10 * nova[1]


def test_fednova_refuses_a_pull_with_momentum() -> None:
    with pytest.raises(CompositionError, match=r"mu=0\.1 with momentum=0\.9, expected one"):
        methods.fednova(mu=0.1, momentum=0.9)
    with pytest.raises(CompositionError, match=r"NormalisedProximal got mu=0\.0"):
        NormalisedProximal(0.0)
    with pytest.raises(CompositionError, match="mu=-1, expected a number"):
        methods.fednova(mu=-1)


# FedGF


def test_fedgf_with_an_infinite_threshold_is_fedsam() -> None:
    same(m("fedgf", rho=0.2, rho_g=0.7, threshold=INF), m("fedsam", rho=0.2))
    differ(m("fedgf", rho=0.2, rho_g=0.7, threshold=0.0), m("fedsam", rho=0.2))


def test_fedgf_without_radii_is_fedavg_where_nothing_is_far() -> None:
    same(m("fedgf", rho=0.0, rho_g=0.0, threshold=INF), m("fedavg"))
    differ(m("fedgf", rho=0.0, rho_g=0.0, threshold=0.0), m("fedavg"))  # asks at x, not at w


def test_fedgf_first_round_is_fedsams() -> None:
    same(m("fedgf", rho=0.2, threshold=0.0), m("fedsam", rho=0.2), rounds=slice(0, 1))
    differ(m("fedgf", rho=0.2, threshold=0.0), m("fedsam", rho=0.2), rounds=slice(1, 2))


def test_fedgf_with_c_at_one_asks_for_every_gradient_at_the_far_point() -> None:
    method = m("fedgf", rho=0.1, rho_g=0.5, threshold=0.0)
    states = Run(method, Quadratics(1), 4).states
    for t, _, _, log in steps(method, 1):
        x, x_far = states[t]["x"], states[t]["x_far"]
        (w, _), (point, _) = log
        if t:
            assert states[t]["c"].item() == 1.0
            uphill = 0.5 * unit(states[t - 1]["x"] - x)
            torch.testing.assert_close(point, x_far, rtol=0, atol=1e-12)
            torch.testing.assert_close(x_far - x, uphill, rtol=0, atol=1e-12)
        else:
            assert (point - w).norm().item() == pytest.approx(0.1, abs=1e-6)


def test_fedgf_c_is_the_share_of_far_rounds_among_the_last_ones() -> None:
    part = GlobalAscent(0.1, 0.1, threshold=1.0, window=3)
    x = torch.zeros(2, dtype=torch.float64)
    state = {name: part.init(name, x) for name in part.server}
    seen = []
    for distance in (2.0, 0.5, 1.0, 3.0, 3.0, 3.0, 0.0):  # 1.0 is not above the threshold
        mean = View("mean", {"distance": x.new_tensor([distance])})
        state |= part.absorb(mean, View("GlobalAscent", dict(state)))
        seen.append(state["c"].item())
    expected = [1, 1 / 2, 1 / 3, 1 / 3, 2 / 3, 1, 2 / 3]
    assert seen == pytest.approx(expected)


def test_fedgf_writes_down_how_far_it_trusts_the_server() -> None:
    method = m("fedgf", threshold=0.3, window=4)
    logged = [method.logged(s)["c"] for s in Run(method, Quadratics(3), ROUNDS).states]
    assert logged[0] == 0.0
    assert any(0 < c < 1 for c in logged)


def test_fedgf_refuses_what_has_no_meaning() -> None:
    for wrong, said in (
        ({"window": 0}, "window=0, expected a whole number ≥ 1"),
        ({"threshold": -0.1}, "threshold=-0.1, expected a number in "),
        ({"rho": -1}, "rho=-1, expected"),
        ({"rho_g": -1}, "rho_g=-1, expected"),
    ):
        with pytest.raises(CompositionError, match=said):
            methods.fedgf(**wrong)


# FedGloSS


@dataclass(frozen=True)
class NoDual(Dual):
    """The dual with both its terms removed."""

    def direction(self, g, w, v):
        """g ← g"""
        return g

    def remember(self, sent, v):
        """h_i ← h_i"""
        return {"h_i": v.h_i}

    def absorb(self, mean, v):
        """h ← h"""
        return {"h": v.h}


def test_fedgloss_without_radii_is_feddyn() -> None:
    for weights in ("uniform", "samples"):
        flat = m("fedgloss", rho_s=0.0, rho_l=0.0, lam=0.3, weights=weights)
        same(flat, m("feddyn", lam=0.3, weights=weights))
    same(m("fedgloss", rho_s=0.0, rho_l=0.2, rise=0), m("fedspeed", rho=0.2))


def test_fedgloss_without_duals_and_server_radius_is_fedsam() -> None:
    bare = replace(m("fedgloss", rho_s=0.0, rho_l=0.2, rise=0), correct=(NoDual(0.1),))
    same(bare, m("fedsam", rho=0.2))
    bare = replace(m("fedgloss", rho_s=0.0, rho_l=0.0), correct=(NoDual(0.1),))
    same(bare, m("fedavg"))
    with_rate = m("fedgloss", rho_s=0.0, rho_l=0.0, global_lr=0.6)
    same(replace(with_rate, correct=(NoDual(0.1),)), m("fedavg", global_lr=0.6))


def test_fedgloss_without_a_penalty_still_has_its_dual_on_the_server() -> None:
    """λ → 0 (β → ∞): h is the sum of what clients walked, whatever λ."""
    loose = m("fedgloss", rho_s=0.0, rho_l=0.0, lam=1e-13)
    differ(loose, m("fedavg"))
    r = Run(loose, Quadratics(3), ROUNDS)
    walked = sum(k["h_i"] for k in r.kept.values()) / r.problem.N
    assert walked.norm() > 0.1
    torch.testing.assert_close(r.state["h"], walked, rtol=0, atol=1e-12)


def test_fedgloss_starts_its_clients_uphill_and_steps_from_where_it_was() -> None:
    method = m("fedgloss", rho_s=0.4, rise=0)
    r = Run(method, Quadratics(3), 6)
    assert torch.equal(broadcast(method, r.states[0], 0, 6)["x"], r.states[0]["x"])
    for t in range(1, 6):
        before, after = r.states[t], r.states[t + 1]
        start = broadcast(method, before, t, 6)["x"]
        uphill = before["x"] + 0.4 * unit(before["delta"])
        torch.testing.assert_close(start, uphill, rtol=0, atol=1e-12)
        moved = before["x"] - after["delta"] + after["h"]
        torch.testing.assert_close(after["x"], moved, rtol=0, atol=1e-12)


def test_fedgloss_radii_rise_in_a_line_to_their_own_ends() -> None:
    expected_s, expected_l = [0.1, 0.2, 0.3, 0.4, 0.5, 0.5], [0.1, 0.125, 0.15, 0.175, 0.2, 0.2]
    method = m("fedgloss", rho_s=0.5, rho_l=0.2, rho_0=0.1, rise=4)
    states = Run(method, Quadratics(1), 6).states
    for t, _, _, log in steps(method, 1, 6):
        (w, _), (up, _) = log
        assert (up - w).norm().item() == pytest.approx(expected_l[t], abs=1e-6)
        start = broadcast(method, states[t], t, 6)["x"]
        far = (start - states[t]["x"]).norm().item()
        assert far == pytest.approx(expected_s[t] if t else 0.0, abs=1e-6)
    assert [risen(0.0, 0.1, 4, t) for t in range(6)] == [0.0] * 6  # what is off stays off
    assert [risen(0.5, 0.1, 0, t) for t in range(2)] == [0.5] * 2
    assert RisingSAM(0.1, 0.0, 2000).quick() == RisingSAM(0.1, 0.0, 2)
    assert UphillStart(0.1, 0.0, 2000, 1.0).quick() == UphillStart(0.1, 0.0, 2, 1.0)


def test_fedgloss_refuses_what_has_no_meaning() -> None:
    for wrong, said in (
        ({"rho_l": -1}, "RisingSAM got rho=-1, expected"),
        ({"rho_s": -1}, "UphillStart got rho=-1, expected"),
        ({"rho_0": -1}, "rho_0=-1, expected"),
        ({"rise": -1}, "rise=-1, expected a whole number ≥ 0"),
        ({"global_lr": 0}, "global_lr=0, expected"),
        ({"lam": 0}, "lam=0, expected"),
    ):
        with pytest.raises(CompositionError, match=said):
            methods.fedgloss(**wrong)


# FedWMSAM


@dataclass(frozen=True)
class Steady(MomentumGuided):
    """alpha stays where it starts."""

    def absorb(self, mean, v):
        """alpha ← alpha"""
        return {**super().absorb(mean, v), "alpha": v.alpha}


@dataclass(frozen=True)
class Uncontrolled(Steady):
    """Nor are there variates."""

    def remember(self, sent, v):
        """c_i ← c_i"""
        return {"c_i": v.c_i}

    def absorb(self, mean, v):
        """c ← c"""
        return {**super().absorb(mean, v), "c": v.c}


def wmsam(part: MomentumGuided, **settings) -> Method:
    return replace(m("fedwmsam", **settings), perturb=part)


def test_fedwmsam_without_ascent_and_variates_is_fedcm() -> None:
    for alpha in (0.1, 0.6):
        mine = wmsam(Uncontrolled(0.0, alpha, "one"), global_lr=1.3)
        same(mine, m("fedcm", alpha=alpha, global_lr=1.3))
    differ(wmsam(Steady(0.0, 0.1, "one")), m("fedcm", alpha=0.1))


def test_fedwmsam_at_alpha_one_is_scaffold_or_fedavg() -> None:
    same(wmsam(Uncontrolled(0.0, 1.0, "one")), m("fedavg"))
    same(wmsam(Steady(0.0, 1.0, "one")), m("scaffold"))


def test_fedwmsam_keeps_the_mean_of_its_variates() -> None:
    r = Run(m("fedwmsam", rho=0.2), Quadratics(3), ROUNDS)
    mean = sum(kept["c_i"] for kept in r.kept.values()) / r.problem.N
    torch.testing.assert_close(r.state["c"], mean, rtol=0, atol=1e-12)


def test_fedwmsam_first_step_of_a_round_is_not_perturbed() -> None:
    method = m("fedwmsam", rho=0.3)
    states = Run(method, Quadratics(1), 6).states
    for t, _, k, log in steps(method, 1, 6):
        ((point, _),) = log  # one gradient a step
        assert (k == 0) == torch.equal(point, states[t]["x"])


@pytest.mark.parametrize("scale", ["one", "rate"])
def test_fedwmsam_ascends_along_the_whole_anchor(scale) -> None:
    """unit(x + k·m_i − w), with m_i = m + α/(1−α)·(c − c_i): one vector, uphill."""
    rho = 0.3
    method = m("fedwmsam", rho=rho, alpha=0.4, anchor_scale=scale)
    problem = Quadratics(1)
    r = Run(method, problem, 6)
    eta = 0.05 * 0.97 ** np.arange(6)
    walked: dict = {}
    for t, i, k, log in steps(method, 1, 6):
        ((point, g),) = log
        state, kept = r.states[t], r.kepts[t].get(i, {})
        alpha, x = state["alpha"], state["x"]
        control = state["c"] - kept.get("c_i", torch.zeros_like(x))
        m_i = state["m"] + alpha / (1 - alpha) * control
        w = x if k == 0 else walked[t, i]
        anchor = x + k * (1.0 if scale == "one" else eta[t]) * m_i
        expected = w + rho * unit(anchor - w)
        torch.testing.assert_close(point, expected, rtol=0, atol=1e-12)
        walked[t, i] = w - eta[t] * (alpha * g + (1 - alpha) * m_i)


def test_fedwmsam_alpha_falls_with_agreement_and_rises_against_it() -> None:
    part = MomentumGuided(0.1, 0.5, "one")
    x = torch.zeros(2, dtype=torch.float64)
    uphill = torch.tensor([3.0, 4.0], dtype=torch.float64)
    across = torch.tensor([-4.0, 3.0], dtype=torch.float64)
    alpha = x.new_tensor([0.5])
    for dx, turn, towards in (
        (-uphill, 0.0, 0.1),  # down along m: as small as it gets
        (uphill, 2.0, 0.9),
        (across, 1.0, 0.9),
        (across - 2 * uphill, 1 - 2 / 5**0.5, 1 - 2 / 5**0.5),  # between the clips
    ):
        client = View("MomentumGuided", {"x": x, "m": uphill})
        sent = part.finish(x + dx, client)
        assert sent["turn"].item() == pytest.approx(turn, abs=1e-6)
        mean = View("mean", {**sent, "dx_travel": dx})
        server = View("MomentumGuided", {"c": x, "alpha": alpha, "S": 1, "N": 2})
        new = part.absorb(mean, server)
        expected = 0.99 * 0.5 + 0.01 * towards
        assert new["alpha"].item() == pytest.approx(expected, abs=1e-8)
    assert part.finish(x + across, View("it", {"x": x, "m": x}))["turn"].item() == 1.0


def test_fedwmsam_alpha_falls_to_a_tenth_while_equal_clients_go_straight() -> None:
    class Straight(Quadratics):
        def grad(self, i, t, k, w):
            return np.ones_like(w)

    method = m("fedwmsam", alpha=0.8, lr_decay=1.0)
    r = Run(method, Straight(3), 900)
    alpha = [method.logged(state)["alpha"] for state in r.states]
    assert alpha[1] > alpha[0]  # there is no m in round 0, and cos = 0
    assert (np.diff(alpha[1:]) < 0).all()
    assert alpha[-1] == pytest.approx(0.1, abs=1e-3)


def test_fedwmsam_decay_is_amplified_by_the_mix() -> None:
    """∇F = 0 and a model that hardly moves: m → ω·x/α, and a step is −η·ω·x/α."""

    class Flat(Quadratics):
        def grad(self, i, t, k, w):
            return np.zeros_like(w)

    omega, alpha = 0.1, 0.25
    local = {**CONSTANT, "lr": 1e-7, "weight_decay": omega}
    method = replace(methods.fedwmsam(**local), perturb=Steady(0.01, alpha, "one"))
    r = Run(method, Flat(3, full=True), 80)
    expected = omega * r.state["x"] / alpha
    torch.testing.assert_close(r.state["m"], expected, rtol=1e-5, atol=0)


def test_fedwmsam_with_everybody_has_one_direction_in_m_and_c() -> None:
    r = Run(m("fedwmsam"), EVERYBODY, ROUNDS)
    torch.testing.assert_close(r.state["m"], r.state["c"], rtol=0, atol=1e-12)


def test_fedwmsam_refuses_what_has_no_meaning() -> None:
    for wrong, said in (
        ({"alpha": 0}, "alpha=0, expected a number in"),
        ({"alpha": 1}, "alpha=1, expected less than 1, for m_i divides by 1−α"),
        ({"rho": -1}, "rho=-1, expected"),
        ({"anchor_scale": "two"}, "anchor_scale='two', expected 'one' or 'rate'"),
    ):
        with pytest.raises(CompositionError, match=said):
            methods.fedwmsam(**wrong)
    assert methods.fedwmsam(alpha=1.0, rho=0.0).perturb.alpha == 1.0


def test_every_local_work_walks_with_momentum_too() -> None:
    for name in ("fednova", "fedgf", "fedgloss", "fedwmsam"):
        assert np.isfinite(run(m(name, momentum=0.5))).all()
        assert isinstance(methods.build(name, momentum=0.5).local, SGD)


def test_a_pulled_fednova_stands_alone() -> None:
    """Its dx is no y − x: what reads it as one is refused."""
    pulled = methods.fednova(mu=0.5)
    for other in (
        {"correct": (*pulled.correct, ControlVariates(increment="derived"))},
        {"also": (PseudoGradient(),)},
    ):
        with pytest.raises(CompositionError, match="NormalisedProximal sends dx divided by a"):
            replace(pulled, **other)
    plain = replace(methods.fednova(), correct=(ControlVariates(increment="derived"),))
    assert [f for f in examine(plain) if f.wrong] == []
