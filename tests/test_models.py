"""Every published architecture, layer by layer, and what the catalogue does with your own."""

from __future__ import annotations

import inspect
import sys
from itertools import pairwise
from types import ModuleType

import pytest
import torch
from torch import nn

from flatfed import models
from flatfed.errors import ModelError, SpecError
from flatfed.models.lora import LowRank

COLOUR, GREY = (3, 32, 32), (1, 28, 28)
RESNETS = ["resnet18_tv_gn2", "resnet18_cifar_gn32", "resnet18_cifar_gn2", "resnet18_cifar_bn"]
# spec, recipes section 1: name, shape, classes, trainable numbers
COUNTS = [
    ("mlp2", GREY, 10, 101_770),
    ("mlp_128_128", GREY, 10, 118_282),
    ("2nn", GREY, 10, 199_210),
    ("convnet", COLOUR, 10, 320_010),
    ("convnet", COLOUR, 100, 504_420),
    ("convnet", GREY, 10, 317_706),
    ("lenet", COLOUR, 10, 797_962),
    ("lenet", COLOUR, 100, 815_332),
    ("lenet5_classic", COLOUR, 10, 62_006),
    ("vgg11_gn", COLOUR, 10, 9_231_114),
    ("vgg11_gn", COLOUR, 100, 9_277_284),
    ("vgg11_plain", COLOUR, 10, 9_272_790),
    ("vgg11_plain", COLOUR, 100, 9_377_508),
    ("resnet18_tv_gn2", COLOUR, 10, 11_181_642),
    ("resnet18_tv_gn2", COLOUR, 100, 11_227_812),
    *((name, COLOUR, 10, 11_173_962) for name in RESNETS[1:]),
    *((name, COLOUR, 100, 11_220_132) for name in RESNETS[1:]),
    ("wrn28_4", COLOUR, 10, 5_849_050),
    ("wrn28_4", COLOUR, 100, 5_872_180),
    ("textcnn", (128,), 14, 3_124_514),
    ("cnn3", COLOUR, 10, 2_122_186),
    ("fedavg_cnn", COLOUR, 10, 2_156_490),
    ("fedavg_cnn", COLOUR, 100, 2_202_660),
]
BLOCKS = [*RESNETS, "wrn28_4", "textcnn"]  # no straight line of layers
FROM_SCRATCH = [name for name in models.CATALOGUE if not name.startswith("vit")]


def made(name: str, seed: int = 0, **values) -> nn.Module:
    return models.build(name, seed=seed, **values)


def count(model: nn.Module, *, trainable: bool = False) -> int:
    return sum(p.numel() for p in model.parameters() if p.requires_grad or not trainable)


def inputs(model: str, n: int = 2) -> torch.Tensor:
    """As many as the model's default shape takes, always the same."""
    generator = torch.Generator().manual_seed(0)
    if model == "textcnn":
        return torch.randint(0, 30_000, (n, 128), generator=generator)
    shape = inspect.signature(models.CATALOGUE[model]).parameters["shape"].default
    return torch.randn(n, *shape, generator=generator)


# Architectures.


@pytest.mark.parametrize(("name", "shape", "classes", "d"), COUNTS)
def test_a_model_has_as_many_parameters_as_published(name, shape, classes, d) -> None:
    model = made(name, shape=shape, classes=classes)
    assert count(model) == count(model, trainable=True) == d
    assert {*FROM_SCRATCH} == {name for name, *_ in COUNTS}


@pytest.mark.parametrize("name", FROM_SCRATCH)
def test_a_model_gives_every_class_a_number(name) -> None:
    model = made(name, classes=7).eval()
    x = inputs(name)
    assert model(x).shape == (2, 7)
    assert model(x).isfinite().all()
    # No row of a batch depends on the others.
    torch.testing.assert_close(model(x)[:1], model(x[:1]), rtol=1e-4, atol=1e-5)


def stages(model: nn.Module, x: torch.Tensor, kinds: type | tuple[type, ...]) -> list[tuple]:
    """Shapes that come out of all modules of these kinds, in the order they are called."""
    found: list[tuple] = []
    for module in model.modules():
        if isinstance(module, kinds):
            module.register_forward_hook(lambda m, i, o: found.append(tuple(o.shape[1:])))
    model.eval()(x)
    return found


