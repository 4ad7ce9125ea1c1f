"""The command line: a thin layer over what Python can do."""

from __future__ import annotations

import inspect
import io
import json
import os
import sys
from typing import Any, NoReturn

import click

from flatfed import __version__
from flatfed.errors import FlatfedError, SpecError


class _Commands(click.Group):
    """Errors of ours, and of the disk, are one message without a traceback unless asked for."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except FlatfedError as error:
            if ctx.params.get("debug"):
                raise
            _refuse(error)

    def main(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().main(*args, **kwargs)
        except OSError as error:  # but a reader that has gone away (| head) is click's business
            if "--debug" in sys.argv:
                raise
            _fail(error)


def _refuse(error: FlatfedError) -> NoReturn:
    click.echo(f"flatfed: {error}", err=True)
    sys.exit(2)


def _fail(error: OSError) -> NoReturn:
    where = f": {error.filename}" if error.filename else ""
    click.echo(
        f"flatfed: {error.strerror or error}{where}.\nThe command did not finish; "
        "make room or mend the path, and call it again.",
        err=True,
    )
    # What is still in the buffer has nowhere to go: Python would say so a second time at its end.
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    sys.exit(1)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="flatfed")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def main(debug: bool) -> None:
    """Federated learning that lands in flat minima."""
    for stream in (sys.stdout, sys.stderr):
        # Equations need more letters than a pipe may have been given.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8")


@main.command("methods")
@click.option("--json", "as_json", is_flag=True, help="A list of objects instead of a table.")
def methods_command(as_json: bool) -> None:
    """List every method with what it costs a client in a round."""
    from flatfed import methods
    from flatfed.references import REFERENCES

    rows: list[dict[str, Any]] = []
    for name in methods.CATALOGUE:
        method = methods.build(name)
        bill = method.bill()
        rows.append(
            {
                "name": name,
                "family": method.family,
                "paper": REFERENCES[method.paper],
                "down": len(bill.down),
                "up": len(bill.up),
                "up_minimal": len(bill.up_minimal),
                "kept": len(bill.kept),
                "gradients_per_step": bill.gradients_per_step,
                "parameters": methods.parameters(name),
                "local": repr(method.local),
            }
        )
    if as_json:
        click.echo(json.dumps(rows, ensure_ascii=False, indent=2))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for column in ("method", "family"):
        table.add_column(column)
    for column in ("down", "up", "kept", "gradients/step"):
        table.add_column(column, justify="right")
    table.add_column("parameters", overflow="fold")
    for row in rows:
        said = ", ".join(f"{key}={value}" for key, value in row["parameters"].items())
        vectors = (f"{row[column]}d" for column in ("down", "up", "kept"))
        table.add_row(row["name"], row["family"], *vectors, str(row["gradients_per_step"]), said)
    # Piped output is for other programs: never folded to the width of a terminal that is not there.
    console = Console(width=None if sys.stdout and sys.stdout.isatty() else 200)
    console.print(table)


@main.command()
@click.argument("method")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Set a parameter.")
def describe(method: str, settings: tuple[str, ...]) -> None:
    """Print the algorithm box of METHOD, what it sends and what it is based on."""
    from flatfed import methods

    built = methods.build(method, **dict(_setting(text) for text in settings))
    click.echo(built.describe())
    click.echo()
    click.echo(inspect.cleandoc(methods.CATALOGUE[method].__doc__ or ""))
    click.echo()
    click.echo(built.cite())


WORDS = {"true": True, "false": False, "none": None}


def _setting(text: str) -> tuple[str, Any]:
    """One key=value: a number, true, false, none, and anything else a word."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise SpecError(
            f"--set got {text!r}, expected key=value.\nWrite for example --set rho=0.05."
        )
    for number in (int, float):
        try:
            return key, number(value)
        except ValueError:
            continue
    return key, WORDS.get(value.lower(), value.strip("\"'"))


@main.command()
@click.argument("target", metavar="MODULE:METHOD")
def check(target: str) -> None:
    """Run the conformance suite on your own method.

    METHOD is a Method, or a function that returns one when called without arguments.
    """
    from flatfed.check import examine

    findings = examine(_load(target))
    for finding in findings:
        click.echo(f"{'✗' if finding.wrong else '✓'} {finding.claim}")
        for line in finding.wrong.splitlines():
            click.echo(f"    {line}")
    wrong = sum(bool(finding.wrong) for finding in findings)
    if wrong:
        click.echo(f"{target} breaks {wrong} of {len(findings)} claims.", err=True)
        sys.exit(1)
    click.echo(f"{target} keeps all {len(findings)} claims.")


def _load(target: str) -> Any:
    from importlib import import_module

    from flatfed.method import Method

    module_name, colon, name = target.partition(":")
    if not colon or not module_name or not name:
        raise SpecError(
            f"check got {target!r}, expected MODULE:METHOD.\n"
            "For mine.py with mine = Method(...): flatfed check mine:mine."
        )
    sys.path.insert(0, "")
    try:
        module = import_module(module_name)
    except FlatfedError:
        raise
    except (Exception, SystemExit) as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing and f"{module_name}.".startswith(f"{missing}."):
            raise SpecError(
                f"no module {missing!r} found for {target!r}.\nRun from the folder that holds "
                "it, and leave out .py."
            ) from error
        raise SpecError(_failed(f"importing {module_name}", error)) from error
    if not hasattr(module, name):
        found = ", ".join(n for n, v in vars(module).items() if isinstance(v, Method))
        raise SpecError(
            f"{module_name} has no {name!r}, expected a Method or a function that returns one.\n"
            f"Methods in it: {found or 'none'}."
        )
    method = getattr(module, name)
    if callable(method):
        try:
            method = method()
        except FlatfedError:
            raise
        except (Exception, SystemExit) as error:
            raise SpecError(_failed(f"calling {target} without arguments", error)) from error
    if not isinstance(method, Method):
        raise SpecError(
            f"{target} is {type(method).__name__}, expected a Method or a function that returns "
            "one."
        )
    return method


def _failed(doing: str, error: BaseException) -> str:
    first = next(iter(str(error).splitlines()), "")
    return f"{doing} failed with {type(error).__name__}: {first}\nflatfed --debug shows where."
