"""One name for every source of data, its options, and what is said of a wrong one."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import written
from flatfed import models
from flatfed.data import DataSet, Split, load, options_of
from flatfed.data.embedded import FILE, draw, read_embedded, write
from flatfed.data.files import data_home
from flatfed.data.known import KNOWN
from flatfed.data.published import read_published
from flatfed.errors import FederationError, SpecError

HOME = data_home()


def arrays(**other: Any) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    own = {
        "x_train": rng.integers(0, 256, (12, 6, 5), dtype=np.uint8),
        "y_train": np.arange(12) % 3,
        "x_test": rng.integers(0, 256, (6, 6, 5), dtype=np.uint8),
        "y_test": np.arange(6) % 3,
    }
    return {key: value for key, value in {**own, **other}.items() if value is not None}


def npz(folder: Path, **other: Any) -> str:
    np.savez(folder / "mine.npz", **arrays(**other))
    return str(folder / "mine.npz")


def texts(folder: Path, *rows: list[object], name: str = "mine.csv") -> str:
    """Two classes of five texts each by two clients, and more rows below."""
    kept = [["label", "text", "by"]]
    kept += [[("b", "a")[n % 2], f"word{n} common", f"client {n % 3}"] for n in range(10)]
    return str(written.table(folder / name, [*kept, *rows]))


# The embedded set.


def test_the_embedded_set_needs_no_download_and_is_balanced(tmp_path: Path) -> None:
    data = load("fashion-mnist-small", home=tmp_path)
    assert data.train.inputs.shape == (10_000, 1, 28, 28)
    assert data.train.targets.bincount().tolist() == [1000] * 10
    assert data.test.targets.bincount().tolist() == [200] * 10
    assert data.train.inputs.dtype == torch.uint8
    assert (data.mean, data.std) == ((0.1307,), (0.3081,))
    assert len(data.train.inputs.view(10_000, -1).unique(dim=0)) > 9_990
    assert models.build("lenet", seed=0, **data.sizes)(torch.zeros(1, 1, 28, 28)).shape == (1, 10)


def test_the_embedded_set_is_the_seeded_draw_from_the_whole() -> None:
    if not KNOWN["fashion-mnist"].where(HOME).is_dir():
        pytest.skip("fashion-mnist is not downloaded")
    drawn, held = draw(read_published(KNOWN["fashion-mnist"], HOME)), read_embedded()
    for one, other in ((drawn.train, held.train), (drawn.test, held.test)):
        assert torch.equal(one.inputs, other.inputs)
        assert torch.equal(one.targets, other.targets)
    assert (drawn.classes, drawn.mean, drawn.std) == (held.classes, held.mean, held.std)


def test_the_embedded_file_is_what_its_images_are_written_as(tmp_path: Path) -> None:
    held = read_embedded()
    few = (Split(split.inputs[:20], split.targets[:20]) for split in (held.train, held.test))
    write(tmp_path / FILE, DataSet("few", *few, held.classes))
    with Image.open(tmp_path / FILE) as sheet:
        pixels = np.asarray(sheet).reshape(-1, 1, 28, 28)
    assert np.array_equal(pixels[:20], held.train.inputs[:20].numpy())
    assert np.array_equal(pixels[20:], held.test.inputs[:20].numpy())


def test_a_published_set_is_read_from_the_home_given(tmp_path: Path) -> None:
    written.fashion(tmp_path / "fashion-mnist")
    with pytest.raises(FederationError, match="20 training samples, expected 60000"):
        load("fashion-mnist", home=tmp_path)


# Arrays.


def test_an_npz_of_images_without_channels_has_one(tmp_path: Path) -> None:
    data = load(npz(tmp_path))
    assert data.train.inputs.dtype == torch.uint8
    assert np.array_equal(data.train.inputs[:, 0].numpy(), arrays()["x_train"])
    assert data.sizes == {"shape": (1, 6, 5), "classes": 3, "vocabulary": None}
    assert data.mean == pytest.approx((arrays()["x_train"].mean() / 255,))
    assert data.std == pytest.approx((arrays()["x_train"].std() / 255,))
    assert data.train.owners is None


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_channels_may_be_last_or_second(tmp_path: Path, channels: int) -> None:
    last = np.random.default_rng(1).integers(0, 256, (12, 6, 5, channels), dtype=np.uint8)
    first = last.transpose(0, 3, 1, 2)
    for images in (last, first):
        data = load(npz(tmp_path, x_train=images, x_test=images[:6]))
        assert np.array_equal(data.train.inputs.numpy(), first)
        assert data.train.inputs.is_contiguous()
    assert len(data.mean) == channels


def test_channels_are_last_where_that_may_be_either(tmp_path: Path) -> None:
    images = np.random.default_rng(1).integers(0, 256, (12, 3, 5, 3), dtype=np.uint8)
    data = load(npz(tmp_path, x_train=images, x_test=images[:6]))
    assert np.array_equal(data.train.inputs.numpy(), images.transpose(0, 3, 1, 2))


def test_floats_keep_their_shape_and_are_not_normalised(tmp_path: Path) -> None:
    x = np.random.default_rng(2).normal(size=(12, 7))
    data = load(npz(tmp_path, x_train=x, x_test=x[:6]))
    assert data.train.inputs.dtype == torch.float32
    assert data.shape == (7,)
    assert (data.mean, data.std) == ((), ())


def test_owners_of_an_npz_are_numbered(tmp_path: Path) -> None:
    owners = np.array(["z", "a", "m"] * 4)
    assert load(npz(tmp_path, owners_train=owners)).train.owners.tolist() == [2, 0, 1] * 4
    with pytest.raises(FederationError, match="12 inputs and targets of shape"):
        load(npz(tmp_path, owners_train=owners[:5]))


def test_a_pickle_in_an_npz_is_refused_and_never_run(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "sprung",))

    trap = np.array([Trap()] * 12, dtype=object)
    with pytest.raises(FederationError, match=r"y_train with something that is no array of numb"):
        load(npz(tmp_path, y_train=trap))
    (tmp_path / "mine.npz").write_bytes(pickle.dumps(Trap()))
    with pytest.raises(FederationError, match=r"mine.npz holds no arrays .*\n.*never read"):
        load(str(tmp_path / "mine.npz"))
    assert not (tmp_path / "sprung").exists()


def test_a_damaged_npz_is_refused(tmp_path: Path) -> None:
    file = Path(npz(tmp_path))
    whole = file.read_bytes()
    for broken in (b"", whole[: len(whole) // 2], b"PK\x03\x04 and nothing"):
        file.write_bytes(broken)
        with pytest.raises(FederationError, match=r"mine.npz holds no arrays"):
            load(str(file))
    changed = bytearray(whole)
    changed[300] ^= 1
    file.write_bytes(changed)
    with pytest.raises(FederationError, match=r"mine.npz holds x_train with .*CRC"):
        load(str(file))
    np.save(tmp_path / "one.npy", np.zeros(3))
    (tmp_path / "one.npy").rename(file)
    with pytest.raises(FederationError, match=r"mine.npz holds no arrays"):
        load(str(file))
    with pytest.raises(FederationError, match=r"absent.npz is not there, expected arrays"):
        load(str(tmp_path / "absent.npz"))


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"x_test": None, "y_test": None}, "holds no x_test and no y_test, expected arrays"),
        ({"y_train": np.zeros(12)}, r"y_train is of shape \(12,\) and float64 from 0.0, expected"),
        ({"y_train": np.zeros((12, 3), int)}, r"y_train is of shape \(12, 3\)"),
        ({"y_train": np.arange(12) - 1}, r"y_train is of shape \(12,\) and int64 from -1"),
        ({"y_train": np.array(["a"] * 12)}, r"y_train is of shape \(12,\) and <U1, expected one"),
        ({"y_test": np.arange(6)}, "y_test holds the class 5, expected 0 to 2 as in y_train"),
        ({"y_test": np.arange(0)}, r"y_test is of shape \(0,\)"),
        ({"y_train": np.arange(11) % 3}, r"12 inputs and targets of shape \(11,\)"),
        ({"x_test": np.zeros((6, 7, 5), np.uint8)}, "expected the same"),
        ({"x_train": np.zeros((12, 30), np.uint8)}, r"x_train is of shape \(12, 30\) and uint8"),
        ({"x_train": np.zeros((12, 6, 5), int)}, "int64, expected images as uint8"),
        ({"x_train": np.zeros((12, 9, 9, 9), np.uint8)}, "expected at most 4 channels, last or"),
        ({"x_train": np.full((12, 5), np.nan)}, "x_train holds NaN or infinity"),
    ],
)
def test_arrays_that_do_not_fit_are_named(tmp_path: Path, other: Any, said: str) -> None:
    with pytest.raises(FederationError, match=said) as caught:
        load(npz(tmp_path, **other))
    assert len(str(caught.value).splitlines()) <= 3


# Folders of images.


def folder(root: Path, each: int = 3, *, mode: str = "RGB", names: str = "ab") -> Path:
    for label, name in enumerate(names):
        for at in range(each):
            written.picture(root / name / f"{at}.png", 8, mode=mode, seed=10 * label + at)
    return root


def test_a_folder_of_train_and_test_folders_is_read_by_class(tmp_path: Path) -> None:
    folder(tmp_path / "train")
    folder(tmp_path / "test", 1)
    (tmp_path / "train" / "a" / "notes.txt").write_text("no image")
    (tmp_path / "train" / ".hidden").mkdir()
    data = load(str(tmp_path))
    assert data.classes == ("a", "b")
    assert data.train.targets.tolist() == [0, 0, 0, 1, 1, 1]
    assert data.test.targets.tolist() == [0, 1]
    pixels = written.picture(tmp_path / "again.png", 8, seed=11)
    assert np.array_equal(data.train.inputs[4].numpy(), pixels.transpose(2, 0, 1))
    assert data.mean == pytest.approx((data.train.inputs.double() / 255).mean((0, 2, 3)).tolist())
    assert data.name == tmp_path.name


def test_a_folder_of_classes_puts_a_fraction_of_each_aside(tmp_path: Path) -> None:
    data = load(str(folder(tmp_path, 10)), test_fraction=0.2, resize=4)
    assert data.train.targets.bincount().tolist() == [8, 8]
    assert data.test.targets.bincount().tolist() == [2, 2]
    assert data.shape == (3, 4, 4)


def test_grey_is_asked_of_training_and_test_images_together(tmp_path: Path) -> None:
    folder(tmp_path / "train", mode="L")
    folder(tmp_path / "test", 1, mode="L")
    assert load(str(tmp_path)).shape == (1, 8, 8)
    folder(tmp_path / "test", 1)
    assert load(str(tmp_path)).shape == (3, 8, 8)


def test_a_folder_that_does_not_fit_says_why(tmp_path: Path) -> None:
    root = tmp_path / "mine"
    with pytest.raises(FederationError, match="mine is not there, expected a folder with a folder"):
        load(str(root), test_fraction=0.2)
    root.mkdir()
    with pytest.raises(FederationError, match="mine holds no folders, expected a folder for each"):
        load(str(root), test_fraction=0.2)
    folder(root)
    with pytest.raises(SpecError, match=r"no train and test folders .*\nPut some aside: test_fr"):
        load(str(root))
    (root / "c").mkdir()
    with pytest.raises(FederationError, match="mine holds no image in 'c'"):
        load(str(root), test_fraction=0.2)
    folder(root / "train")
    folder(root / "test", names="abd")
    with pytest.raises(FederationError, match=r"test holds the class 'd', expected those of train"):
        load(str(root))
    with pytest.raises(SpecError, match=r"has train and test folders and got test_fraction=0.5"):
        load(str(root), test_fraction=0.5)


# Texts.


def test_a_csv_of_texts_with_another_for_the_test(tmp_path: Path) -> None:
    test = texts(tmp_path, name="test.csv")
    data = load(texts(tmp_path), test=test, owner="by", length=4)
    assert data.classes == ("a", "b")
    assert data.train.targets.tolist() == [1, 0] * 5
    assert data.train.owners.tolist() == [0, 1, 2, 0, 1, 2, 0, 1, 2, 0]
    assert data.sizes == {"shape": (4,), "classes": 2, "vocabulary": 2 + 11}
    assert data.train.inputs[:, 1].tolist() == [2] * 10
    assert torch.equal(data.train.inputs, data.test.inputs)


def test_a_csv_of_texts_of_which_a_fraction_is_put_aside(tmp_path: Path) -> None:
    data = load(texts(tmp_path), test_fraction=0.4, owner="by", vocabulary=6, length=2)
    assert data.train.targets.bincount().tolist() == [3, 3]
    assert data.test.targets.bincount().tolist() == [2, 2]
    assert data.train.owners.max() == 2
    assert data.vocabulary == 6
    # Words of texts put aside are unknown.
    assert data.test.inputs.tolist() == [[1, 2]] * 4


def test_columns_may_have_other_names_and_fields_may_be_long(tmp_path: Path) -> None:
    long = "word " * 100_000
    file = written.table(tmp_path / "t.csv", [["x", "body", "class"]] + [[1, long, "10"]] * 2)
    with file.open("a", encoding="utf-8") as stream:
        stream.write('1,"two\nlines, ""quoted""",9\n1,Ünïcode,9\n')
    data = load(str(file), text="body", label="class", test_fraction=0.5)
    assert data.classes == ("9", "10")


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (b"a,text\n", "row 12, holds 2 fields, expected 3, as in the first row"),
        (b"a,text,client,more\n", "row 12, holds 4 fields"),
        (b" ,text,client\n", "row 12, holds an empty 'label'"),
        (b"a,text,\n", "row 12, holds an empty 'by'"),
        (b"a,caf\xe9,client\n", "row 12, holds bytes that are no UTF-8"),
        (b'\na,"cut off', r"row 13, holds broken quotes \(unexpected end of data\)"),
        (b'a,"quoted" wrongly,client\n', "row 12, holds broken quotes"),
    ],
)
def test_a_broken_row_is_named(tmp_path: Path, row: bytes, said: str) -> None:
    source = texts(tmp_path)
    with Path(source).open("ab") as stream:
        stream.write(row)
    with pytest.raises(FederationError, match=f"mine.csv, {said}") as caught:
        load(source, test_fraction=0.5, owner="by")
    assert len(str(caught.value).splitlines()) <= 3


