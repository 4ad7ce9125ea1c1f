"""A spec says everything, or says what is wrong with it."""

from __future__ import annotations

import sys
import tomllib

import pytest

from flatfed import methods
from flatfed.errors import FlatfedError, SpecError
from flatfed.run.build import completed, data_of, method_of, partition_of, training_of
from flatfed.spec import Spec
from spotted import tables, write_spec


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"run": {"roundz": 5}}, "[run] has no key 'roundz'.\nDid you mean 'rounds'? Known: "),
        ({"runn": {}}, "no section [runn].\nDid you mean 'run'? Known: cohort, compress, data, "),
        ({"run": {"rounds": "ten"}}, "[run] rounds = 'ten', expected a valid integer."),
        ({"run": {"rounds": "10"}}, "[run] rounds = '10', expected a valid integer."),
        ({"run": {"rounds": 0}}, "[run] rounds = 0, expected a number greater than or equal to 1."),
        ({"run": {"rounds": 2.5}}, "[run] rounds = 2.5, expected a valid integer."),
        ({"run": {"seed": -1}}, "[run] seed = -1, expected a number greater than or equal to 0."),
        ({"run": 5}, "run = 5, expected a section.\nWrite [run]."),
        ({"run": {"watch": ["tens"]}}, "[run] watch = 'tens', expected 'tensorboard', 'mlflow' or"),
        ({"run": {"target_accuracy": 60}}, "[run] target_accuracy = 60, expected a number less"),
        ({"engine": {"name": "mpi"}}, "[engine] name = 'mpi', expected 'local'"),
        ({"engine": {"timeout": 0}}, "[engine] timeout = 0, expected a number greater than 0."),
        ({"cohort": {"sampling": "x"}}, "[cohort] sampling = 'x', expected 'uniform' or 'cyclic'."),
        ({"local": {"lr": "fast"}}, "[local] lr = 'fast', expected a valid number."),
        ({"model": {"precision": "half"}}, "[model] precision = 'half', expected 'full' or"),
        ({"methods": {"fedsam": 3}}, "methods.fedsam = 3, expected a section.\nWrite [methods."),
    ],
)
def test_a_wrong_spec_names_the_key_the_value_and_what_is_allowed(given, message) -> None:
    with pytest.raises(SpecError) as error:
        Spec.of(given, "my.toml")
    assert str(error.value).startswith(f"my.toml: {message}")
    assert len(str(error.value).splitlines()) <= 3


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"data": {"alhpa": 0.1}}, "[data] has no key 'alhpa' with source = "),
        (
            {"data": {"partition": "dirichlets"}},
            "'dirichlets' is no partition of flatfed.\nDid you",
        ),
        ({"data": {"alpha": 0}}, "Dirichlet got alpha=0, expected a number in (0, ∞)."),
        ({"data": {"alpha": -1.0}}, "Dirichlet got alpha=-1.0, expected a number in (0, ∞)."),
        ({"data": {"clients": 241}}, "Dirichlet got clients=241 for 240 samples, expected a "),
        ({"data": {"clients": 0}}, "Dirichlet got clients=0, expected a whole number ≥ 1."),
        ({"data": {"source": "fashion-mnist-smal"}}, "no data source 'fashion-mnist-smal'.\nDid "),
        ({"data": {"augment": "crop"}}, "no augmentation 'crop'."),
        ({"model": {"name": "lenett"}}, "'lenett' is no model of flatfed.\nDid you mean 'lenet'? "),
        ({"model": {"width": 3}}, "mlp2 has no option 'width'."),
        ({"method": {"name": "fedto"}}, "'fedto' is no method of flatfed.\nDid you mean 'fedtoga'"),
        ({"method": {"rho": 0.1}}, "[method] scaffold has no key 'rho'.\nKnown: global_lr"),
        ({"method": {"lr": 0.1}}, "[method] has no key 'lr'.\nIt is one of [local]: put it there."),
        ({"local": {"lr": 0.0}}, "SGD got lr=0.0, expected a number in (0, ∞)."),
        ({"local": {"epochs": 2}}, "SGD got both of steps=3 and epochs=2, expected one."),
    ],
)
def test_what_a_spec_names_is_refused_by_its_owner(tmp_path, section, message) -> None:
    spec = Spec.of(tables(tmp_path, **section))
    with pytest.raises(FlatfedError) as error:
        training_of(spec)
    assert str(error.value).startswith(message)
    assert error.value.exit_code == 2
    assert len(str(error.value).splitlines()) <= 3


def test_a_partition_without_a_number_of_clients_is_refused(tmp_path) -> None:
    given = tables(tmp_path)
    del given["data"]["clients"]
    with pytest.raises(SpecError, match="dirichlet got no clients, expected a whole number"):
        partition_of(Spec.of(given))


