"""Commands that train, as a person types them."""

from __future__ import annotations

import csv
import json
import sys
import tomllib
import types

import pytest
from click.testing import CliRunner

from flatfed.cli import main
from flatfed.errors import SpecError
from flatfed.run import run
from flatfed.run.display import Live, byte_count
from flatfed.run.folder import RunFolder
from flatfed.spec import Spec
from spotted import tables, write_images, write_spec


def flatfed(*words: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(main, [str(word) for word in words])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def test_run_says_each_round_and_where_everything_is(tmp_path) -> None:
    code, out, err = flatfed("run", write_spec(tmp_path), "--out", tmp_path / "out")
    assert (code, err) == (0, "")
    *rounds, last = out.splitlines()
    assert rounds[0].startswith("out: round 1/6  accuracy ")
    assert len(rounds) == 6
    assert rounds[-1].endswith("0:00:00 left")
    assert last.startswith("test accuracy ")
    assert last.endswith(f"after 6 rounds, in {tmp_path / 'out'}")


def test_run_goes_on_and_says_from_where(tmp_path) -> None:
    path = write_spec(tmp_path)
    flatfed("run", path, "--out", tmp_path / "out", "--set", "run.rounds=4")
    code, out, _ = flatfed("run", path, "--out", tmp_path / "out", "--resume")
    assert code == 0
    assert out.startswith("out: goes on after 4 of 6 rounds\nout: round 5/6 ")


def test_run_without_out_takes_the_specs_name(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert flatfed("run", write_spec(tmp_path), "--quiet") == (0, "", "")
    assert (tmp_path / "runs" / "spec" / "manifest.json").exists()


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--set", "run.roundz=5"], 2, "[run] has no key 'roundz'.\nDid you mean 'rounds'?"),
        (["--set", "data.alpha=0"], 2, "Dirichlet got alpha=0, expected a number in (0, ∞)."),
        (["--set", "data.clients=5000"], 2, "Dirichlet got clients=5000 for 240 samples"),
        (["--set", "rho"], 2, "--set got 'rho', expected key=value."),
        (["--set", "local.lr=1e30", "--set", "local.clip=none"], 1, "All 4 clients of round 0"),
        (["--set", "data.source=nowhere.npz"], 2, "nowhere.npz is not there"),
        (["--set", "cohort.size=9"], 2, "Cohort got size=9 of 8 clients, expected at most 8."),
        (["--set", "run.watch=['wandb']"], 2, "run.watch names wandb, which is not installed."),
        (
            ["--set", "model.classes=3"],
            2,
            "[model] has no key 'classes': classes = 4 comes from",
        ),
        (["--set", "model.seed=3"], 2, "[model] has no key 'seed': seed = 0 comes from the run."),
        (["--set", "methods.fedsma.rho=1"], 2, "[methods.fedsma] is for no method of flatfed."),
        (["--out", "/dev/null/run"], 1, "The run's folder /dev/null/run cannot be written: Not a"),
    ],
)
def test_what_is_wrong_is_one_message(tmp_path, monkeypatch, words, code, message) -> None:
    monkeypatch.chdir(tmp_path)
    got, _, err = flatfed("run", write_spec(tmp_path), *words)
    assert got == code
    assert message in err
    assert err.startswith("flatfed: ")
    assert len(err.splitlines()) <= 4
    assert "Traceback" not in err


def test_a_corrupted_file_of_data_is_one_message(tmp_path) -> None:
    path = write_spec(tmp_path)
    data = tmp_path / "images.npz"
    data.write_bytes(data.read_bytes()[:500])
    code, _, err = flatfed("run", path, "--out", tmp_path / "out")
    assert code == 2
    assert "images.npz holds " in err
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_a_resume_with_a_changed_spec_says_which_key(tmp_path) -> None:
    path = write_spec(tmp_path)
    flatfed("run", path, "--out", tmp_path / "out", "--quiet")
    words = ("--out", tmp_path / "out", "--resume", "--set", "local.lr=0.5")
    code, _, err = flatfed("run", path, *words)
    assert code == 2
    assert "began with local.lr = 0.1, now it is 0.5: expected the same." in err


