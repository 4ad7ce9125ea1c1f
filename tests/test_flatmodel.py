"""Any module as a function of one vector."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
from torch import nn

from flatfed import FlatModel, methods
from flatfed.errors import ModelError
from flatfed.parts.track import RunningStatistics
from flatfed.rounds import LocalData, one_round

torch.manual_seed(0)
X, Y = torch.randn(16, 4), torch.randint(0, 3, (16,))


def net(dtype=torch.float64) -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).to(dtype)


def batch(dtype=torch.float64):
    return X.to(dtype), Y


def by_torch(module: nn.Module, w: torch.Tensor, data) -> torch.Tensor:
    """The gradient as PyTorch's own training loop computes it."""
    module = copy.deepcopy(module)
    nn.utils.vector_to_parameters(w, module.parameters())
    module.zero_grad()
    nn.functional.cross_entropy(module(data[0]), data[1]).backward()
    return torch.cat([p.grad.reshape(-1) for p in module.parameters()])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_loss_and_gradient_are_pytorchs(dtype) -> None:
    module = net(dtype)
    model = FlatModel(module)
    w = model.x0 + 0.1
    assert model.x0.dtype == dtype
    assert torch.equal(model.x0, nn.utils.parameters_to_vector(module.parameters()).detach())
    assert torch.equal(model.grad(w, batch(dtype)), by_torch(module, w, batch(dtype)))


def test_hvp_is_the_hessians() -> None:
    model = FlatModel(net())
    H = torch.autograd.functional.hessian(lambda w: model.loss(w, batch()), model.x0)
    u = torch.randn(model.d, dtype=torch.float64)
    torch.testing.assert_close(model.hvp(model.x0, u, batch()), H @ u, rtol=1e-10, atol=1e-12)


def test_derivatives_do_not_depend_on_grad_mode() -> None:
    model = FlatModel(net())
    u = torch.randn(model.d, dtype=torch.float64)
    g, Hu = model.grad(model.x0, batch()), model.hvp(model.x0, u, batch())
    with torch.no_grad():
        assert torch.equal(model.grad(model.x0, batch()), g)
        assert torch.equal(model.hvp(model.x0, u, batch()), Hu)
    assert (Hu != 0).any()


def test_hvp_of_a_linear_loss_is_zero() -> None:
    model = FlatModel(nn.Linear(4, 1), loss=lambda outputs, targets: outputs.mean())
    assert (model.hvp(model.x0, model.x0, (X, Y)) == 0).all()


def test_the_vector_goes_back_to_a_module() -> None:
    model = FlatModel(net())
    w = model.x0 * 2
    module = model.module_at(w)
    assert torch.equal(nn.utils.parameters_to_vector(module.parameters()), w)
    assert torch.equal(module(batch()[0]), model.outputs(w, batch()[0]))
    assert not module.training
    with torch.no_grad():
        next(module.parameters()).zero_()
    assert torch.equal(model.module_at(w)(batch()[0]), model.outputs(w, batch()[0]))


def test_the_module_it_was_given_never_changes() -> None:
    module = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Dropout(), nn.Linear(5, 3))
    before = copy.deepcopy(module.state_dict())
    model = FlatModel(module)
    model.grad(model.x0 + 1, (X, Y))
    model.observe(model.x0, X, model.b0)
    for name, tensor in module.state_dict().items():
        assert torch.equal(tensor, before[name]), name
    assert module.training


def test_frozen_parameters_stay_out_of_the_vector_and_keep_their_values() -> None:
    module = net()
    module[0].requires_grad_(False)
    model = FlatModel(module)
    assert model.d == sum(p.numel() for p in module[2].parameters())
    assert [slot.name for slot in model.layout] == ["2.weight", "2.bias"]
    back = model.module_at(model.x0 + 1)
    assert torch.equal(back[0].weight, module[0].weight)
    assert torch.equal(back[2].weight, module[2].weight + 1)
    free = copy.deepcopy(module).requires_grad_(True)
    whole = by_torch(free, nn.utils.parameters_to_vector(free.parameters()).detach(), batch())
    assert torch.equal(model.grad(model.x0, batch()), whole[-model.d :])


def test_shared_parameters_are_counted_once() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(4, 4, bias=False)
            self.b = nn.Linear(4, 4, bias=False)
            self.b.weight = self.a.weight

        def forward(self, x):
            return self.b(torch.tanh(self.a(x)))

    module = Tied().double()
    model = FlatModel(module)
    assert model.d == 16
    data = (batch()[0], torch.randint(0, 4, (16,)))
    torch.testing.assert_close(model.grad(model.x0, data), by_torch(module, model.x0, data))


