"""Where clients train changes nothing: the same bytes on every engine, whatever happens."""

from __future__ import annotations

import errno
import os
import pickle
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from torch.nn.functional import cross_entropy

from flatfed import methods
from flatfed.account import Bench
from flatfed.data.hands import IID
from flatfed.engines.engine import Task, Work, failed
from flatfed.engines.inprocess import InProcess
from flatfed.engines.processes import Processes, cores
from flatfed.engines.shared import Mailbox, Reader
from flatfed.engines.store import Disk, Memory
from flatfed.engines.worker import _portable
from flatfed.errors import ClientError, CompositionError, EngineError, NonFiniteError
from flatfed.federation import EVALUATED_AT_ONCE, Federation
from flatfed.flatmodel import FlatModel
from flatfed.mean import Mean
from flatfed.parts import compressors
from flatfed.parts.track import RunningStatistics
from flatfed.rounds import broadcast, one_round, server_round
from tiny import (
    Troubled,
    batchnorm_net,
    drawn,
    dropout_net,
    images,
    in_turn,
    numbers,
    troubled,
    vectors,
)

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="asks /proc")
NORMALISED = ("fedavg", "scaffold", "fedsam", "fedtoga", "fedmoswa")


@dataclass
class Played:
    uploads: list
    states: list
    kept: dict
    scores: list
    tallies: list


def play(engine, method, federation, store, scratch, rounds=3, seed=5) -> Played:
    """What `fit` does, with all that passed by."""
    model, N = federation.model, federation.N
    given = {"buffers": model.b0} if "buffers" in method.names("server") else {}
    state, ledger = method.start(model.x0, **given), {}
    played = Played([], [], {}, [], [])
    with engine.open(Task(method, federation, seed, store, scratch, engine.timeout)) as crew:
        for t in range(rounds):
            cohort = range(t % 2, N, 1 + t % 2)
            work = [Work(i, t, ledger.get(i), len(cohort)) for i in cohort]
            mean = Mean(method, state, layout=model.layout, mean_samples=federation.mean_samples)
            replies = crew.train(broadcast(method, state, t, N), work)
            for one, reply in zip(work, replies, strict=True):
                assert reply.client == one.client
                assert reply.failure is None, reply.failure
                mean.add(reply.upload)
                if method.names("keep"):
                    ledger[one.client] = t
                vectors = {
                    name: [v.clone() for v in several]
                    for name, several in reply.upload.vectors.items()
                }
                played.uploads.append((reply.upload.K, reply.upload.samples, vectors))
                played.tallies.append(replace(reply.tally, deadline=0.0))
            state = server_round(
                method,
                state,
                mean.result(),
                t,
                N,
                drawn=len(cohort),
                seed=seed,
                workbench=Bench(federation, lambda what, done, total: None),
            )
            played.states.append(state)
            played.scores.append(crew.evaluate(method.result(state), state.get("buffers")))
    played.kept = {client: store.read(client, t) for client, t in ledger.items()}
    return played


def written_down(method, federation, rounds=3, seed=5) -> tuple[list, dict]:
    """The same rounds without engine, store or versions: every state, and what was kept."""
    model, N = federation.model, federation.N
    state, kept, states = method.start(model.x0), {}, []
    for t in range(rounds):
        drawn = range(t % 2, N, 1 + t % 2)
        cohort = [
            federation.local_data(i, t, method.local, seed=seed, drawn=len(drawn)) for i in drawn
        ]
        state, kept = one_round(
            method,
            state,
            kept,
            cohort,
            t,
            N,
            mean_samples=federation.mean_samples,
            seed=seed,
            workbench=Bench(federation, lambda what, done, total: None),
        )
        states.append(state)
    return states, kept if method.names("keep") else {}


def same(a, b) -> bool:
    """Bit by bit, tensors and what is made of them."""
    if isinstance(a, torch.Tensor):
        return (
            a.dtype == b.dtype and a.shape == b.shape and a.numpy().tobytes() == b.numpy().tobytes()
        )
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


