"""ResNet-18, with the stem of ImageNet or of CIFAR, and with several norms."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

from torch import Tensor, nn

from flatfed.models.images import image

Norm: TypeAlias = Callable[[int], nn.Module]  # of so many channels


def resnet18_tv_gn2(*, classes: int = 10, shape: Sequence[int] = (3, 32, 32)) -> ResNet:
    """The ImageNet stem on small images, GroupNorm with 2 groups: FL-Simulator and its users."""
    channels, _, _ = image("resnet18_tv_gn2", shape)
    norm = partial(nn.GroupNorm, 2)
    stem = nn.Sequential(
        nn.Conv2d(channels, 64, 7, stride=2, padding=3, bias=False),
        norm(64),
        nn.ReLU(),
        nn.MaxPool2d(3, stride=2, padding=1),
    )
    return _resnet18(stem, norm, classes)


def resnet18_cifar_gn32(*, classes: int = 10, shape: Sequence[int] = (3, 32, 32)) -> ResNet:
    """GroupNorm with 32 groups: DisPFL, DFedSAM, DP-FedSAM."""
    return _cifar("resnet18_cifar_gn32", shape, partial(nn.GroupNorm, 32), classes)


def resnet18_cifar_gn2(*, classes: int = 10, shape: Sequence[int] = (3, 32, 32)) -> ResNet:
    """GroupNorm with 2 groups: FedRCL, and FedSWA where it uses GroupNorm."""
    return _cifar("resnet18_cifar_gn2", shape, partial(nn.GroupNorm, 2), classes)


def resnet18_cifar_bn(*, classes: int = 10, shape: Sequence[int] = (3, 32, 32)) -> ResNet:
    """BatchNorm, whose running statistics travel beside the parameters: FedSWA's default."""
    return _cifar("resnet18_cifar_bn", shape, nn.BatchNorm2d, classes)


def _cifar(model: str, shape: Sequence[int], norm: Norm, classes: int) -> ResNet:
    channels, _, _ = image(model, shape)
    stem = nn.Sequential(nn.Conv2d(channels, 64, 3, padding=1, bias=False), norm(64), nn.ReLU())
    return _resnet18(stem, norm, classes)


def _resnet18(stem: nn.Module, norm: Norm, classes: int) -> ResNet:
    layers: OrderedDict[str, nn.Module] = OrderedDict(stem=stem)
    inputs = 64
    for stage, width in enumerate((64, 128, 256, 512), start=1):
        first = BasicBlock(inputs, width, norm, stride=1 if stage == 1 else 2)
        layers[f"stage{stage}"] = nn.Sequential(first, BasicBlock(width, width, norm))
        inputs = width
    # On 32×32 images the last stage of the CIFAR form is 4×4: its average pool is the global one.
    layers["pool"] = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
    layers["head"] = nn.Linear(512, classes)
    return ResNet(layers)


class ResNet(nn.Sequential):
    """A stem and four stages; what they have before their last activation are its features."""

    feature_layers = ("stem.2", *(f"stage{stage}.1.last" for stage in range(1, 5)))


class BasicBlock(nn.Module):
    """Two 3×3 convolutions beside a shortcut, which is 1×1 where size or width change."""

    def __init__(self, inputs: int, width: int, norm: Norm, stride: int = 1) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, width, 3, stride=stride, padding=1, bias=False),
            norm(width),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            norm(width),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1 or inputs != width:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, width, 1, stride=stride, bias=False), norm(width)
            )
        self.last = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.last(self.body(x) + self.shortcut(x))
        return outputs