def test_unused_parameters_have_zero_gradient() -> None:
    class Idle(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.idle = nn.Linear(4, 3), nn.Linear(4, 3)

        def forward(self, x):
            return self.used(x)

    model = FlatModel(Idle())
    for g in (model.grad(model.x0, (X, Y)), model.hvp(model.x0, model.x0, (X, Y))):
        assert (g[15:] == 0).all()
        assert (g[:15] != 0).any()


def test_outputs_are_differentiable_in_the_vector() -> None:
    model = FlatModel(net())
    w = model.x0.clone().requires_grad_()
    loss = nn.functional.cross_entropy(model.outputs(w, batch()[0]), Y)
    (g,) = torch.autograd.grad(loss, w)
    torch.testing.assert_close(g, model.grad(model.x0, batch()))


def test_a_dropout_mask_belongs_to_its_seed_and_the_generator_is_left_alone() -> None:
    model = FlatModel(nn.Sequential(nn.Linear(4, 50), nn.Dropout(), nn.Linear(50, 3)))
    state = torch.random.get_rng_state()
    one = model.grad(model.x0, (X, Y), seed=3)
    assert torch.equal(one, model.oracle((X, Y), seed=3)(model.x0))
    assert not torch.equal(one, model.grad(model.x0, (X, Y), seed=4))
    assert torch.equal(torch.random.get_rng_state(), state)
    assert torch.equal(model.outputs(model.x0, X), model.outputs(model.x0, X))


def batchnorm() -> FlatModel:
    torch.manual_seed(2)
    layers = nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 3)
    return FlatModel(nn.Sequential(*layers).double())


def test_running_statistics_are_a_vector_that_only_observing_moves() -> None:
    model = batchnorm()
    assert torch.equal(model.b0, torch.cat([torch.zeros(5), torch.ones(5)]).double())
    model.grad(model.x0 + 1, batch())
    model.hvp(model.x0, model.x0, batch())
    model.loss(model.x0, batch())
    fresh = batchnorm().module_at(model.x0)
    assert torch.equal(model.module_at(model.x0)[1].running_mean, fresh[1].running_mean)
    module = model.module_at(model.x0).train()
    module(batch()[0])
    new = model.observe(model.x0, batch()[0], model.b0)
    assert torch.equal(new[:5], module[1].running_mean)
    assert torch.equal(new[5:], module[1].running_var)
    evaluated = model.outputs(model.x0, batch()[0], buffers=new)
    assert torch.equal(evaluated, model.module_at(model.x0, new)(batch()[0]))


@pytest.mark.parametrize("name", ["fedavg", "fedsam", "fedlesam", "fedtoga"])
def test_no_perturbed_pass_moves_running_statistics(name) -> None:
    """Whatever the method asks, the buffers are those of passes at the iterates, averaged."""
    model = batchnorm()
    method = methods.build(name, steps=2, lr=0.1, rho=50.0) if name != "fedavg" else (
        methods.build(name, steps=2, lr=0.1)
    )  # fmt: skip
    method = replace(method, also=(*method.also, RunningStatistics()))
    state = method.start(model.x0, buffers=model.b0)
    iterates: list[torch.Tensor] = []

    class Watched(type(model.oracle(batch()))):
        def observe(self, w, buffers):
            iterates.append(w)
            return super().observe(w, buffers)

    data = [LocalData(i, [Watched(model, batch()) for _ in range(2)]) for i in range(2)]
    new, _ = one_round(method, state, {}, data, 0, 2)
    ends = []
    for i in range(2):
        b = model.b0
        for w in iterates[2 * i : 2 * i + 2]:
            b = model.observe(w, batch()[0], b)
        ends.append(b)
    torch.testing.assert_close(new["buffers"], torch.stack(ends).mean(0), rtol=0, atol=1e-12)
    assert torch.equal(iterates[0], model.x0)