@pytest.mark.parametrize("name", methods.CATALOGUE)
def test_a_completed_spec_says_everything_and_means_the_same(tmp_path, name) -> None:
    spec = Spec.of(tables(tmp_path, method={"name": name}, local={"lr": 0.05}))
    method = method_of(spec)
    full = completed(spec, method)
    again = Spec.of(tomllib.loads(full.toml()))
    assert again.flat() == full.flat()
    assert method_of(again) == method
    assert {f"method.{key}" for key in methods.parameters(name)} <= full.flat().keys()
    assert full.flat()["local.clip"] == method.local.clip
    assert full.flat()["data.size_sigma"] == 0.0


def test_the_papers_defaults_are_written_out(tmp_path) -> None:
    spec = Spec.of({"data": {"clients": 3}, "method": {"name": "fedmoswa"}})
    full = completed(spec, method_of(spec)).flat()
    assert (full["local.lr"], full["local.epochs"], full["local.steps"]) == (0.1, 5, None)
    assert (full["method.ratio"], full["method.gamma"]) == (0.1, 0.2)


def test_none_is_nothing_where_nothing_is_allowed_and_a_word_elsewhere() -> None:
    spec = Spec.of({"local": {"clip": "none"}, "data": {"augment": "none"}})
    assert spec.local.clip is None
    assert spec.data.augment == "none"
    assert 'clip = "none"' in spec.toml()


def test_set_replaces_keys_and_makes_sections(tmp_path) -> None:
    path = write_spec(tmp_path)
    spec = Spec.read(path, [("method.name", "fedsam"), ("methods.fedsam.rho", 0.3)])
    assert spec.method.name == "fedsam"
    assert spec.methods == {"fedsam": {"rho": 0.3}}
    with pytest.raises(SpecError, match=r"--set got rho=0.1, expected section.key=value"):
        Spec.read(path, [("rho", 0.1)])
    with pytest.raises(SpecError, match=r"--set got run.rounds.x=1, but 'rounds' is no section"):
        Spec.read(path, [("run.rounds.x", 1)])


def test_a_file_that_is_no_spec_is_refused(tmp_path) -> None:
    with pytest.raises(SpecError, match=r"nothing.toml is not there, expected a spec in TOML"):
        Spec.read(tmp_path / "nothing.toml")
    with pytest.raises(SpecError, match="is a folder, expected a spec"):
        Spec.read(tmp_path)
    (tmp_path / "bad.toml").write_text("[run\nrounds = 3")
    with pytest.raises(SpecError, match=r"bad.toml is no TOML: .*line 1"):
        Spec.read(tmp_path / "bad.toml")
    (tmp_path / "bad.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(SpecError, match=r"bad.toml is no TOML"):
        Spec.read(tmp_path / "bad.toml")


def test_a_cell_of_a_comparison_has_its_methods_settings_only(tmp_path) -> None:
    spec = Spec.of(
        tables(
            tmp_path,
            method={"name": "fedsam", "rho": 0.2},
            methods={"fedtoga": {"kappa": 0.5, "lr": 0.01}},
        )
    )
    assert spec.cell("fedsam", 3).method.settings == {"rho": 0.2}
    assert spec.cell("fedavg", 3).method.settings == {}
    cell = spec.cell("fedtoga", 3)
    assert (cell.run.seed, cell.method.settings, cell.local.lr) == (3, {"kappa": 0.5}, 0.01)
    assert cell.methods == {}


def test_options_of_the_source_and_of_the_partition_are_told_apart(tmp_path) -> None:
    folder = tmp_path / "texts.csv"
    folder.write_text("text,label,who\n" + "a b,x,1\nb c,y,2\n" * 30)
    data = {"source": str(folder), "partition": "natural", "owner": "who", "test_fraction": 0.5}
    spec = Spec.of({"data": data})
    loaded = data_of(spec)
    assert len(loaded.train) == len(loaded.test) == 30
    assert partition_of(spec).deal(loaded.train.targets, 2, seed=0, owners=loaded.train.owners)


def test_a_name_that_the_function_and_the_partition_both_take_is_refused(
    tmp_path, monkeypatch
) -> None:
    (tmp_path / "blobs.py").write_text("def load(alpha=1):\n    return 0, 1, 2, 3\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    data = {"source": "blobs:load", "clients": 3, "alpha": 0.5}
    with pytest.raises(SpecError, match=r"alpha = 0.5 is meant for 'blobs:load' or for 'dir"):
        data_of(Spec.of({"data": data}))


def test_a_functions_own_home_is_its_own(tmp_path, monkeypatch) -> None:
    (tmp_path / "homely.py").write_text("def load(home='mine'):\n    raise ValueError(home)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    data = {"source": "homely:load", "home": "theirs", "clients": 3}
    with pytest.raises(SpecError, match=r"calling homely:load failed with ValueError: theirs"):
        data_of(Spec.of({"data": data}))
