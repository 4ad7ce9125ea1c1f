"""The published formats, read from small files written here, and what is said of broken ones."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import written
from flatfed.data.draws import first_of_each, put_aside
from flatfed.data.files import data_home, digest, length
from flatfed.data.images import read_cifar, read_idx, read_idx_split, read_pictures, statistics
from flatfed.data.known import KNOWN, known_set
from flatfed.data.labels import class_names, client_numbers
from flatfed.data.published import read_published
from flatfed.data.sets import DataSet, Split
from flatfed.data.texts import encode
from flatfed.errors import FederationError, SpecError

HOME = data_home()


def small(name: str, train: int, test: int):
    """A published set of which only so many samples are expected, and no number of rows."""
    return replace(KNOWN[name], samples=(train, test), pieces=())


@pytest.mark.parametrize("packed", [False, True])
def test_an_idx_file_is_read_plain_or_compressed(tmp_path: Path, packed: bool) -> None:
    written.fashion(tmp_path / "fashion-mnist", packed=packed)
    data = read_published(small("fashion-mnist", 20, 10), tmp_path)
    assert torch.equal(
        data.train.inputs, torch.from_numpy(written.RNG(20).integers(0, 256, (20, 1, 28, 28)))
    )
    assert data.train.inputs.dtype == torch.uint8
    assert data.train.targets.tolist() == [*range(10)] * 2
    assert data.train.targets.dtype == torch.int64
    assert data.sizes == {"shape": (1, 28, 28), "classes": 10, "vocabulary": None}
    assert (data.mean, data.std) == ((0.1307,), (0.3081,))


def test_an_idx_file_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "numbers"
    written.idx(file, np.arange(6).reshape(2, 3))
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(FederationError, match=r"numbers holds 17 bytes, expected 18 for 2 × 3 num"):
        read_idx(file, 2)


def test_an_idx_file_with_another_header_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "numbers"
    file.write_bytes(b"\x00\x00\x0d\x01" + bytes(20))
    with pytest.raises(
        FederationError, match=r"24 bytes that begin with 0, 0, 13, 1, expected IDX"
    ):
        read_idx(file, 1)
    file.write_bytes(b"")
    with pytest.raises(FederationError, match=r"0 bytes that begin with nothing"):
        read_idx(file, 1)


def test_a_compressed_file_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    folder = written.fashion(tmp_path / "fashion-mnist")
    file = folder / "train-images-idx3-ubyte.gz"
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(FederationError, match=r"broken gzip .*\nGet it with: flatfed data get fas"):
        read_published(KNOWN["fashion-mnist"], tmp_path)
    assert length(file) == -1
    assert digest(file).startswith("broken gzip")
    file.write_bytes(b"no gzip")
    with pytest.raises(FederationError, match="7 bytes of broken gzip"):
        read_idx(file.with_suffix(""), 3)


def test_labels_must_fit_their_images_and_classes(tmp_path: Path) -> None:
    folder = written.fashion(tmp_path, packed=False)
    written.idx(folder / "train-labels-idx1-ubyte", np.zeros(19))
    with pytest.raises(FederationError, match="19 labels, expected one for each of the 20 images"):
        read_idx_split(folder, "train", 10)
    with pytest.raises(FederationError, match="the label 9, expected labels from 0 to 4"):
        read_idx_split(folder, "t10k", 5)


def test_a_set_that_is_not_there_says_how_to_get_it(tmp_path: Path) -> None:
    for name in KNOWN:
        with pytest.raises(FederationError, match=rf"is not there.*\n.*flatfed data get {name}"):
            read_published(KNOWN[name], tmp_path)
        KNOWN[name].where(tmp_path).mkdir()
        with pytest.raises(FederationError, match=rf"\n?Get it with: flatfed data get {name}"):
            read_published(KNOWN[name], tmp_path)


def test_a_set_with_too_few_samples_is_refused(tmp_path: Path) -> None:
    written.fashion(tmp_path / "fashion-mnist")
    with pytest.raises(FederationError, match="20 training samples, expected 60000 of fashion-mn"):
        read_published(KNOWN["fashion-mnist"], tmp_path)
    with pytest.raises(FederationError, match="10 test samples, expected 11 of fashion-mnist"):
        read_published(small("fashion-mnist", 20, 11), tmp_path)


def test_cifar_10_is_five_files_of_labels_and_pixels_channel_by_channel(tmp_path: Path) -> None:
    folder = tmp_path / "cifar-10-batches-bin"
    images = [
        written.cifar(folder / f"data_batch_{b}.bin", [[b], [9]], seed=b) for b in range(1, 6)
    ]
    test = written.cifar(folder / "test_batch.bin", [[7]], seed=6)
    data = read_published(small("cifar-10", 10, 1), tmp_path)
    assert np.array_equal(data.train.inputs.numpy(), np.concatenate(images))
    assert np.array_equal(data.test.inputs.numpy(), test)
    assert data.train.targets.tolist() == [1, 9, 2, 9, 3, 9, 4, 9, 5, 9]
    assert data.test.targets.tolist() == [7]


def test_cifar_100_takes_the_fine_label(tmp_path: Path) -> None:
    folder = tmp_path / "cifar-100-binary"
    images = written.cifar(folder / "train.bin", [[3, 99], [0, 50]])
    written.cifar(folder / "test.bin", [[19, 0]])
    data = read_published(small("cifar-100", 2, 1), tmp_path)
    assert data.train.targets.tolist() == [99, 50]
    assert np.array_equal(data.train.inputs.numpy(), images)
    assert data.sizes["classes"] == len(set(data.classes)) == 100


def test_a_cifar_file_of_parts_of_records_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "batch.bin"
    written.cifar(file, [[1], [2]])
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(FederationError, match="6145 bytes, expected whole records of 3073 bytes"):
        read_cifar([file], 10)
    written.cifar(file, [[1], [10]])
    with pytest.raises(FederationError, match="the label 10, expected labels from 0 to 9"):
        read_cifar([file], 10)
    with pytest.raises(FederationError, match=r"nothing\.bin is not there"):
        read_cifar([tmp_path / "nothing.bin"], 10)


def test_cinic_10_is_folders_of_classes_without_its_validation_part(tmp_path: Path) -> None:
    known = small("cinic-10", 10, 20)
    for part, each in (("train", 1), ("valid", 3), ("test", 2)):
        for label, name in enumerate(known.classes):
            for at in range(each):
                file = tmp_path / "CINIC-10" / part / name / f"{name}-{at}.png"
                pixels = written.picture(file, mode="L" if label == 1 else "RGB", seed=label)
    data = read_published(known, tmp_path)
    assert data.train.inputs.shape == (10, 3, 32, 32)
    assert np.array_equal(data.train.inputs[9].numpy(), pixels.transpose(2, 0, 1))
    assert data.train.targets.tolist() == [*range(10)]
    grey = data.train.inputs[1]
    assert torch.equal(grey[0], grey[1])
    assert data.test.targets.bincount().tolist() == [2] * 10


def tiny(home: Path) -> Path:
    folder = home / "tiny-imagenet-200"
    for number in ("n02", "n01"):
        for at in range(2):
            file = folder / "train" / number / "images" / f"{number}_{at}.JPEG"
            written.picture(file, 64, mode="L" if at else "RGB")
        (folder / "train" / number / f"{number}_boxes.txt").write_text("n01_0.JPEG\t0\t0\t62\t62\n")
    (folder / "words.txt").write_text("n00\tentity\nn01\tgoldfish, Carassius auratus\nn02\tbull\n")
    lines = []
    for at, number in enumerate(("n02", "n01", "n02")):
        written.picture(folder / "val" / "images" / f"val_{at}.JPEG", 64, seed=at)
        lines.append(f"val_{at}.JPEG\t{number}\t0\t0\t63\t63\n")
    (folder / "val" / "val_annotations.txt").write_text("".join(lines))
    return folder


def test_tiny_imagenet_is_tested_on_its_annotated_validation_part(tmp_path: Path) -> None:
    tiny(tmp_path)
    data = read_published(small("tiny-imagenet", 4, 3), tmp_path)
    assert data.classes == ("goldfish", "bull")
    assert data.train.targets.tolist() == [0, 0, 1, 1]
    assert data.test.targets.tolist() == [1, 0, 1]
    assert data.shape == (3, 64, 64)


@pytest.mark.parametrize("line", ["val_9.JPEG\tn01\t0\n", "val_0.JPEG\tn77\t0\n", "val_0.JPEG\n"])
def test_a_broken_annotation_is_named_by_its_row(tmp_path: Path, line: str) -> None:
    with (tiny(tmp_path) / "val" / "val_annotations.txt").open("a") as stream:
        stream.write(line)
    with pytest.raises(FederationError, match=r"val_annotations.txt, row 4, holds 'val_"):
        read_published(small("tiny-imagenet", 4, 4), tmp_path)


def dbpedia(home: Path, rows: list[list[object]] | None = None) -> Path:
    folder = home / "dbpedia_csv"
    for part in ("train", "test"):
        names = ["Company", *["Title"] * 13]
        kept = [
            [1 + n % 14, f"{names[n % 14]} {n // 14}", f'The "{part}" text'] for n in range(14 * 5)
        ]
        written.table(folder / f"{part}.csv", kept + (rows or []))
    return folder


def test_dbpedia_14_is_the_first_of_every_class_after_a_shuffle(tmp_path: Path) -> None:
    dbpedia(tmp_path)
    data = read_published(small("dbpedia-14", 28, 14), tmp_path)
    assert data.train.targets.bincount().tolist() == [2] * 14
    assert data.test.targets.bincount().tolist() == [1] * 14
    assert data.train.inputs.shape == (28, 128)
    # the, text, title, train, company, and the numbers of those titles that were drawn
    assert 2 + 5 < data.vocabulary <= 2 + 5 + 5
    # Title and content are one text, and the class that the file calls 1 is the first.
    named = data.train.inputs[:, 0]
    assert len(named[data.train.targets == 0].unique()) == 1
    assert ((named == named[data.train.targets == 0][0]) == (data.train.targets == 0)).all()
    drawn = data.train.inputs[:, 1]
    assert len(drawn.unique()) > 1
    again = read_published(small("dbpedia-14", 28, 14), tmp_path)
    assert torch.equal(data.train.inputs, again.train.inputs)


def test_a_text_of_dbpedia_may_be_of_any_length(tmp_path: Path) -> None:
    dbpedia(tmp_path, [[1, "A title", "word " * 50_000]])
    assert len(read_published(small("dbpedia-14", 28, 14), tmp_path).train) == 28


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ([3, "a title"], "2 fields, expected 3: class, title, content"),
        ([15, "title", "text"], "the class '15', expected 1 to 14"),
        (["", "title", "text"], "the class '', expected 1 to 14"),
    ],
)
def test_a_broken_row_of_dbpedia_is_named(tmp_path: Path, row: list[object], said: str) -> None:
    dbpedia(tmp_path, [row])
    with pytest.raises(FederationError, match=f"train.csv, row 71, holds {said}"):
        read_published(small("dbpedia-14", 28, 14), tmp_path)


def test_dbpedia_with_rows_missing_is_refused(tmp_path: Path) -> None:
    dbpedia(tmp_path)
    with pytest.raises(FederationError, match=r"train.csv holds 70 rows, expected 560000"):
        read_published(KNOWN["dbpedia-14"], tmp_path)
    with pytest.raises(FederationError, match="class 0 has 5 samples, expected at least 6 of each"):
        read_published(small("dbpedia-14", 6 * 14, 14), tmp_path)


def test_a_broken_picture_is_named(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.png", tmp_path / "bad.png"
    written.picture(good)
    bad.write_bytes(good.read_bytes()[:200])
    with pytest.raises(FederationError, match=r"bad.png holds 200 bytes that are no whole image"):
        read_pictures([good, bad])
    bad.write_text("no picture at all")
    with pytest.raises(FederationError, match=r"bad.png holds 17 bytes that are no whole image"):
        read_pictures([bad])


def test_pictures_of_several_sizes_need_one(tmp_path: Path) -> None:
    written.picture(tmp_path / "a.png", 32)
    written.picture(tmp_path / "b.png", 20)
    files = [tmp_path / "a.png", tmp_path / "b.png"]
    with pytest.raises(
        FederationError, match=r"20 × 20 pixels, expected 32 × 32 .*\n.*resize = 32"
    ):
        read_pictures(files)
    assert read_pictures(files, resize=16).shape == (2, 3, 16, 16)


def test_grey_pictures_have_one_channel_and_mixed_ones_three(tmp_path: Path) -> None:
    grey = written.picture(tmp_path / "a.png", 8, mode="L")
    colour = written.picture(tmp_path / "b.png", 8, mode="RGBA", seed=1)
    one = read_pictures([tmp_path / "a.png"])
    assert np.array_equal(one.numpy(), grey[None, None])
    both = read_pictures([tmp_path / "a.png", tmp_path / "b.png"])
    assert np.array_equal(both[0].numpy(), np.stack([grey] * 3))
    assert np.array_equal(both[1].numpy(), colour[..., :3].transpose(2, 0, 1))
    assert read_pictures([tmp_path / "b.png", tmp_path / "a.png"]).shape == both.shape


def test_pictures_of_more_than_eight_bits_are_refused(tmp_path: Path) -> None:
    from PIL import Image

    Image.fromarray(np.full((4, 4), 60_000, np.uint16)).save(tmp_path / "deep.png")
    with pytest.raises(FederationError, match=r"deep.png holds pixels of .* expected 8 bits"):
        read_pictures([tmp_path / "deep.png"])


def test_statistics_are_those_of_all_pixels_of_a_channel() -> None:
    images = torch.randint(0, 256, (20, 3, 5, 4), dtype=torch.uint8)
    mean, std = statistics(images)
    pixels = images.double() / 255
    assert mean == pytest.approx(pixels.mean((0, 2, 3)).tolist())
    assert std == pytest.approx(pixels.var((0, 2, 3), correction=0).sqrt().tolist())
    assert statistics(torch.zeros(2, 1, 3, 3, dtype=torch.uint8)) == ((0.0,), (1.0,))


def test_words_enter_the_vocabulary_by_frequency_then_alphabet() -> None:
    train, test, ids = encode(["D a c, A", "c b e", ""], ["e x a e"], vocabulary=5, length=3)
    # a and c twice, then b before d and e, which came first; 0 pads, 1 is unknown
    assert ids == 5
    assert train.tolist() == [[1, 2, 3], [3, 4, 1], [0, 0, 0]]
    assert test.tolist() == [[1, 1, 2]]
    assert train.dtype == torch.int32


def test_the_vocabulary_holds_no_word_of_the_test_texts() -> None:
    _, test, ids = encode(["one two"], ["three three one"], vocabulary=100, length=4)
    assert ids == 4
    assert test.tolist() == [[1, 1, 2, 0]]


def test_words_are_counted_beyond_the_length_of_a_text() -> None:
    train, _, _ = encode(["x y y", "y x"], [], vocabulary=3, length=1)
    assert train.tolist() == [[1], [2]]


def test_tokens_are_words_of_any_alphabet() -> None:
    train, _, ids = encode(["Ärger, ärger! 東京 don't"], [], vocabulary=100, length=6)
    assert ids == 2 + 4
    assert train[0, 0] == train[0, 1] == 2
    assert train[0, 5] == 0


def test_classes_are_in_the_order_of_numbers_or_letters() -> None:
    assert class_names(["2", "10", "2", "1"]) == ("1", "2", "10")
    assert class_names(["b", "a", "10", "2"]) == ("10", "2", "a", "b")
    assert client_numbers(["z", "a", "z"]).tolist() == [1, 0, 1]


def test_a_part_put_aside_has_the_same_fraction_of_every_class() -> None:
    targets = torch.tensor([0] * 100 + [1] * 10 + [2] * 2 + [3])
    kept, aside = put_aside(targets, 4, 0.3)
    assert targets[aside].bincount(minlength=4).tolist() == [30, 3, 1, 0]
    assert sorted([*kept.tolist(), *aside.tolist()]) == [*range(113)]
    assert kept.tolist() == sorted(kept.tolist())
    assert torch.equal(aside, put_aside(targets, 4, 0.3)[1])
    assert aside[:30].tolist() != [*range(30)]


def test_the_first_of_each_class_after_a_shuffle_are_a_prefix_of_more() -> None:
    targets = torch.arange(60) % 3
    few, more = first_of_each(targets, 3, 4, "any"), first_of_each(targets, 3, 9, "any")
    assert few.shape == (3, 4)
    assert torch.equal(few, more[:, :4])
    assert all((targets[places] == label).all() for label, places in enumerate(few))
    assert not torch.equal(few, first_of_each(targets, 3, 4, "other"))


def test_a_data_set_refuses_what_does_not_fit() -> None:
    images = Split(torch.zeros(2, 1, 4, 4, dtype=torch.uint8), torch.tensor([0, 1]))
    wide = Split(torch.zeros(2, 1, 4, 5, dtype=torch.uint8), torch.tensor([0, 1]))
    floats = Split(torch.zeros(2, 1, 4, 4), torch.tensor([0, 1]))
    for other in (wide, floats):
        with pytest.raises(
            FederationError, match=r"mine has training inputs of shape \(2, 1, 4, 4"
        ):
            DataSet("mine", images, other, ("a", "b"))
    with pytest.raises(FederationError, match="mine has targets from 0 to 1, expected 0 to 0"):
        DataSet("mine", images, images, ("a",))
    with pytest.raises(FederationError, match="2 inputs and targets of shape"):
        Split(images.inputs, torch.zeros(3, dtype=torch.int64))
    with pytest.raises(FederationError, match="2 inputs and targets of shape"):
        Split(images.inputs, torch.zeros(2, 1, dtype=torch.int64))


def test_an_unknown_set_names_the_nearest() -> None:
    with pytest.raises(SpecError, match=r"no data set 'cifar'.*\nDid you mean 'cifar-10"):
        known_set("cifar")


def test_the_home_of_data_is_the_argument_then_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FLATFED_DATA", str(tmp_path))
    assert data_home() == tmp_path
    assert data_home("elsewhere") == Path("elsewhere")
    monkeypatch.delenv("FLATFED_DATA")
    assert data_home() == Path.home() / ".cache/flatfed/data"


def test_a_hash_is_of_what_a_compressed_file_holds(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    with gzip.open(tmp_path / "b.gz", "wb") as stream:
        stream.write(b"abc")
    assert digest(tmp_path / "a") == digest(tmp_path / "b.gz")
    assert digest(tmp_path / "b.gz", unpacked=False) != digest(tmp_path / "b.gz")
    assert digest(tmp_path / "a", "md5") == "900150983cd24fb0d6963f7d28e17f72"


@pytest.mark.parametrize(
    ("name", "n", "each"), [("fashion-mnist", 60_000, 6000), ("cifar-10", 50_000, 5000)]
)
def test_the_real_sets_have_their_sizes_and_balance(name: str, n: int, each: int) -> None:
    if not KNOWN[name].where(HOME).is_dir():
        pytest.skip(f"{name} is not downloaded")
    data = read_published(KNOWN[name], HOME)
    assert (len(data.train), len(data.test)) == (n, 10_000)
    assert data.train.targets.bincount().tolist() == [each] * 10
    assert data.test.targets.bincount().tolist() == [1000] * 10
