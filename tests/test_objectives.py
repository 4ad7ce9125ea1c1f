"""What methods minimise, or ascend, beside the data's own loss: FedRCL, FedGMT, FedSOL."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, replace
from math import log1p
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from flatfed import methods, models
from flatfed.errors import CompositionError, ModelError
from flatfed.flatmodel import FlatModel
from flatfed.method import Method
from flatfed.methods.fedgmt import LinearDual
from flatfed.methods.fedrcl import ByEpoch, RelaxedContrast, cosines
from flatfed.methods.fedsol import ProximalAscent, reach
from flatfed.oracle import Pass
from flatfed.part import Correction, Perturbation
from flatfed.parts.correct import Dual
from flatfed.parts.objective import DataLoss
from flatfed.parts.perturb import SAM
from flatfed.parts.server import Average, DualAverage
from flatfed.vec import lay_out
from problems import NoisyNet, Quadratics, Run
from transcripts.fedrcl import penalties

LOCAL = {"lr": 0.15, "lr_decay": 0.95, "weight_decay": 0.02, "clip": None, "steps": 1}


def m(name: str, **settings) -> Method:
    return methods.build(name, **{**LOCAL, **settings})


def gap(one: Method, two: Method, problem=None, rounds: int = 10) -> float:
    problem = problem or NoisyNet(3)
    return float(np.abs(Run(one, problem, rounds).xs - Run(two, problem, rounds).xs).max())


def drawn(*shape: int, seed: int = 0, dtype=torch.float64) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def seen(features: list[torch.Tensor], targets: torch.Tensor) -> Pass:
    zero = features[0].new_zeros(())
    return Pass(features[0].new_zeros(len(targets), 3), targets, features, zero)


# FedRCL

PARTS = [
    RelaxedContrast(0.05, 0.7),
    RelaxedContrast(0.05, 0.2, "all"),
    RelaxedContrast(0.5, -0.5, "hardest", contrast=0.3, relax=2.0),
    RelaxedContrast(0.5, -0.5, "all", contrast=2.0, relax=0.7),
]


@pytest.mark.parametrize("part", PARTS, ids=repr)
@pytest.mark.parametrize("n", [1, 2, 3, 5, 12])
@pytest.mark.parametrize("classes", [1, 2, 4])
def test_fedrcl_is_the_loop_over_samples_and_pairs(part, n, classes) -> None:
    """The value and its derivative by every level's features; one of them with pixels."""
    random = np.random.default_rng([n, classes])
    targets = torch.from_numpy(random.integers(0, classes, size=n))
    flat = drawn(n, 4, seed=n).add_(1.0).requires_grad_()  # alike enough to be above a threshold
    images = drawn(n, 5, 3, 2, seed=n + 100).add_(0.7).requires_grad_()
    value = part.loss(seen([flat, images], targets))
    assert value.dim() == 0
    by_flat, by_images = torch.autograd.grad(value, [flat, images])
    pooled = images.detach().mean((2, 3))
    expected, (d_flat, d_pooled) = penalties(
        [flat.detach().numpy(), pooled.numpy()],
        targets.numpy(),
        **{name: getattr(part, name) for name in RelaxedContrast.__dataclass_fields__},
    )
    assert value.item() == pytest.approx(expected, abs=1e-11)
    np.testing.assert_allclose(by_flat, d_flat, rtol=0, atol=1e-11)
    # Every pixel has its share of the average's derivative.
    np.testing.assert_allclose(by_images.sum((2, 3)), d_pooled, rtol=0, atol=1e-11)
    np.testing.assert_allclose(by_images[:, :, 0, 0] * 6, d_pooled, rtol=0, atol=1e-11)


@pytest.mark.parametrize("part", PARTS, ids=repr)
def test_fedrcl_does_not_know_the_order_of_a_batch(part) -> None:
    features, targets = (
        [drawn(9, 4), drawn(9, 3, seed=1)],
        torch.tensor([0, 1, 2, 0, 1, 0, 2, 0, 3]),
    )
    order = torch.randperm(9, generator=torch.Generator().manual_seed(5))
    value = part.loss(seen(features, targets))
    moved = part.loss(seen([f[order] for f in features], targets[order]))
    assert float(value) == pytest.approx(float(moved), abs=1e-12)


