"""A run's folder: what is in it, and that nothing which is done is lost."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest
import safetensors.torch
import torch
from click.testing import CliRunner

from flatfed import models
from flatfed.cli import main
from flatfed.engines.store import Disk
from flatfed.errors import ClientError, FlatfedError, RunError, SpecError
from flatfed.run import run
from flatfed.run.checkpoint import Checkpoints
from flatfed.run.folder import RunFolder
from flatfed.spec import Spec
from flatfed.vec import digest
from spotted import ROUNDS, tables, write_images, write_spec


def spec(folder, **sections) -> Spec:
    return Spec.of(tables(folder, **sections))


def manifest(out: Path) -> dict:
    return json.loads((out / "manifest.json").read_text())


def lines(out: Path) -> list[dict]:
    return [json.loads(line) for line in (out / "rounds.jsonl").read_text().splitlines()]


class Stopping:
    """A watcher that stops the run after some rounds."""

    def __init__(self, after: int, error: BaseException) -> None:
        self.after, self.error, self.ended = after, error, ""

    def begin(self, training, history) -> None: ...

    def round(self, record) -> None:
        if record.round + 1 == self.after:
            raise self.error

    def end(self, status) -> None:
        self.ended = status


@pytest.fixture
def whole(tmp_path) -> str:
    """The parameters of a run that nothing has interrupted."""
    return run(spec(tmp_path), out=tmp_path / "whole").params_sha256


def test_a_folder_holds_what_the_design_says(tmp_path) -> None:
    result = run(spec(tmp_path), out=tmp_path / "out")
    out = tmp_path / "out"
    assert {path.name for path in out.iterdir()} == {
        "spec.toml", "manifest.json", "rounds.jsonl", "model.safetensors", "checkpoint", "figures",
        ".lock",
    }  # fmt: skip
    assert (out / "figures" / "accuracy.png").stat().st_size > 1000
    about = manifest(out)
    assert about["status"] == "finished"
    assert about["params_sha256"] == result.params_sha256
    assert about["final"]["test_accuracy"] == result.accuracy
    assert about["final"]["rounds"] == ROUNDS
    assert about["partition"]["total_variation"] > 0
    assert len(about["partition"]["counts"]) == 8
    assert about["seed"] == 0
    assert {"flatfed", "python", "torch", "numpy", "git", "machine"} <= {*about}
    assert [list(line) for line in lines(out)] == [
        ["round", "test_accuracy", "test_loss", "train_loss", "bytes_up", "bytes_down",
         "gradients", "seconds", "clients", "failed"]
    ] * ROUNDS  # fmt: skip
    assert not [path for path in out.rglob("*") if path.suffix in (".pkl", ".pt", ".pickle")]


def test_the_model_is_a_plain_state_dict(tmp_path) -> None:
    result = run(spec(tmp_path), out=tmp_path / "out")
    state = safetensors.torch.load_file(tmp_path / "out" / "model.safetensors")
    module = models.build("mlp2", seed=5, shape=(1, 8, 8), classes=4)
    module.load_state_dict(state)
    images = torch.zeros(3, 1, 8, 8)
    assert torch.equal(module(images), result.module()(images))
    assert digest(state) == manifest(tmp_path / "out")["params_sha256"]


def test_its_spec_runs_again_to_the_same_bytes(tmp_path, whole) -> None:
    again = run(tmp_path / "whole" / "spec.toml", out=tmp_path / "again")
    assert again.params_sha256 == whole
    before, after = ((tmp_path / n / "spec.toml").read_text() for n in ("whole", "again"))
    assert before == after


def test_a_folder_with_a_run_in_it_is_not_written_over(tmp_path, whole) -> None:
    with pytest.raises(SpecError, match=r"whole holds a run \(finished\), expected a new folder"):
        run(spec(tmp_path), out=tmp_path / "whole")


def test_resuming_a_finished_run_changes_nothing(tmp_path, whole) -> None:
    before = (tmp_path / "whole" / "rounds.jsonl").read_bytes()
    assert run(spec(tmp_path), out=tmp_path / "whole", resume=True).params_sha256 == whole
    assert (tmp_path / "whole" / "rounds.jsonl").read_bytes() == before
    assert manifest(tmp_path / "whole")["status"] == "finished"


def test_resuming_what_never_began_begins_it(tmp_path, whole) -> None:
    assert run(spec(tmp_path), out=tmp_path / "new", resume=True).params_sha256 == whole


@pytest.mark.parametrize("name", ["fedavg", "scaffold", "fedsmoo", "fedtoga", "fedmoswa"])
@pytest.mark.parametrize("after", [1, 4, 5])
def test_an_interrupted_run_goes_on_as_if_it_had_not_been(tmp_path, name, after) -> None:
    asked = spec(tmp_path, method={"name": name}, run={"checkpoint_every": 4})
    expected = run(asked, out=tmp_path / "whole")
    watcher = Stopping(after, KeyboardInterrupt())
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        run(asked, out=out, watchers=[watcher])
    assert watcher.ended == "interrupted"
    assert manifest(out)["status"] == "interrupted"
    assert [path.name for path in (out / "checkpoint").glob("[0-9]*")] == [f"{after:06d}"]
    result = run(asked, out=out, resume=True)
    assert result.params_sha256 == expected.params_sha256
    timeless = [
        [{k: v for k, v in line.items() if k != "seconds"} for line in lines(folder)]
        for folder in (out, tmp_path / "whole")
    ]
    assert timeless[0] == timeless[1]


def test_more_rounds_go_on_where_fewer_ended(tmp_path, whole) -> None:
    out = tmp_path / "out"
    run(spec(tmp_path, run={"rounds": 3}), out=out)
    assert run(spec(tmp_path), out=out, resume=True).params_sha256 == whole
    with pytest.raises(SpecError, match=r"out has 6 rounds, run.rounds is 3: expected at least"):
        run(spec(tmp_path, run={"rounds": 3}), out=out, resume=True)


def test_it_may_go_on_with_other_workers(tmp_path, whole) -> None:
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        run(spec(tmp_path), out=out, watchers=[Stopping(3, KeyboardInterrupt())])
    both = spec(tmp_path, engine={"workers": 2})
    assert run(both, out=out, resume=True).params_sha256 == whole


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        ({"local": {"lr": 0.2}}, "local.lr = 0.1, now it is 0.2"),
        ({"method": {"name": "fedavg"}}, "method.name = 'scaffold', now it is 'fedavg'"),
        ({"run": {"seed": 1}}, "run.seed = 0, now it is 1"),
        ({"data": {"alpha": 0.6}}, "data.alpha = 0.5, now it is 0.6"),
        ({"cohort": {"drop": 0.1}}, "cohort.drop = 0.0, now it is 0.1"),
        ({"model": {"precision": "bfloat16"}}, "model.precision = 'full', now it is 'bfloat16'"),
    ],
)
def test_a_changed_spec_names_the_key_that_differs(tmp_path, whole, sections, said) -> None:
    with pytest.raises(SpecError) as error:
        run(spec(tmp_path, **sections), out=tmp_path / "whole", resume=True)
    assert f"began with {said}: expected the same." in str(error.value)


def test_changed_data_is_found_although_the_spec_says_the_same(tmp_path, whole) -> None:
    for change in ({"seed": 1}, {"test": 84}):  # neither changes who holds what
        write_images(tmp_path / "images.npz", **change)
        with pytest.raises(RunError, match="whole began with another samples"):
            run(spec(tmp_path), out=tmp_path / "whole", resume=True)


def test_what_is_left_of_a_run_without_a_manifest_is_no_part_of_the_next(tmp_path, whole) -> None:
    out = tmp_path / "whole"
    (out / "manifest.json").unlink()
    expected = run(spec(tmp_path, run={"seed": 7, "rounds": 8}), out=tmp_path / "expected")
    run(spec(tmp_path, run={"seed": 7, "rounds": 6}), out=out)
    more = spec(tmp_path, run={"seed": 7, "rounds": 8})
    assert run(more, out=out, resume=True).params_sha256 == expected.params_sha256 != whole


def test_a_checkpoint_that_was_removed_is_missed(tmp_path, whole) -> None:
    shutil.rmtree(tmp_path / "whole" / "checkpoint")
    with pytest.raises(RunError, match="has finished and holds no checkpoint, expected one"):
        run(spec(tmp_path), out=tmp_path / "whole", resume=True)
    assert len(lines(tmp_path / "whole")) == ROUNDS


def test_a_manifest_speaks_of_the_rounds_there_are(tmp_path) -> None:
    out = tmp_path / "out"
    run(spec(tmp_path, run={"rounds": 2}), out=out)
    with pytest.raises(KeyboardInterrupt):
        run(spec(tmp_path), out=out, resume=True, watchers=[Stopping(4, KeyboardInterrupt())])
    about = manifest(out)
    assert about["status"] == "interrupted"
    assert not {"final", "params_sha256"} & {*about}
    assert len(about["resumed"]) == 1
    assert about["resumed"][0]["torch"] == torch.__version__


def test_a_save_that_was_interrupted_is_made_again(tmp_path) -> None:
    """Between the rename and what follows it: the same checkpoint is written once more."""
    out = tmp_path / "out"
    run(spec(tmp_path, run={"rounds": 2}), out=out)
    checkpoints = Checkpoints(out / "checkpoint")
    standing = checkpoints.load()
    checkpoints.rounds = 1  # as if the rename had been all
    checkpoints.save(standing)
    assert Checkpoints(out / "checkpoint").load().t == 2


def test_a_folder_without_figures_gets_them_again(tmp_path) -> None:
    out = tmp_path / "out"
    run(spec(tmp_path, run={"rounds": 2}), out=out)
    shutil.rmtree(out / "figures")
    run(spec(tmp_path), out=out, resume=True)
    assert (out / "figures" / "accuracy.png").exists()


def test_a_number_that_is_none_is_null_in_json(tmp_path) -> None:
    wild = {"steps": 1, "lr": 1e30, "clip": "none"}
    run(spec(tmp_path, local=wild, run={"rounds": 1}, method={"name": "fedavg"}),
        out=tmp_path / "out")  # fmt: skip
    (line,) = lines(tmp_path / "out")
    assert line["test_loss"] is None
    assert "NaN" not in (tmp_path / "out" / "manifest.json").read_text()


def test_a_tracker_that_cannot_begin_does_not_stop_the_run(tmp_path, monkeypatch, capsys) -> None:
    class Offline:
        def init(self, **_):
            raise ConnectionError("no server")

    monkeypatch.setitem(sys.modules, "wandb", Offline())
    run(spec(tmp_path, run={"watch": ["wandb"]}), out=tmp_path / "out")
    assert "flatfed: wandb watches no longer: ConnectionError" in capsys.readouterr().err
    assert manifest(tmp_path / "out")["status"] == "finished"


def test_a_folder_of_another_version_is_refused(tmp_path, whole) -> None:
    path = tmp_path / "whole" / "manifest.json"
    path.write_text(path.read_text().replace('"format": 1', '"format": 99'))
    with pytest.raises(RunError, match=r"written by flatfed .* in format 99, expected 1"):
        run(spec(tmp_path), out=tmp_path / "whole", resume=True)


def test_a_manifest_that_was_cut_off_is_refused(tmp_path, whole) -> None:
    (tmp_path / "whole" / "manifest.json").write_text('{"format": 1,')
    with pytest.raises(RunError, match=r"manifest.json is no manifest of a run"):
        run(spec(tmp_path), out=tmp_path / "whole", resume=True)


def test_a_damaged_checkpoint_is_refused(tmp_path, whole) -> None:
    (server,) = (tmp_path / "whole" / "checkpoint").glob("*/server.safetensors")
    content = bytearray(server.read_bytes())
    content[-1] ^= 1
    server.write_bytes(content)
    with pytest.raises(RunError, match=r"server.safetensors has sha256 .*, expected"):
        run(spec(tmp_path), out=tmp_path / "whole", resume=True)
    server.unlink()
    with pytest.raises(RunError, match=r"cannot be read: .*No such file"):
        run(spec(tmp_path), out=tmp_path / "whole", resume=True)


def test_rounds_that_were_lost_are_missed(tmp_path, whole) -> None:
    path = tmp_path / "whole" / "rounds.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:2]))
    with pytest.raises(RunError, match=r"rounds.jsonl has 2 lines, expected one for each of 6"):
        run(spec(tmp_path), out=tmp_path / "whole", resume=True)
    path.write_text("no round\n" * 6)
    with pytest.raises(RunError, match="has a line that is no round"):
        run(spec(tmp_path), out=tmp_path / "whole", resume=True)


def test_a_folder_that_cannot_be_written_is_one_message(tmp_path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match=r"file/out cannot be written: Not a directory"):
        run(spec(tmp_path), out=tmp_path / "file" / "out")
    with pytest.raises(SpecError, match=r"file is a file, expected a folder for the run"):
        run(spec(tmp_path), out=tmp_path / "file")


def test_two_runs_in_one_folder_are_refused(tmp_path) -> None:
    folder = RunFolder(tmp_path / "out")
    with folder.held(), pytest.raises(RunError, match="out is in use by another flatfed"):
        run(spec(tmp_path), out=tmp_path / "out")
    run(spec(tmp_path), out=tmp_path / "out")


def test_a_folder_that_holds_no_run_says_so(tmp_path) -> None:
    with pytest.raises(RunError, match=r"holds no run, expected a folder with a manifest.json"):
        RunFolder(tmp_path).manifest()


def test_every_client_failing_leaves_a_checkpoint_and_the_reason(tmp_path) -> None:
    out = tmp_path / "out"
    broken = spec(tmp_path, model={"name": "spotted:Broken"})
    with pytest.raises(ClientError, match=r"All 4 clients of round 0 failed"):
        run(broken, out=out)
    about = manifest(out)
    assert about["status"] == "failed"
    assert about["error"].startswith("All 4 clients of round 0 failed")
    assert (out / "checkpoint" / "000000" / "server.safetensors").exists()


def test_thirty_percent_that_drop_out_are_counted_line_by_line(tmp_path) -> None:
    asked = spec(tmp_path, cohort={"drop": 0.3}, run={"rounds": 20})
    result = run(asked, out=tmp_path / "out")
    counted = lines(tmp_path / "out")
    assert all(line["clients"] + line["failed"] == 4 for line in counted)
    assert 10 <= sum(line["failed"] for line in counted) <= 40
    assert manifest(tmp_path / "out")["final"]["failed"] == result.history.total("failed")
    assert result.accuracy is not None


def test_a_checkpoint_holds_no_more_than_the_clients_that_took_part(tmp_path) -> None:
    asked = spec(tmp_path, data={"clients": 120}, cohort={"size": 2}, run={"rounds": 5})
    run(asked, out=tmp_path / "out")
    kept = [*(tmp_path / "out" / "checkpoint" / "clients").rglob("*.safetensors")]
    took_part = sum(line["clients"] for line in lines(tmp_path / "out"))
    assert 2 <= len(kept) <= took_part == 10


def test_versions_of_a_round_that_was_not_finished_are_removed(tmp_path, whole) -> None:
    orphan = tmp_path / "whole" / "checkpoint" / "clients" / "0000" / "0-999.safetensors"
    orphan.write_bytes(b"")
    run(spec(tmp_path), out=tmp_path / "whole", resume=True)
    assert not orphan.exists()


def test_after_each_checkpoint_there_is_one_version_of_each_client(tmp_path) -> None:
    out = tmp_path / "out"
    run(spec(tmp_path, run={"checkpoint_every": 1}), out=out)
    clients = [path.name.split("-")[0] for path in (out / "checkpoint").rglob("*-*.safetensors")]
    assert len(clients) == len({*clients})


def test_the_checkpoint_before_stays_when_the_next_cannot_be_written(tmp_path) -> None:
    """A limit on the size of files is as good as a full disk."""
    asked = spec(tmp_path, run={"checkpoint_every": 2})
    expected = run(asked, out=tmp_path / "whole").params_sha256
    out = tmp_path / "out"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    class Filling(Stopping):
        def round(self, record) -> None:
            if record.round == 2:
                resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))

    try:
        with pytest.raises(FlatfedError, match="go on with --resume") as error:
            run(asked, out=out, watchers=[Filling(0, KeyboardInterrupt())])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert error.value.exit_code == 1
    assert [path.name for path in (out / "checkpoint").glob("[0-9]*")] == ["000002"]
    assert not (out / "checkpoint" / ".unfinished").exists()
    assert run(asked, out=out, resume=True).params_sha256 == expected


def test_a_full_disk_under_the_model_loses_no_round(tmp_path, monkeypatch) -> None:
    out = tmp_path / "out"
    (out / "model.part").mkdir(parents=True)  # where the model is to be written first
    with pytest.raises(RunError, match=r"The model could not be written: Is a directory"):
        run(spec(tmp_path), out=out)
    (out / "model.part").rmdir()
    again = []

    class Counting(Stopping):
        def round(self, record) -> None:
            again.append(record)

    run(spec(tmp_path), out=out, resume=True, watchers=[Counting(0, KeyboardInterrupt())])
    assert again == []
    assert (out / "model.safetensors").exists()


def test_a_watcher_that_fails_does_not_stop_the_run(tmp_path, capsys) -> None:
    class Failing(Stopping):
        def __str__(self) -> str:
            return "tracker"

    watcher = Failing(2, ConnectionError("no server"))
    run(spec(tmp_path), out=tmp_path / "out", watchers=[watcher])
    assert manifest(tmp_path / "out")["status"] == "finished"
    said = "flatfed: tracker watches no longer: ConnectionError('no server')\n"
    assert capsys.readouterr().err == said


KILLED = ("scaffold", "fedsmoo")


@pytest.mark.parametrize("name", KILLED)
def test_a_killed_run_goes_on_to_the_same_bytes(tmp_path, name) -> None:
    """SIGKILL where it hurts: benchmarks/kills.py does it at twenty random moments."""
    path = write_spec(
        tmp_path, method={"name": name}, run={"rounds": 400, "checkpoint_every": 7},
        data={"source": str(write_images(tmp_path / "images.npz"))},
    )  # fmt: skip
    expected = run(path, out=tmp_path / "whole").params_sha256
    out = tmp_path / "out"
    command = [sys.executable, "-m", "flatfed", "run", str(path), "--out", str(out), "--resume"]
    for workers, after in ((1, 30), (2, 110)):
        process = subprocess.Popen([*command, "--workers", str(workers)], stdout=subprocess.DEVNULL)
        rounds = out / "rounds.jsonl"
        while process.poll() is None and not _has(rounds, after):
            time.sleep(0.001)
        assert process.poll() is None, "it ended before it could be killed"
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert manifest(out)["status"] == "running"
    done = subprocess.run([*command, "--workers", "2"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert manifest(out)["params_sha256"] == expected
    assert len(lines(out)) == 400
    store = Disk(out / "checkpoint" / "clients")
    assert len([*store.folder.rglob("*.safetensors*")]) <= 8


def _has(path: Path, count: int) -> bool:
    return path.exists() and path.read_bytes().count(b"\n") >= count


@pytest.mark.parametrize("asking", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("workers", ["1", "2"])
def test_ctrl_c_writes_a_checkpoint_and_says_how_to_go_on(tmp_path, asking, workers) -> None:
    path = write_spec(tmp_path, run={"rounds": 2000, "checkpoint_every": 1000})
    out = tmp_path / "out"
    command = [sys.executable, "-m", "flatfed", "run", str(path), "--out", str(out)]
    command += ["--set", "local.lr=0.07"]
    process = subprocess.Popen(
        [*command, "--workers", workers], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    while not _has(out / "rounds.jsonl", 5):
        time.sleep(0.005)
    process.send_signal(asking)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    again = f"go on with: flatfed run {out / 'spec.toml'} --out {out} --resume"
    assert said == f"flatfed: interrupted. A checkpoint is in {out}; {again}\n"
    (checkpoint,) = (out / "checkpoint").glob("[0-9]*")
    rounds = int(checkpoint.name)
    assert rounds >= 5
    assert manifest(out)["status"] == "interrupted"
    words = again.partition("flatfed ")[2].split()
    assert CliRunner().invoke(main, [*words, "--set", f"run.rounds={rounds + 2}"]).exit_code == 0
    assert len(lines(out)) == rounds + 2


def test_the_written_spec_is_toml_that_says_every_default(tmp_path, whole) -> None:
    written = tomllib.loads((tmp_path / "whole" / "spec.toml").read_text())
    assert written["local"] == {
        "lr": 0.1, "lr_decay": 0.998, "steps": 3, "epochs": "none", "batch_size": 10,
        "momentum": 0.0, "weight_decay": 0.001, "decay": "outside", "clip": 10.0,
        "clip_scope": "direction",
    }  # fmt: skip
    assert written["method"]["name"] == "scaffold"
    assert re.fullmatch(r"[0-9a-f]{64}", whole)