@pytest.mark.parametrize(("name", "sides"), [("resnet18_tv_gn2", (8, 4, 2, 1))] + [
    (name, (32, 16, 8, 4)) for name in RESNETS[1:]
])  # fmt: skip
def test_resnet_halves_where_it_should(name, sides) -> None:
    model = made(name)
    widths = (64, 128, 256, 512)
    found: list[tuple] = []
    for stage in range(1, 5):
        getattr(model, f"stage{stage}").register_forward_hook(
            lambda m, i, o: found.append(tuple(o.shape[1:]))
        )
    model.eval()(inputs(name))
    assert found == [(w, s, s) for w, s in zip(widths, sides, strict=True)]


@pytest.mark.parametrize(
    ("name", "norm", "groups"),
    [
        ("convnet", nn.GroupNorm, 128),
        ("vgg11_gn", nn.GroupNorm, 32),
        ("vgg11_plain", None, 0),
        ("resnet18_tv_gn2", nn.GroupNorm, 2),
        ("resnet18_cifar_gn32", nn.GroupNorm, 32),
        ("resnet18_cifar_gn2", nn.GroupNorm, 2),
        ("resnet18_cifar_bn", nn.BatchNorm2d, 0),
        ("wrn28_4", nn.GroupNorm, 8),
    ],
)
def test_a_model_has_its_norm_and_no_other(name, norm, groups) -> None:
    norms = [m for m in made(name).modules() if "Norm" in type(m).__name__]
    assert all(isinstance(m, norm) for m in norms)
    assert bool(norms) == (norm is not None)
    assert {m.num_groups for m in norms if isinstance(m, nn.GroupNorm)} <= {groups}
    assert all((m.weight == 1).all() and (m.bias == 0).all() for m in norms)


def test_a_convolution_before_a_norm_has_a_bias_only_where_the_papers_have_one() -> None:
    biased = {
        name: {m.bias is not None for m in made(name).modules() if isinstance(m, nn.Conv2d)}
        for name in FROM_SCRATCH
    }
    for name in (*RESNETS, "wrn28_4"):
        assert biased[name] == {False}
    for name in ("convnet", "lenet", "lenet5_classic", "vgg11_gn", "vgg11_plain", "cnn3"):
        assert biased[name] == {True}


def test_convnet_on_grey_images_is_convnet_on_32_by_32() -> None:
    model = made("convnet", shape=GREY)
    assert stages(model, torch.zeros(1, *GREY), nn.AvgPool2d) == [
        (128, 16, 16), (128, 8, 8), (128, 4, 4)]  # fmt: skip
    assert [m.padding for m in model if isinstance(m, nn.Conv2d)] == [(3, 3), (1, 1), (1, 1)]


def test_vgg11_starts_as_dispfl_does() -> None:
    """Kaiming-normal by fan-out, N(0, 0.01) in the classifier, no bias at first."""
    model = made("vgg11_gn")
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d):
            deviation = (2 / (layer.out_channels * 9)) ** 0.5
            assert abs(layer.weight.std() / deviation - 1) < 0.05
            assert (layer.bias == 0).all()
    assert abs(model[-1].weight.std() / 0.01 - 1) < 0.05
    assert (model[-1].bias == 0).all()


def test_vgg11_plain_ends_in_logarithms_of_probabilities() -> None:
    sums = made("vgg11_plain")(inputs("vgg11_plain")).exp().sum(1)
    torch.testing.assert_close(sums, torch.ones(2))


def test_a_basic_block_is_the_published_one() -> None:
    block = made("resnet18_cifar_gn2").stage2[0]
    x = torch.randn(2, 64, 8, 8, generator=torch.Generator().manual_seed(1))
    c1, n1, _, c2, n2 = block.body
    short, norm = block.shortcut
    F = nn.functional
    h = F.relu(F.group_norm(F.conv2d(x, c1.weight, stride=2, padding=1), 2))
    h = F.group_norm(F.conv2d(h, c2.weight, padding=1), 2)
    aside = F.group_norm(F.conv2d(x, short.weight, stride=2), 2)
    torch.testing.assert_close(block(x), F.relu(h + aside))
    assert n1.affine
    assert n2.affine
    assert norm.affine
    assert isinstance(made("resnet18_cifar_gn2").stage1[0].shortcut, nn.Identity)


