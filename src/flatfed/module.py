"""What a user's module must be, and what can be seen inside it."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from flatfed.errors import ModelError, nearest


def own_copy(module: nn.Module) -> nn.Module:
    """A copy that nobody else changes."""
    if not isinstance(module, nn.Module):
        raise ModelError(
            f"FlatModel got {type(module).__name__}, expected a torch.nn.Module.\n"
            "Pass the module itself, not its class or its state dict."
        )
    try:
        return copy.deepcopy(module)
    except RuntimeError as error:  # an old-style weight_norm that has run, for one
        raise ModelError(
            f"{type(module).__name__} cannot be copied: {str(error).splitlines()[0]}\n"
            "Build it anew, or use torch.nn.utils.parametrizations."
        ) from error


def trained_parameters(module: nn.Module) -> dict[str, nn.Parameter]:
    """Those that are trained, if a module is one that can be seen as a flat vector."""
    trained = {n: p for n, p in module.named_parameters() if p.requires_grad}
    if not trained:
        frozen = sum(1 for _ in module.parameters())
        raise ModelError(
            f"{type(module).__name__} has no trainable parameters ({frozen} are frozen), "
            "expected at least one.\nSet requires_grad=True on what should be trained."
        )
    if any(isinstance(p, nn.parameter.UninitializedParameter) for p in trained.values()):
        raise ModelError(
            f"{type(module).__name__} has lazy parameters without a shape, expected shapes.\n"
            "Run it once on a batch first."
        )
    kinds = {(p.dtype, p.device) for p in trained.values()}
    if len(kinds) > 1 or not {dtype for dtype, _ in kinds} <= {torch.float32, torch.float64}:
        listed = ", ".join(sorted(f"{dtype} on {device}" for dtype, device in kinds))
        raise ModelError(
            f"{type(module).__name__} has trainable parameters of {listed}, expected all "
            "torch.float32 or all torch.float64, on one device.\n"
            "Convert it first, for example module.float()."
        )
    if any(_cumulative(part) for part in module.modules()):
        raise ModelError(
            f"{type(module).__name__} has a BatchNorm with momentum=None, expected a number: a "
            "cumulative mean counts one client's batches.\n"
            "Set momentum=0.1, or use GroupNorm."
        )
    return trained


@contextmanager
def features_into(seen: list[Tensor], module: nn.Module) -> Iterator[None]:
    """What enters the layers whose inputs are features: activations before they are cut off."""
    layers = dict(module.named_modules())
    named = getattr(module, "feature_layers", None)
    if named is None:
        named = [n for n, layer in layers.items() if isinstance(layer, nn.ReLU)]
    if not named:
        raise ModelError(
            f"{type(module).__name__} has no ReLU layers, expected features.\n"
            "Name the layers whose inputs they are: feature_layers = ('relu1', ...)."
        )

    def note(layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        # What works in place would cut off the very tensor that is noted.
        seen.append(inputs[0].clone() if getattr(layer, "inplace", False) else inputs[0])

    for name in named:
        if name not in layers:
            raise ModelError(
                f"{type(module).__name__}.feature_layers names {name!r}, expected one of its "
                f"modules.\n{nearest(str(name), filter(None, layers))}"
            )

    hooks = [layers[name].register_forward_pre_hook(note) for name in named]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _cumulative(part: nn.Module) -> bool:
    return isinstance(part, nn.modules.batchnorm._NormBase) and (
        part.track_running_stats and part.momentum is None
    )
