"""The catalogue: every published architecture by the name its recipes use, and your own.

    >>> from flatfed import models
    >>> models.build("lenet", seed=0, shape=(1, 28, 28), classes=10)[-1]
    Linear(in_features=192, out_features=10, bias=True)

Image models take `classes` and `shape` (channels, height, width), text models `classes`,
`vocabulary` and `shape` (length,): their data set says both. What else a model takes is an option.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias, cast

import torch
from torch import nn

from flatfed.dotted import failed, imported
from flatfed.errors import FlatfedError, ModelError, SpecError, nearest
from flatfed.models.cnn import cnn3, convnet, fedavg_cnn, lenet, lenet5_classic
from flatfed.models.mlp import mlp2, mlp_128_128, two_nn
from flatfed.models.resnet import (
    resnet18_cifar_bn,
    resnet18_cifar_gn2,
    resnet18_cifar_gn32,
    resnet18_tv_gn2,
)
from flatfed.models.textcnn import textcnn
from flatfed.models.vgg import vgg11_gn, vgg11_plain
from flatfed.models.vit import timm_model, vit_b16, vit_b16_lora
from flatfed.models.wide import wrn28_4
from flatfed.vec import seed_for

__all__ = ["CATALOGUE", "build"]

Factory: TypeAlias = Callable[..., nn.Module]

EXPECTED = "a function or class that makes a torch.nn.Module"

CATALOGUE: dict[str, Factory] = {
    "mlp2": mlp2,
    "mlp_128_128": mlp_128_128,
    "2nn": two_nn,
    "convnet": convnet,
    "lenet": lenet,
    "lenet5_classic": lenet5_classic,
    "vgg11_gn": vgg11_gn,
    "vgg11_plain": vgg11_plain,
    "resnet18_tv_gn2": resnet18_tv_gn2,
    "resnet18_cifar_gn32": resnet18_cifar_gn32,
    "resnet18_cifar_gn2": resnet18_cifar_gn2,
    "resnet18_cifar_bn": resnet18_cifar_bn,
    "wrn28_4": wrn28_4,
    "textcnn": textcnn,
    "vit_b16": vit_b16,
    "vit_b16_lora": vit_b16_lora,
    "cnn3": cnn3,
    "fedavg_cnn": fedavg_cnn,
}


def build(
    name: str,
    /,
    *,
    seed: int,
    shape: Sequence[int] | None = None,
    classes: int | None = None,
    vocabulary: int | None = None,
    **options: Any,
) -> nn.Module:
    """A model of the catalogue, "timm:NAME", or "module:factory" of your own, freshly initialised.

    A factory is given those of shape, classes and vocabulary that its signature names, and all
    options. The same seed gives the same bytes; the caller's random state stays as it was.
    """
    data = {"shape": shape and tuple(shape), "classes": classes, "vocabulary": vocabulary}
    with torch.random.fork_rng(devices=[]):
        factory = _find(name)
        arguments = _arguments(name, factory, data, options)
        # Only now: importing the factory may have drawn numbers, and only does the first time.
        torch.default_generator.manual_seed(seed_for(seed, "init"))
        try:
            module = factory(**arguments)
        except FlatfedError:
            raise
        except Exception as error:
            raise ModelError(failed(f"building {name}", error)) from error
    if not isinstance(module, nn.Module):
        raise ModelError(
            f"{name} returned {type(module).__name__}, expected a torch.nn.Module.\n"
            "Name a class of modules, or a function that returns one."
        )
    return module


def _arguments(
    name: str, factory: Factory, data: Mapping[str, Any], options: Mapping[str, Any]
) -> dict[str, Any]:
    try:
        parameters = inspect.signature(factory).parameters.values()
    except ValueError as error:  # some of what is written in C
        raise SpecError(
            f"{name} does not say what it takes, expected {EXPECTED}.\n"
            "Name a function of your own that calls it."
        ) from error
    named = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    anything = any(p.kind is p.VAR_KEYWORD for p in parameters)
    known = named - {*data}
    for key in options:
        if key not in known and not anything:
            listed = nearest(key, known) if known else "It has no options."
            raise SpecError(f"{name} has no option {key!r}.\n{listed}")
    of_data = {key: value for key, value in data.items() if key in named and value is not None}
    return {**of_data, **options}


def _find(name: str) -> Factory:
    if name in CATALOGUE:
        return CATALOGUE[name]
    where, colon, what = name.partition(":")
    if not where or not colon or not what:
        raise SpecError(
            f"{name!r} is no model of flatfed.\n{nearest(name, CATALOGUE)}\n"
            "One of your own is written module:factory, one of timm's timm:NAME."
        )
    if where == "timm":
        return partial(timm_model, what)
    return cast(Factory, imported(name, EXPECTED, _makes))


def _makes(value: object) -> bool:
    """A module itself is refused: it must be made once the seed is set, to be made again."""
    return callable(value) and not isinstance(value, nn.Module)
