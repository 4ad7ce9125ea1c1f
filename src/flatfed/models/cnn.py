"""Small convolutional networks."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from flatfed.models.images import image
from flatfed.models.mlp import dense


def convnet(*, classes: int = 10, shape: Sequence[int] = (3, 32, 32)) -> nn.Sequential:
    """Three blocks of 128 channels with instance normalisation: the ConvNet of FedSynSAM."""
    channels, height, width = image("convnet", shape, least=8)
    border = 3 if (height, width) == (28, 28) else 1  # MNIST and its like become 32×32
    layers: list[nn.Module] = []
    for inputs, padding in ((channels, border), (128, 1), (128, 1)):
        # One group a channel: instance normalisation.
        norm = nn.GroupNorm(128, 128)
        layers += [nn.Conv2d(inputs, 128, 3, padding=padding), norm, nn.ReLU(), nn.AvgPool2d(2)]
    grown = 2 * (border - 1)
    pixels = ((height + grown) // 8) * ((width + grown) // 8)
    return nn.Sequential(*layers, *dense(128 * pixels, classes))


def lenet(*, classes: int = 10, shape: Sequence[int] = (3, 32, 32)) -> nn.Sequential:
    """The wide LeNet of FedDyn, FedDC and FL-Simulator; FedSWA calls it LeNet-5."""
    return _lenet("lenet", classes, shape, convolutions=(64, 64), hidden=(384, 192))


def lenet5_classic(*, classes: int = 10, shape: Sequence[int] = (3, 32, 32)) -> nn.Sequential:
    """LeNet-5 with the widths of 1998."""
    return _lenet("lenet5_classic", classes, shape, convolutions=(6, 16), hidden=(120, 84))


def cnn3(*, classes: int = 10, shape: Sequence[int] = (3, 32, 32)) -> nn.Sequential:
    """The three-layer CNN of FedVSSAM's first figure, whose layers the paper does not state."""
    return _two_convolutions("cnn3", classes, shape, kernel=3)


def fedavg_cnn(*, classes: int = 10, shape: Sequence[int] = (3, 32, 32)) -> nn.Sequential:
    """The CNN of FedAvg, as FedSOL and FL-SAM use it."""
    return _two_convolutions("fedavg_cnn", classes, shape, kernel=5)


def _lenet(
    model: str,
    classes: int,
    shape: Sequence[int],
    *,
    convolutions: tuple[int, int],
    hidden: tuple[int, int],
) -> nn.Sequential:
    """Two 5×5 convolutions without padding, each halved, and three fully connected layers."""
    channels, height, width = image(model, shape, least=16)
    first, second = convolutions
    height, width = (((side - 4) // 2 - 4) // 2 for side in (height, width))
    return nn.Sequential(
        nn.Conv2d(channels, first, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(first, second, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        *dense(second * height * width, *hidden, classes),
    )


def _two_convolutions(
    model: str, classes: int, shape: Sequence[int], *, kernel: int
) -> nn.Sequential:
    """Two convolutions that keep the size, each halved, and two fully connected layers."""
    channels, height, width = image(model, shape, least=4)
    return nn.Sequential(
        nn.Conv2d(channels, 32, kernel, padding=kernel // 2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, kernel, padding=kernel // 2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        *dense(64 * (height // 4) * (width // 4), 512, classes),
    )
