"""From the bytes of a batch to what a model sees: normalised, and in training moved about."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn.functional import pad

from flatfed.errors import FederationError, SpecError, nearest

AUGMENTATIONS = ("none", "flip-crop-half", "flip-crop")
MARGIN = 4  # pixels of zeros around an image before it is cropped


@dataclass(frozen=True)
class Prepare:
    """Images to normalised float32; token ids and numbers pass through as they are.

    mean and std are of the pixels divided by 255. augment, used only where a generator is given:

    - "flip-crop-half" (FL-Simulator): each image is flipped with probability ½ and, with
      probability ½, padded by 4 zeros and cropped at random; the zeros are normalised pixels.
    - "flip-crop" (DisPFL): each is flipped with probability ½ and always padded and cropped; the
      zeros are raw pixels, black.
    """

    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    augment: str = "none"

    def __post_init__(self) -> None:
        if self.augment not in AUGMENTATIONS:
            raise SpecError(
                f"no augmentation {self.augment!r}.\n{nearest(self.augment, AUGMENTATIONS)}"
            )
        if len(self.mean) != len(self.std) or not all(s > 0 for s in self.std):
            raise SpecError(
                f"Prepare got mean={self.mean!r} and std={self.std!r}, expected one number a "
                "channel in each, and std above 0."
            )

    def __call__(self, inputs: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """A batch as the model takes it; without a generator, as for evaluation."""
        if inputs.dtype != torch.uint8:
            return inputs
        if inputs.dim() != 4 or inputs.shape[1] != len(self.mean):
            raise FederationError(
                f"A batch of images has shape {tuple(inputs.shape)}, expected (n, "
                f"{len(self.mean)}, height, width): one channel for each of mean={self.mean!r}.\n"
                "Give mean and std one number a channel."
            )
        if generator is None or self.augment == "none":
            return self._normalised(inputs)
        if self.augment == "flip-crop-half":
            return _moved(self._normalised(inputs), generator, crop=0.5)
        return self._normalised(_moved(inputs, generator, crop=1.0))

    def undone(self, images: Tensor) -> Tensor:
        """Normalised images, (…, channels, height, width), in [0, 1] again."""
        if not self.mean:
            return images
        mean, std = (images.new_tensor(one).view(-1, 1, 1) for one in (self.mean, self.std))
        return images * std + mean

    def _normalised(self, images: Tensor) -> Tensor:
        # (x/255 − mean)/std as one multiplication and one addition, both in place.
        scale, shift = _factors(self.mean, self.std, images.device)
        return images.to(torch.float32).mul_(scale).add_(shift)


@lru_cache  # two small tensors for every batch are felt in a small model's step
def _factors(
    mean: tuple[float, ...], std: tuple[float, ...], device: torch.device
) -> tuple[Tensor, Tensor]:
    scale = torch.tensor([1 / (255 * s) for s in std], device=device)
    shift = torch.tensor([-m / s for m, s in zip(mean, std, strict=True)], device=device)
    return scale.view(1, -1, 1, 1), shift.view(1, -1, 1, 1)


def _moved(images: Tensor, generator: torch.Generator, crop: float) -> Tensor:
    """Each image flipped with probability ½ and, with probability crop, shifted by up to MARGIN.

    Only as many numbers are drawn as there are images, so the order of samples fixes the draws.
    """
    n, channels, height, width = images.shape
    flips = torch.rand(n, generator=generator) < 0.5
    cropped = torch.rand(n, generator=generator) < crop
    corners = torch.randint(0, 2 * MARGIN + 1, (2, n), generator=generator)
    down, right = torch.where(cropped, corners, MARGIN)[:, :, None]
    wide = width + 2 * MARGIN
    rows, columns = down + torch.arange(height), right + torch.arange(width)
    # A flip comes before the crop: column q of the flipped image is column wide − 1 − q of this.
    columns = torch.where(flips[:, None], wide - 1 - columns, columns)
    pixels = (rows[:, :, None] * wide + columns[:, None, :]).view(n, 1, -1).to(images.device)
    padded = pad(images, (MARGIN,) * 4).view(n, channels, -1)
    return padded.gather(2, pixels.expand(n, channels, -1)).view(images.shape)
