"""What a model sees of a batch: normalised, moved about as the papers say, and only in training."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from flatfed.data.transforms import AUGMENTATIONS, MARGIN, Prepare
from flatfed.errors import FederationError, SpecError

MEAN, STD = (0.4, 0.5, 0.6), (0.2, 0.25, 0.3)
N = 2000


def batch(n: int = 8, side: int = 10) -> Tensor:
    generator = torch.Generator().manual_seed(5)
    return torch.randint(1, 256, (n, 3, side, side), dtype=torch.uint8, generator=generator)


def normalised(images: Tensor) -> Tensor:
    mean, std = torch.tensor(MEAN)[:, None, None], torch.tensor(STD)[:, None, None]
    return (images.float() / 255 - mean) / std


def drawn(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def by_hand(images: Tensor, n: int, seed: int, crop: float) -> Tensor:
    """The same draws, then image by image: flip, pad, cut out."""
    generator = drawn(seed)
    flips = torch.rand(n, generator=generator) < 0.5
    crops = torch.rand(n, generator=generator) < crop
    corners = torch.randint(0, 2 * MARGIN + 1, (2, n), generator=generator)
    height, width = images.shape[2:]
    done = []
    for at in range(n):
        image = images[at]
        if flips[at]:
            image = image.flip(-1)
        if crops[at]:
            wide = torch.zeros(3, height + 2 * MARGIN, width + 2 * MARGIN, dtype=image.dtype)
            wide[:, MARGIN:-MARGIN, MARGIN:-MARGIN] = image
            down, right = corners[:, at]
            image = wide[:, down : down + height, right : right + width]
        done.append(image)
    return torch.stack(done)


def test_without_a_generator_images_are_only_normalised() -> None:
    for augment in AUGMENTATIONS:
        seen = Prepare(MEAN, STD, augment)(batch())
        torch.testing.assert_close(seen, normalised(batch()))
        assert seen.dtype == torch.float32


def test_without_augmentation_nothing_is_drawn() -> None:
    generator = drawn()
    before = generator.get_state()
    torch.testing.assert_close(Prepare(MEAN, STD)(batch(), generator), normalised(batch()))
    assert torch.equal(generator.get_state(), before)


@pytest.mark.parametrize("height", [10, 12])
def test_half_crops_are_padded_with_normalised_zeros_image_by_image(height: int) -> None:
    images = torch.cat((batch(300), batch(300)[:, :, : height - 10]), dim=2)
    seen = Prepare(MEAN, STD, "flip-crop-half")(images, drawn(3))
    torch.testing.assert_close(seen, by_hand(normalised(images), 300, 3, crop=0.5))


def test_crops_are_padded_with_black_pixels_image_by_image() -> None:
    images = batch(300)
    seen = Prepare(MEAN, STD, "flip-crop")(images, drawn(3))
    torch.testing.assert_close(seen, normalised(by_hand(images, 300, 3, crop=1.0)))


def test_the_margin_is_the_mean_in_one_manner_and_black_in_the_other() -> None:
    white = torch.full((N, 3, 8, 8), 255, dtype=torch.uint8)
    inside = normalised(white[:1]).unique()
    mean = Prepare(MEAN, STD, "flip-crop-half")(white, drawn())
    black = Prepare(MEAN, STD, "flip-crop")(white, drawn())
    assert set(mean.unique().tolist()) == {0.0, *inside.tolist()}
    darkest = normalised(torch.zeros(1, 3, 1, 1)).unique()
    torch.testing.assert_close(black.unique(), torch.cat((darkest, inside)).sort().values)


def test_half_of_the_images_are_flipped_and_half_of_them_cropped() -> None:
    # One bright column tells where an image has gone.
    image = torch.zeros(1, 1, 30, 30, dtype=torch.uint8)
    image[..., 6] = 255
    one = Prepare((0.0,), (1.0,), "flip-crop-half")
    columns = one(image.expand(N, 1, 30, 30), drawn(1)).sum(2).argmax(-1).flatten()
    # Unflipped it is at 6, flipped at 23; cropping moves it by at most 4.
    assert (columns < 15).float().mean() == pytest.approx(0.5, abs=0.04)
    still = ((columns == 6) | (columns == 23)).float().mean()
    assert still == pytest.approx(0.5 + 0.5 / 9, abs=0.04)
    always = Prepare((0.0,), (1.0,), "flip-crop")
    columns = always(image.expand(N, 1, 30, 30), drawn(1)).sum(2).argmax(-1).flatten()
    still = ((columns == 6) | (columns == 23)).float().mean()
    assert still == pytest.approx(1 / 9, abs=0.03)


def test_crops_reach_every_place_within_the_margin() -> None:
    image = torch.zeros(1, 1, 20, 20, dtype=torch.uint8)
    image[..., 10, :] = 255
    rows = Prepare((0.0,), (1.0,), "flip-crop")(image.expand(N, 1, 20, 20), drawn(2))
    places = rows.sum(3).argmax(-1).flatten().bincount(minlength=20)
    assert places.nonzero().flatten().tolist() == [*range(10 - MARGIN, 10 + MARGIN + 1)]
    assert places[6:15].float() / N == pytest.approx([1 / 9] * 9, abs=0.03)


def test_the_generator_alone_decides() -> None:
    for augment in AUGMENTATIONS[1:]:
        prepare = Prepare(MEAN, STD, augment)
        assert torch.equal(prepare(batch(), drawn(1)), prepare(batch(), drawn(1)))
        assert not torch.equal(prepare(batch(), drawn(1)), prepare(batch(), drawn(2)))


def test_the_bytes_of_a_batch_are_never_changed() -> None:
    for augment in AUGMENTATIONS:
        images = batch()
        Prepare(MEAN, STD, augment)(images, drawn())
        assert torch.equal(images, batch())


def test_tokens_and_numbers_pass_as_they_are() -> None:
    prepare = Prepare(augment="flip-crop")
    for inputs in (torch.arange(6, dtype=torch.int32).view(2, 3), torch.randn(2, 3)):
        assert prepare(inputs, drawn()) is inputs


def test_a_wrong_preparation_is_refused() -> None:
    with pytest.raises(SpecError, match=r"no augmentation 'flip'.*\nDid you mean 'flip-crop'"):
        Prepare(augment="flip")
    with pytest.raises(SpecError, match="expected one number a channel in each, and std above 0"):
        Prepare((0.5,), (0.0,))
    with pytest.raises(SpecError, match="expected one number a channel"):
        Prepare((0.5,), ())
    with pytest.raises(FederationError, match=r"shape \(8, 3, 10, 10\), expected \(n, 1, height"):
        Prepare((0.5,), (0.5,))(batch())


def test_what_is_normalised_can_be_undone() -> None:
    prepare = Prepare((0.5, 0.4), (0.25, 0.2))
    pixels = torch.arange(2 * 2 * 3 * 3, dtype=torch.uint8).view(2, 2, 3, 3)
    torch.testing.assert_close(prepare.undone(prepare(pixels)), pixels / 255)
    numbers = torch.arange(4.0)
    assert Prepare().undone(numbers) is numbers