def alike(a: Played, b: Played) -> None:
    for name, value in vars(a).items():
        assert same(value, getattr(b, name)), name


def opened(engine, federation, scratch, method=None, store=None, timeout=None):
    method = method or methods.fedavg(lr=0.1, epochs=2, batch_size=3)
    return engine.open(Task(method, federation, 0, store or Memory(), scratch, timeout))


def heard(crew, federation, clients=range(8), t=0) -> list:
    """Replies with vectors of their own."""
    work = [Work(i, t, None) for i in clients]
    return [
        (reply, reply.upload and {n: v[0].clone() for n, v in reply.upload.vectors.items()})
        for reply in crew.train({"x": federation.model.x0}, work)
    ]


def alive(pid: int) -> bool:
    """Whether a process runs; one that nobody has waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def children() -> set[int]:
    """Processes of this one, zombies among them."""
    tasks = Path("/proc/self/task").glob("*/children")
    return {int(pid) for path in tasks for pid in path.read_text().split()}


# The same bytes everywhere


# What would take longer than the rounds of a test.
SOON = {name: {"warmup": 1, "iterations": 3, "inner_steps": 1} for name in ("fedsynsam", "dynafed")}


@pytest.mark.parametrize("name", methods.CATALOGUE)
def test_every_method_is_the_same_on_every_engine(name, tmp_path) -> None:
    method = methods.build(name, lr=0.1, epochs=2, batch_size=3, **SOON.get(name, {}))
    federation = numbers()
    everywhere(method, federation, tmp_path)


COMPRESSED = {
    "qsgd": {"bits": 2, "feedback": "ef"},
    "topk": {"fraction": 0.3},
    "randomk": {"fraction": 0.3, "feedback": "ef21"},
    "scaled_sign": {"blocks": "tensor"},
    "lowrank": {"rank": 1, "feedback": "ef"},
    "cast": {},
}


@pytest.mark.parametrize("kept", ["exact", "synced"])
@pytest.mark.parametrize("name", COMPRESSED)
def test_every_compressor_is_the_same_on_every_engine(name, kept, tmp_path) -> None:
    method = methods.build("feddc", lr=0.1, epochs=2, batch_size=3)
    compressor = compressors.build(name, **COMPRESSED[name])
    everywhere(replace(method, compress=compressor, kept=kept), numbers(), tmp_path)


@pytest.mark.parametrize("name", SOON)
def test_samples_distilled_by_a_model_that_drops_out_are_the_same_everywhere(
    name, tmp_path
) -> None:
    method = methods.build(name, lr=0.1, epochs=2, batch_size=3, **SOON[name])
    before = torch.get_rng_state()
    everywhere(method, Federation(vectors(), dropout_net(), IID(clients=8)), tmp_path)
    assert torch.equal(torch.get_rng_state(), before)


def everywhere(method, federation, tmp_path) -> None:
    reference = play(InProcess(), method, federation, Memory(), tmp_path)
    assert same((reference.states, reference.kept), written_down(method, federation))
    for number, engine in enumerate((InProcess(), Processes(workers=2), Processes(workers=1))):
        store = Disk(tmp_path / str(number))
        alike(play(engine, method, federation, store, tmp_path / "scratch"), reference)


@pytest.mark.parametrize("name", NORMALISED)
def test_running_statistics_and_augmentation_are_the_same_on_every_engine(name, tmp_path) -> None:
    method = methods.build(name, lr=0.1, steps=3, batch_size=4)
    method = replace(method, also=(*method.also, RunningStatistics()))
    federation = Federation(images(), batchnorm_net(), IID(clients=4), augment="flip-crop-half")
    reference = play(InProcess(), method, federation, Memory(), tmp_path)
    assert not same(reference.states[-1]["buffers"], federation.model.b0)
    for workers in (1, 2):
        store = Disk(tmp_path / str(workers))
        engine = Processes(workers=workers)
        alike(play(engine, method, federation, store, tmp_path / "scratch"), reference)


def test_spawned_workers_are_the_same(tmp_path) -> None:
    method = methods.fedtoga(lr=0.1, steps=3, batch_size=3)
    reference = play(InProcess(), method, numbers(), Memory(), tmp_path)
    engine = Processes(workers=1, start="spawn", timeout=0.3)  # torch alone takes longer to import
    alike(play(engine, method, numbers(), Disk(tmp_path / "kept"), tmp_path), reference)


@pytest.mark.parametrize("option", ["I", "I-batch"])
def test_gradients_that_parts_ask_for_are_the_same_on_every_engine(option, tmp_path) -> None:
    method = methods.build("fedmo", option=option, lr=0.1, epochs=2, batch_size=3)
    reference = play(InProcess(), method, numbers(), Memory(), tmp_path)
    store = Disk(tmp_path / "kept")
    alike(play(Processes(workers=2), method, numbers(), store, tmp_path), reference)


def test_the_callers_random_numbers_and_threads_stay_as_they_were(tmp_path) -> None:
    torch.set_num_threads(2)
    try:
        before = torch.get_rng_state()
        for engine in (InProcess(), Processes(workers=2)):
            with opened(engine, numbers(), tmp_path) as crew:
                assert torch.get_num_threads() == 1
                heard(crew, numbers())
            assert torch.get_num_threads() == 2
        assert torch.equal(before, torch.get_rng_state())
    finally:
        torch.set_num_threads(1)


def test_replies_come_in_the_order_of_the_work(tmp_path) -> None:
    federation = troubled(0, "late")  # the first client is the last to be done
    order = [0, 5, 2, 7, 1, 4]
    with opened(Processes(workers=2), federation, tmp_path) as crew:
        assert [reply.client for reply, _ in heard(crew, federation, order)] == order


def test_a_larger_upload_makes_its_mailbox_grow(tmp_path) -> None:
    box, reader = Mailbox(tmp_path / "box"), Reader()
    small, large = drawn(3), drawn(50_001, seed=1)
    first = reader.read(box.write({"a": (small,)}))
    assert same(first, {"a": (small,)})
    mixed = {"b": (large, torch.arange(3, dtype=torch.int8)), "c": (torch.empty(0),), "d": ()}
    letter = box.write(mixed)
    assert same(reader.read(letter), mixed)
    assert all(v.data_ptr() % 64 == 0 for v in reader.read(letter)["b"])
    assert same(reader.read(box.write({"a": (small,)})), {"a": (small,)})
    reader.forget(box.path)
    assert reader._maps == {}


def test_vectors_that_wait_for_their_turn_do_not_change(tmp_path) -> None:
    """Many replies are held back behind a slow one, while their outboxes are used again."""
    federation = troubled(0, "late")
    with opened(InProcess(), federation, tmp_path) as crew:
        alone = [vectors for _, vectors in heard(crew, federation)]
    with opened(Processes(workers=2), federation, tmp_path) as crew:
        for t in range(2):
            assert same([vectors for _, vectors in heard(crew, federation)], alone), t


def test_a_run_that_was_left_does_not_disturb_the_next(tmp_path) -> None:
    federation = numbers()
    with opened(Processes(workers=2), federation, tmp_path) as crew:
        whole = heard(crew, federation)
        for reply in crew.train({"x": federation.model.x0}, [Work(i, 1, None) for i in range(8)]):
            assert reply.client == 0
            break
        assert same([v for _, v in heard(crew, federation)], [v for _, v in whole])


# Failures


@pytest.mark.parametrize(
    ("how", "cause"),
    [("raise", ZeroDivisionError), ("nan", NonFiniteError), ("slow", TimeoutError)],
)
def test_a_failing_client_is_named_and_the_others_are_as_if_it_were_not(
    how, cause, tmp_path
) -> None:
    federation = troubled(3, how)
    timeout = 0.2 if how == "slow" else None
    with opened(InProcess(), troubled(99, "raise"), tmp_path) as crew:
        fine = heard(crew, federation)
    for engine in (InProcess(), Processes(workers=2), Processes(workers=1)):
        with opened(engine, federation, tmp_path, timeout=timeout) as crew:
            replies = heard(crew, federation, t=0)
        failure = replies[3][0].failure
        assert isinstance(failure, ClientError)
        assert (failure.client, failure.t) == (3, 0)
        assert failure.k == (2 if how == "slow" else 0) or how == "slow"
        assert isinstance(failure.__cause__, cause)
        assert "Client 3" in str(failure)
        assert len(str(failure).splitlines()) <= 3
        others = [i for i in range(8) if i != 3]
        assert all(replies[i][0].failure is None for i in others)
        assert same([replies[i][1] for i in others], [fine[i][1] for i in others])


@pytest.mark.parametrize("engine", [InProcess(), Processes(workers=2)])
def test_an_upload_that_is_no_number_is_its_clients_failure(engine, tmp_path) -> None:
    method = methods.fedavg(lr=3e38, steps=1)  # one step: no loss sees where it led
    federation = numbers(FlatModel(dropout_net(), lambda z, y: 1000 * cross_entropy(z, y)))
    with opened(engine, federation, tmp_path, method) as crew:
        failure = heard(crew, federation, [4])[0][0].failure
    assert (failure.client, failure.t) == (4, 0)
    assert isinstance(failure.__cause__, NonFiniteError)
    assert "Client 4's dx has" in str(failure)


@pytest.mark.parametrize(("how", "said"), [("kill", "SIGKILL"), ("exit", "exit code 3")])
def test_a_workers_death_is_its_clients_failure_and_another_is_hired(how, said, tmp_path) -> None:
    federation = troubled(3, how)
    with opened(InProcess(), federation, tmp_path) as crew:
        fine = heard(crew, federation)
    before = children()
    for workers in (1, 2):
        with opened(Processes(workers=workers), federation, tmp_path) as crew:
            for _ in range(2):
                replies = heard(crew, federation)
                failure = replies[3][0].failure
                assert (failure.client, failure.t) == (3, 0)
                assert isinstance(failure.__cause__, EngineError)
                assert said in str(failure)
                assert all(same(replies[i][1], fine[i][1]) for i in range(8) if i != 3)
                assert len(children() - before) == workers  # each has one, and none is a zombie
                assert len(list((tmp_path / "mail").iterdir())) <= 1 + 3 * workers
                assert len(crew._reader._maps) <= 3 * workers  # the dead ones' are let go
        assert children() == before
        assert not list(tmp_path.iterdir())


def test_a_worker_that_hangs_is_ended_and_its_client_named(tmp_path) -> None:
    federation = troubled(3, "hang")
    started = time.monotonic()
    with opened(Processes(workers=2), federation, tmp_path, timeout=0.1) as crew:
        replies = heard(crew, federation)
    assert time.monotonic() - started < 20
    failure = replies[3][0].failure
    assert (failure.client, failure.t) == (3, 0)
    assert isinstance(failure.__cause__, TimeoutError)
    assert "hung for more than engine.timeout=0.1 seconds" in str(failure)
    assert [i for i, (reply, _) in enumerate(replies) if reply.failure] == [3]


@pytest.mark.parametrize("how", ["raise", "nan", "kill", "hang"])
def test_what_fails_once_is_not_seen_in_the_result(how, tmp_path) -> None:
    with opened(InProcess(), troubled(99, "raise"), tmp_path) as crew:
        fine = heard(crew, troubled(99, "raise"))
    engines = [Processes(workers=2), Processes(workers=1)]
    engines += [InProcess()] if how in ("raise", "nan") else []
    for number, engine in enumerate(engines):
        federation = troubled(3, how, tmp_path / f"flag-{number}")
        with opened(engine, federation, tmp_path / "scratch", timeout=0.5) as crew:
            replies = heard(crew, federation)
        assert (tmp_path / f"flag-{number}").exists()
        assert all(reply.failure is None for reply, _ in replies)
        assert same([vectors for _, vectors in replies], [vectors for _, vectors in fine])


class Noted(Troubled):
    """It fails, and says in which process it did so."""

    def __init__(self, client: int, log: Path) -> None:
        super().__init__(client, "raise")
        self.log = log

    def forward(self, inputs):
        try:
            return super().forward(inputs)
        except ZeroDivisionError:
            with self.log.open("a") as file:
                print(os.getpid(), file=file)
            raise


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_a_client_is_tried_twice_on_another_worker_if_there_is_one(workers, tmp_path) -> None:
    log = tmp_path / "log"
    federation = Federation(vectors(), Noted(3, log), in_turn([7] * 8))
    with opened(Processes(workers=workers), federation, tmp_path / "scratch") as crew:
        for _ in range(3):
            assert heard(crew, federation)[3][0].failure is not None
            tried = log.read_text().split()
            assert len(tried) == 2
            assert len(set(tried)) == min(workers, 2)
            log.unlink()


def test_workers_that_died_between_two_rounds_are_nobodys_failure(tmp_path) -> None:
    federation = numbers()
    with opened(Processes(workers=2), federation, tmp_path) as crew:
        fine = heard(crew, federation)
        dead = list(crew._workers)
        for worker in dead:
            os.kill(worker.process.pid, signal.SIGKILL)
            worker.process.join()
        again = heard(crew, federation)
        assert not set(dead) & set(crew._workers)
        assert same([v for _, v in again], [v for _, v in fine])


class Peculiar(Exception):
    """It cannot be made of its arguments: pickle refuses it."""

    def __init__(self, a, b) -> None:
        super().__init__(f"{a} and {b}")


class Refuses(Troubled):
    def forward(self, inputs):
        try:
            return super().forward(inputs)
        except ZeroDivisionError:
            raise Peculiar("this", "that") from None


def test_an_error_that_cannot_be_pickled_is_still_said(tmp_path) -> None:
    federation = Federation(vectors(), Refuses(3, "raise"), in_turn([7] * 8))
    with opened(Processes(workers=2), federation, tmp_path) as crew:
        failure = heard(crew, federation)[3][0].failure
    assert "Peculiar: this and that" in str(failure)
    assert "Peculiar('this and that')" in str(failure.__cause__)
    with pytest.raises(TypeError):
        pickle.loads(pickle.dumps(Peculiar("this", "that")))


def test_a_cause_tells_where_in_the_worker_it_was_raised(tmp_path) -> None:
    with opened(Processes(workers=2), troubled(3, "raise"), tmp_path) as crew:
        cause = heard(crew, troubled(3, "raise"))[3][0].failure.__cause__
    assert "in forward" in "".join(cause.__notes__)
    assert _portable(None) is None


def test_an_error_of_ours_that_names_no_client_is_given_its_name() -> None:
    said = failed(Work(4, 2, None), CompositionError("The rates sum to 0.\nLet them start above."))
    assert str(said) == "Client 4 failed in round 2: The rates sum to 0.\nLet them start above."


@dataclass(frozen=True)
class Full(Disk):
    """A disk that is full, for one client."""

    client: int = 5

    def write(self, client, version, kept) -> None:
        if client == self.client:
            raise OSError(errno.ENOSPC, "No space left on device", "kept")
        super().write(client, version, kept)


ENGINES = [InProcess(), Processes(workers=2)]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_full_disk_is_the_runs_failure_and_no_clients(engine, tmp_path) -> None:
    method = methods.scaffold(lr=0.1, steps=2, batch_size=3)
    federation = numbers()
    store = Full(tmp_path / "kept")
    said = r"client 5 keeps could not be written in round 0: No space left on device \(kept\)"
    sent = broadcast(method, method.start(federation.model.x0), 0, 8)
    with opened(engine, federation, tmp_path, method, store) as crew:
        replies = crew.train(sent, [Work(i, 0, None) for i in range(8)])
        with pytest.raises(EngineError, match=said) as caught:
            list(replies)
    assert isinstance(caught.value.__cause__, OSError)


@pytest.mark.parametrize("engine", ENGINES)
def test_kept_vectors_that_are_gone_are_the_runs_failure(engine, tmp_path) -> None:
    method = methods.scaffold(lr=0.1, steps=2, batch_size=3)
    federation = numbers()
    sent = broadcast(method, method.start(federation.model.x0), 0, 8)
    with (
        opened(engine, federation, tmp_path, method, Disk(tmp_path / "kept")) as crew,
        pytest.raises(EngineError, match="client 2 keeps could not be read in round 9: No such"),
    ):
        list(crew.train(sent, [Work(2, 9, 8)]))


def test_no_room_between_processes_is_the_runs_failure(tmp_path, monkeypatch) -> None:
    def full(*args) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    federation = numbers()
    for where in ("in", "out"):
        with opened(Processes(workers=2), federation, tmp_path) as crew:
            if where == "out":  # workers that are forked from now on find no room
                heard(crew, federation, [])
                monkeypatch.setattr(os, "posix_fallocate", full)
                for worker in tuple(crew._workers):
                    crew._replace(worker)
                crew._inbox._map = None
                monkeypatch.undo()
            else:
                monkeypatch.setattr(os, "posix_fallocate", full)
            with pytest.raises(EngineError, match=f"No space left on device .*{where}"):
                heard(crew, federation)
        monkeypatch.undo()


def test_ctrl_c_ends_every_worker(tmp_path) -> None:
    before = children()
    federation = numbers()

    def interrupted(crew) -> None:
        for reply in crew.train({"x": federation.model.x0}, [Work(i, 0, None) for i in range(8)]):
            if reply.client == 2:
                os.kill(os.getpid(), signal.SIGINT)

    with opened(Processes(workers=2), federation, tmp_path) as crew:
        heard(crew, federation)
    with (
        pytest.raises(KeyboardInterrupt),
        opened(Processes(workers=2), federation, tmp_path) as crew,
    ):
        interrupted(crew)
    assert children() == before
    assert not list(tmp_path.iterdir())


def test_a_worker_leaves_ctrl_c_to_the_run(tmp_path) -> None:
    federation = numbers()
    with opened(Processes(workers=1), federation, tmp_path) as crew:
        heard(crew, federation)
        os.kill(crew._workers[0].process.pid, signal.SIGINT)
        assert all(reply.failure is None for reply, _ in heard(crew, federation))
        assert crew._numbers == 1


KILLED = """
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from test_engines import Processes, numbers, opened
with opened(Processes(workers=2), numbers(), Path(sys.argv[1])) as crew:
    crew.evaluate(crew._task.federation.model.x0, None)
    print(*[worker.process.pid for worker in crew._workers], flush=True)
    time.sleep(60)