def test_a_wide_block_activates_before_both_ways() -> None:
    """The 1×1 shortcut sees the pre-activated input; where there is none, x itself is added."""
    model = made("wrn28_4")
    F = nn.functional
    x = torch.randn(2, 64, 8, 8, generator=torch.Generator().manual_seed(1))
    for block, stride in ((model.group2[0], 2), (model.group1[1], 1)):
        c1, _, _, c2 = block.body
        active = F.relu(F.group_norm(x, 8))
        h = F.conv2d(active, c1.weight, stride=stride, padding=1)
        h = F.conv2d(F.relu(F.group_norm(h, 8)), c2.weight, padding=1)
        aside = x if block.shortcut is None else F.conv2d(active, block.shortcut.weight, stride=2)
        torch.testing.assert_close(block(x), aside + h)
    assert [len(getattr(model, f"group{g}")) for g in (1, 2, 3)] == [4, 4, 4]
    assert model.group1[0].shortcut is not None  # the width changes
    assert made("wrn28_4", norm="batch").last[0].num_features == 256
    x = torch.randn(2, 256, 8, 8, generator=torch.Generator().manual_seed(1))
    pooled = F.relu(F.group_norm(x, 8)).mean((2, 3))
    torch.testing.assert_close(model.head(model.pool(model.last(x))), model.head(pooled))


def test_textcnn_finds_the_strongest_response_anywhere() -> None:
    model = made("textcnn").eval()
    tokens = torch.full((1, 128), 5)
    here, there = tokens.clone(), tokens.clone()
    here[0, 20:24] = torch.arange(10, 14)
    there[0, 90:94] = torch.arange(10, 14)
    torch.testing.assert_close(model(here), model(there))
    assert not torch.allclose(model(here), model(tokens))
    words = model.embedding(here).transpose(1, 2)
    responses = [c(words).amax(2).clamp(min=0) for c in model.convolutions]
    torch.testing.assert_close(model(here), model.head(torch.cat(responses, 1)))
    kernels = [tuple(c.weight.shape) for c in model.convolutions]
    assert kernels == [(100, 100, 3), (100, 100, 4), (100, 100, 5)]
    assert model.dropout.p == 0.5
    model(tokens).sum().backward()
    assert model.embedding.weight.grad[5].abs().sum() > 0  # also where 5 is padding
    assert model.embedding.padding_idx is None


@pytest.mark.parametrize("name", [n for n in FROM_SCRATCH if n not in BLOCKS])
def test_relu_is_after_every_layer_but_the_last(name) -> None:
    order = [type(m) for m in made(name) if type(m) not in (nn.Flatten, nn.LogSoftmax)]
    for layer, following in pairwise(order):
        if layer is nn.GroupNorm:
            assert following is nn.ReLU
        if layer in (nn.Conv2d, nn.Linear):
            assert following in (nn.ReLU, nn.GroupNorm)
    assert order[-1] is nn.Linear


# Building.


@pytest.mark.parametrize("name", ["mlp2", "vgg11_gn", "wrn28_4", "textcnn"])
def test_a_seed_gives_the_same_bytes_and_leaves_the_callers_state(name) -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = made(name, seed=3).state_dict()
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    again, other = made(name, seed=3).state_dict(), made(name, seed=4).state_dict()
    assert all(torch.equal(first[key], again[key]) for key in first)
    assert not all(torch.equal(first[key], other[key]) for key in first)


def test_a_model_is_given_only_what_of_the_data_it_names() -> None:
    model = made("textcnn", classes=3, shape=(9,), vocabulary=50)
    assert model.embedding.num_embeddings == 50
    assert made("mlp2", classes=3, shape=[4, 2], vocabulary=50)[1].in_features == 8


MINE = """
import torch
from torch import nn

torch.rand(3)  # importing may draw numbers, and does so only once

class Mine(nn.Module):
    def __init__(self, classes, width=4):
        super().__init__()
        self.layer = nn.Linear(width, classes)

def anything(**options):
    return nn.Linear(options["shape_of_mine"], 1)

def number(classes):
    return 3

def broken(shape, depth):
    return nn.Linear(depth, 1)

one = nn.Linear(2, 2)
"""


