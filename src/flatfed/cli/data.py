"""Commands about data: get a published set, and say which are there."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from flatfed.cli.group import main

if TYPE_CHECKING:
    from flatfed.data.fetch import Progress

HOME = click.option(
    "--home", metavar="FOLDER", help="Where data sets lie; else FLATFED_DATA, else a cache."
)


@main.group("data")
def data_group() -> None:
    """Get the published data sets, and check what is there."""


@data_group.command("get")
@click.argument("name")
@click.option("--mirror", metavar="URL", help="A web folder of the same files.")
@click.option("--from", "folder", metavar="FOLDER", help="A folder that holds them already.")
@HOME
def get_command(name: str, mirror: str | None, folder: str | None, home: str | None) -> None:
    """Download, verify and unpack the published set NAME.

    What was cut off is gone on with. FLATFED_MIRROR is a mirror for every set.
    """
    from flatfed.data.download import get
    from flatfed.data.known import known_set

    where = known_set(name).where(home)
    with shown() as progress:
        fresh = get(name, home=home, mirror=mirror, folder=folder, progress=progress)
    click.echo(f"{name} is {'complete' if fresh else 'already complete'} in {where}.")


@contextmanager
def shown() -> Iterator[Progress]:
    """Bars on a terminal, a line for every tenth elsewhere."""
    if not sys.stderr.isatty():
        yield lines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    with Progress(*columns, TransferSpeedColumn(), console=Console(stderr=True)) as bars:
        tasks = {}

        def step(file: str, done: int, total: int) -> None:
            if file not in tasks:
                tasks[file] = bars.add_task(file, total=total or None)
            bars.update(tasks[file], completed=done, total=total or None)

        yield step


def lines() -> Progress:
    said: dict[str, int] = {}

    def step(file: str, done: int, total: int) -> None:
        tenth = 10 * done // total if total else 0
        if said.get(file) != tenth:
            said[file] = tenth
            of = f" of {total / 1e6:.1f}" if total else ""
            click.echo(f"{file}: {done / 1e6:.1f}{of} MB", err=True)

    return step


@data_group.command("check")
@click.argument("name", required=False)
@click.option("--thorough", is_flag=True, help="Compare hashes too, not only sizes.")
@HOME
def check_command(name: str | None, thorough: bool, home: str | None) -> None:
    """Say which published sets are there, and what is wrong with one.

    Fails if one is damaged, or if NAME is not there.
    """
    from flatfed.data.inventory import check

    findings = check(home, [name] if name else [], thorough=thorough)
    for finding in findings:
        mark = {"present": "✓", "absent": "–", "damaged": "✗"}[finding.state]
        click.echo(f"{mark} {finding.name:<14} {finding.state:<8} {finding.folder}")
        for line in finding.wrong:
            click.echo(f"    {line}")
        if finding.state == "damaged":
            click.echo(f"    Get it again with: flatfed data get {finding.name}")
    states = {finding.state for finding in findings}
    if "damaged" in states or (name and "absent" in states):
        sys.exit(1)