@pytest.mark.parametrize("part", PARTS, ids=repr)
@pytest.mark.parametrize("labels", [[0], [0, 0, 0], [0, 1], [0, 1, 2, 3], [0, 0, 1]])
def test_fedrcl_is_finite_on_any_batch(part, labels) -> None:
    """One sample, one class, classes of one sample, equal samples, a sample without features."""
    targets, n = torch.tensor(labels), len(labels)
    for features in (drawn(n, 4), torch.ones(n, 4), torch.zeros(n, 4), torch.eye(n, 4)):
        given = features.float().requires_grad_()
        value = part.loss(seen([given], targets))
        (gradient,) = torch.autograd.grad(value, given)
        assert value.isfinite()
        assert gradient.isfinite().all()
    if set(labels) == {0} and part.relax == 0:
        assert float(value) == 0


def test_fedrcl_without_its_penalties_is_fedavg() -> None:
    off = m("fedrcl", contrast=0.0, relax=0.0)
    assert gap(off, m("fedavg")) < 1e-12
    assert gap(m("fedrcl", relax=0.0), m("fedavg")) > 1e-3
    assert gap(m("fedrcl", contrast=0.0, threshold=-1.0), m("fedavg")) > 1e-3


def test_fedrcl_above_every_cosine_penalises_a_constant() -> None:
    part = RelaxedContrast(0.05, 1.01, contrast=0.0)
    targets = torch.tensor([0, 0, 1, 2, 2, 2])
    value = part.loss(seen([drawn(6, 4), drawn(6, 3, seed=2)], targets))
    assert float(value) == pytest.approx(log1p(np.exp(-2 / 0.05)), abs=1e-15)
    assert float(replace(part, tau=0.5).loss(seen([drawn(6, 4)], targets))) == pytest.approx(
        log1p(np.exp(-4)), abs=1e-14
    )
    assert float(replace(part, pairs="all").loss(seen([drawn(6, 4)], targets))) == 0
    assert gap(m("fedrcl", contrast=0.0, threshold=1.01), m("fedavg")) < 1e-12


def test_fedrcl_leaves_alone_what_is_one_class() -> None:
    part = RelaxedContrast(0.05, 0.7, relax=0.0)
    assert float(part.loss(seen([drawn(5, 4)], torch.zeros(5, dtype=torch.long)))) == 0


def test_the_rate_falls_from_epoch_to_epoch() -> None:
    local = methods.fedrcl().local
    assert local.steps_for(500) == 50
    rates = local.rates(3, 50)
    assert rates == pytest.approx([0.1 * 0.998**3 * 0.998 ** (k // 10) for k in range(50)])
    # Steps are no epochs, and one epoch is one rate.
    assert methods.fedrcl(steps=7).local.lr == 0.1
    assert methods.fedrcl(epoch_decay=1.0).local.lr == 0.1
    assert len(set(methods.fedrcl(epochs=1).local.rates(0, 10))) == 1
    with pytest.raises(CompositionError, match=r"ByEpoch got factor=1\.2, expected a number in"):
        methods.fedrcl(epoch_decay=1.2)
    assert ByEpoch(lambda t, k, K: t + 1.0, 0.5, 2)(3, 5, 10) == 2.0


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"tau": 0.0}, "tau=0.0"),
        ({"threshold": -1.5}, "threshold=-1.5"),
        ({"pairs": "some"}, "pairs='some', expected 'hardest' or 'all'"),
        ({"contrast": -1.0}, "contrast=-1.0"),
        ({"relax": -1.0}, "relax=-1.0"),
    ],
)
def test_fedrcl_refuses_what_is_no_weight(wrong, said) -> None:
    with pytest.raises(CompositionError, match=f"RelaxedContrast got {said}"):
        methods.fedrcl(**wrong)


# What the levels are, of every model