def test_compare_runs_a_grid_once(tmp_path) -> None:
    path = write_spec(tmp_path, run={"target_accuracy": 0.5})
    words = ("compare", path, "--methods", "fedavg,fedsam", "--seeds", "0,1", "--out",
             tmp_path / "out")  # fmt: skip
    code, out, err = flatfed(*words)
    assert (code, err) == (0, "")
    assert out.count(" round ") == 4 * 6
    head = next(line for line in out.splitlines() if line.startswith("method"))
    assert " ".join(head.split()) == (
        "method test accuracy best rounds to 50% MB up MB down gradients seconds"
    )
    again, out, _ = flatfed(*words)
    assert again == 0
    assert out.count(" round ") == 0
    folder = tmp_path / "out"
    assert (folder / "figures" / "accuracy.png").stat().st_size > 1000
    rows = [*csv.DictReader((folder / "table.csv").read_text().splitlines())]
    assert [row["method"] for row in rows] == ["fedavg", "fedsam"]
    assert json.loads((folder / "table.json").read_text())[1]["gradients"] == 2 * 6 * 4 * 3
    assert (folder / "table.md").read_text().startswith("| method | test accuracy | best |")
    final = [
        json.loads((folder / f"fedavg-{seed}" / "manifest.json").read_text())["final"]
        for seed in (0, 1)
    ]
    mean = (final[0]["test_accuracy"] + final[1]["test_accuracy"]) / 2
    assert float(rows[0]["accuracy"]) == pytest.approx(mean)


def test_compare_takes_no_run_of_other_data_for_its_own(tmp_path) -> None:
    path, out = write_spec(tmp_path), tmp_path / "out"
    words = ("compare", path, "--methods", "fedavg", "--out", out, "--quiet")
    assert flatfed(*words)[0] == 0
    write_images(tmp_path / "images.npz", seed=1)
    code, _, err = flatfed(*words)
    assert code == 1
    assert "fedavg-0 failed: " in err
    assert "began with another samples" in err


def test_compare_draws_runs_of_different_lengths(tmp_path) -> None:
    path, out = write_spec(tmp_path, run={"evaluate_every": 3}), tmp_path / "out"
    words = ("compare", path, "--methods", "fedavg", "--out", out, "--quiet")
    assert flatfed(*words, "--set", "run.rounds=4")[0] == 0
    assert flatfed(*words, "--set", "run.rounds=7", "--seeds", "0,1")[0] == 0
    assert len(json.loads((out / "table.json").read_text())) == 1


def test_compare_weighs_every_method_as_asked(tmp_path) -> None:
    path = write_spec(tmp_path, method={"name": "fedavg", "weights": "samples"})
    flatfed("compare", path, "--methods", "fedsam", "--out", tmp_path / "out", "--quiet")
    written = tomllib.loads((tmp_path / "out" / "fedsam-0" / "spec.toml").read_text())
    assert written["method"]["weights"] == "samples"


def test_one_damaged_run_leaves_the_others_their_turn(tmp_path) -> None:
    path, out = write_spec(tmp_path), tmp_path / "out"
    flatfed("compare", path, "--methods", "fedavg", "--out", out, "--quiet")
    (out / "fedavg-0" / "rounds.jsonl").write_text("garbage\n")
    code, said, err = flatfed("compare", path, "--methods", "fedavg,fedsam", "--out", out)
    assert code == 1
    assert "fedavg-0 failed: " in err
    assert "fedsam-0 (2 of 2): round 6/6" in said


def test_none_is_a_word_where_a_word_is_expected(tmp_path) -> None:
    path = write_spec(tmp_path, data={"augment": "flip-crop"})
    words = ("--set", "data.augment=none", "--set", "local.clip=none", "--set",
             "methods.fedsam.clip=none", "--quiet")  # fmt: skip
    assert flatfed("run", path, "--out", tmp_path / "out", *words) == (0, "", "")
    written = tomllib.loads((tmp_path / "out" / "spec.toml").read_text())
    assert (written["data"]["augment"], written["local"]["clip"]) == ("none", "none")


def test_python_and_the_command_line_agree_on_where_a_run_goes(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    run(write_spec(tmp_path, run={"rounds": 1, "out": "there"}))
    assert (tmp_path / "there" / "manifest.json").exists()


def test_compare_goes_on_with_a_cell_that_was_interrupted(tmp_path) -> None:
    spec = Spec.of(tables(tmp_path))
    out = tmp_path / "out"
    run(spec.cell("fedavg", 0).replaced(run={"rounds": 3}), out=out / "fedavg-0")
    code, said, _ = flatfed("compare", write_spec(tmp_path), "--methods", "fedavg", "--out", out)
    assert code == 0
    assert said.startswith("fedavg-0 (1 of 1): goes on after 3 of 6 rounds\n")


def test_compare_lets_the_others_finish_when_one_fails(tmp_path) -> None:
    path = write_spec(tmp_path, methods={"fedavg": {"lr": 1e30, "clip": "none"}})
    code, out, err = flatfed(
        "compare", path, "--methods", "fedavg,fedsam", "--out", tmp_path / "out", "--quiet"
    )
    assert code == 1
    assert "fedavg failed" in " ".join(out.split())
    assert "flatfed: fedavg-0 failed: All 4 clients of round 0 failed" in err
    assert "fedsam" in (tmp_path / "out" / "table.md").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--methods", "fedavg,fedto"], "'fedto' is no method of flatfed.\nDid you mean 'fedtoga'"),
        (["--methods", "fedavg,fedavg"], "compare got 2 runs, 1 of them different, expected"),
        (["--methods", ","], "compare got 0 runs, 0 of them different, expected at least one"),
        (["--methods", "fedavg", "--seeds", "a"], "--seeds got 'a', expected whole numbers ≥ 0."),
    ],
)
def test_a_wrong_grid_is_refused_before_anything_runs(tmp_path, words, message) -> None:
    code, _, err = flatfed("compare", write_spec(tmp_path), *words, "--out", tmp_path / "out")
    assert (code, message in err) == (2, True), err
    assert not (tmp_path / "out").exists()


