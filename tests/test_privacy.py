"""DP-FedSAM: what its noise is, what its ε counts, and that neither says more than is true."""

from __future__ import annotations

import json
from dataclasses import replace
from math import comb, inf, isnan, log, log1p, sqrt

import dp_accounting
import numpy as np
import pytest
import torch
from dp_accounting import rdp

from flatfed import Cohort, fit, methods, privacy
from flatfed.errors import CompositionError, SpecError, UndeclaredName
from flatfed.method import Method
from flatfed.methods.dp_fedsam import NoisyUpdate, RelativeSAM
from flatfed.parts.correct import ControlVariates
from flatfed.privacy import epsilon
from flatfed.rounds import LocalData, client_round, one_round
from flatfed.vec import lay_out
from problems import Quadratics, Run
from spotted import tables
from tiny import batchnorm_net, images, numbers

LOCAL = {"lr": 0.05, "lr_decay": 0.95, "weight_decay": 0.02, "clip": None, "steps": 1}


def m(name: str, **settings) -> Method:
    return methods.build(name, **{**LOCAL, **settings})


# The update that is sent


def test_without_noise_and_bound_it_is_fedsam_and_without_ascent_fedavg() -> None:
    problem = Quadratics(3)
    off = {"sigma": 0.0, "bound": inf, "momentum": 0.5}
    plain = Run(m("dp-fedsam", ascent="plain", rho=0.2, **off), problem, 8).xs
    fedsam = Run(m("fedsam", rho=0.2, momentum=0.5), problem, 8).xs
    np.testing.assert_allclose(plain, fedsam, rtol=0, atol=1e-12)
    fedavg = Run(m("fedavg", momentum=0.5), problem, 8).xs
    for ascent in ("plain", "adaptive"):
        still = Run(m("dp-fedsam", ascent=ascent, rho=0.0, **off), problem, 8).xs
        np.testing.assert_allclose(still, fedavg, rtol=0, atol=1e-12)
    assert np.abs(fedsam - fedavg).max() > 1e-3


def test_the_adaptive_ascent_has_its_length_in_the_weights_own_measure() -> None:
    w = torch.tensor([1.0, -2.0, 0.5, 0.0], dtype=torch.float64)
    g = torch.tensor([0.3, 0.1, -0.7, 5.0], dtype=torch.float64)
    asked: list[torch.Tensor] = []

    def grad(point: torch.Tensor) -> torch.Tensor:
        asked.append(point - w)
        return g.clone()

    RelativeSAM(0.5).gradient(w, grad, None)
    eps = asked[1]
    assert eps[3] == 0  # what is 0 has no size to move by
    assert float((eps[:3] / w[:3]).norm()) == pytest.approx(0.5)
    torch.testing.assert_close(eps, 0.5 * w**2 * g / (w.abs() * g).norm())


def sent(method: Method, far: float, d: int = 5, t: int = 0, **data) -> torch.Tensor:
    """What a client uploads that walks as far as this, along a fixed direction."""
    target = far * torch.ones(d, dtype=torch.float64) / sqrt(d)
    client = replace(LocalData(0, [lambda w: -target], drawn=10), **data)
    local = replace(method.local, lr=1.0, lr_decay=1.0, weight_decay=0.0)
    method = replace(method, local=local)
    x = torch.zeros(d, dtype=torch.float64)
    return client_round(method, {"x": x}, {}, client, t)[0].vectors["dx"][0]


def test_the_clip_is_of_the_whole_update() -> None:
    """However many tensors it is cut into, and only where it is too long."""
    method = m("dp-fedsam", sigma=0.0, bound=0.2)
    layout = lay_out({"a": (2,), "b": (2,), "c": (1,)})
    for far in (0.0, 0.1, 0.2, 0.3, 7.0):
        dx = sent(method, far, layout=layout)
        assert float(dx.norm()) == pytest.approx(min(far, 0.2), abs=1e-15)
        assert (dx >= 0).all()


