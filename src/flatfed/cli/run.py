"""Commands that train: one run, and what its data looks like before it begins."""

from __future__ import annotations

import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import click

from flatfed.cli.group import main, setting, terminal
from flatfed.errors import SpecError

SET = click.option(
    "--set", "settings", multiple=True, metavar="SECTION.KEY=VALUE", help="Set a key of the spec."
)


@main.command()
@click.argument("spec", metavar="SPEC.toml")
@SET
@click.option("--out", metavar="DIR", help="The run's folder; without it runs/SPEC.")
@click.option("--workers", type=click.IntRange(1), help="Processes that train; all cores if unset.")
@click.option("--resume", is_flag=True, help="Go on with the run in that folder.")
@click.option("--quiet", is_flag=True, help="Say nothing while it runs.")
def run(
    spec: str, settings: tuple[str, ...], out: str | None, workers: int | None, resume: bool,
    quiet: bool,
) -> None:  # fmt: skip
    """Train as SPEC.toml says, into a folder.

    With --resume it goes on where it was interrupted or killed.
    """
    from flatfed.run.display import displayed
    from flatfed.run.run import folder_of
    from flatfed.run.run import run as start
    from flatfed.spec import Spec

    read = Spec.read(spec, _settings(settings, workers))
    folder = folder_of(read, out, spec)
    with _stopping_on_request(), displayed(folder.name, quiet=quiet) as watchers:
        try:
            result = start(read, out=folder, resume=resume, watchers=watchers)
        except KeyboardInterrupt:
            if not any((folder / "checkpoint").glob("[0-9]*")):
                _interrupted("Nothing was done yet.")
            where = shlex.quote(str(folder / "spec.toml")), shlex.quote(str(folder))
            again = "flatfed run {} --out {} --resume".format(*where)
            _interrupted(f"A checkpoint is in {folder}; go on with: {again}")
    if not quiet:
        accuracy = "not measured" if result.accuracy is None else f"{result.accuracy:.2%}"
        click.echo(f"test accuracy {accuracy} after {len(result.history)} rounds, in {folder}")


@main.command()
@click.argument("spec", metavar="SPEC.toml")
@SET
@click.option("--methods", required=True, metavar="A,B,C", help="Methods by name.")
@click.option("--seeds", default="0", show_default=True, metavar="0,1,2", help="A run for each.")
@click.option("--out", metavar="DIR", help="Folder of all the runs; without it runs/SPEC.")
@click.option("--workers", type=click.IntRange(1), help="Processes that train; all cores if unset.")
@click.option("--quiet", is_flag=True, help="Say nothing while they run.")
def compare(
    spec: str, settings: tuple[str, ...], methods: str, seeds: str, out: str | None,
    workers: int | None, quiet: bool,
) -> None:  # fmt: skip
    """Run several methods: one table, one figure.

    Runs that are finished are not run again; others go on where they stopped.
    """
    from rich.table import Table

    from flatfed.run.compare import compare as start
    from flatfed.run.display import displayed
    from flatfed.run.run import folder_of
    from flatfed.spec import Spec

    read = Spec.read(spec, _settings(settings, workers))
    folder = folder_of(read, out, spec)
    with _stopping_on_request():
        try:
            done = start(
                read, _list(methods), [_whole("seeds", text) for text in _list(seeds)], out=folder,
                watching=partial(displayed, quiet=quiet),
            )  # fmt: skip
        except KeyboardInterrupt:
            _interrupted(f"Call the same again to go on: what is done in {folder} stays.")
    head, *lines = done.columns()
    table = Table(box=None, pad_edge=False)
    for column in head:
        table.add_column(column, justify="left" if column == "method" else "right")
    for line in lines:
        table.add_row(*line)
    terminal().print(table)
    click.echo(f"in {folder}: table.md, table.csv, figures/accuracy.png, a folder for every run")
    failed = [cell for cell in done.cells if cell.failure]
    for cell in failed:
        click.echo(f"flatfed: {cell.method}-{cell.seed} failed: {cell.failure}", err=True)
    if failed:
        sys.exit(1)


def _list(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _whole(option: str, text: str, least: int = 0) -> int:
    if not text.isdecimal() or int(text) < least:
        raise SpecError(
            f"--{option} got {text!r}, expected whole numbers ≥ {least}.\n"
            f"Write for example --{option} 1,2."
        )
    return int(text)


def _settings(settings: tuple[str, ...], workers: int | None) -> list[tuple[str, Any]]:
    read = [setting(text) for text in settings]
    return read if workers is None else [*read, ("engine.workers", workers)]


@contextmanager
def _stopping_on_request() -> Iterator[None]:
    """Who ends a process politely (SIGTERM) means what Ctrl-C means."""

    def stop(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _interrupted(said: str) -> NoReturn:
    click.echo(f"flatfed: interrupted. {said}", err=True)
    sys.exit(130)


@main.command()
@click.argument("spec", metavar="SPEC.toml")
@SET
@click.option("--out", metavar="FILE", help="Also draw it, to a .png or .svg.")
def partition(spec: str, settings: tuple[str, ...], out: str | None) -> None:
    """Say who holds what, and how unequal it is."""
    from flatfed.data.heterogeneity import heterogeneity
    from flatfed.data.picture import draw, table
    from flatfed.run.build import data_of, partition_of
    from flatfed.spec import Spec

    read = Spec.read(spec, _settings(settings, None))
    data = data_of(read)
    targets, classes = data.train.targets, len(data.classes)
    shares = partition_of(read).deal(
        targets, classes, seed=read.data.partition_seed, owners=data.train.owners
    )
    found = heterogeneity(shares, targets, classes)
    terminal().print(table(found, data.classes))
    if out is not None:
        Path(out).parent.mkdir(parents=True, exist_ok=True)
        draw(found.counts, data.classes, out, title=f"{data.name}, {read.data.partition}")
        click.echo(f"drawn in {out}")


@main.command()
@click.argument("spec", metavar="SPEC.toml")
@SET
@click.option("--workers", default="1,2", show_default=True, metavar="1,2", help="Each is timed.")
@click.option("--repeats", type=click.IntRange(1), default=5, show_default=True)
def bench(spec: str, settings: tuple[str, ...], workers: str, repeats: int) -> None:
    """Time rounds against their bare gradients.

    Both take turns on this machine, in as many processes; gradients are of ready mini-batches.
    """
    from flatfed.bench import measure
    from flatfed.run.build import training_of
    from flatfed.spec import Spec

    counts = [_whole("workers", text, least=1) for text in _list(workers) or [""]]
    speeds = measure(training_of(Spec.read(spec, _settings(settings, None))), counts, repeats)
    click.echo("workers  ms a gradient  beside the gradients  of it mini-batches  throughput")
    for speed in speeds:
        click.echo(
            f"{speed.workers:7}  {1000 * speed.seconds:13.3f}  {speed.overhead:20.1%}  "
            f"{speed.mini_batches:18.1%}  {speeds[0].seconds / speed.seconds:9.2f}x"
        )