def test_partition_says_and_draws_who_holds_what(tmp_path) -> None:
    picture = tmp_path / "who" / "holds.png"
    code, out, err = flatfed("partition", write_spec(tmp_path), "--out", picture)
    assert (code, err) == (0, "")
    assert "240" in out
    assert picture.stat().st_size > 1000
    few = flatfed("partition", write_spec(tmp_path), "--set", "data.partition=iid",
                  "--set", "data.alpha=1")  # fmt: skip
    assert few[0] == 2
    assert "[data] has no key 'alpha' with source = " in few[2]


def test_bench_times_rounds_against_bare_gradients(tmp_path) -> None:
    code, out, _ = flatfed("bench", write_spec(tmp_path), "--workers", "1,2", "--repeats", "1")
    head, one, two = out.splitlines()
    assert code == 0
    assert head.split()[0] == "workers"
    assert (one.split()[0], two.split()[0]) == ("1", "2")
    assert one.endswith("1.00x")
    keys = ("data.partition=class_split", "data.min_size=5", "local.steps=none", "local.epochs=1",
            "cohort.drop=0.3")  # fmt: skip
    unequal = [word for key in keys for word in ("--set", key)]
    assert flatfed("bench", write_spec(tmp_path), *unequal, "--repeats", "1")[0] == 0
    for wrong in ("x", "0", ""):
        code, _, err = flatfed("bench", write_spec(tmp_path), "--workers", wrong)
        assert (code, f"--workers got {wrong!r}, expected whole numbers ≥ 1." in err) == (2, True)


def test_a_terminal_sees_one_line_that_moves(tmp_path) -> None:
    import io

    from rich.console import Console

    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=100)
    run(Spec.of(tables(tmp_path)), out=tmp_path / "out", watchers=[Live(console, "mine")])
    said = screen.getvalue()
    assert "mine" in said
    assert "round 6/6" in said
    assert "(best " in said


def test_a_number_of_bytes_is_in_the_largest_unit() -> None:
    assert [byte_count(n) for n in (0, 999, 1000, 2.5e9, 3e12, 4e15)] == [
        "0 B", "999 B", "1.0 kB", "2.5 GB", "3.0 TB", "4000.0 TB",
    ]  # fmt: skip


class Recorder(types.ModuleType):
    """Stands for a tracker that is not installed here: it notes what it is told."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.calls: list[tuple] = []

    def __getattr__(self, name: str):
        if name.startswith("__"):
            raise AttributeError(name)

        def call(*args, **kwargs):
            self.calls.append((name, args, kwargs))
            return self

        return call


@pytest.mark.parametrize(
    ("tracker", "module", "logs", "ends"),
    [
        ("tensorboard", "torch.utils.tensorboard", "add_scalar", "close"),
        ("mlflow", "mlflow", "log_metrics", "end_run"),
        ("wandb", "wandb", "log", "finish"),
    ],
)
def test_a_tracker_is_told_every_round(tmp_path, monkeypatch, tracker, module, logs, ends) -> None:
    recorder = Recorder(module)
    monkeypatch.setitem(sys.modules, module, recorder)
    asked = Spec.of(tables(tmp_path, run={"watch": [tracker], "rounds": 3}))
    run(asked, out=tmp_path / "out")
    logged = [call for call in recorder.calls if call[0] == logs]
    said = str(logged)
    assert "test_accuracy" in said
    assert "bytes_up" in said
    assert len(logged) >= 3
    assert recorder.calls[-1][0] == ends


@pytest.mark.parametrize("tracker", ["tensorboard", "mlflow", "wandb"])
def test_a_tracker_that_is_not_installed_names_its_command(tmp_path, monkeypatch, tracker) -> None:
    for module in ("torch.utils.tensorboard", "mlflow", "wandb"):
        monkeypatch.setitem(sys.modules, module, None)
    asked = Spec.of(tables(tmp_path, run={"watch": [tracker]}))
    with pytest.raises(SpecError, match=rf"Install it: pip install 'flatfed\[{tracker}\]'"):
        run(asked, out=tmp_path / "out")
    assert not RunFolder(tmp_path / "out").exists
