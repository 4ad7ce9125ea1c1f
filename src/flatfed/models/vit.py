"""Pretrained backbones, through timm."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from importlib import import_module
from typing import Any, Literal, TypeAlias

from torch import nn

from flatfed.errors import ModelError, SpecError
from flatfed.models.images import image
from flatfed.models.lora import LowRank

WEIGHTS = "vit_base_patch16_224.orig_in21k"
SIDE = 224

Adapt: TypeAlias = Literal["all", "head", "lora"]


def vit_b16(
    *,
    classes: int = 200,
    shape: Sequence[int] = (3, SIDE, SIDE),
    pretrained: bool = False,
    adapt: Adapt = "all",
) -> nn.Module:
    """ViT-B/16 as FedSWA trains it on Tiny ImageNet; images of another size are scaled to 224×224.

    The paper starts from ImageNet-21k weights. They are a download, and no run should begin with
    one that it did not ask for: `pretrained=True` asks.
    """
    backbone = _backbone("vit_b16", classes, shape, pretrained)
    return _scaled(_adapted("vit_b16", backbone, adapt), shape)


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
    adapted = _adapted("vit_b16_lora", backbone, "lora")
    adapted.get_classifier().requires_grad_(head)
    return _scaled(adapted, shape)


def timm_model(
    name: str,
    *,
    classes: int = 10,
    shape: Sequence[int] | None = None,
    pretrained: bool = False,
    adapt: Adapt = "all",
) -> nn.Module:
    """Any model of timm, for so many classes and input channels; `adapt` is what of it is trained:

    "all" of it, its "head", or its head and the adapters of "lora" on attention.
    """
    timm = _timm(f"timm:{name}")
    if not timm.is_model(name):
        close = difflib.get_close_matches(name, timm.list_models(), n=3)
        raise SpecError(
            f"timm has no model {name!r}.\n"
            + (f"Close: {', '.join(close)}." if close else "timm.list_models() lists them.")
        )
    channels = {} if shape is None else {"in_chans": image(f"timm:{name}", shape)[0]}
    model = timm.create_model(name, num_classes=classes, pretrained=pretrained, **channels)
    adapted: nn.Module = _adapted(f"timm:{name}", model, adapt)
    return adapted


def _adapted(name: str, backbone: Any, adapt: Adapt) -> Any:
    """The backbone, of which only what `adapt` says is trained."""
    if adapt not in ("all", "head", "lora"):
        raise SpecError(f"{name} got adapt={adapt!r}, expected 'all', 'head' or 'lora'.")
    if adapt == "all":
        return backbone
    backbone.requires_grad_(False)
    backbone.get_classifier().requires_grad_(True)
    if adapt == "head":
        return backbone
    # timm's transformers name their attention alike: attn.qkv and attn.proj.
    attention = [m for m in backbone.modules() if hasattr(m, "qkv") and hasattr(m, "proj")]
    if not attention:
        raise ModelError(
            f"{name} got adapt='lora' and has no attention with qkv and proj, expected some.\n"
            "Take a vision transformer, or adapt = 'head'."
        )
    for part in attention:
        for layer in ("qkv", "proj"):
            adapter = LowRank(getattr(part, layer), rank=16, alpha=32, dropout=0.05)
            setattr(part, layer, adapter)
    return backbone


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