def test_the_noises_of_a_cohort_add_up_to_sigma_times_the_bound() -> None:
    method, d = m("dp-fedsam", sigma=0.8, bound=0.5), 20_000
    noises = torch.stack([sent(method, 0.0, d, client=i) for i in range(10)])
    each, total = 0.8 * 0.5 / sqrt(10), 0.8 * 0.5
    assert float(noises.std()) == pytest.approx(each, rel=4 / sqrt(2 * 10 * d))
    assert float(noises.sum(0).std()) == pytest.approx(total, rel=4 / sqrt(2 * d))
    assert float(noises.mean().abs()) < 4 * each / sqrt(10 * d)


def test_noise_belongs_to_run_client_and_round_and_comes_again() -> None:
    method = m("dp-fedsam")
    same = [sent(method, 0.0, seed=3, client=2, t=4) for _ in range(2)]
    assert torch.equal(*same)
    for other in ({"seed": 4}, {"client": 1}, {"t": 5}):
        assert not torch.equal(
            sent(method, 0.0, **{"seed": 3, "client": 2, "t": 4, **other}), same[0]
        )


# What it gives away


@pytest.fixture
def integers(monkeypatch):
    """The accountant on whole orders alone, of which the sum is finite."""
    orders = [float(a) for a in range(2, 65)]
    privacy._spent.cache_clear()
    monkeypatch.setattr(privacy, "_orders", lambda: orders)
    yield orders
    privacy._spent.cache_clear()


def by_hand(releases, delta: float, orders) -> float:
    """The formula: RDP of the sampled Gaussian by the binomial sum, then the conversion."""

    def of_one(q: float, sigma: float, a: int) -> float:
        if q == 1:
            return a / (2 * sigma**2)
        terms = [
            log(comb(a, k)) + (a - k) * log1p(-q) + k * log(q) + (k * k - k) / (2 * sigma**2)
            for k in range(a + 1)
        ]
        return float(np.logaddexp.reduce(terms)) / (a - 1)

    def converted(a: int) -> float:
        spent = sum(n * of_one(q, sigma, a) for q, sigma, n in releases)
        return spent - (log(delta) + log(a)) / (a - 1) + log((a - 1) / a)

    return min(converted(int(a)) for a in orders)


RELEASES = [
    [(0.1, 0.95, 200)],
    [(0.1, 0.95, 1)],
    [(0.02, 1.3, 1000)],
    [(1.0, 2.0, 30)],
    [(0.1, 0.95, 50), (0.1, 0.95 * sqrt(0.8), 20), (0.3, 1.5, 7), (1.0, 4.0, 2)],
]


@pytest.mark.parametrize("releases", RELEASES, ids=str)
@pytest.mark.parametrize("delta", [1e-5, 5e-3])
def test_epsilon_is_the_formula(integers, releases, delta) -> None:
    assert epsilon(releases, delta) == pytest.approx(by_hand(releases, delta, integers), abs=1e-6)


@pytest.mark.parametrize("releases", RELEASES, ids=str)
@pytest.mark.parametrize("delta", [1e-5, 5e-3])
def test_epsilon_is_what_the_library_says_itself(releases, delta) -> None:
    accountant = rdp.RdpAccountant()
    for q, sigma, n in releases:
        event = dp_accounting.PoissonSampledDpEvent(q, dp_accounting.GaussianDpEvent(sigma))
        accountant.compose(event, n)
    assert epsilon(releases, delta) == pytest.approx(accountant.get_epsilon(delta), rel=1e-12)


def test_epsilon_of_the_authors_example() -> None:
    """σ 0.95, a tenth, 200 rounds, δ 0.005: their own formula on their own orders, from 1.01 to
    100, has its least at a fraction; whole orders bound it from above."""
    spent = epsilon([(0.1, 0.95, 200)], 5e-3)
    assert 7.0 < spent < by_hand([(0.1, 0.95, 200)], 5e-3, range(2, 65))


def test_epsilon_of_nothing_is_zero_and_more_is_more() -> None:
    assert epsilon([], 1e-5) == 0
    grows = [epsilon([(0.1, 1.0, n)], 1e-5) for n in (1, 2, 10, 100)]
    assert grows == sorted(grows)
    assert len({*grows}) == 4
    assert epsilon([(0.1, 2.0, 10)], 1e-5) < epsilon([(0.1, 1.0, 10)], 1e-5)
    assert epsilon([(0.1, 1.0, 10)], 1e-5) < epsilon([(1.0, 1.0, 10)], 1e-5)
    assert epsilon([(1.0, 0.0, 1)], 1e-5) == inf


