"""The docs say what the code does."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

import flatfed
from flatfed import errors, methods
from flatfed.part import DECLARATIONS, View

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
    import re

    for page in [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]:
        for target in re.findall(r"\]\((?!http)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_changelog_has_its_numbers() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    assert "### Numbers change" in text
    assert "Unreleased" in text or flatfed.__version__ in text