def test_what_is_in_evaluation_mode_under_a_training_module_stays_in_it() -> None:
    """An adapter's frozen, evaluated BatchNorm is a constant, as in a plain loop."""
    torch.manual_seed(3)
    frozen = nn.BatchNorm1d(4).requires_grad_(False)
    frozen(X * 5 + 1)
    module = nn.Sequential(frozen, nn.Linear(4, 3)).train()
    module[0].eval()
    model = FlatModel(module)
    expected = nn.functional.cross_entropy(module(X), Y)
    assert torch.equal(model.loss(model.x0, (X, Y)), expected.detach())
    assert torch.equal(model.observe(model.x0, X, model.b0), model.b0)
    evaluated = FlatModel(module.eval())
    assert not torch.equal(evaluated.loss(model.x0, (X, Y)), expected)


def test_buffers_outside_the_state_dict_do_not_travel() -> None:
    class Table(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 3)
            self.register_buffer("table", torch.ones(100), persistent=False)

        def forward(self, x):
            return self.linear(x) * self.table[0]

    model = FlatModel(Table())
    assert model.b0.numel() == 0
    assert model.observe(model.x0, X, model.b0).numel() == 0


def masked(fill: float) -> FlatModel:
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 3)
            self.register_buffer("mask", torch.full((3,), fill))

        def forward(self, x):
            return self.linear(x) + self.mask.clamp(min=-1.0)

    return FlatModel(Masked())


def test_a_mask_of_infinities_does_not_travel() -> None:
    assert masked(float("-inf")).b0.numel() == 0
    assert masked(-1.0).b0.numel() == 3


def test_every_pass_in_training_mode_takes_a_seed_and_leaves_the_generator_alone() -> None:
    torch.manual_seed(0)
    layers = nn.Linear(4, 50), nn.Dropout(), nn.BatchNorm1d(50), nn.Tanh(), nn.Linear(50, 3)
    model = FlatModel(nn.Sequential(*layers))
    passes = {
        "loss": lambda seed: model.loss(model.x0, (X, Y), seed=seed),
        "grad": lambda seed: model.oracle((X, Y), seed=seed)(model.x0),
        "hvp": lambda seed: model.hvp(model.x0, model.x0, (X, Y), seed=seed),
        "outputs": lambda seed: model.outputs(model.x0, X, train=True, seed=seed),
        "observe": lambda seed: model.oracle((X, Y), seed=seed).observe(model.x0, model.b0),
    }
    state = torch.random.get_rng_state()
    for name, of in passes.items():
        assert torch.equal(of(5), of(5)), name
        assert not torch.equal(of(5), of(6)), name
        assert torch.equal(torch.random.get_rng_state(), state), name


BAD_MODULES = [
    (nn.ReLU(), r"ReLU has no trainable parameters \(0 are frozen\)"),
    (nn.Linear(2, 2).requires_grad_(False), r"Linear has no trainable parameters \(2 are frozen\)"),
    (nn.Linear, r"FlatModel got type, expected a torch.nn.Module"),
    (
        nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).double()),
        "torch.float32 on cpu, torch.float64 on cpu, expected all torch.float32 or all",
    ),
    (nn.Linear(2, 2).half(), "torch.float16 on cpu, expected all torch.float32 or all"),
    (nn.LazyLinear(2), "LazyLinear has lazy parameters without a shape, expected shapes"),
    (
        nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2, momentum=None)),
        "Sequential has a BatchNorm with momentum=None, expected a number",
    ),
]


@pytest.mark.parametrize(
    ("module", "message"), BAD_MODULES, ids=lambda v: v if type(v) is str else ""
)
def test_a_module_that_is_no_vector_is_refused(module, message) -> None:
    with pytest.raises(ModelError, match=message) as error:
        FlatModel(module)
    assert len(str(error.value).splitlines()) <= 3


@pytest.mark.filterwarnings("ignore:`torch.nn.utils.weight_norm`")
def test_a_module_that_cannot_be_copied_is_refused() -> None:
    module = nn.utils.weight_norm(nn.Linear(4, 3))
    module(X)
    with pytest.raises(ModelError, match="Linear cannot be copied: Only Tensors created") as error:
        FlatModel(module)
    assert len(str(error.value).splitlines()) == 2


def test_a_vector_of_another_model_is_refused() -> None:
    model = FlatModel(net())
    with pytest.raises(ModelError, match=r"w has shape \(3,\), expected \(43,\)"):
        model.grad(torch.zeros(3), batch())
    with pytest.raises(ModelError, match=r"u has shape \(3,\), expected \(43,\)"):
        model.hvp(model.x0, torch.zeros(3), batch())
    with pytest.raises(ModelError, match=r"buffers has shape \(2,\), expected \(0,\)"):
        model.outputs(model.x0, X, buffers=torch.zeros(2))
