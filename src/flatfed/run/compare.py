"""A grid of runs: methods × seeds, one table and one figure."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from flatfed.disk import write_whole
from flatfed.errors import FlatfedError, SpecError
from flatfed.history import History
from flatfed.run.build import completed, federation_of, method_of
from flatfed.run.curves import draw_curves
from flatfed.run.folder import RunFolder
from flatfed.run.run import refuse_other_data, run
from flatfed.run.watch import Watcher
from flatfed.spec import Spec


@dataclass(frozen=True)
class Cell:
    """One run of the grid, and why it has no end if it has none."""

    method: str
    seed: int
    history: History
    failure: str = ""


@dataclass(frozen=True)
class Comparison:
    """All runs of a grid, in the order in which they were asked for."""

    cells: Sequence[Cell]
    target: float | None = None
    methods: Sequence[str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "methods", [*dict.fromkeys(c.method for c in self.cells)])

    def of(self, method: str) -> list[Cell]:
        """A method's runs that came to an end."""
        return [cell for cell in self.cells if cell.method == method and not cell.failure]

    def rows(self) -> list[dict[str, Any]]:
        """A method's numbers over its seeds: plain values, for any table."""
        return [self._row(method) for method in self.methods]

    def _row(self, method: str) -> dict[str, Any]:
        ended = [cell.history for cell in self.of(method)]
        final = [history.accuracy for history in ended if history.accuracy is not None]
        best = [history.best for history in ended if history.best is not None]
        row: dict[str, Any] = {
            "method": method,
            "seeds": len(ended),
            "accuracy": mean(final) if final else None,
            "deviation": stdev(final) if len(final) > 1 else None,
            "best": mean(best) if best else None,
        }
        if self.target is not None:
            reached = [history.rounds_to(self.target) for history in ended]
            known = [rounds for rounds in reached if rounds is not None]
            row["rounds_to_target"] = mean(known) if known and len(known) == len(ended) else None
        for name in ("bytes_up", "bytes_down", "gradients", "seconds"):
            row[name] = mean(history.total(name) for history in ended) if ended else None
        failures = [cell.failure for cell in self.cells if cell.method == method and cell.failure]
        return row | {"failed": len(failures)}

    def columns(self) -> list[list[str]]:
        """The table as a person reads it: a head, then a line for every method."""
        head = ["method", "test accuracy", "best"]
        head += [] if self.target is None else [f"rounds to {100 * self.target:g}%"]
        head += ["MB up", "MB down", "gradients", "seconds"]
        return [head, *(self._said(row) for row in self.rows())]

    def _said(self, row: dict[str, Any]) -> list[str]:
        if not row["seeds"]:
            return [row["method"], "failed", *[""] * (5 + (self.target is not None))]
        deviation = "" if row["deviation"] is None else f" ± {100 * row['deviation']:.2f}"
        said = [
            row["method"] + (f" ({row['failed']} failed)" if row["failed"] else ""),
            f"{100 * row['accuracy']:.2f} %{deviation}",
            f"{100 * row['best']:.2f} %",
        ]
        if self.target is not None:
            rounds = row["rounds_to_target"]
            said.append("–" if rounds is None else f"{rounds:.0f}")
        said += [f"{row[name] / 1e6:,.1f}".replace(",", " ") for name in ("bytes_up", "bytes_down")]
        return [*said, f"{row['gradients']:,.0f}".replace(",", " "), f"{row['seconds']:.1f}"]

    def markdown(self) -> str:
        """The table in Markdown."""
        head, *lines = self.columns()
        rule = ["---", *["--:"] * (len(head) - 1)]
        return "".join(f"| {' | '.join(line)} |\n" for line in (head, rule, *lines))

    def write(self, folder: Path) -> None:
        """table.md, table.csv, table.json and figures/accuracy.png."""
        folder.mkdir(parents=True, exist_ok=True)
        rows = self.rows()
        text = io.StringIO()
        writer = csv.DictWriter(text, [*rows[0]])
        writer.writeheader()
        writer.writerows(rows)
        objects = json.dumps(rows, indent=2, allow_nan=False)
        tables = {"md": self.markdown(), "csv": text.getvalue(), "json": objects}
        for suffix, content in tables.items():
            write_whole(folder / f"table.{suffix}", content.encode(), sync=False)
        histories = {method: [c.history for c in self.of(method)] for method in self.methods}
        draw_curves(histories, folder / "figures" / "accuracy.png", target=self.target)


def compare(
    spec: Spec,
    methods: Iterable[str],
    seeds: Iterable[int] = (0,),
    *,
    out: str | Path,
    watching: Callable[[str], AbstractContextManager[list[Watcher]]],
) -> Comparison:
    """Every method with every seed in a folder of its own: METHOD-SEED.

    What is finished is not run again, what was interrupted goes on, what fails leaves the others
    their turn. The table is written after every run.
    """
    grid = [(method, seed) for seed in seeds for method in methods]
    if not grid or len({*grid}) < len(grid):
        raise SpecError(
            f"compare got {len(grid)} runs, {len({*grid})} of them different, expected at least "
            "one and no run twice.\nName every method and every seed once."
        )
    method_of(spec)  # which also looks at the names of [methods.NAME]
    specs = {cell: _complete(spec.cell(*cell)) for cell in grid}  # all are looked at first
    fingerprints = Fingerprints()
    cells: list[Cell] = []
    for method, seed in grid:
        folder = RunFolder(Path(out) / f"{method}-{seed}")
        with watching(f"{folder.path.name} ({len(cells) + 1} of {len(grid)})") as watchers:
            try:
                asked = specs[method, seed]
                history = _finished(folder, asked, fingerprints)
                if history is None:
                    history = run(asked, out=folder.path, resume=True, watchers=watchers).history
                cells.append(Cell(method, seed, history))
            except FlatfedError as error:
                if error.exit_code == 2:  # the request is wrong, and so it would be for the others
                    raise
                cells.append(Cell(method, seed, History(), str(error)))
        comparison = Comparison(cells, spec.run.target_accuracy)
        comparison.write(Path(out))
    return comparison


def _complete(spec: Spec) -> Spec:
    return completed(spec, method_of(spec))


class Fingerprints:
    """Of the federations of a grid: methods share them, so each is built once."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, object]] = {}

    def of(self, spec: Spec) -> dict[str, object]:
        """What a run of this spec would train on, as things are now."""
        key = repr((spec.run.seed, spec.data, spec.model))
        if key not in self._known:
            self._known[key] = federation_of(spec).fingerprint()
        return self._known[key]


def _finished(folder: RunFolder, spec: Spec, fingerprints: Fingerprints) -> History | None:
    """Its rounds, if it has all of them and was asked for the same of the same data."""
    if not folder.exists:
        return None
    manifest, history = folder.manifest(), folder.history()
    if manifest["status"] != "finished" or len(history) != spec.run.rounds:
        return None
    folder.refuse_other(spec)
    refuse_other_data(folder, manifest, fingerprints.of(spec))
    return history