LEVELS = {
    "mlp2": 1, "mlp_128_128": 2, "2nn": 2, "convnet": 3, "lenet": 4, "lenet5_classic": 4,
    "vgg11_gn": 8, "vgg11_plain": 9, "resnet18_tv_gn2": 5, "resnet18_cifar_gn32": 5,
    "resnet18_cifar_gn2": 5, "resnet18_cifar_bn": 5, "wrn28_4": 4, "cnn3": 3, "fedavg_cnn": 3,
}  # fmt: skip


def features_of(module: nn.Module, inputs: torch.Tensor) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []

    def loss(each: Pass) -> torch.Tensor:
        found.extend(f.detach() for f in each.features)
        return each.loss

    model = FlatModel(module)
    targets = torch.arange(len(inputs)) % 2
    model.oracle((inputs, targets)).gradient(model.x0, loss, features=True)
    return found


@pytest.mark.parametrize("name", LEVELS)
def test_every_image_model_has_the_levels_it_should(name) -> None:
    shape = inspect.signature(models.CATALOGUE[name]).parameters["shape"].default
    module = models.build(name, seed=0)
    found = features_of(module, drawn(2, *shape, dtype=torch.float32))
    assert len(found) == LEVELS[name]
    assert all(f.dim() in (2, 4) and len(f) == 2 for f in found)
    assert all((f < 0).any() for f in found)  # before they are cut off
    part = methods.fedrcl().objective
    assert part.loss(seen(found, torch.tensor([0, 1]))).isfinite()


@pytest.mark.parametrize("name", [n for n in LEVELS if n.startswith("resnet")])
def test_a_residual_level_is_a_stage_before_its_last_relu(name) -> None:
    module, x = models.build(name, seed=0), drawn(2, 3, 32, 32, dtype=torch.float32)
    found = features_of(module, x)
    torch.testing.assert_close(found[0], module.stem[1](module.stem[0](x)))
    h = module.stem(x)
    for number, feature in enumerate(found[1:], start=1):
        h = getattr(module, f"stage{number}")(h)
        torch.testing.assert_close(feature.relu(), h)


def test_a_model_without_relu_says_so() -> None:
    module = models.build("textcnn", seed=0)
    with pytest.raises(ModelError, match="TextCNN has no ReLU layers, expected features"):
        features_of(module, torch.zeros(2, 128, dtype=torch.long))


def test_a_feature_layer_must_be_there() -> None:
    module = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    module.feature_layers = ("1", "7")
    with pytest.raises(ModelError, match=r"feature_layers names '7', expected one of its modules"):
        features_of(module, drawn(2, 4, dtype=torch.float32))


def test_a_relu_in_place_does_not_cut_what_was_seen() -> None:
    inputs = drawn(6, 4, dtype=torch.float32)
    nets = []
    for inplace in (False, True):
        torch.manual_seed(0)
        nets.append(nn.Sequential(nn.Linear(4, 9), nn.ReLU(inplace), nn.Linear(9, 2)))
    plain, cut = (features_of(net, inputs)[0] for net in nets)
    assert torch.equal(plain, cut)
    assert (cut < 0).any()


@pytest.mark.parametrize("shape", [(6, 5, 4), (5, 4), (6, 2, 2, 2, 2)])
def test_a_level_that_is_none_is_refused(shape) -> None:
    with pytest.raises(ModelError, match=r"A feature layer received shape .*expected \(6, width\)"):
        cosines(torch.zeros(shape), seen([torch.zeros(6, 2)], torch.zeros(6)))


def test_a_level_in_half_precision_is_as_wide_as_the_outputs() -> None:
    level = drawn(6, 4)
    found = cosines(level.bfloat16(), seen([drawn(6, 2)], torch.zeros(6)))
    assert found.dtype == torch.float64
    torch.testing.assert_close(
        found, cosines(level, seen([level], torch.zeros(6))), atol=0.05, rtol=0
    )


# FedGMT


@dataclass(frozen=True)
class Repel(Correction):
    """FedDyn's penalty, taken out again."""

    lam: float

    def direction(self, g, w, v):
        """g ← g − λ(w − x)"""
        return g - self.lam * (w - v.x)


