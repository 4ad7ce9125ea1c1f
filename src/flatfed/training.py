"""Federated training: rounds, one after the other, on any engine."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter

import torch

from flatfed.account import Bench, Heard, Tell, bytes_down, bytes_pushed
from flatfed.check import check_method
from flatfed.cohort import Cohort
from flatfed.engines.engine import Crew, Engine, Task, Work
from flatfed.engines.inprocess import InProcess
from flatfed.engines.store import Disk, Memory, Store
from flatfed.errors import ClientError, CompositionError, NonFiniteError, SpecError, whole
from flatfed.federation import Federation
from flatfed.history import History, Round
from flatfed.mean import Mean
from flatfed.method import Method
from flatfed.parts.track import RunningStatistics
from flatfed.rounds import broadcast, server_round
from flatfed.vec import Vec, digest, non_finite


@dataclass(frozen=True)
class Standing:
    """Where a run stands between two rounds: all that the rest of it depends on."""

    t: int  # rounds done
    state: Mapping[str, Vec]  # the server's
    ledger: Mapping[int, int]  # which version of what a client keeps counts


@dataclass(frozen=True, kw_only=True)
class Training:
    """A method on a federation: what happens is fixed by this and a seed, whatever the engine."""

    method: Method
    federation: Federation
    rounds: int
    cohort: Cohort = Cohort()
    seed: int = 0
    evaluate_every: int = 1
    tell: Tell = field(default=lambda what, done, total: None, repr=False)  # of the server's work
    # What to do with a version that has a successor; a run's folder may still need it.
    retire: Callable[[Store, int, int], None] = field(
        default=lambda store, client, version: store.drop(client, version), repr=False
    )

    def __post_init__(self) -> None:
        try:
            for name, least in (("rounds", 1), ("seed", 0), ("evaluate_every", 1)):
                whole(self, name, least)
        except CompositionError as error:  # the same words; a wrong request is no method
            raise SpecError(str(error)) from None
        self.cohort.count(self.federation.N)
        check_method(self.running)
        self._refuse_cohorts()

    def _refuse_cohorts(self) -> None:
        """Parts may be true of some cohorts only."""
        cohort, N = self.cohort, self.federation.N
        for part in (*self.method.parts, self.method.compress):
            if part.cohorts == "everybody" and (cohort.count(N) < N or cohort.drop):
                raise SpecError(
                    f"{type(part).__name__} needs all {N} clients in every round, the cohort has "
                    f"{cohort.count(N)} and drop = {cohort.drop!r}.\n"
                    "Leave [cohort] out, or choose another part."
                )
            if part.cohorts == "random" and cohort.sampling != "uniform":
                raise SpecError(
                    f"{type(part).__name__} counts on cohorts drawn at random, sampling is "
                    f"{cohort.sampling!r}.\nSet sampling = 'uniform' in [cohort]."
                )

    @property
    def running(self) -> Method:
        """The method, which also carries BatchNorm's statistics where the model has any."""
        has = self.federation.model.b0.numel() and "buffers" not in self.method.names("server")
        if not has:
            return self.method
        return replace(self.method, also=(*self.method.also, RunningStatistics()))

    def start(self) -> Standing:
        """Before round 0."""
        model = self.federation.model
        given = {"buffers": model.b0} if "buffers" in self.running.names("server") else {}
        return Standing(0, self.running.start(model.x0, **given), {})

    def go_on(
        self, standing: Standing, engine: Engine, store: Store, scratch: Path
    ) -> Generator[tuple[Standing, Round]]:
        """One round after the other, until all are done."""
        method = self.running
        task = Task(method, self.federation, self.seed, store, scratch, engine.timeout)
        with engine.open(task) as crew:
            while standing.t < self.rounds:
                before = standing
                standing, record, trained = self._round(method, before, crew)
                yield standing, record
                # Only now does the caller stand behind the new round: until then, were it
                # interrupted, it would need the versions of the one before.
                for client in trained:
                    if client in before.ledger and standing.ledger is not before.ledger:
                        self.retire(store, client, before.ledger[client])

    def _round(
        self, method: Method, before: Standing, crew: Crew
    ) -> tuple[Standing, Round, list[int]]:
        started = perf_counter()
        t, state, federation = before.t, before.state, self.federation
        N = federation.N
        drawn = self.cohort.draw(N, t, self.seed)
        there = self.cohort.present(drawn, t, self.seed)
        sent = broadcast(method, state, t, N)
        model = federation.model
        mean = Mean(method, state, layout=model.layout, mean_samples=federation.mean_samples)
        heard = Heard(method, model.layout, model.x0.element_size())
        work = [Work(i, t, before.ledger.get(i), len(drawn)) for i in there]
        for reply in crew.train(sent, work):
            if reply.upload is not None:
                mean.add(reply.upload)
            heard.note(reply)
        if heard.failures and not heard.clients:
            raise _nobody(heard, t)
        ledger = before.ledger
        bench = Bench(federation, self.tell)
        if heard.clients:  # with nobody there, nothing moves
            state = server_round(
                method,
                state,
                mean.result(),
                t,
                N,
                drawn=len(drawn),
                seed=self.seed,
                workbench=bench,
            )
            _refuse_non_finite(state["x"], t)
            if method.names("keep"):
                ledger = {**ledger, **dict.fromkeys(heard.clients, t)}
        accuracy = loss = None
        if (t + 1) % self.evaluate_every == 0 or t + 1 == self.rounds:
            score = crew.evaluate(method.result(state), state.get("buffers"))
            accuracy, loss = score.accuracy, score.loss
        record = Round(
            round=t,
            test_accuracy=accuracy,
            test_loss=loss,
            train_loss=heard.losses / heard.steps if heard.steps else None,
            bytes_up=heard.bytes_up,
            bytes_down=bytes_down(method, sent, len(there))
            + bytes_pushed(method, before.state, state, N)
            + (0 if t else bytes_pushed(method, {}, before.state, N)),
            gradients=heard.gradients,
            forwards=heard.forwards,
            server_gradients=bench.gradients,
            bits_up_nominal=heard.bits_nominal,
            bits_up_entropy=heard.bits_entropy,
            seconds=perf_counter() - started,
            clients=len(heard.clients),
            failed=len(drawn) - len(heard.clients),
            failures={i: str(why) for i, why in heard.failures.items()},
            logged=method.logged(state),
        )
        return Standing(t + 1, state, ledger), record, heard.clients


