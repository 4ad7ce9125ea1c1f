"""Run every block of the docs and write down what it prints; tests/test_docs.py compares."""

from __future__ import annotations

import contextlib
import io
import json
import re
import sys
import types
from pathlib import Path

from flatfed import methods, models
from flatfed.data import partition

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"```python\n(.*?)```(?:\n+```text\n(.*?)```)?", re.DOTALL)
BOX = re.compile(r"`(print\([^`]*describe\(\)\))`:\n\n```text\n.*?```", re.DOTALL)
GENERATED = re.compile(r"<!-- (\w+) -->.*?<!-- /\1 -->", re.DOTALL)


def methods_table() -> str:
    """Methods of one bill in one row, with what they ask for if it is not one gradient a step."""
    rows: dict[str, list[str]] = {}
    for name in methods.CATALOGUE:
        bill = methods.build(name).bill()
        vectors = " | ".join(f"{bill.full(names)}d" for names in (bill.down, bill.up, bill.kept))
        asked = "" if bill.asked() == "1" else f" ({bill.asked()})"
        rows.setdefault(f"| {vectors} |", []).append(f"`{name}`{asked}")
    head = ["| down | up | kept | methods |", "|--:|--:|--:|---|"]
    return "\n".join(head + [f"{row} {', '.join(names)} |" for row, names in rows.items()])


def partitions_table() -> str:
    """Every partition with its parameters and where it is from."""
    rows = ["| partition | parameters | |", "|---|---|---|"]
    for name, kind in partition.PARTITIONS.items():
        values = (
            f"`{key} = {json.dumps(value)}`" for key, value in partition.parameters(name).items()
        )
        first = (kind.__doc__ or "").split("\n\n")[0].replace("\n", " ").replace("    ", "")
        rows.append(f"| `{name}` | {', '.join(values)} | {first} |")
    return "\n".join(rows)


def printed(code: str) -> str:
    """What a block prints."""
    # A module of its own: dataclasses and pickle look their classes up by module name.
    module = sys.modules["a_block_of_the_docs"] = types.ModuleType("a_block_of_the_docs")
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, module.__name__, "exec"), module.__dict__)
    return out.getvalue()


def fresh(text: str) -> str:
    """The page with every output and table as the code makes them now."""

    def run(match: re.Match[str]) -> str:
        output = printed(match[1])
        shown = f"\n\n```text\n{output}```" if match[2] is not None else ""
        return f"```python\n{match[1]}```{shown}"

    def describe(match: re.Match[str]) -> str:
        box = printed(f"from flatfed import methods\n{match[1]}")
        return f"`{match[1]}`:\n\n```text\n{box}```"

    text = BOX.sub(describe, BLOCK.sub(run, text))
    return GENERATED.sub(
        lambda match: f"<!-- {match[1]} -->\n{TABLES[match[1]]()}\n<!-- /{match[1]} -->", text
    )


def models_list() -> str:
    """Every architecture's name."""
    return ", ".join(f"`{name}`" for name in models.CATALOGUE)


TABLES = {"methods": methods_table, "partitions": partitions_table, "models": models_list}

if __name__ == "__main__":
    for page in PAGES:
        page.write_text(fresh(page.read_text()))
