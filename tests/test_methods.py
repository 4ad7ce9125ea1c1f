"""Identities between methods: the equality graph of the field, edge by edge."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from flatfed import methods
from flatfed.method import Method
from flatfed.part import Correction, Part
from flatfed.parts.correct import Dual
from flatfed.parts.server import Average
from problems import NoisyNet, Quadratics, Run
from test_transcripts import OF_OUTPUTS

# ω = 0, no clip, a falling rate; constant where an edge needs it.
LOCAL = {"lr": 0.05, "lr_decay": 0.97, "weight_decay": 0.0, "clip": None, "steps": 1}
CONSTANT = {**LOCAL, "lr_decay": 1.0}
ROUNDS = 12


def m(name: str, **settings) -> Method:
    return methods.build(name, **{**LOCAL, **settings})


def run(method: Method, problem=None) -> np.ndarray:
    return Run(method, problem or Quadratics(3), ROUNDS).xs


def same(one: Method, two: Method, problem=None, rounds: slice = slice(None)) -> None:
    a, b = run(one, problem)[rounds], run(two, problem)[rounds]
    np.testing.assert_allclose(a, b, rtol=0, atol=1e-12)


def differ(one: Method, two: Method, problem=None, rounds: slice = slice(None)) -> None:
    assert np.abs(run(one, problem)[rounds] - run(two, problem)[rounds]).max() > 1e-4


EQUAL_K = Quadratics(3, K=3)
EVERYBODY = Quadratics(3, full=True)

EDGES = {
    "fedsam without radius is fedavg": (m("fedsam", rho=0.0), m("fedavg")),
    "fedcm with alpha 1 is fedavg": (m("fedcm", alpha=1.0), m("fedavg")),
    "fedprox without penalty is fedavg": (m("fedprox", lam=0.0), m("fedavg")),
    "fedavgm without momentum is fedavg": (m("fedavgm", beta=0.0), m("fedavg")),
    "fedavgm nesterov without momentum is fedavg": (
        m("fedavgm", beta=0.0, nesterov=True),
        m("fedavg"),
    ),
    "fedacg without look-ahead and penalty is fedavg": (
        m("fedacg", lookahead=0.0, lam=0.0),
        m("fedavg"),
    ),
    "fedacg without look-ahead is fedprox": (
        m("fedacg", lookahead=0.0, lam=0.2),
        m("fedprox", lam=0.2),
    ),
    "fedswa with ratio 1 and alpha 1 is fedavg": (m("fedswa", ratio=1.0, alpha=1.0), m("fedavg")),
    "fedswa's alpha is fedavg's server rate": (
        m("fedswa", ratio=1.0, alpha=1.4),
        m("fedavg", global_lr=1.4),
    ),
    "mofedsam with alpha 1 is fedsam": (m("mofedsam", alpha=1.0), m("fedsam")),
    "mofedsam without radius is fedcm": (m("mofedsam", rho=0.0), m("fedcm")),
    "fedgamma without radius is scaffold": (m("fedgamma", rho=0.0), m("scaffold")),
    "fedspeed without radius is feddyn": (m("fedspeed", rho=0.0), m("feddyn", lr_decay=0.97)),
    "fedspeed without mixture is feddyn": (m("fedspeed", mixture=0.0), m("feddyn")),
    "fedsmoo without radius is feddyn": (m("fedsmoo", rho=0.0), m("feddyn")),
    "fedlesam without radius is fedavg": (m("fedlesam", rho=0.0), m("fedavg")),
    "fedlesam-s without radius is scaffold": (m("fedlesam-s", rho=0.0), m("scaffold")),
    "fedlesam-d without radius is feddyn": (m("fedlesam-d", rho=0.0), m("feddyn")),
    "fedtoga without kappa and beta is fedspeed": (
        m("fedtoga", kappa=0.0, beta=0.0),
        m("fedspeed"),
    ),
    "fedtoga N without kappa and beta is fedspeed+N": (
        m("fedtoga", kappa=0.0, beta=0.0, ascent="N"),
        m("fedspeed", ascent="N"),
    ),
    "fedtoga without radius and beta is feddyn": (
        m("fedtoga", rho=0.0, beta=0.0, kappa=3.0),
        m("feddyn"),
    ),
}


@pytest.mark.parametrize("edge", EDGES, ids=lambda name: name.replace(" ", "_"))
def test_an_edge_of_the_equality_graph(edge) -> None:
    same(*EDGES[edge])


def test_fedvssam_with_every_gamma_one_is_fedsam() -> None:
    vssam = m("fedvssam", rho=0.1, gamma_l=1.0, gamma_g=1.0)
    same(vssam, m("fedsam", rho=0.1), EQUAL_K)
    differ(vssam, m("fedsam", rho=0.1))  # clients that differ in K: ratios are averaged
    base = m("fedvssam", rho=0.1, lf=False, lu=False, gu=False)
    same(base, m("fedsam", rho=0.1), EQUAL_K)
    printed = m("fedvssam", rho=0.1, gamma_l=1.0, gamma_g=1.0, server_lr="absolute")
    differ(printed, m("fedsam", rho=0.1), EQUAL_K)
    at_travel = replace(printed, local=replace(printed.local, lr_decay=1.0))
    at_travel = replace(at_travel, server=replace(at_travel.server, global_lr=3 * 0.05))
    same(at_travel, m("fedsam", rho=0.1, lr_decay=1.0), EQUAL_K)


def test_fedvssam_with_only_its_local_step_is_mofedsam() -> None:
    local_step = m("fedvssam", rho=0.1, gamma_l=0.3, lf=False, gu=False)
    same(local_step, m("mofedsam", rho=0.1, alpha=0.3), EQUAL_K)


def test_fedvssam_with_only_its_local_step_and_no_radius_is_fedcm() -> None:
    local_step = m("fedvssam", rho=0.0, gamma_l=0.3, lf=False, gu=False)
    same(local_step, m("fedcm", alpha=0.3), EQUAL_K)


def test_fedvssam_with_only_its_server_part_is_fedavgm() -> None:
    server = methods.fedvssam(rho=0.0, gamma_g=0.6, lf=False, lu=False, global_lr=0.9, **CONSTANT)
    momentum = methods.fedavgm(beta=0.4, global_lr=0.6 * 0.9, **CONSTANT)
    same(server, momentum, EQUAL_K)


def test_fedvssam_direction_depends_on_the_product_of_its_gammas() -> None:
    """H ← (1−γ_lγ_g)·H + γ_lγ_g·mean(g̃), so after one round only γ_lγ_g counts, given the g̃."""
    one = m("fedvssam", gamma_l=0.4, gamma_g=0.6, lf=False, rho=0.0)
    two = m("fedvssam", gamma_l=0.6, gamma_g=0.4, lf=False, rho=0.0)
    single = Quadratics(3, K=1)
    same(one, two, single, slice(0, 1))
    avg = m("fedavg")
    x0 = single.x0
    ratio = (run(one, single)[0] - x0) / (run(avg, single)[0] - x0)
    np.testing.assert_allclose(ratio, 0.24, rtol=1e-9)
    # With more steps the damped walk meets other gradients: only then is it not exactly γ_lγ_g.
    ratio = (run(one, EQUAL_K)[0] - x0) / (run(avg, EQUAL_K)[0] - x0)
    assert np.abs(ratio - 0.24).max() > 1e-4


def test_fedmo_with_gamma_one_and_everybody_is_scaffold() -> None:
    same(m("fedmo", gamma=1.0), m("scaffold"), EVERYBODY)
    same(m("fedmo", gamma=1.0, option="I"), m("scaffold", option="I"), EVERYBODY)
    differ(m("fedmo", gamma=1.0), m("scaffold"))


def test_fedmoswa_with_ratio_one_and_alpha_one_is_fedmo() -> None:
    for option in ("I", "I-batch", "II"):
        same(m("fedmoswa", ratio=1.0, alpha=1.0, option=option), m("fedmo", option=option))


def test_fedlesam_round_0_is_fedavg_round_0() -> None:
    for reference in ("last_active", "last_round"):
        lesam = m("fedlesam", rho=0.3, reference=reference)
        same(lesam, m("fedavg"), rounds=slice(0, 1))
        differ(lesam, m("fedavg"), rounds=slice(1, None))


def test_fedlesam_references_agree_only_with_everybody() -> None:
    for name in ("fedlesam", "fedlesam-s", "fedlesam-d"):
        one, two = (m(name, rho=0.3, reference=r) for r in ("last_active", "last_round"))
        same(one, two, EVERYBODY)
        differ(one, two)


def test_fedspeed_server_forms_agree_only_with_everybody() -> None:
    dual, mean = m("fedspeed"), m("fedspeed", server="mean")
    same(dual, mean, EVERYBODY)
    differ(dual, mean)


def test_fedtoga_round_0_is_fedspeed_round_0() -> None:
    same(m("fedtoga", kappa=2.0), m("fedspeed"), rounds=slice(0, 1))
    differ(m("fedtoga", kappa=2.0), m("fedspeed"), rounds=slice(1, None))


def test_fedtoga_f_with_one_step_is_g_with_one_step() -> None:
    single = Quadratics(3, K=1)
    same(m("fedtoga", ascent="F"), m("fedtoga", ascent="G"), single)
    differ(m("fedtoga", ascent="F"), m("fedtoga", ascent="G"))


def test_fedtoga_n_with_one_step_starts_as_feddyn() -> None:
    single = Quadratics(3, K=1)
    same(m("fedtoga", ascent="N"), m("feddyn"), single, slice(0, 1))


def test_fedtoga_scales_are_the_same_method_at_constant_rate() -> None:
    eta = CONSTANT["lr"]
    step = methods.fedtoga(kappa=2.0, beta=0.8, **CONSTANT)
    gradient = methods.fedtoga(kappa=2.0 * eta, beta=0.8 * eta, delta_scale="gradient", **CONSTANT)
    same(step, gradient)
    differ(step, methods.fedtoga(kappa=2.0, beta=0.8, delta_scale="gradient", **CONSTANT))


def test_fedsmoo_with_one_step_starts_as_fedspeed() -> None:
    same(m("fedsmoo"), m("fedspeed"), Quadratics(3, K=1), slice(0, 1))


@dataclass(frozen=True)
class Frozen(Correction):
    """A correction whose vectors never move."""

    inner: Correction

    def __post_init__(self) -> None:
        for name in ("server", "broadcast", "keep", "upload"):
            object.__setattr__(self, name, getattr(self.inner, name))

    def direction(self, g, w, v):
        """g ← inner"""
        return self.inner.direction(g, w, v)

    def finish(self, y, v):
        """upload ← 0"""
        return {name: torch.zeros_like(y) for name in self.upload}


def frozen(method: Method) -> Method:
    return replace(method, correct=tuple(Frozen(part) for part in method.correct))


def test_scaffold_with_frozen_variates_is_fedavg() -> None:
    same(frozen(m("scaffold")), m("fedavg"))
    same(frozen(m("fedgamma")), m("fedsam", rho=0.05))
    same(frozen(m("fedmoswa")), m("fedswa"))


def test_feddyn_with_frozen_duals_is_fedprox() -> None:
    dyn = replace(frozen(m("feddyn", lam=0.3)), server=Average())
    dyn = replace(dyn, correct=(replace_owner(dyn.correct[0]),))
    same(dyn, m("fedprox", lam=0.3))


def replace_owner(part: Correction) -> Correction:
    object.__setattr__(part, "server", ())  # nobody reads h once the server averages
    return part


def test_feddc_without_control_variates_is_feddyn() -> None:
    dc = m("feddc", lam=0.2)
    only_dual = replace(dc, correct=tuple(p for p in dc.correct if isinstance(p, Dual)))
    same(only_dual, m("feddyn", lam=0.2))
    differ(dc, m("feddyn", lam=0.2))


def test_fedsmoo_without_its_multipliers_is_fedspeed() -> None:
    from flatfed.methods.fedsmoo import ConsensusSAM

    @dataclass(frozen=True)
    class Still(ConsensusSAM):
        def gradient(self, w, grad, v):
            """mu_i ← 0;  s_i ← 0"""
            g, new = super().gradient(w, grad, v)
            return g, {name: torch.zeros_like(vector) for name, vector in new.items()}

    same(replace(m("fedsmoo"), perturb=Still(0.1)), m("fedspeed"))


def test_fedacg_lands_on_the_mean_of_the_local_models() -> None:
    problem, method = Quadratics(3), m("fedacg")
    r = Run(method, problem, ROUNDS)
    from flatfed.rounds import broadcast, client_round

    for t in range(ROUNDS):
        sent = broadcast(method, r.states[t], t, problem.N)
        ys = []
        for i in problem.cohort(t):
            upload, _ = client_round(method, sent, {}, problem.data(i, t), t)
            ys.append(sent["x"] + upload.vectors["dx"][0])
        np.testing.assert_allclose(
            r.states[t + 1]["x"].numpy(), torch.stack(ys).mean(0).numpy(), rtol=0, atol=1e-12
        )


@pytest.mark.parametrize("name", ["scaffold", "fedgamma", "fedlesam-s", "feddc"])
def test_scaffold_c_is_the_mean_over_all_clients(name) -> None:
    r = Run(m(name, weight_decay=0.01, clip=0.7), Quadratics(3), ROUNDS)
    for state, kept in zip(r.states, r.kepts, strict=True):
        total = sum((k["c_i"] for k in kept.values()), torch.zeros_like(state["c"]))
        torch.testing.assert_close(state["c"], total / 6, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "name", ["feddyn", "fedspeed", "fedsmoo", "fedlesam-d", "fedtoga", "feddc"]
)
def test_the_server_dual_is_the_mean_over_all_clients(name) -> None:
    r = Run(m(name, weight_decay=0.01), Quadratics(3), ROUNDS)
    for state, kept in zip(r.states, r.kepts, strict=True):
        total = sum((k["h_i"] for k in kept.values()), torch.zeros_like(state["h"]))
        torch.testing.assert_close(state["h"], total / 6, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["scaffold", "fedgamma", "fedlesam-s", "fedmoswa", "fedmo"])
def test_a_fresh_variate_is_the_rate_weighted_mean_of_the_gradients_used(name) -> None:
    """c_i⁺ = Σ_k η_k·g_k / Σ_k η_k, with ω = 0 and no clip."""
    from flatfed.rounds import broadcast, client_round

    method, problem = m(name), Quadratics(3)
    r = Run(method, problem, 3)
    used: list[torch.Tensor] = []

    class Watching:
        def __init__(self, perturb):
            self.perturb = perturb

        observe = Part.observe
        remember = Part.remember

        def __getattr__(self, attribute):
            return getattr(self.perturb, attribute)

        def gradient(self, w, grad, v):
            g, new = self.perturb.gradient(w, grad, v)
            used.append(v.lr * g)
            return g, new

    sent = broadcast(method, r.state, 3, problem.N)
    i = problem.cohort(3)[0]
    data = problem.data(i, 3)
    watched = replace(method)
    object.__setattr__(watched, "perturb", Watching(method.perturb))
    _, kept = client_round(watched, sent, r.kept.get(i, {}), data, 3)
    travel = sum(method.local.rates(3, len(data.batches)))
    torch.testing.assert_close(kept["c_i"], sum(used) / travel, rtol=0, atol=1e-12)


def test_one_step_of_everybody_is_gradient_descent_on_the_mean_loss() -> None:
    problem = Quadratics(3, full=True, K=1, noise=0.0)
    x = problem.x0
    for t, step in enumerate(run(m("fedavg"), problem)):
        mean = np.mean([problem.whole(i, x) for i in range(problem.N)], axis=0)
        x = x - 0.05 * 0.97**t * mean
        np.testing.assert_allclose(step, x, rtol=0, atol=1e-12)


def test_scaffold_reaches_the_optimum_where_fedavg_stays_away() -> None:
    problem = Quadratics(3, full=True, K=5, noise=0.0)
    A, Ab = problem.A.mean(0), np.einsum("nij,nj->i", problem.A, problem.b) / problem.N
    optimum = np.linalg.solve(A, Ab)
    for name in ("scaffold", "fedmo", "feddyn", "feddc", "fedspeed"):
        settings = {"gamma": 1.0} if name == "fedmo" else {"rho": 0.0} if name == "fedspeed" else {}
        end = Run(methods.build(name, **{**CONSTANT, **settings}), problem, 1500).xs[-1]
        assert np.abs(end - optimum).max() < 1e-6, name
    assert np.abs(Run(methods.fedavg(**CONSTANT), problem, 1500).xs[-1] - optimum).max() > 1e-2


def test_feddyn_stays_at_its_fixed_point() -> None:
    problem = Quadratics(3, full=True, K=4, noise=0.0)
    A, Ab = problem.A.mean(0), np.einsum("nij,nj->i", problem.A, problem.b) / problem.N
    optimum = np.linalg.solve(A, Ab)
    problem.x0 = optimum
    method = m("feddyn", lam=0.2)
    from flatfed.rounds import one_round

    # h_i = −∇F_i(x*)/λ in our letters
    kept = {
        i: {"h_i": torch.from_numpy(-problem.whole(i, optimum) / 0.2)} for i in range(problem.N)
    }
    state = method.start(torch.from_numpy(optimum))
    cohort = [problem.data(i, 0) for i in range(problem.N)]
    new, after = one_round(method, state, kept, cohort, 0, problem.N)
    torch.testing.assert_close(new["x"], state["x"], rtol=0, atol=1e-12)
    for i in kept:
        torch.testing.assert_close(after[i]["h_i"], kept[i]["h_i"], rtol=0, atol=1e-12)


def test_fedcm_with_alpha_zero_never_moves_and_starts_as_fedavg_at_a_smaller_rate() -> None:
    assert (run(m("fedcm", alpha=0.0)) == Quadratics(3).x0).all()
    slow = methods.fedavg(**{**LOCAL, "lr": 0.3 * LOCAL["lr"]})
    same(m("fedcm", alpha=0.3), slow, rounds=slice(0, 1))


def test_adam_without_memory_is_fedavg_scaled() -> None:
    """β₁ = 0, β₂ = 1, v⁰ = τ²: x + η_g·mean(dx)/2τ."""
    adam = m("fedadam", beta1=0.0, beta2=1.0, tau=0.25, global_lr=0.4)
    same(adam, m("fedavg", global_lr=0.4 / 0.5))


def test_yogi_with_beta2_one_is_adam_and_both_start_alike_from_zero() -> None:
    same(m("fedyogi", beta2=1.0), m("fedadam", beta2=1.0))
    one, two = m("fedyogi", first_v="zero"), m("fedadam", first_v="zero")
    same(one, two, rounds=slice(0, 1))
    differ(one, two, rounds=slice(1, None))


def test_asam_with_unit_size_is_sam() -> None:
    """ζ → ∞ at radius ρ/ζ on a model without biases; their guards differ, hence 1e-5."""
    from flatfed.methods.fedasam import AdaptiveSAM

    class Weights(Quadratics):
        def data(self, i, t):
            return replace(super().data(i, t), layout=None)

    asam = replace(m("fedsam"), perturb=AdaptiveSAM(0.1 / 1e7, 1e7))
    a, b = run(asam, Weights(3)), run(m("fedsam", rho=0.1), Weights(3))
    np.testing.assert_allclose(a, b, rtol=0, atol=1e-6)


def test_swa_with_cycle_one_from_the_start_is_the_mean_of_all_models() -> None:
    plain = methods.fedasam(**LOCAL)
    swa = methods.fedasam(swa_start=0, swa_cycle=1, **LOCAL)
    r = Run(swa, Quadratics(3), ROUNDS)
    same(swa, plain)
    np.testing.assert_allclose(r.results[-1], r.xs.mean(axis=0), rtol=0, atol=1e-12)


def test_swa_captures_where_the_rate_is_lowest() -> None:
    method = methods.fedasam(swa_start=5, swa_cycle=3, **LOCAL)
    r = Run(method, Quadratics(3), ROUNDS)
    rates = [method.local.rates(t, 1)[0] for t in range(ROUNDS)]
    moved = [
        t
        for t in range(5, ROUNDS)
        if t >= 8 and not torch.equal(r.states[t + 1]["x_swa"], r.states[t]["x_swa"])
    ]
    assert moved == [10]  # ends of the cycles 5-7, 8-10; the first only starts the mean
    assert min(rates[8:11]) == rates[10] == pytest.approx(1e-4)
    torch.testing.assert_close(
        r.states[11]["x_swa"], (r.states[8]["x"] + r.states[11]["x"]) / 2, rtol=0, atol=1e-12
    )


def test_zero_gradients_leave_the_model_where_it_is() -> None:
    class Flat(Quadratics):
        def grad(self, i, t, k, w):
            return np.zeros_like(w)

        def whole(self, i, w):
            return np.zeros_like(w)

    for name in {*methods.CATALOGUE} - OF_OUTPUTS:
        quiet = {"sigma": 0.0} if name == "dp-fedsam" else {}  # which adds noise to it
        assert (run(m(name, **quiet), Flat(3)) == Flat(3).x0).all(), name


def test_sample_weights_weigh_the_mean() -> None:
    problem = Quadratics(3)
    heavy = Run(m("fedavg", weights="samples"), problem, 1).xs[0]
    from flatfed.rounds import broadcast, client_round

    method = m("fedavg")
    sent = broadcast(method, method.start(torch.from_numpy(problem.x0)), 0, problem.N)
    clients = problem.cohort(0)
    ends = [client_round(method, sent, {}, problem.data(i, 0), 0)[0] for i in clients]
    shares = problem.samples[clients] / problem.samples[clients].sum()
    mean = sum(s * e.vectors["dx"][0].numpy() for s, e in zip(shares, ends, strict=True))
    np.testing.assert_allclose(heavy, problem.x0 + mean, rtol=0, atol=1e-12)
    differ(m("fedavg", weights="samples"), m("fedavg"))


def test_the_proximal_term_has_its_half() -> None:
    """λ(w − x) is the gradient of (λ/2)‖w − x‖², by finite differences."""
    from flatfed.part import View
    from flatfed.parts.correct import Proximal

    x, w = (torch.randn(4, dtype=torch.float64) for _ in range(2))
    pulled = Proximal(0.3).direction(torch.zeros_like(w), w, View("Proximal", {"x": x}))
    steps = 1e-6 * torch.eye(4, dtype=torch.float64)

    def penalty(at):
        return 0.15 * (at - x).square().sum()

    slope = torch.stack([(penalty(w + s) - penalty(w - s)) / 2e-6 for s in steps])
    torch.testing.assert_close(pulled, slope, rtol=1e-6, atol=1e-9)


def test_a_round_leaves_no_reference_cycle() -> None:
    """Vectors go when the last name for them goes, not when the collector comes round."""
    import gc
    import weakref

    from flatfed.rounds import broadcast, client_round

    for name in methods.CATALOGUE:
        method, problem = m(name), (NoisyNet(3) if name in OF_OUTPUTS else Quadratics(3))
        sent = broadcast(method, method.start(torch.from_numpy(problem.x0)), 0, problem.N)
        gc.collect()
        gc.disable()
        try:
            upload, kept = client_round(method, sent, {}, problem.data(0, 0), 0)
            vectors = [weakref.ref(v) for v in (upload.vectors["dx"][0], *kept.values())]
            aliases = {id(v) for v in sent.values()}
            vectors = [ref for ref in vectors if id(ref()) not in aliases]
            del upload, kept
            assert not any(ref() is not None for ref in vectors), name
        finally:
            gc.enable()


@pytest.mark.parametrize("name", ["scaffold", "feddyn", "feddc", "fedspeed"])
def test_sample_weights_weigh_variates_and_duals_by_n_over_the_mean_n(name) -> None:
    """c = (1/N)·Σ(n_i/n̄)·c_i and h = (1/N)·Σ(n_i/n̄)·h_i after every round, whoever was there."""
    problem = Quadratics(3)
    shares = problem.samples / problem.samples.mean()
    r = Run(replace(m(name), weights="samples"), problem, ROUNDS)
    for state, kept in zip(r.states, r.kepts, strict=True):
        for shared, own in (("c", "c_i"), ("h", "h_i")):
            if shared in state:
                total = sum((shares[i] * k[own] for i, k in kept.items()), 0 * state[shared])
                torch.testing.assert_close(state[shared], total / 6, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["scaffold", "feddyn", "feddc", "fedspeed"])
def test_sample_weights_settle_where_the_weighted_gradients_cancel(name) -> None:
    """Σ n_i·∇F_i(x) = 0 with absent clients; with a wrong n̄ they settle elsewhere."""
    from flatfed.rounds import one_round

    problem = Quadratics(3, K=5, noise=0.0)
    p = problem.samples / problem.samples.sum()
    A, Ab = np.einsum("n,nij->ij", p, problem.A), np.einsum("n,nij,nj->i", p, problem.A, problem.b)
    optimum = np.linalg.solve(A, Ab)
    radius = {"rho": 0.0} if name == "fedspeed" else {}
    method = replace(methods.build(name, **CONSTANT, **radius), weights="samples")
    end = Run(method, problem, 1500).xs[-1]
    assert np.abs(end - optimum).max() < 1e-6

    state, kept = method.start(torch.from_numpy(problem.x0)), {}
    for t in range(1500):
        members = problem.cohort(t)
        of_cohort = float(problem.samples[members].mean())
        cohort = [problem.data(i, t) for i in members]
        state, kept = one_round(method, state, kept, cohort, t, problem.N, mean_samples=of_cohort)
    assert np.abs(state["x"].numpy() - optimum).max() > 1e-2


def test_a_rate_that_is_a_function_is_not_decayed_on_top() -> None:
    def rate(t: int, k: int, K: int) -> float:
        return 0.1 / (1 + t)

    assert methods.fedavg(lr=rate, steps=1).local.rates(9, 1) == [0.01]
    assert methods.fedavg(lr=rate, lr_decay=0.5, steps=1).local.rates(1, 1) == [0.025]
    assert methods.fedavg(lr=0.1, lr_decay=0.5, steps=1).local.rates(1, 1) == [0.05]