def test_fedgmt_without_distillation_is_feddyn_without_its_penalty() -> None:
    feddyn = m("feddyn", lam=0.3, momentum=0.9)
    without = replace(feddyn, correct=(Dual(0.3), Repel(0.3)), weights="samples")
    assert gap(m("fedgmt", gamma=0.0, lam=0.3), without) < 1e-12
    assert gap(m("fedgmt", gamma=1.0, lam=0.3), without) > 1e-3


def test_fedgmt_whose_average_forgets_distils_from_the_start_of_the_round() -> None:
    problem = NoisyNet(4)
    run = Run(m("fedgmt", alpha=0.0), problem, 6)
    assert all(torch.equal(state["e"], state["x"]) for state in run.states)
    # There the first step finds nothing to distil, so rounds of one step cannot tell.
    problem.steps = lambda i, t: 1
    assert gap(m("fedgmt", alpha=0.0), m("fedgmt", gamma=0.0), problem) < 1e-12
    assert gap(m("fedgmt", alpha=0.9), m("fedgmt", gamma=0.0), problem) > 1e-4


def test_fedgmt_without_distillation_and_duals_is_fedavg() -> None:
    bare = replace(m("fedgmt", gamma=0.0), correct=(), server=Average())
    assert gap(bare, m("fedavg", momentum=0.9, weights="samples")) < 1e-12


def duals(run: Run, t: int) -> np.ndarray:
    """Every client's after t rounds, of those that never came zero."""
    kept, N = run.kepts[t], run.problem.N
    zero = np.zeros(run.xs.shape[1])
    return np.array([kept[i]["h_i"].numpy() if i in kept else zero for i in range(N)])


def test_fedgmt_with_equal_clients_is_the_code_literally() -> None:
    """x ← Σp_i·w_i + (1/N)·Σh_i with sample weights on the models and none on the duals."""
    problem = NoisyNet(5)
    problem.samples[:] = 37
    run = Run(m("fedgmt"), problem, 8)
    for t in range(8):
        x, after = run.states[t]["x"].numpy(), duals(run, t + 1)
        dx = after - duals(run, t)
        S = problem.cohort(t)
        literal = np.mean([x + dx[i] for i in S], axis=0) + after.mean(axis=0)
        np.testing.assert_allclose(run.xs[t], literal, rtol=0, atol=1e-13)


def test_fedgmt_settles_where_the_weighted_gradients_cancel() -> None:
    """With everybody there, in the mean that its weights say; on quadratics, so without teacher."""
    problem = Quadratics(2, full=True, noise=0.0, K=3)
    for weights, share in (("samples", problem.samples), ("uniform", np.ones(problem.N))):
        settings = {"lr": 0.03, "lr_decay": 1.0, "weight_decay": 0.0, "lam": 0.1}
        method = replace(m("fedgmt", weights=weights, **settings), objective=DataLoss())
        x = Run(method, problem, 1500).xs[-1]
        each = np.array([problem.whole(i, x) for i in range(problem.N)])
        assert np.abs(share @ each / share.sum()).max() < 1e-8 < np.abs(each).max()


@pytest.mark.parametrize(
    "wrong", [{"alpha": 1.1}, {"gamma": -1.0}, {"tau": 0.0}, {"lam": 0.0}], ids=str
)
def test_fedgmt_refuses_what_is_out_of_range(wrong) -> None:
    (name,) = wrong
    with pytest.raises(CompositionError, match=f"{name}={wrong[name]}, expected a number in"):
        methods.fedgmt(**wrong)


def test_a_linear_dual_needs_its_server() -> None:
    alone = Method(correct=(LinearDual(0.1),), server=DualAverage(), local=m("fedavg").local)
    assert alone.names("server") == ("h",)


# FedSOL


def test_fedsol_without_a_perturbation_is_fedavg_with_momentum() -> None:
    fedavg = m("fedavg", momentum=0.9, weights="samples")
    for strength in ("adaptive", "fixed"):
        assert gap(m("fedsol", rho=0.0, strength=strength), fedavg) < 1e-12
        assert gap(m("fedsol", strength=strength), fedavg) > 1e-3


