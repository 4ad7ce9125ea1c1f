"""Who may import whom, and what a file may look like."""

from __future__ import annotations

import ast
from pathlib import Path

import flatfed
from flatfed import methods

SOURCE = Path(flatfed.__file__).parent

# A module imports only from smaller numbers, or from its own package.
LEVELS = {
    "vec": 0, "errors": 0, "references": 0, "memory": 0, "bill": 0,
    "history": 0.5, "oracle": 0.5, "module": 0.5, "part": 1, "flatmodel": 1, "disk": 1, "dotted": 1,
    "privacy": 1, "parts": 2, "composition": 2, "data": 2, "models": 2, "bits": 1, "blocks": 1,
    "distillation": 2,
    "box": 3, "method": 3,
    "mean": 4, "methods": 4, "views": 4,
    "rounds": 5,
    "toy": 6, "claims_of_compressors": 6.2, "claims_of_form": 6.2, "check": 6.5,
    "batches": 6, "federation": 6.5,
    "engines": 7,
    "cohort": 7, "account": 7.5, "training": 8,
    "spec": 8,
    "bench": 9, "run": 9,
    "cli": 10,
}  # fmt: skip

# Where vectors and images are made, not only passed on.
TORCH = {"flatmodel", "module", "bits", "blocks", "distillation", "check", "claims_of_compressors",
         "toy", "batches", "federation", "account", "data", "models", "engines", "disk",
         "training", "run", "bench"}  # fmt: skip

# Papers in the order of their years: a method's file may import older ones, never newer.
PAPERS = ["fedavg", "fedavgm", "fedprox", "fedopt", "scaffold", "fednova", "feddyn", "fedcm",
          "feddc", "fedsam", "fedasam", "fedspeed", "fedgamma", "fedsmoo", "dynafed", "dp_fedsam",
          "fedacg", "fedrcl", "fedsol", "fedlesam", "fedgf", "fedtoga", "fedgloss", "fedgmt",
          "fedswa", "fedwmsam", "fedvssam", "fedsynsam"]  # fmt: skip


def imports(path: Path, *, top_only: bool = False) -> set[str]:
    """Modules of flatfed that a file imports at run time."""
    tree = ast.parse(path.read_text())
    nodes = tree.body if top_only else ast.walk(tree)
    guarded = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    found: set[str] = set()
    for node in nodes:
        if id(node) in guarded:
            continue
        if isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
        elif isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
    return found


def files() -> list[Path]:
    return sorted(p for p in SOURCE.rglob("*.py") if p.name not in ("__init__.py", "__main__.py"))


def package(module: str) -> str:
    return module.removeprefix("flatfed.").split(".")[0]


def test_a_module_imports_only_from_below() -> None:
    for path in files():
        own = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        for module in imports(path, top_only=True):
            if not module.startswith("flatfed."):
                continue
            other = package(module)
            allowed = LEVELS[other] < LEVELS[own] or other == own
            assert allowed, f"{path.name} imports {module}"


def test_a_paper_imports_only_older_papers() -> None:
    for path in (SOURCE / "methods").glob("[!_]*.py"):
        for module in imports(path):
            if module.startswith("flatfed.methods."):
                older, own = PAPERS.index(module.split(".")[-1]), PAPERS.index(path.stem)
                assert older < own, f"{path.name} imports {module}"


def test_every_paper_is_in_the_order_of_papers() -> None:
    found = {p.stem for p in (SOURCE / "methods").glob("*.py")} - {"__init__"}
    assert found == set(PAPERS)


def test_contract_parts_and_methods_import_torch_only_when_a_vector_exists() -> None:
    for path in files():
        if path.relative_to(SOURCE).parts[0].removesuffix(".py") not in TORCH:
            assert not any(m.split(".")[0] == "torch" for m in imports(path, top_only=True)), path


def test_a_file_is_one_idea() -> None:
    for path in files():
        assert len(path.read_text().splitlines()) <= 300, path
    for path in (SOURCE / "methods").glob("*.py"):
        assert len(path.read_text().splitlines()) <= 180, path


def test_no_file_has_a_name_that_says_nothing() -> None:
    assert not {p.stem for p in SOURCE.rglob("*.py")} & {"utils", "helpers", "base", "common"}


def test_transcripts_import_nothing_of_ours() -> None:
    for path in (Path(__file__).parent / "transcripts").glob("*.py"):
        assert imports(path) <= {"numpy"}, path


def test_what_the_package_promises_is_there() -> None:
    for name in flatfed.__all__:
        assert getattr(flatfed, name) is not None
    for name in methods.__all__:
        assert getattr(methods, name) is not None
    assert flatfed.__all__ == sorted(flatfed.__all__)


def test_every_method_documents_its_genealogy_and_its_differences() -> None:
    for name, factory in methods.CATALOGUE.items():
        doc = factory.__doc__ or ""
        first = doc.split("\n\n")[0]
        assert "(" in first, name  # the reference
        assert "Differs from the paper:" in doc, name


def test_a_test_that_a_docstring_names_exists() -> None:
    import re

    tests = "\n".join(p.read_text() for p in Path(__file__).parent.glob("test_*.py"))
    for path in (SOURCE / "methods").glob("*.py"):
        for name in re.findall(r"\btest_\w+", path.read_text()):
            assert f"def {name}(" in tests, f"{path.name} names {name}"