def test_every_round_counts_with_the_clients_that_answered() -> None:
    """Drawn 3 of 6, 4 of 6, ... and some lost: less noise, counted as less."""
    problem, method = Quadratics(1), m("dp-fedsam", delta=1e-3)
    state, kept, releases = method.start(torch.from_numpy(problem.x0)), {}, []
    for t in range(7):
        drawn = problem.cohort(t)
        there = [problem.data(i, t) for i in drawn[: len(drawn) - t % 2]]
        state, kept = one_round(method, state, kept, there, t, problem.N)
        releases.append((len(drawn) / 6, 0.95 * sqrt(len(there) / len(drawn)), 1))
        assert float(state["epsilon"]) == pytest.approx(epsilon(releases, 1e-3), rel=1e-12)
    rounds = state["answers"].view(-1, 3).tolist()
    assert rounds == [[2, 2, 2], [3, 2, 1], [4, 4, 1], [2, 1, 1], [3, 3, 1], [4, 3, 1]]


def test_everybody_in_every_round_is_not_sampled() -> None:
    run = Run(m("dp-fedsam"), Quadratics(2, full=True), 3)
    assert float(run.state["epsilon"]) == pytest.approx(epsilon([(1.0, 0.95, 3)], 6**-1.1))


def test_no_noise_gives_everything_away() -> None:
    run = Run(m("dp-fedsam", sigma=0.0), Quadratics(2), 2)
    assert float(run.state["epsilon"]) == inf
    assert not any(v.isnan().any() for v in run.state.values())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_was_spent_goes_on_from_the_declared_vectors(dtype) -> None:
    """All that counts is in the state: counts, exact in any precision."""
    problem, method = Quadratics(4), m("dp-fedsam")
    run = Run(method, problem, 6)
    state = {name: v.to(dtype) for name, v in run.states[4].items()}
    for t in (4, 5):
        there = [
            replace(problem.data(i, t), batches=[lambda w: w], whole=None)
            for i in problem.cohort(t)
        ]
        state, _ = one_round(method, state, {}, there, t, problem.N)
    assert torch.equal(state["epsilon"], run.states[6]["epsilon"].to(dtype))
    assert torch.equal(state["answers"].double(), run.states[6]["answers"])


# In a run


def test_epsilon_is_written_down_every_round() -> None:
    cohort = Cohort(size=4, drop=0.3)
    method = methods.dp_fedsam(lr=0.1, steps=2, batch_size=4)
    history = fit(method, numbers(), rounds=4, cohort=cohort, seed=1).history
    releases = []
    for record in history:
        if record.clients:
            releases.append((0.5, 0.95 * sqrt(record.clients / 4), 1))
        expected = epsilon(releases, 8**-1.1)
        assert record.as_dict()["logged"] == {"epsilon": pytest.approx(expected, rel=1e-6)}
    assert {record.clients for record in history} != {4}
    quiet = methods.dp_fedsam(lr=0.1, steps=2, batch_size=4, sigma=0.0)
    (record,) = fit(quiet, numbers(), rounds=1).history
    assert record.as_dict()["logged"] == {"epsilon": None}  # JSON has no infinity
    assert not isnan(record.logged["epsilon"])


def test_an_interrupted_run_has_spent_as_much(tmp_path) -> None:
    from flatfed.run import run
    from flatfed.spec import Spec

    def spec(rounds: int) -> Spec:
        given = {"method": {"name": "dp-fedsam"}, "run": {"rounds": rounds}}
        return Spec.of(tables(tmp_path, **given))

    run(spec(4), out=tmp_path / "whole")
    run(spec(2), out=tmp_path / "parts")
    run(spec(4), out=tmp_path / "parts", resume=True)
    logged = [
        [
            json.loads(line)["logged"]
            for line in (tmp_path / name / "rounds.jsonl").read_text().splitlines()
        ]
        for name in ("whole", "parts")
    ]
    assert logged[0] == logged[1]
    assert logged[0][3]["epsilon"] > logged[0][0]["epsilon"] > 0


# What it refuses