@pytest.fixture
def mine(tmp_path, monkeypatch):
    (tmp_path / "of_mine.py").write_text(MINE)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("of_mine", None)


@pytest.mark.usefixtures("mine")
def test_a_model_of_ones_own_is_built_the_same_on_its_first_import() -> None:
    first = made("of_mine:Mine", classes=3, shape=(4,), width=5)
    again = made("of_mine:Mine", classes=3, shape=(4,), width=5)
    assert first.layer.weight.shape == (3, 5)
    assert torch.equal(first.layer.weight, again.layer.weight)
    assert made("of_mine:anything", classes=3, shape_of_mine=6).in_features == 6


@pytest.mark.usefixtures("mine")
@pytest.mark.parametrize(
    ("name", "values", "error", "message"),
    [
        ("lenett", {}, SpecError,
         "'lenett' is no model of flatfed.\n"
         f"Did you mean 'lenet'? Known: {', '.join(sorted(models.CATALOGUE))}.\n"
         "One of your own is written module:factory, one of timm's timm:NAME."),
        ("timm:", {}, SpecError,
         "'timm:' is no model of flatfed.\n"
         f"Known: {', '.join(sorted(models.CATALOGUE))}.\n"
         "One of your own is written module:factory, one of timm's timm:NAME."),
        ("wrn28_4", {"norms": "batch"}, SpecError,
         "wrn28_4 has no option 'norms'.\nDid you mean 'norm'? Known: norm."),
        ("lenet", {"width": 3}, SpecError, "lenet has no option 'width'.\nIt has no options."),
        ("wrn28_4", {"norm": "layer"}, SpecError,
         "wrn28_4 got norm='layer', expected 'group' or 'batch'."),
        ("lenet", {"shape": (3, 8, 8)}, ModelError,
         "lenet got shape=(3, 8, 8), expected (channels, height, width) of at least 16×16 pixels.\n"
         "Resize the inputs, or take a model that fits them: mlp2 takes any shape."),
        ("resnet18_cifar_gn2", {"shape": (784,)}, ModelError,
         "resnet18_cifar_gn2 got shape=(784,), expected (channels, height, width) of at least 1×1 "
         "pixels.\nResize the inputs, or take a model that fits them: mlp2 takes any shape."),
        ("textcnn", {"shape": (3, 32, 32)}, ModelError,
         "textcnn got shape=(3, 32, 32), expected (length,) of at least 5 tokens.\n"
         "Pad the texts to a common length; images need another model."),
        ("of_mine:Mine", {"classes": 2, "depth": 3}, SpecError,
         "of_mine:Mine has no option 'depth'.\nDid you mean 'width'? Known: width."),
        ("of_mine:number", {"classes": 2}, ModelError,
         "of_mine:number returned int, expected a torch.nn.Module.\n"
         "Name a class of modules, or a function that returns one."),
        ("of_mine:broken", {"shape": (2,)}, ModelError,
         "building of_mine:broken failed with TypeError: broken() missing 1 required positional "
         "argument: 'depth'\nflatfed --debug shows where."),
        ("of_mine:one", {}, SpecError,
         "of_mine:one is Linear, expected a function or class that makes a torch.nn.Module."),
        ("of_mine:Mime", {}, SpecError,
         "of_mine has no 'Mime', expected a function or class that makes a torch.nn.Module.\n"
         "Did you mean 'Mine'? Known: Mine, anything, broken, number."),
        ("nowhere:Mine", {}, SpecError,
         "no module 'nowhere' found for 'nowhere:Mine'.\n"
         "Run from the folder that holds it, and leave out .py."),
        ("builtins:dict", {}, SpecError,
         "builtins:dict does not say what it takes, expected a function or class that makes a "
         "torch.nn.Module.\nName a function of your own that calls it."),
    ],
)  # fmt: skip
def test_what_cannot_be_built_is_said(name, values, error, message) -> None:
    with pytest.raises(error) as caught:
        made(name, **values)
    assert str(caught.value) == message
    assert len(message.splitlines()) <= 3