"""


@LINUX
def test_workers_die_with_a_run_that_is_killed(tmp_path) -> None:
    command = [sys.executable, "-c", KILLED, str(tmp_path), str(Path(__file__).parent)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        workers = [int(pid) for pid in run.stdout.readline().split()]
        assert len(workers) == 2
        assert all(map(alive, workers))
        run.kill()
    patience = time.monotonic() + 10
    while any(map(alive, workers)) and time.monotonic() < patience:
        time.sleep(0.01)
    assert not any(map(alive, workers))


def test_a_model_that_cannot_be_sent_is_refused_and_nothing_is_left(tmp_path) -> None:
    method = replace(methods.fedavg(), local=replace(methods.fedavg().local, lr=lambda t, k, K: 1))
    before = children()
    with (
        pytest.raises(EngineError, match=r"No worker process could be started: .*pickle"),
        opened(Processes(workers=2, start="spawn"), numbers(), tmp_path, method),
    ):
        pass
    assert not list(tmp_path.iterdir())
    assert len(children() - before) <= 1  # multiprocessing's own, which tracks what is shared


class Stillborn(Disk):
    """A worker that is sent one does not come to life."""

    def __reduce__(self):
        return os._exit, (7,)


def test_a_worker_that_does_not_start_is_the_runs_failure(tmp_path) -> None:
    store = Stillborn(tmp_path / "kept")
    with (
        opened(Processes(workers=1, start="spawn"), numbers(), tmp_path, store=store) as crew,
        pytest.raises(EngineError, match=r"did not start: .* exit code 7"),
    ):
        heard(crew, numbers())


def test_processes_refuse_what_they_cannot_do(tmp_path) -> None:
    with pytest.raises(
        EngineError, match=r"in memory for scaffold, whose clients keep c_i\.\nGive"
    ):
        opened(Processes(workers=2), numbers(), tmp_path, methods.scaffold())
    with pytest.raises(CompositionError, match="Processes got workers=0, expected a whole number"):
        Processes(workers=0)
    with pytest.raises(CompositionError, match="start='thread', expected None or 'fork' or 'spa"):
        Processes(workers=1, start="thread")
    for make in (InProcess, lambda timeout: Processes(workers=1, timeout=timeout)):
        with pytest.raises(CompositionError, match="timeout=0, expected a number in"):
            make(timeout=0)
    assert cores() >= 1


# Evaluation


@pytest.mark.parametrize("buffers", [False, True])
def test_scores_are_the_same_on_every_engine(buffers, tmp_path) -> None:
    data = images(n=24, test=2 * EVALUATED_AT_ONCE + 17)
    federation = Federation(data, batchnorm_net(), IID(clients=4))
    model = federation.model
    b = model.b0 + 0.5 if buffers else None
    scores = []
    for engine in (InProcess(), Processes(workers=2), Processes(workers=1)):
        with opened(engine, federation, tmp_path) as crew:
            scores.append(crew.evaluate(model.x0, b))
    assert scores[0].samples == 2 * EVALUATED_AT_ONCE + 17
    assert same(scores[0].losses, scores[1].losses)
    assert scores[0] == scores[1] == scores[2]


class Unready(Troubled):
    """It fails in evaluation, once it has been looked at."""

    def __init__(self, how: str) -> None:
        super().__init__(0, how)
        self.looks = 0

    def forward(self, inputs):
        self.looks += len(inputs) > 2
        if not self.training and self.looks and self.how == "slow":
            time.sleep(1.3)
        elif not self.training and self.looks:
            if self.how == "kill" and os.getpid() != self.run:
                os.kill(os.getpid(), signal.SIGKILL)
            raise ZeroDivisionError("seven by nothing")
        return self.inner(inputs)


@pytest.mark.parametrize(
    ("engine", "how", "said"),
    [
        (InProcess(), "raise", "ZeroDivisionError: seven by nothing"),
        (Processes(workers=2), "raise", "ZeroDivisionError: seven by nothing"),
        (Processes(workers=2), "kill", "its worker process was killed by SIGKILL"),
    ],
)
def test_an_evaluation_that_fails_is_the_runs_failure(engine, how, said, tmp_path) -> None:
    federation = Federation(vectors(), Unready(how), IID(clients=8))
    with opened(engine, federation, tmp_path, timeout=0.1) as crew:
        with pytest.raises(EngineError, match=f"could not be evaluated: .*{said}") as caught:
            crew.evaluate(federation.model.x0, None)
        assert caught.value.__cause__ is not None


def test_an_evaluation_takes_the_time_it_needs(tmp_path) -> None:
    federation = Federation(vectors(), Unready("slow"), IID(clients=8))
    with opened(Processes(workers=1), federation, tmp_path, timeout=0.1) as crew:
        assert crew.evaluate(federation.model.x0, None).samples == 30