@dataclass(frozen=True)
class OfTheData(ProximalAscent):
    """FedSOL's ascent of the loss itself."""

    def distance(self, anchor, seen):
        return seen.loss


@dataclass(frozen=True)
class Late(Perturbation):
    """SAM from the second step on."""

    sam: SAM

    def gradient(self, w, grad, v):
        """g ← ∇F(w + ρ·unit(∇F(w))) from the second step on"""
        return (grad(w), {}) if v.k == 0 else self.sam.gradient(w, grad, v)


def test_fedsol_ascending_the_loss_is_fedsam() -> None:
    fedsol, fedsam = m("fedsol"), m("fedsam", momentum=0.9, weights="samples")
    ours = replace(fedsol, perturb=OfTheData(0.2, 3.0, "fixed"))
    assert gap(ours, replace(fedsam, perturb=Late(SAM(0.2)))) < 1e-5


def test_fedsol_takes_its_first_step_without_a_perturbation() -> None:
    """Exactly, in single precision too, where the gradient of nothing is some rounding errors."""
    torch.manual_seed(0)
    model = FlatModel(nn.Sequential(nn.Linear(20, 50), nn.ReLU(), nn.Linear(50, 10)))
    oracle = model.oracle((drawn(64, 20, dtype=torch.float32), torch.arange(64) % 10))
    part = ProximalAscent(1.0, 3.0, "fixed")
    x = model.x0
    v = SimpleNamespace(k=0, x=x, batch=oracle, layout=model.layout)
    assert torch.equal(part.gradient(x, oracle, v)[0], oracle(x))
    anchor = oracle.outputs(x)
    noise = oracle.gradient(x, lambda seen: part.distance(anchor, seen))
    assert 1e-12 < float(noise.norm()) < 1e-6  # which a length of its own would make as long as ρ


def test_fedsol_perturbs_by_rho_or_by_how_far_each_weight_has_gone() -> None:
    problem = NoisyNet(1)
    X, Y = problem.X[0], problem.Y[0]
    oracle, layout = problem.oracle(X, Y), problem.layout
    x = torch.from_numpy(problem.x0)
    w = x + 0.1 * drawn(len(x))
    v = SimpleNamespace(k=1, x=x, batch=oracle, layout=layout)
    asked: list[torch.Tensor] = []

    def grad(point: torch.Tensor) -> torch.Tensor:
        asked.append(point - w)
        return oracle(point)

    ProximalAscent(0.7, 3.0, "fixed").gradient(w, grad, v)
    ProximalAscent(0.7, 3.0).gradient(w, grad, v)
    fixed, adaptive = asked
    assert float(fixed.norm()) == pytest.approx(0.7)
    torch.testing.assert_close(adaptive, fixed * reach(w, x, layout))


def test_what_has_not_moved_is_not_reached() -> None:
    layout = lay_out({"weight": (2, 3), "bias": (2,), "scale": (), "still": (2,)})
    x = torch.zeros(11)
    w = torch.tensor([3.0, 1.0, 0.0, -4.0, 0.0, 0.0, 0.6, -0.8, -5.0, 0.0, 0.0])
    A = reach(w, x, layout)
    expected = [0.6, 1.0, 0.0, 0.8, 0.0, 0.0, 0.6, 0.8, 1.0, 0.0, 0.0]
    torch.testing.assert_close(A, torch.tensor(expected))
    assert torch.equal(w, torch.tensor([3.0, 1, 0, -4, 0, 0, 0.6, -0.8, -5, 0, 0]))


@pytest.mark.parametrize("wrong", [{"rho": -1.0}, {"tau": 0.0}], ids=str)
def test_fedsol_refuses_what_is_out_of_range(wrong) -> None:
    (name,) = wrong
    with pytest.raises(CompositionError, match=f"{name}={wrong[name]}, expected a number in"):
        methods.fedsol(**wrong)
    with pytest.raises(CompositionError, match="strength='some', expected 'adaptive' or 'fixed'"):
        methods.fedsol(strength="some")
