"""Commands about methods: which there are, what one is, and whether yours keeps its word."""

from __future__ import annotations

import inspect
import json
import sys
from typing import Any

import click

from flatfed.cli.group import main, setting, terminal
from flatfed.errors import SpecError


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
                "down": bill.full(bill.down),
                "up": bill.full(bill.up),
                "up_minimal": bill.full(bill.up_minimal),
                "kept": bill.full(bill.kept),
                "gradients_per_step": bill.gradients_per_step,
                "gradients_least": bill.gradients_least,
                "forwards_per_step": bill.forwards_per_step,
                "asked": bill.asked(),
                "parameters": methods.parameters(name),
                "local": repr(method.local),
            }
        )
    if as_json:
        click.echo(json.dumps(rows, ensure_ascii=False, indent=2))
        return
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
        table.add_row(row["name"], row["family"], *vectors, row["asked"], said)
    terminal().print(table)


@main.command()
@click.argument("method")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Set a parameter.")
def describe(method: str, settings: tuple[str, ...]) -> None:
    """Print the algorithm box of METHOD, what it sends and what it is based on."""
    from flatfed import methods

    built = methods.build(method, **dict(setting(text) for text in settings))
    click.echo(built.describe())
    click.echo()
    click.echo(inspect.cleandoc(methods.CATALOGUE[method].__doc__ or ""))
    click.echo()
    click.echo(built.cite())


@main.command()
@click.argument("target", metavar="MODULE:METHOD")
def check(target: str) -> None:
    """Run the conformance suite on your own method.

    METHOD is a Method, or a function that returns one when called without arguments.
    """
    from flatfed.check import examine

    findings = examine(_method(target))
    for finding in findings:
        click.echo(f"{'✗' if finding.wrong else '✓'} {finding.claim}")
        for line in finding.wrong.splitlines():
            click.echo(f"    {line}")
    wrong = sum(bool(finding.wrong) for finding in findings)
    if wrong:
        click.echo(f"{target} breaks {wrong} of {len(findings)} claims.", err=True)
        sys.exit(1)
    click.echo(f"{target} keeps all {len(findings)} claims.")


def _method(target: str) -> Any:
    from flatfed.dotted import called, imported
    from flatfed.method import Method

    expected = "a Method or a function that returns one"
    found = imported(target, expected, lambda value: isinstance(value, Method) or callable(value))
    method = found if isinstance(found, Method) else called(target, found)
    if not isinstance(method, Method):
        raise SpecError(f"{target} returned {type(method).__name__}, expected a Method.")
    return method