def _nobody(heard: Heard, t: int) -> ClientError:
    client, why = next(iter(heard.failures.items()))
    said = ClientError(
        f"All {len(heard.failures)} clients of round {t} failed, each of them twice. The first: "
        + str(why),
        client=client,
        t=t,
        k=getattr(why, "k", 0),
        part=getattr(why, "part", ""),
    )
    said.__cause__ = why
    return said


def _refuse_non_finite(x: Vec, t: int) -> None:
    if non_finite(x):
        raise NonFiniteError(
            f"The server's model is not finite after round {t}, expected finite numbers.\n"
            "Lower the learning rates, or set clip."
        )


@dataclass(frozen=True)
class Result:
    """What a run ends with."""

    history: History
    state: Mapping[str, Vec]
    training: Training = field(repr=False)

    @property
    def x(self) -> Vec:
        """The model that is evaluated and saved, as a vector."""
        return self.training.running.result(self.state)

    @property
    def accuracy(self) -> float | None:
        """The last test accuracy that was measured."""
        return self.history.accuracy

    def module(self) -> torch.nn.Module:
        """The model as plain PyTorch."""
        return self.training.federation.model.module_at(self.x, self.state.get("buffers"))

    @property
    def params_sha256(self) -> str:
        """Of the module's state dict."""
        return digest(self.module().state_dict())


def fit(
    method: Method,
    federation: Federation,
    *,
    rounds: int,
    cohort: Cohort | int | None = None,
    seed: int = 0,
    evaluate_every: int = 1,
    engine: Engine | None = None,
    each: Callable[[Round], object] | None = None,
) -> Result:
    """Train; `cohort` clients take part in a round, everybody if it is None.

    `each` is called after every round. Nothing is written to the disk that stays: `flatfed.run`
    leaves a folder, and goes on where it was interrupted.
    """
    if not isinstance(cohort, Cohort):
        cohort = Cohort(size=cohort)
    training = Training(
        method=method,
        federation=federation,
        rounds=rounds,
        cohort=cohort,
        seed=seed,
        evaluate_every=evaluate_every,
    )
    engine = engine or InProcess()
    records: list[Round] = []
    last = training.start()
    with tempfile.TemporaryDirectory(prefix="flatfed-") as name:
        scratch = Path(name)
        store: Store = Disk(scratch / "kept") if engine.needs_disk else Memory()
        for standing, record in training.go_on(last, engine, store, scratch):
            last = standing
            records.append(record)
            if each is not None:
                each(record)
    return Result(History(records), last.state, training)
