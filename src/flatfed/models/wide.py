"""WideResNet-28-4."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from functools import partial

from torch import Tensor, nn

from flatfed.errors import SpecError
from flatfed.models.images import image
from flatfed.models.resnet import Norm

NORMS: dict[str, Norm] = {"group": partial(nn.GroupNorm, 8), "batch": nn.BatchNorm2d}


def wrn28_4(
    *, classes: int = 10, shape: Sequence[int] = (3, 32, 32), norm: str = "group"
) -> WideResNet:
    """Three groups of four pre-activation blocks: FedVSSAM on CIFAR-100.

    The paper does not state the norm: "group" is GroupNorm with 8 groups, the other is "batch".
    """
    if norm not in NORMS:
        listed = " or ".join(map(repr, NORMS))
        raise SpecError(f"wrn28_4 got norm={norm!r}, expected {listed}.")
    make = NORMS[norm]
    channels, _, _ = image("wrn28_4", shape)
    layers: OrderedDict[str, nn.Module] = OrderedDict(
        stem=nn.Conv2d(channels, 16, 3, padding=1, bias=False)
    )
    inputs = 16
    for group, (width, stride) in enumerate(((64, 1), (128, 2), (256, 2)), start=1):
        first = WideBlock(inputs, width, make, stride)
        rest = (WideBlock(width, width, make) for _ in range(3))
        layers[f"group{group}"] = nn.Sequential(first, *rest)
        inputs = width
    layers["last"] = nn.Sequential(make(256), nn.ReLU())
    layers["pool"] = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
    layers["head"] = nn.Linear(256, classes)
    return WideResNet(layers)


class WideResNet(nn.Sequential):
    """A stem and three groups; what leaves them, not activated yet, are its features."""

    feature_layers = ("group1", "group2", "group3", "last")


class WideBlock(nn.Module):
    """Norms and activations before the convolutions; a 1×1 shortcut sees the input after them."""

    def __init__(self, inputs: int, width: int, norm: Norm, stride: int = 1) -> None:
        super().__init__()
        self.before = nn.Sequential(norm(inputs), nn.ReLU())
        self.body = nn.Sequential(
            nn.Conv2d(inputs, width, 3, stride=stride, padding=1, bias=False),
            norm(width),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1, bias=False),
        )
        self.shortcut: nn.Conv2d | None = None
        if stride > 1 or inputs != width:
            self.shortcut = nn.Conv2d(inputs, width, 1, stride=stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        active = self.before(x)
        beside: Tensor = x if self.shortcut is None else self.shortcut(active)
        return beside + self.body(active)  # type: ignore[no-any-return]