def test_a_csv_that_does_not_fit_says_why(tmp_path: Path) -> None:
    source = texts(tmp_path)
    with pytest.raises(SpecError, match=r"test=None and test_fraction=None, expected one of them"):
        load(source)
    with pytest.raises(SpecError, match=r"expected one of them"):
        load(source, test=source, test_fraction=0.5)
    with pytest.raises(FederationError, match=r"no column 'lable'.\nDid you mean 'label'"):
        load(source, test_fraction=0.5, label="lable")
    with pytest.raises(FederationError, match=r"absent.csv is not there"):
        load(str(tmp_path / "absent.csv"), test_fraction=0.5)
    other = texts(tmp_path, ["c", "text", "x"], name="other.csv")
    with pytest.raises(FederationError, match=r"other.csv, row 12, holds the label 'c', expected"):
        load(source, test=other)
    (tmp_path / "e.csv").write_text("")
    with pytest.raises(FederationError, match=r"e.csv has no column 'text'.\nIt is empty"):
        load(str(tmp_path / "e.csv"), test_fraction=0.5)
    (tmp_path / "e.csv").write_text("label,text\n")
    with pytest.raises(FederationError, match=r"e.csv holds no rows below the first"):
        load(str(tmp_path / "e.csv"), test_fraction=0.5)


