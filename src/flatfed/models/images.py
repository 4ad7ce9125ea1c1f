"""Which images a model can take."""

from __future__ import annotations

from collections.abc import Sequence

from flatfed.errors import ModelError


def image(model: str, shape: Sequence[int], *, least: int = 1) -> tuple[int, int, int]:
    """Channels, height and width, of at least so many pixels each way."""
    if len(shape) != 3 or shape[0] < 1 or min(shape[1:]) < least:
        raise ModelError(
            f"{model} got shape={tuple(shape)}, expected (channels, height, width) of at least "
            f"{least}×{least} pixels.\n"
            "Resize the inputs, or take a model that fits them: mlp2 takes any shape."
        )
    channels, height, width = shape
    return channels, height, width
