"""What every command shares: how errors are said, and how a setting is written."""

from __future__ import annotations

import io
import os
import sys
import tomllib
from typing import TYPE_CHECKING, Any, NoReturn

import click

from flatfed import __version__
from flatfed.errors import FlatfedError, SpecError

if TYPE_CHECKING:
    from rich.console import Console


class Commands(click.Group):
    """Errors of ours, and of the disk, are one message without a traceback unless asked for."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except FlatfedError as error:
            if ctx.params.get("debug"):
                raise
            click.echo(f"flatfed: {error}", err=True)
            sys.exit(error.exit_code)
        except KeyboardInterrupt:
            if ctx.params.get("debug"):
                raise
            click.echo("flatfed: interrupted.", err=True)
            sys.exit(130)

    def main(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().main(*args, **kwargs)
        except OSError as error:  # but a reader that has gone away (| head) is click's business
            if "--debug" in sys.argv:
                raise
            _fail(error)


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


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="flatfed")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def main(debug: bool) -> None:
    """Federated learning that lands in flat minima."""
    for stream in (sys.stdout, sys.stderr):
        # Equations need more letters than a pipe may have been given.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8")


def terminal() -> Console:
    """Where tables go. A pipe is for other programs: nothing is folded to a width it has not."""
    from rich.console import Console

    return Console(width=None if sys.stdout and sys.stdout.isatty() else 400)


WORDS = {"true": True, "false": False, "none": None}


def setting(text: str) -> tuple[str, Any]:
    """One key=value: a value of TOML, none, and anything else a word.

    >>> setting("rho=0.05"), setting("data.source=fashion-mnist-small")
    (('rho', 0.05), ('data.source', 'fashion-mnist-small'))
    """
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
    if value.lower() in WORDS:
        return key, WORDS[value.lower()]
    try:
        return key, tomllib.loads(f"value = {value}")["value"]
    except (tomllib.TOMLDecodeError, KeyError):
        return key, value.strip("\"'")