def test_a_run_does_not_start_without_the_accountant(monkeypatch) -> None:
    """The catalogue needs none: what a method is, and costs, can be read without it."""
    found = privacy.import_module

    def missing(name: str):
        if name.startswith("dp_accounting"):
            raise ImportError(f"No module named {name!r}")
        return found(name)

    privacy._spent.cache_clear()
    monkeypatch.setattr(privacy, "import_module", missing)
    method = methods.dp_fedsam(lr=0.1, steps=2)
    assert "ε of all rounds so far" in method.describe()
    with pytest.raises(CompositionError, match=r"pip install 'flatfed\[privacy\]'"):
        fit(method, numbers(), rounds=1)


def test_what_travels_without_noise_is_refused() -> None:
    """BatchNorm's statistics, or another part's vector: ε says nothing about them."""
    from flatfed.data.hands import IID
    from flatfed.federation import Federation

    federation = Federation(images(), batchnorm_net(), IID(clients=4))
    method = methods.dp_fedsam(lr=0.1, steps=2, batch_size=4)
    with pytest.raises(CompositionError, match="uploads without noise: buffers_i, expected"):
        fit(method, federation, rounds=1)
    with pytest.raises(CompositionError, match="uploads without noise: dc, expected nothing but"):
        replace(method, correct=(ControlVariates(),))


@pytest.mark.parametrize("feedback", [None, "ef"])
def test_what_each_client_rounds_off_no_noise_hides(feedback) -> None:
    """With Top-k, a zero in the sum would tell for certain that nobody held anything there."""
    from flatfed.parts import compressors

    topk = compressors.build("topk", fraction=0.5, feedback=feedback)
    with pytest.raises(CompositionError, match="of what each client rounds off, no noise hides"):
        replace(methods.dp_fedsam(), compress=topk)


def test_a_part_that_bounds_a_client_refuses_means_that_do_not() -> None:
    with pytest.raises(CompositionError, match="a client then counts for more than its bound"):
        replace(methods.dp_fedsam(), weights="samples")


def test_cohorts_that_are_not_drawn_have_no_epsilon() -> None:
    from flatfed.cohort import Cohort

    method = methods.dp_fedsam(lr=0.1, steps=2)
    with pytest.raises(SpecError, match="NoisyUpdate counts on cohorts drawn at random"):
        fit(method, numbers(), rounds=1, cohort=Cohort(size=2, sampling="cyclic"))


def test_weights_by_samples_are_refused() -> None:
    with pytest.raises(CompositionError, match="weights='samples', expected 'uniform'"):
        methods.build("dp-fedsam", weights="samples")
    with pytest.raises(CompositionError, match="ascent='F', expected 'adaptive' or 'plain'"):
        methods.build("dp-fedsam", ascent="F")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"bound": 0.0}, r"NoisyUpdate got bound=0.0, expected a number in \(0, ∞\]"),
        ({"bound": inf}, r"bound=inf, expected a finite length where there is noise"),
        ({"sigma": -1.0}, r"NoisyUpdate got sigma=-1.0, expected a number in \[0, ∞\)"),
        ({"delta": 0.0}, r"NoisyUpdate got delta=0.0, expected a number in \(0, 1\)"),
        ({"delta": 1.0}, r"NoisyUpdate got delta=1.0"),
        ({"rho": -0.1}, r"RelativeSAM got rho=-0.1"),
    ],
    ids=str,
)
def test_what_gives_no_guarantee_is_refused(wrong, said) -> None:
    with pytest.raises(CompositionError, match=said):
        methods.dp_fedsam(**wrong)


def test_noise_needs_to_know_how_many_were_drawn() -> None:
    method = replace(m("dp-fedsam"), also=(NoisyUpdate(0.2, 0.95),))
    with pytest.raises(UndeclaredName, match=r"v\.drawn, which was not given"):
        client_round(method, {"x": torch.zeros(3)}, {}, LocalData(0, [lambda w: w]), 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_before_anybody_has_answered_nothing_is_spent(dtype) -> None:
    state = m("dp-fedsam").start(torch.zeros(3, dtype=dtype))
    assert float(state["epsilon"]) == 0
    assert state["answers"].numel() == 0
