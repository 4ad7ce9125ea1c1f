"""Ten rules that prevent silent errors, each with the wrong reading that breaks it.

Every test shows that the method keeps the rule, and that the mutant beside it does not.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from flatfed import methods
from flatfed.check import examine
from flatfed.method import Method
from flatfed.methods.fedlesam import SinceLastSeen
from flatfed.methods.fedsmoo import ConsensusSAM
from flatfed.methods.fedswa import MomentumControl
from flatfed.methods.fedtoga import Trajectory
from flatfed.part import Perturbation
from flatfed.parts.correct import ControlVariates, Dual, Proximal
from flatfed.parts.local import SGD
from flatfed.parts.perturb import SAM, Reusing
from flatfed.parts.server import DualAverage
from flatfed.parts.track import PseudoGradient
from flatfed.rounds import LocalData, client_round
from flatfed.vec import ascend, unit
from problems import Quadratics, Run
from test_transcripts import LOCAL, transcript


def keeps(name: str, method: Method, seed: int = 1, **settings) -> None:
    """The method, whatever it is made of, walks as the named transcript does."""
    problem = Quadratics(seed)
    xs, _ = transcript(name, {**LOCAL, **settings}, problem, 12)
    np.testing.assert_allclose(Run(method, problem, 12).xs, xs, rtol=0, atol=1e-10)


def build(name: str, **settings) -> Method:
    return methods.build(name, **{**LOCAL, **settings}, steps=1)


def breaks(name: str, mutant: Method, **settings) -> None:
    with pytest.raises(AssertionError):
        keeps(name, mutant, **settings)


def test_rule_1_displacement_is_divided_by_the_rates_of_its_own_round() -> None:
    @dataclass(frozen=True)
    class Undecayed(ControlVariates):
        def finish(self, y, v):
            """dc ← (x − y)/Kη₀ − c"""
            dc = (v.x - y) / (v.K * LOCAL["lr"]) - v.c
            return {"dc": dc, "c_i": v.c_i + dc}

    for name in ("scaffold", "fedgamma", "fedlesam-s", "feddc"):
        method = build(name)
        keeps(name, method)
        parts = (Undecayed() if isinstance(p, ControlVariates) else p for p in method.correct)
        breaks(name, replace(method, correct=tuple(parts)))


def test_rule_1_ratios_are_averaged_over_clients_that_differ_in_steps() -> None:
    @dataclass(frozen=True)
    class RatioOfMeans(PseudoGradient):
        means = ()

        def absorb(self, mean, v):
            """delta ← −mean(dx)/mean(Ση)"""
            return {"delta": -mean.dx / mean.travel}

    for name in ("fedcm", "mofedsam"):
        keeps(name, build(name))
        breaks(name, replace(build(name), also=(RatioOfMeans(),)))


def test_rule_1_k_counts_steps_and_not_epochs() -> None:
    local = SGD(lr=0.1, epochs=5, batch_size=50)
    assert [local.steps_for(n) for n in (50, 500, 510, 1)] == [5, 50, 55, 5]
    assert SGD(lr=0.1, steps=7).steps_for(510) == 7


def test_rule_2_server_dual_is_the_mean_over_all_clients() -> None:
    @dataclass(frozen=True)
    class OverCohort(Dual):
        def absorb(self, mean, v):
            """h ← h + mean(dx)"""
            return {"h": v.h + mean.dx}

    @dataclass(frozen=True)
    class WithServerRate(DualAverage):
        def step(self, x, mean, v):
            """x ← x + 0.9·(mean(dx) + h)"""
            return x + 0.9 * (mean.dx + v.h)

    for name in ("feddyn", "fedspeed", "fedsmoo", "fedlesam-d", "fedtoga", "feddc"):
        method = build(name)
        keeps(name, method)
        parts = (OverCohort(p.lam) if isinstance(p, Dual) else p for p in method.correct)
        breaks(name, replace(method, correct=tuple(parts)))
        breaks(name, replace(method, server=WithServerRate()))


def test_rule_3_fedtoga_moves_and_its_delta_is_per_step() -> None:
    @dataclass(frozen=True)
    class PrintedSign(Dual):
        def absorb(self, mean, v):
            """h ← h − mean(dx)"""
            return {"h": v.h - mean.dx}

    @dataclass(frozen=True)
    class PerRate(Trajectory):
        means = ("dx_travel",)

        def absorb(self, mean, v):
            """delta ← −mean(dx/Ση)"""
            return {"delta": -mean.dx_travel}

    method = build("fedtoga")
    dual, drift = method.correct
    keeps("fedtoga", method)
    breaks("fedtoga", replace(method, correct=(PrintedSign(dual.lam), drift)))
    breaks("fedtoga", replace(method, correct=(Dual(10.0), drift)))
    breaks("fedtoga", replace(method, also=(PerRate(),)))

    everybody = Quadratics(1, full=True)
    right = Run(method, everybody, 1).xs[0]
    printed = Run(replace(method, correct=(PrintedSign(dual.lam), drift)), everybody, 1).xs[0]
    assert np.abs(right - everybody.x0).max() > 1e-2
    np.testing.assert_allclose(printed, everybody.x0, rtol=0, atol=1e-12)  # it cancels the round


def test_rule_4_lesam_ascends_along_the_whole_difference() -> None:
    @dataclass(frozen=True)
    class TensorNumbers(SinceLastSeen):
        def gradient(self, w, grad, v):
            """g ← ∇F(w + ρ·u[j]/Σ_j|u[j]|) for tensor number j"""
            u = v.x_i - v.x
            scale = sum(u[j].abs() for j in range(len(v.layout))) + 1e-7
            eps = torch.zeros_like(w)
            for j, slot in enumerate(v.layout):
                eps[slot.at] = self.rho * u[j] / scale
            return grad(w + eps), {}

    @dataclass(frozen=True)
    class TensorNorms(SinceLastSeen):
        def gradient(self, w, grad, v):
            """g ← ∇F(w + ρ·unit(x_i − x) tensor by tensor)"""
            u = v.x_i - v.x
            eps = torch.cat([unit(u[slot.at]) for slot in v.layout])
            return grad(w + self.rho * eps), {}

    for name in ("fedlesam", "fedlesam-s", "fedlesam-d"):
        keeps(name, build(name, rho=0.3), rho=0.3)
        for mutant in (TensorNumbers(0.3), TensorNorms(0.3)):
            breaks(name, replace(build(name), perturb=mutant), rho=0.3)
        breaks(name, build(name, rho=0.3, reference="last_round"), rho=0.3)


def test_rule_5_consensus_dual_persists_and_survives_one_step() -> None:
    @dataclass(frozen=True)
    class Forgetful(ConsensusSAM):
        def finish(self, y, v):
            """s_i ← mu_i − eps;  mu_i ← 0"""
            return {**super().finish(y, v), "mu_i": torch.zeros_like(y)}

    @dataclass(frozen=True)
    class Unsafe(ConsensusSAM):
        def absorb(self, mean, v):
            """s ← ρ·mean(s_i)/‖mean(s_i)‖"""
            return {"s": self.rho * mean.s_i / mean.s_i.norm()}

    method = build("fedsmoo")
    keeps("fedsmoo", method)
    breaks("fedsmoo", replace(method, perturb=Forgetful(0.1)))
    breaks("fedsmoo", replace(method, perturb=ConsensusSAM(0.1, "simplified")))

    single = Quadratics(1, K=1)
    assert np.isfinite(Run(method, single, 5).xs).all()
    with pytest.raises(Exception, match="NaN"):
        Run(replace(method, perturb=Unsafe(0.1)), single, 5)


def test_rule_5_the_global_perturbation_has_length_rho() -> None:
    r = Run(build("fedsmoo", rho=0.3), Quadratics(1, K=3), 6)
    for state in r.states[1:]:
        assert float(state["s"].norm()) == pytest.approx(0.3, abs=1e-6)


def test_rule_6_variate_difference_is_to_m() -> None:
    @dataclass(frozen=True)
    class ToOwnVariate(MomentumControl):
        def finish(self, y, v):
            """dm ← c_i⁺ − c_i"""
            c_i = v.c_i - v.m + (v.x - y) / v.travel
            return {"c_i": c_i, "dm": c_i - v.c_i}

    @dataclass(frozen=True)
    class FirstRoundWhole(MomentumControl):
        def absorb(self, mean, v):
            """m ← mean(c_i⁺) in round 0"""
            return {"m": v.m + (1.0 if v.t == 0 else self.gamma) * mean.dm}

    for name in ("fedmoswa", "fedmo"):
        method = build(name)
        keeps(name, method)
        for mutant in (ToOwnVariate(0.2), FirstRoundWhole(0.2)):
            breaks(name, replace(method, correct=(mutant,)))


def test_the_last_rate_of_a_falling_round_is_above_the_ratio() -> None:
    local = methods.fedswa(ratio=0.1, lr=0.2, lr_decay=0.5, steps=4).local
    assert local.rates(0, 4) == pytest.approx([0.2, 0.155, 0.11, 0.065])
    assert sum(local.rates(1, 4)) == pytest.approx(0.1 * (4 - 0.9 * 3 / 2))


def test_rule_7_decay_outside_the_mix_is_amplified() -> None:
    """Where it comes to rest, ∇F(x) + ω'x = 0: ω' is ω inside the mix and ω/α outside."""
    problem = Quadratics(1, full=True, K=1, noise=0.0)
    omega, alpha = 0.05, 0.1

    def rest(name: str, decay: str) -> tuple[float, float]:
        share = {"gamma_l": alpha} if name == "fedvssam" else {"alpha": alpha}
        radius = {} if name == "fedcm" else {"rho": 0.0}
        settings = {"lr": 0.1, "lr_decay": 1.0, "weight_decay": omega, "clip": None, "steps": 1}
        method = methods.build(name, **share, **radius, **settings, decay=decay)
        x = Run(method, problem, 3000).xs[-1]
        grad = np.mean([problem.whole(i, x) for i in range(problem.N)], axis=0)
        return tuple(np.abs(grad + effective * x).max() for effective in (omega, omega / alpha))

    for name in ("fedcm", "mofedsam", "fedvssam"):
        assert methods.build(name).local.decay == "inside"
        nominal, amplified = rest(name, "inside")
        assert nominal < 1e-9 < 1e-3 < amplified
        nominal, amplified = rest(name, "outside")
        assert amplified < 1e-9 < 1e-3 < nominal


def test_rule_8_the_pull_is_clipped_whole_or_not_at_all() -> None:
    """Far from the origin, without data gradient, a client that stands on x stays there."""

    @dataclass(frozen=True, repr=False, kw_only=True)
    class Split(SGD):
        def step(self, w, g, v):
            """w ← w − η(clip(g − λw) + λw)"""
            half = g - 0.5 * w
            return w - v.lr * (half * (1.0 / half.norm()).clamp(max=1.0) + 0.5 * w), {}

    x = torch.full((4,), 100.0, dtype=torch.float64)
    data = LocalData(0, [torch.zeros_like] * 3)
    for scope in ("direction", "data"):
        local = SGD(lr=0.1, steps=3, clip=1.0, clip_scope=scope)
        method = Method(local=local, correct=(Proximal(0.5),))
        upload, _ = client_round(method, {"x": x}, {}, data, 0)
        assert (upload.vectors["dx"][0] == 0).all()
    mutant = Method(local=Split(lr=0.1, steps=3, clip=1.0), correct=(Proximal(0.5),))
    upload, _ = client_round(mutant, {"x": x}, {}, data, 0)
    assert upload.vectors["dx"][0].abs().max() > 1


def test_rule_8_scopes_clip_what_they_say() -> None:
    g = torch.tensor([3.0, 4.0], dtype=torch.float64)
    x = torch.tensor([1.0, 0.0], dtype=torch.float64)
    data = LocalData(0, [lambda w: g])
    method = Method(local=SGD(lr=1.0, steps=1, clip=1.0), correct=(Dual(2.0),))
    sent = {"x": x}
    kept = {"h_i": torch.tensor([0.0, 3.0], dtype=torch.float64)}

    def moved(**modes) -> torch.Tensor:
        local = replace(method.local, **modes)
        upload, _ = client_round(replace(method, local=local), sent, kept, data, 0)
        return -upload.vectors["dx"][0]

    whole = g + 2.0 * kept["h_i"]
    torch.testing.assert_close(moved(), whole / whole.norm())
    torch.testing.assert_close(moved(clip_scope="data"), g / 5 + 2.0 * kept["h_i"])
    torch.testing.assert_close(moved(weight_decay=0.5), whole / whole.norm() + 0.5 * x)
    inside = whole + 0.5 * x
    torch.testing.assert_close(moved(weight_decay=0.5, decay="inside"), inside / inside.norm())
    both = moved(weight_decay=0.5, decay="inside", clip_scope="data")
    torch.testing.assert_close(both, g / 5 + 0.5 * x + 2.0 * kept["h_i"])


def asked(method: Method, problem, rounds: int = 4) -> list[tuple[torch.Tensor, list]]:
    """For every step: where the client stood, and what it asked and was answered."""
    steps = []

    class Listening(Quadratics):
        def data(self, i, t):
            data = super().data(i, t)

            def listen(oracle):
                log: list = []
                steps.append(log)

                def ask(w):
                    answer = oracle(w)
                    log.append((w, answer))
                    return answer

                return ask

            return replace(data, batches=[listen(b) for b in data.batches])

    Run(method, Listening(problem), rounds)
    return [log for log in steps if log]


def test_rule_9_ascent_sees_raw_gradients() -> None:
    @dataclass(frozen=True)
    class DecayedAscent(SAM):
        def gradient(self, w, grad, v):
            """g ← ∇F(w + ρ·unit(∇F(w) + ω·w))"""
            return grad(ascend(w, grad(w) + 0.02 * w, self.rho)), {}

    def raw(method: Method) -> None:
        for (w, g), (up, _) in asked(method, 1):
            torch.testing.assert_close(up - w, 0.1 * unit(g), rtol=0, atol=1e-12)

    for name in ("fedsam", "mofedsam", "fedspeed", "fedgamma"):
        method = build(name, rho=0.1, clip=0.1)
        raw(method)
        with pytest.raises(AssertionError):
            raw(replace(method, perturb=DecayedAscent(0.1)))


def test_mofedsam_ascends_along_the_local_gradient_alone() -> None:
    for (w, g), (up, _) in asked(build("mofedsam", rho=0.1, alpha=0.2), 1):
        torch.testing.assert_close(up - w, 0.1 * unit(g), rtol=0, atol=1e-12)


def test_the_reused_gradient_is_raw_and_new_in_every_round() -> None:
    """N: ε_k = ρ·unit(g̃_{k−1}) whatever clip and decay do to the step, and ε_0 = 0."""
    answers = [torch.tensor([3.0, 4.0]), torch.tensor([0.0, -2.0]), torch.tensor([1.0, 1.0])]
    method = Method(
        perturb=Reusing(SAM(0.5)), local=SGD(lr=0.1, steps=3, clip=1.0, weight_decay=0.1)
    )
    x = torch.tensor([1.0, -1.0])
    for t in range(2):
        points: list[torch.Tensor] = []

        def oracle(g, points=points):
            def ask(at):
                points.append(at)
                return g

            return ask

        client_round(method, {"x": x}, {}, LocalData(0, [oracle(g) for g in answers]), t)
        w = x
        for k, (point, g) in enumerate(zip(points, answers, strict=True)):
            eps = 0.5 * unit(answers[k - 1]) if k else torch.zeros(2)
            torch.testing.assert_close(point, w + eps)
            w = w - 0.1 * (g / max(1.0, float(g.norm())) + 0.1 * w)


def test_rule_10_broadcast_vectors_are_fixed_during_a_round() -> None:
    @dataclass(frozen=True)
    class ShrinkingDelta(Perturbation):
        broadcast = ("delta",)

        def gradient(self, w, grad, v):
            """g ← 0.1·∇F(w) + delta;  delta ← 0.9·delta"""
            g = 0.1 * grad(w) + v.delta
            v.delta.mul_(0.9)
            return g, {}

    mutant = Method(local=SGD(lr=0.1, steps=1), perturb=ShrinkingDelta(), also=(PseudoGradient(),))
    wrong = {finding.claim: finding.wrong for finding in examine(mutant)}
    assert "sent['delta'] was changed in place" in wrong["no hook changes what it was given"]


def test_rule_10_absent_clients_keep_their_state() -> None:
    for name in ("scaffold", "fedsmoo", "fedlesam-d", "fedmoswa", "feddc"):
        problem = Quadratics(1)
        r = Run(build(name), problem, 8)
        for t in range(8):
            absent = set(r.kepts[t]) - set(problem.cohort(t))
            assert all(r.kepts[t + 1][i] is r.kepts[t][i] for i in absent)
        assert any(set(r.kepts[t]) - set(problem.cohort(t)) for t in range(8))