def test_reading_a_csv_leaves_the_limit_of_fields_as_it_was(tmp_path: Path) -> None:
    import csv

    before = csv.field_size_limit(1234)
    load(texts(tmp_path), test_fraction=0.5)
    with pytest.raises(FederationError):
        load(texts(tmp_path, ["too few"]), test_fraction=0.5)
    assert csv.field_size_limit(before) == 1234


def test_the_real_newsgroups_are_read() -> None:
    where = HOME / "20newsgroups"
    if not where.is_dir():
        pytest.skip("20newsgroups is not there")
    data = load(str(where / "train.csv"), test=str(where / "test.csv"))
    assert (len(data.train), len(data.test)) == (11_293, 7_528)
    assert data.sizes == {"shape": (128,), "classes": 20, "vocabulary": 30_000}
    assert int(data.train.inputs.max()) in range(29_000, 30_000)


# A function of the user's own.


OWN = """
import torch, numpy
from flatfed.data import DataSet, Split
from flatfed.errors import ModelError

def arrays(n=6, *, tensors=False):
    x, y = numpy.zeros((n, 4, 4, 3), numpy.uint8), numpy.arange(n) % 2
    if tensors:
        x, y = torch.from_numpy(x).permute(0, 3, 1, 2), torch.from_numpy(y)
    return x, y, x, y

def whole():
    split = Split(torch.zeros(2, 3, dtype=torch.int32), torch.tensor([0, 1]))
    return DataSet("of my own", split, split, ("a", "b"), vocabulary=1)

def anything(**options): raise KeyError(str(options))
def ours(): raise ModelError("as it is")
def pair(): return 1, 2
def number(): return 3
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "owndata.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "owndata", raising=False)
    return "owndata"


def test_a_function_returns_arrays_tensors_or_a_data_set(own: str) -> None:
    assert load(f"{own}:arrays", n=4).train.inputs.shape == (4, 3, 4, 4)
    assert load(f"{own}:arrays", tensors=True).train.inputs.shape == (6, 3, 4, 4)
    assert load(f"{own}:whole").sizes == {"shape": (3,), "classes": 2, "vocabulary": 1}


def test_a_function_that_fails_or_returns_something_else_is_named(own: str) -> None:
    with pytest.raises(SpecError, match=r"calling owndata:anything failed with KeyError: .*'a': 1"):
        load(f"{own}:anything", a=1)
    with pytest.raises(FederationError, match=r"owndata:pair returned a tuple of 2, expected"):
        load(f"{own}:pair")
    with pytest.raises(FederationError, match=r"owndata:number returned int, expected"):
        load(f"{own}:number")
    with pytest.raises(Exception, match=r"^as it is$"):
        load(f"{own}:ours")
    with pytest.raises(SpecError, match="owndata has no 'arays'"):
        load(f"{own}:arays")
    with pytest.raises(SpecError, match=r"owndata:arrays has no option 'm'.\nKnown: n, tensors"):
        load(f"{own}:arrays", m=1)


# The hub.


class Column(list):
    pass


class Hub:
    """As much of a datasets.Dataset as is used."""

    def __init__(self, columns: dict[str, list[Any]], names: list[str] | None) -> None:
        self.columns, self.column_names = columns, list(columns)
        self.features = {key: SimpleNamespace() for key in columns}
        if names:
            self.features["label"].names = names

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            return Column(self.columns[key])
        return {name: values[key] for name, values in self.columns.items()}


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> dict[Any, Hub]:
    held: dict[Any, Hub] = {}

    def load_dataset(name: str, subset: str | None = None, *, split: str) -> Hub:
        return held[name, subset, split]

    module = ModuleType("datasets")
    module.load_dataset = load_dataset  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "datasets", module)
    return held


def test_images_of_the_hub_are_bytes_and_their_classes_named(hub: dict[Any, Hub]) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (3, 8, 8), dtype=np.uint8)
    rows = {"img": [Image.fromarray(p) for p in pixels], "label": [0, 1, 1], "who": [7, 7, 3]}
    hub["me/mine", None, "train"] = hub["me/mine", None, "test"] = Hub(rows, ["cat", "dog"])
    data = load("hf:me/mine", owner="who")
    assert np.array_equal(data.train.inputs[:, 0].numpy(), pixels)
    assert data.classes == ("cat", "dog")
    assert data.train.targets.tolist() == [0, 1, 1]
    assert data.train.owners.tolist() == [1, 1, 0]
    assert data.mean == pytest.approx((pixels.mean() / 255,))
    assert load("hf:me/mine", resize=4).shape == (1, 4, 4)


def test_texts_of_the_hub_are_tokens(hub: dict[Any, Hub]) -> None:
    rows = {"text": ["a b", "b"], "label": ["no", "yes"]}
    hub["me/mine", "small", "train"] = hub["me/mine", "small", "validation"] = Hub(rows, None)
    data = load("hf:me/mine", subset="small", test="validation", length=3)
    assert data.train.inputs.tolist() == [[3, 2, 0], [2, 0, 0]]
    assert data.classes == ("no", "yes")
    assert data.vocabulary == 4


def test_what_the_hub_does_not_have_is_named(hub: dict[Any, Hub]) -> None:
    rows = {"text": ["a b", "b"], "label": [0, -1], "other": [1, 2]}
    hub["me/mine", None, "train"] = hub["me/mine", None, "test"] = Hub(rows, ["no", "yes"])
    with pytest.raises(FederationError, match="label '-1' in sample 1, expected one of 2 classes"):
        load("hf:me/mine")
    with pytest.raises(SpecError, match=r"hf:me/mine has no column 'lable'.\nDid you mean 'label'"):
        load("hf:me/mine", label="lable")
    rows["label"] = [0, 1]
    with pytest.raises(FederationError, match="hf:me/mine has int in column 'other', expected im"):
        load("hf:me/mine", inputs="other")
    with pytest.raises(FederationError, match="loading hf:me/other failed with KeyError"):
        load("hf:me/other")


def test_the_hub_without_its_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(SpecError, match=r"pip install 'flatfed\[huggingface\]'"):
        load("hf:me/mine")


# Names and options.


def test_every_source_says_its_options(tmp_path: Path, own: str) -> None:
    assert options_of("fashion-mnist-small") == options_of("cifar-10") == options_of("a.npz") == ()
    assert options_of(str(tmp_path)) == ("resize", "test_fraction")
    csv = ("text", "label", "owner", "test", "test_fraction", "vocabulary", "length")
    assert options_of("any.csv") == csv
    assert options_of("hf:me/mine")[:3] == ("subset", "train", "test")
    assert options_of(f"{own}:arrays") == ("n", "tensors")
    assert options_of(f"{own}:anything") is None


def test_an_unknown_source_names_the_nearest_and_the_other_forms() -> None:
    with pytest.raises(SpecError, match=r"no data source 'cifar10'.\nDid you mean 'cifar-10'") as e:
        load("cifar10")
    assert "MODULE:FUNCTION" in str(e.value)
    with pytest.raises(SpecError, match="no data source"):
        options_of("nothing")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"lenght": 3}, r"has no option 'lenght'.\nDid you mean 'length'"),
        ({"length": 0}, "length=0, expected a whole number ≥ 1"),
        ({"length": True}, "length=True, expected a whole number"),
        ({"vocabulary": 2}, "vocabulary=2, expected a whole number ≥ 3"),
        ({"test_fraction": 1.0}, r"test_fraction=1.0, expected a number in \(0, 1\)"),
        ({"test_fraction": "a"}, r"test_fraction='a', expected a number in \(0, 1\)"),
        ({"label": 3}, "label=3, expected a word"),
        ({"text": None}, "text=None, expected a word"),
    ],
)
def test_a_wrong_option_is_refused(tmp_path: Path, options: Any, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        load(texts(tmp_path), **options)


def test_a_source_without_options_says_so() -> None:
    with pytest.raises(SpecError, match=r"small has no option 'resize'.\nIt has no options"):
        load("fashion-mnist-small", resize=3)


def test_a_data_set_reaches_another_process_by_shared_memory(tmp_path: Path) -> None:
    import torch.multiprocessing as mp

    data = load(npz(tmp_path))
    context = mp.get_context("spawn")
    queue = context.SimpleQueue()
    process = context.Process(target=_darken, args=(data, queue))
    process.start()
    process.join(60)
    assert queue.get() == 12
    assert not data.train.inputs.any()


def _darken(data: DataSet, queue: Any) -> None:
    data.train.inputs.zero_()
    queue.put(len(data.train))


def test_splits_do_not_compare_as_tensors_would() -> None:
    split = Split(torch.zeros(2, 2), torch.zeros(2, dtype=torch.int64))
    assert split == split
    assert split != Split(split.inputs.clone(), split.targets)


@pytest.mark.parametrize(
    ("inputs", "targets", "message"),
    [
        (torch.zeros(3, 2), torch.zeros(3, dtype=torch.int32), "targets of torch.int32, expected"),
        (torch.tensor([[1.0], [float("nan")]]), torch.zeros(2).long(), "1 NaN or infinite numbers"),
        (torch.zeros(3, 2), torch.zeros(2).long(), "3 inputs and targets of shape"),
    ],
)
def test_a_split_refuses_what_nobody_can_train_on(inputs, targets, message) -> None:
    with pytest.raises(FederationError, match=message):
        Split(inputs, targets)


def test_data_of_one_name_is_told_apart_by_its_samples() -> None:
    def made(x: float, y: int = 0, mean: float = 0.5) -> DataSet:
        split = Split(torch.full((3, 2), x), torch.tensor([0, 1, y]))
        return DataSet("same", split, split, ("a", "b"), (mean,), (1.0,))

    assert made(1.0).digest == made(1.0).digest
    assert len({made(1.0).digest, made(2.0).digest, made(1.0, 1).digest,
                made(1.0, mean=0.4).digest}) == 4  # fmt: skip
