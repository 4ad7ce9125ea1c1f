"""FedSynSAM's Table II on Fashion-MNIST: ten clients, one class each, compressed uploads.

    python benchmarks/fedsynsam_table.py OUT [--methods a,b] [--compressors a,b] [--jobs 2]

Learning rate and radius are chosen on the paper's grids, for every method and compressor: the rate
at radius 0.05, the radius at that rate, the rate once more at that radius, all for 100 rounds; the
best two for 300; the best of them with three seeds. Every cell is a run's folder under OUT; what is
finished is not run again. The table is OUT/table.md, and OUT/table.json for programs.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch

from flatfed.run.folder import RunFolder
from flatfed.run.run import run
from flatfed.spec import Spec

SPEC = Path(__file__).parent / "specs" / "mlp.toml"
RATES = (0.01, 0.05, 0.1, 0.5)
RADII = (0.001, 0.01, 0.05, 0.1, 0.5)
COMPRESSORS: dict[str, dict[str, Any]] = {
    "qsgd4": {"name": "qsgd", "bits": 4},
    "topk0.1": {"name": "topk", "fraction": 0.1},
}
METHODS: dict[str, dict[str, Any]] = {
    "fedavg": {},
    "dynafed": {},
    "fedsam": {},
    "fedlesam": {"reference": "last_round"},
    "fedsmoo": {},
    "fedgamma": {},
    "fedlesam-s": {"reference": "last_round"},
    "fedlesam-d": {"reference": "last_round", "increment": "sent"},
    "fedsynsam": {},
}
UNTUNED = ("fedavg", "dynafed")  # no radius

# Its Table II, Path(1), ten clients, full participation, Fashion-MNIST: mean and deviation.
PAPER = {
    "qsgd4": {
        "fedavg": (81.31, 0.14), "dynafed": (74.42, 0.38), "fedsam": (82.93, 0.18),
        "fedlesam": (82.47, 0.13), "fedsmoo": (78.99, 0.45), "fedgamma": (78.42, 0.29),
        "fedlesam-s": (79.71, 0.35), "fedlesam-d": (68.22, 1.13), "fedsynsam": (84.04, 0.19),
    },
    "topk0.1": {
        "fedavg": (72.84, 0.84), "dynafed": (71.35, 0.81), "fedsam": (75.85, 0.49),
        "fedlesam": (74.81, 0.72), "fedsmoo": (82.01, 0.44), "fedgamma": (82.06, 0.38),
        "fedlesam-s": (75.44, 0.66), "fedlesam-d": (65.27, 1.25), "fedsynsam": (79.64, 0.06),
    },
}  # fmt: skip

Cell = tuple[str, str, float, float | None, int, int]  # compressor, method, lr, rho, rounds, seed


def spec_of(cell: Cell) -> Spec:
    compressor, method, lr, rho, rounds, seed = cell
    radius = {} if rho is None else {"rho": rho}
    return Spec.read(SPEC).replaced(
        run={"rounds": rounds, "seed": seed, "evaluate_every": 5},
        method={"name": method, **METHODS[method], **radius},
        local={"lr": lr},
        compress=COMPRESSORS[compressor],
        engine={"workers": 1},
    )


def folder_of(out: Path, cell: Cell) -> Path:
    compressor, method, lr, rho, rounds, seed = cell
    return out / compressor / method / f"lr{lr:g}-rho{rho or 0:g}-{rounds}-{seed}"


def run_cell(out: Path, cell: Cell) -> float:
    """The accuracy a cell ends with: the mean of its last three evaluations; 0 if it diverged."""
    torch.set_num_threads(1)
    folder = RunFolder(folder_of(out, cell))
    if not (folder.exists and folder.manifest()["status"] in ("finished", "failed")):
        try:
            run(spec_of(cell), out=folder.path, resume=folder.exists)
        except Exception as error:  # a rate that is too high ends in NaN: that is its result
            print(f"{folder.path.name}: {str(error).splitlines()[0]}", flush=True)
    if folder.manifest()["status"] != "finished":
        return 0.0
    return mean([accuracy for _, accuracy in folder.history().measured][-3:])


def best(out: Path, pool: ProcessPoolExecutor, cells: Iterable[Cell], count: int) -> list[Cell]:
    cells = list(cells)
    found = list(pool.map(run_cell, [out] * len(cells), cells))
    ranked = sorted(zip(found, cells, strict=True), key=lambda pair: -pair[0])
    for accuracy, (_, method, lr, rho, rounds, _seed) in ranked[:count]:
        print(f"  {method} lr={lr} rho={rho} {rounds} rounds: {100 * accuracy:.2f}", flush=True)
    return [cell for _, cell in ranked[:count]]


def tune(out: Path, pool: ProcessPoolExecutor, compressor: str, method: str) -> dict[str, Any]:
    print(f"{compressor} {method}", flush=True)
    first = None if method in UNTUNED else 0.05
    tried = [(compressor, method, lr, first, 100, 0) for lr in RATES]
    if first is not None:
        ((_, _, lr, _, _, _),) = best(out, pool, tried, 1)
        tried += [(compressor, method, lr, rho, 100, 0) for rho in RADII if rho != first]
        ((_, _, lr, rho, _, _),) = best(out, pool, tried, 1)
        tried += [(compressor, method, rate, rho, 100, 0) for rate in RATES if rate != lr]
        tried = [*dict.fromkeys(tried)]
    two = [(*cell[:4], 300, 0) for cell in best(out, pool, tried, 2)]
    ((_, _, lr, rho, _, _),) = best(out, pool, two, 1)
    seeds = [(compressor, method, lr, rho, 300, seed) for seed in (0, 1, 2)]
    list(pool.map(run_cell, [out] * 3, seeds))
    ended = [RunFolder(folder_of(out, cell)).history() for cell in seeds]
    last = [[100 * accuracy for _, accuracy in history.measured][-10:] for history in ended]
    final = [ten[-1] for ten in last]
    return {
        "compressor": compressor, "method": method, "lr": lr, "rho": rho, "final": final,
        "mean": mean(final), "deviation": stdev(final),
        "last_ten": mean(map(mean, last)), "within_last_ten": mean(map(stdev, last)),
        "best": [100 * (h.best or 0) for h in ended],
        "bytes_up": ended[0].total("bytes_up"), "gradients": ended[0].total("gradients"),
    }  # fmt: skip


def markdown(rows: list[dict[str, Any]]) -> str:
    """Ours beside the paper's."""
    lines = [
        "| compressor | method | lr, ρ | ours, last round | ours, last ten | the paper's | MB up |",
        "|---|---|---|--:|--:|--:|--:|",
    ]
    for row in rows:
        paper, spread = PAPER[row["compressor"]][row["method"]]
        radius = "" if row["rho"] is None else f", {row['rho']:g}"
        lines.append(
            f"| {row['compressor']} | {row['method']} | {row['lr']:g}{radius} "
            f"| {row['mean']:.2f} ± {row['deviation']:.2f} | {row['last_ten']:.2f} "
            f"| {paper:.2f} ± {spread:.2f} | {row['bytes_up'] / 1e6:.0f} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--compressors", default=",".join(COMPRESSORS))
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    rows = []
    with ProcessPoolExecutor(args.jobs) as pool:
        for method, compressor in product(args.methods.split(","), args.compressors.split(",")):
            rows.append(tune(args.out, pool, compressor, method))
            row = rows[-1]
            print(f"{method} {compressor}: {row['mean']:.2f} ± {row['deviation']:.2f}", flush=True)
            (args.out / "table.json").write_text(json.dumps(rows, indent=1))
            (args.out / "table.md").write_text(markdown(rows))


if __name__ == "__main__":
    main()
