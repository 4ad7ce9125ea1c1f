"""VGG-11 for small images."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from flatfed.models.images import image
from flatfed.models.mlp import dense

HALVE = 0
PLAN = (64, HALVE, 128, HALVE, 256, 256, HALVE, 512, 512, HALVE, 512, 512, HALVE)


def vgg11_gn(*, classes: int = 10, shape: Sequence[int] = (3, 32, 32)) -> nn.Sequential:
    """GroupNorm with 32 groups and a single classifier layer, initialised as DisPFL does."""
    channels, height, width = image("vgg11_gn", shape, least=32)
    model = nn.Sequential(
        *_convolutions(channels, groups=32), *dense(512 * (height // 32) * (width // 32), classes)
    )
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(layer, nn.Linear):
            nn.init.normal_(layer.weight, std=0.01)
        if isinstance(layer, nn.Conv2d | nn.Linear) and layer.bias is not None:
            nn.init.zeros_(layer.bias)
    return model


def vgg11_plain(*, classes: int = 10, shape: Sequence[int] = (3, 32, 32)) -> nn.Sequential:
    """No norm, one hidden layer and log-softmax: the FedSWA code.

    The hidden layer has 100 units for CIFAR-10 and 256 for CIFAR-100: 256 from 100 classes on.
    """
    channels, height, width = image("vgg11_plain", shape, least=32)
    hidden = 256 if classes >= 100 else 100
    return nn.Sequential(
        *_convolutions(channels),
        *dense(512 * (height // 32) * (width // 32), hidden, classes),
        nn.LogSoftmax(dim=1),
    )


def _convolutions(channels: int, groups: int = 0) -> list[nn.Module]:
    layers: list[nn.Module] = []
    for width in PLAN:
        if width == HALVE:
            layers.append(nn.MaxPool2d(2))
            continue
        norm = [nn.GroupNorm(groups, width)] if groups else []
        layers += [nn.Conv2d(channels, width, 3, padding=1), *norm, nn.ReLU()]
        channels = width
    return layers
