"""Pretrained backbones, through timm."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from torch import nn

from flatfed.errors import ModelError, SpecError
from flatfed.models.images import image
from flatfed.models.lora import LowRank

WEIGHTS = "vit_base_patch16_224.orig_in21k"
SIDE = 224


def vit_b16(
    *,
    classes: int = 200,
    shape: Sequence[int] = (3, SIDE, SIDE),
    pretrained: bool = False,
    head_only: bool = False,
) -> nn.Module:
    """ViT-B/16 as FedSWA trains it on Tiny ImageNet; images of another size are scaled to 224×224.

    The paper starts from ImageNet-21k weights. They are a download, and no run should begin with
    one that it did not ask for: `pretrained=True` asks.
    """
    backbone = _backbone("vit_b16", classes, shape, pretrained)
    if head_only:
        backbone.requires_grad_(False)
        backbone.head.requires_grad_(True)
    return _scaled(backbone, shape)


def vit_b16_lora(
    *,
    classes: int = 200,
    shape: Sequence[int] = (3, SIDE, SIDE),
    pretrained: bool = False,
    head: bool = True,
) -> nn.Module:
    """ViT-B/16 with adapters of rank 16 on attention; the new head is trained too unless told not.

    Without `pretrained=True`, a download, the frozen part is random.
    """
    backbone = _backbone("vit_b16_lora", classes, shape, pretrained)
    backbone.requires_grad_(False)
    backbone.head.requires_grad_(head)
    for block in backbone.blocks:
        for layer in ("qkv", "proj"):
            adapted = LowRank(getattr(block.attn, layer), rank=16, alpha=32, dropout=0.05)
            setattr(block.attn, layer, adapted)
    return _scaled(backbone, shape)


def timm_model(
    name: str, *, classes: int = 10, shape: Sequence[int] | None = None, pretrained: bool = False
) -> nn.Module:
    """Any model of timm, for so many classes and input channels."""
    timm = _timm(f"timm:{name}")
    if not timm.is_model(name):
        close = difflib.get_close_matches(name, timm.list_models(), n=3)
        raise SpecError(
            f"timm has no model {name!r}.\n"
            + (f"Close: {', '.join(close)}." if close else "timm.list_models() lists them.")
        )
    channels = {} if shape is None else {"in_chans": image(f"timm:{name}", shape)[0]}
    model: nn.Module = timm.create_model(
        name, num_classes=classes, pretrained=pretrained, **channels
    )
    return model


def _backbone(model: str, classes: int, shape: Sequence[int], pretrained: bool) -> Any:
    channels, _, _ = image(model, shape)
    if channels != 3:
        raise ModelError(
            f"{model} got shape={tuple(shape)}, expected 3 channels.\n"
            "Repeat a grey image three times, or take a model trained from scratch."
        )
    return _timm(model).create_model(WEIGHTS, num_classes=classes, pretrained=pretrained)


def _scaled(backbone: nn.Module, shape: Sequence[int]) -> nn.Module:
    """Small images are scaled by the model: a data set kept in memory at 224×224 would not fit."""
    if tuple(shape[1:]) == (SIDE, SIDE):
        return backbone
    return nn.Sequential(nn.Upsample(size=(SIDE, SIDE), mode="bilinear"), backbone)


def _timm(model: str) -> Any:
    try:
        return import_module("timm")
    except ImportError as error:
        raise ModelError(
            f"{model} needs timm, which cannot be imported: {error}.\n"
            "Install it with pip install 'flatfed[timm]'."
        ) from error