# timm, and a stand-in for it: the same names of modules and parameters as its ViT.


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x):
        n, tokens, width = x.shape
        split = self.qkv(x).reshape(n, tokens, 3, self.heads, width // self.heads)
        q, k, v = split.permute(2, 0, 3, 1, 4)
        found = nn.functional.scaled_dot_product_attention(q, k, v)
        return self.proj(found.transpose(1, 2).reshape(n, tokens, width))


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = Attention(width, heads)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class ViT(nn.Module):
    def __init__(self, classes: int, width: int, depth: int, heads: int, patch: int) -> None:
        super().__init__()
        self.patch_embed = nn.Conv2d(3, width, patch, stride=patch)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, width))
        self.pos_embed = nn.Parameter(torch.zeros(1, (224 // patch) ** 2 + 1, width))
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def get_classifier(self):
        return self.head

    def forward(self, x):
        x = self.patch_embed(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls_token.expand(len(x), -1, -1), x], dim=1) + self.pos_embed
        return self.head(self.norm(self.blocks(x))[:, 0])


@pytest.fixture
def timm(monkeypatch):
    """A timm whose models are tiny, and which remembers what it was asked for."""
    fake = ModuleType("timm")
    fake.size = {"width": 8, "depth": 2, "heads": 2, "patch": 56}
    fake.asked = []

    def create_model(name, *, num_classes, pretrained, **more):
        fake.asked.append({"name": name, "pretrained": pretrained, **more})
        return ViT(num_classes, **fake.size)

    fake.create_model = create_model
    fake.is_model = lambda name: name.split(".")[0] in fake.list_models()
    fake.list_models = lambda: ["vit_tiny", "vit_small", "resnet50"]
    monkeypatch.setitem(sys.modules, "timm", fake)
    return fake


def trained(model: nn.Module) -> set[str]:
    return {name for name, p in model.named_parameters() if p.requires_grad}


def test_vit_b16_is_trained_whole_or_by_its_head(timm) -> None:
    whole = made("vit_b16", classes=5, shape=(3, 224, 224))
    assert trained(whole) == {name for name, _ in whole.named_parameters()}
    assert trained(made("vit_b16", shape=(3, 224, 224), adapt="head")) == {
        "head.weight",
        "head.bias",
    }
    assert timm.asked[0] == {"name": "vit_base_patch16_224.orig_in21k", "pretrained": False}
    made("vit_b16", pretrained=True)
    assert timm.asked[-1]["pretrained"] is True


@pytest.mark.parametrize("name", ["vit_b16", "vit_b16_lora"])
def test_vit_b16_scales_small_images_itself(timm, name) -> None:
    model = made(name, classes=5, shape=(3, 64, 64)).eval()
    assert model(torch.zeros(2, 3, 64, 64)).shape == (2, 5)
    with pytest.raises(ModelError) as caught:
        made(name, shape=(1, 28, 28))
    assert str(caught.value) == (
        f"{name} got shape=(1, 28, 28), expected 3 channels.\n"
        "Repeat a grey image three times, or take a model trained from scratch."
    )


def test_lora_trains_its_adapters_and_the_new_head(timm) -> None:
    model = made("vit_b16_lora", shape=(3, 224, 224))
    adapters = {
        f"blocks.{b}.attn.{layer}.{way}.weight"
        for b in (0, 1)
        for layer in ("qkv", "proj")
        for way in ("down", "up")
    }
    assert trained(model) == {*adapters, "head.weight", "head.bias"}
    assert trained(made("vit_b16_lora", shape=(3, 224, 224), head=False)) == adapters
    adapted = model.blocks[0].attn.qkv
    assert (adapted.down.out_features, adapted.scale, adapted.dropout.p) == (16, 2.0, 0.05)


def test_lora_changes_nothing_until_it_is_trained(timm) -> None:
    x = torch.randn(2, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    adapted = made("vit_b16_lora", shape=(3, 224, 224))
    plain = made("vit_b16", shape=(3, 224, 224))
    same = {name.replace(".linear", ""): p for name, p in adapted.state_dict().items()}
    plain.load_state_dict({name: same[name] for name in plain.state_dict()})
    for mode in (True, False):  # dropout is before a factor that is 0
        assert torch.equal(adapted.train(mode)(x), plain(x))
    frozen = {name: p.clone() for name, p in adapted.named_parameters() if not p.requires_grad}
    step = torch.optim.SGD([p for p in adapted.parameters() if p.requires_grad], 0.5)
    for _ in range(2):
        step.zero_grad()
        adapted(x).square().sum().backward()
        step.step()
    now = dict(adapted.named_parameters())
    assert all(torch.equal(now[name], p) for name, p in frozen.items())
    assert now["blocks.0.attn.qkv.up.weight"].abs().sum() > 0


def test_low_rank_is_the_published_correction() -> None:
    """W·x + b + (α/r)·B·A·x, that is a layer of weight W + (α/r)·B·A."""
    torch.manual_seed(0)
    layer = LowRank(nn.Linear(6, 5), rank=2, alpha=8, dropout=0.5).eval()
    nn.init.normal_(layer.up.weight)
    W = layer.linear.weight + 4 * layer.up.weight @ layer.down.weight
    x = torch.randn(3, 6)
    torch.testing.assert_close(layer(x), nn.functional.linear(x, W, layer.linear.bias))
    frozen = layer.linear(x)
    layer.train()
    assert not torch.equal(layer(x), layer(x))  # dropout is on the correction
    assert torch.equal(layer.linear(x), frozen)


def test_vit_b16_has_as_many_parameters_as_published(timm) -> None:
    timm.size = {"width": 768, "depth": 12, "heads": 12, "patch": 16}
    with torch.device("meta"):  # 344 MB that nobody needs
        whole = models.CATALOGUE["vit_b16"](classes=200, shape=(3, 224, 224))
        adapted = models.CATALOGUE["vit_b16_lora"](classes=200, shape=(3, 224, 224))
        frozen_head = models.CATALOGUE["vit_b16_lora"](classes=200, head=False)
    assert count(whole) == 85_952_456
    assert count(whole) - count(whole.head) == 85_798_656
    assert count(adapted, trainable=True) == 884_736 + 153_800
    assert count(frozen_head, trainable=True) == 884_736


def test_any_model_of_timm_can_be_named(timm) -> None:
    assert made("timm:vit_tiny", classes=4, shape=(1, 28, 28)).head.out_features == 4
    assert timm.asked == [{"name": "vit_tiny", "pretrained": False, "in_chans": 1}]
    made("timm:vit_tiny.some_weights", pretrained=True)
    assert timm.asked[-1] == {"name": "vit_tiny.some_weights", "pretrained": True}


def test_any_backbone_is_trained_by_its_head_or_by_adapters(timm) -> None:
    head = {"head.weight", "head.bias"}
    assert trained(made("timm:vit_tiny", adapt="head")) == head
    adapted = trained(made("timm:vit_tiny", adapt="lora"))
    assert adapted == trained(made("vit_b16_lora"))
    timm.size = {**timm.size, "depth": 0}
    with pytest.raises(ModelError, match="adapt='lora' and has no attention with qkv and proj"):
        made("timm:vit_tiny", adapt="lora")
    with pytest.raises(SpecError, match="got adapt='some', expected 'all', 'head' or 'lora'"):
        made("timm:vit_tiny", adapt="some")


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("timm:vit_tinny", {}, "timm has no model 'vit_tinny'.\nClose: vit_tiny."),
        ("timm:xyz", {}, "timm has no model 'xyz'.\ntimm.list_models() lists them."),
        ("timm:vit_tiny", {"depth": 3},
         "timm:vit_tiny has no option 'depth'.\nDid you mean 'adapt'? Known: adapt, pretrained."),
    ],
)  # fmt: skip
def test_what_timm_has_not_is_said(timm, name, values, message) -> None:
    with pytest.raises(SpecError) as caught:
        made(name, **values)
    assert str(caught.value) == message


@pytest.mark.parametrize("name", ["vit_b16", "vit_b16_lora", "timm:resnet50"])
def test_without_timm_the_message_names_the_extra(monkeypatch, name) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(ModelError) as caught:
        made(name)
    said = str(caught.value).splitlines()
    assert said[0].startswith(f"{name} needs timm, which cannot be imported: ")
    assert said[1] == "Install it with pip install 'flatfed[timm]'."
