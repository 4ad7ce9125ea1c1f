"""The docs say what the code does."""

from __future__ import annotations

import re
import runpy
import shlex
import tomllib
from pathlib import Path

import click
import pytest

import flatfed
from flatfed import errors, methods
from flatfed.cli import main
from flatfed.part import DECLARATIONS, View
from flatfed.run.build import completed, method_of, partition_of
from flatfed.spec import Spec

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
generate = runpy.run_path(str(ROOT / "docs" / "generate.py"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_runs_and_prints_what_the_page_shows(page) -> None:
    text = page.read_text()
    assert generate["fresh"](text) == text, "run python docs/generate.py"


def test_the_readme_can_be_read_in_one_sitting() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120


def test_every_vector_constant_and_parameter_is_in_the_notation() -> None:
    notation = (ROOT / "docs" / "notation.md").read_text()
    for name in methods.CATALOGUE:
        method = methods.build(name)
        for kind in ("server", "keep", "notes", "upload"):
            for vector in method.names(kind):
                assert f"`{vector}`" in notation or vector == "dx", vector
        for parameter in methods.parameters(name):
            assert f"`{parameter}`" in notation, parameter
    for constant in View.__annotations__:
        assert f"`v.{constant}`" in notation or f"`v.{constant}(" in notation, constant


def test_every_declaration_and_error_is_documented() -> None:
    part_page = (ROOT / "docs" / "write-a-part.md").read_text()
    assert all(f"| `{kind}` |" in part_page for kind in DECLARATIONS)
    errors_page = (ROOT / "docs" / "errors.md").read_text()
    for kind in errors.FlatfedError.__subclasses__():
        if kind.__module__ == errors.__name__:
            assert f"| `{kind.__name__}` |" in errors_page


def test_links_of_the_docs_lead_somewhere() -> None:
    for page in [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]:
        for target in re.findall(r"\]\((?!http)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_changelog_has_its_numbers() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    assert "### Numbers change" in text
    assert "Unreleased" in text or flatfed.__version__ in text


def blocks(language: str) -> list[tuple[str, str]]:
    """Every block of a language, with its page."""
    pattern = re.compile(rf"```{language}\n(.*?)```", re.DOTALL)
    return [(page.name, found) for page in PAGES for found in pattern.findall(page.read_text())]


@pytest.mark.parametrize(("page", "block"), blocks("toml"))
def test_every_spec_in_the_docs_is_one(page, block) -> None:
    assert Spec.of(tomllib.loads(block), page)


@pytest.mark.parametrize(("page", "block"), blocks("sh"))
def test_every_command_in_the_docs_has_those_options(page, block) -> None:
    for line in block.splitlines():
        words = shlex.split(line, comments=True)
        if words[:1] != ["flatfed"]:
            continue
        context, command = None, main
        for name in words[1:]:  # of groups, down to the command itself
            if not isinstance(command, click.Group):
                break
            command, words = command.commands[name], words[1:]
        context = command.make_context(words[0], words[1:])  # refuses what it does not know
        spec = context.params.get("spec")
        made = spec is None or "/" not in spec or spec.startswith("runs/")  # or a reader's own
        assert made or (ROOT / spec).exists(), line


def test_every_target_of_make_in_the_docs_is_there() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for _, block in blocks("sh"):
        for target in re.findall(r"^make (\w+)", block, re.MULTILINE):
            assert f"\n{target}:" in makefile, target


def test_every_key_of_a_spec_is_documented() -> None:
    page = (ROOT / "docs" / "spec.md").read_text()
    for name, section in Spec.model_fields.items():
        assert f"`[{name}" in page, name
        for key in getattr(section.annotation, "model_fields", {}):
            assert f"`{key}`" in page, f"{name}.{key}"


def test_every_spec_that_comes_along_can_be_built() -> None:
    for path in [*ROOT.glob("examples/*.toml"), *ROOT.glob("benchmarks/specs/*.toml")]:
        spec = Spec.read(path)
        assert completed(spec, method_of(spec))
        assert partition_of(spec)
