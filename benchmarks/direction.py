"""How well methods guess the global ascent direction: cosines with the true global gradient.

    python benchmarks/direction.py OUT [--rounds 300] [--every 5] [--compressor topk0.1]

At every few global models of a FedSynSAM run and of a FedLESAM run, on all the clients' data: the
cosine of the gradient of the mean loss with β∇F_i + (1−β)∇F(syn) (mean over clients; FedSynSAM),
with the way back to the model before (FedLESAM), with ∇F_i (FedSAM, mean over clients), and with
∇F(syn) alone. Writes OUT/direction.json and a picture.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

import torch
from fedsynsam_table import COMPRESSORS, METHODS, SPEC

from flatfed.engines.inprocess import InProcess
from flatfed.engines.store import Memory
from flatfed.federation import Federation
from flatfed.parts.distil import samples
from flatfed.run.build import training_of
from flatfed.spec import Spec
from flatfed.vec import Vec

BETA, IPC = 0.9, 20


def cosine(a: Vec, b: Vec) -> float:
    return float(a @ b / (a.norm() * b.norm()))


def local_gradients(federation: Federation, w: Vec) -> torch.Tensor:
    """∇F_i(w) of every client, over all its data, in rows."""
    model, shares = federation.model, federation.shares
    rows = (model.grad(w, federation.take(shares.of(i))) for i in range(federation.N))
    return torch.stack([*rows])


def measured(method: str, lr: float, rho: float, args: argparse.Namespace) -> list[dict]:
    spec = Spec.read(SPEC).replaced(
        run={"rounds": args.rounds, "evaluate_every": args.rounds},
        method={"name": method, **METHODS[method], "rho": rho},
        local={"lr": lr},
        compress=COMPRESSORS[args.compressor],
    )
    training = training_of(spec)
    federation, standing, rows = training.federation, training.start(), []
    before = standing.state["x"]
    with tempfile.TemporaryDirectory() as scratch:
        rounds = training.go_on(standing, InProcess(), Memory(), Path(scratch))
        for standing, _ in rounds:
            w = standing.state["x"]
            if standing.t % args.every == 0:
                own = local_gradients(federation, w)
                true = own.mean(0)
                row = {"rounds": standing.t, "local": mean_cosine(own, true), "lr": lr, "rho": rho}
                row["way back"] = cosine(before - w, true)
                syn = standing.state.get("syn")
                if syn is not None and syn.numel():
                    batch = samples(syn, federation.data.shape, IPC)
                    synthetic = federation.model.grad(w, batch)
                    row["synthetic"] = cosine(synthetic, true)
                    row["mixed"] = mean_cosine(BETA * own + (1 - BETA) * synthetic, true)
                    row["half"] = mean_cosine(0.5 * own + 0.5 * synthetic, true)
                    row["length of synthetic"] = float(synthetic.norm())
                    row["length of local"] = float(own.norm(dim=1).mean())
                    row["length of global"] = float(true.norm())
                rows.append(row)
                print(method, {k: round(v, 4) for k, v in row.items()}, flush=True)
            before = w
    return rows


def mean_cosine(rows: torch.Tensor, true: Vec) -> float:
    return sum(cosine(row, true) for row in rows) / len(rows)


def draw(found: dict[str, list[dict]], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 4.2), layout="constrained")
    axes = figure.add_subplot()
    lines = (
        ("fedsynsam", "mixed", "FedSynSAM: local and synthetic gradient", "#0072B2"),
        ("fedlesam", "way back", "FedLESAM: way back to the last model", "#E69F00"),
        ("fedsynsam", "local", "FedSAM: local gradient", "#009E73"),
        ("fedsynsam", "synthetic", "synthetic gradient alone", "#CC79A7"),
    )
    for run, name, label, colour in lines:
        points = [(row["rounds"], row[name]) for row in found[run] if name in row]
        axes.plot(*zip(*points, strict=True), label=label, color=colour, linewidth=1.5)
    axes.axhline(0, color="0.6", linewidth=0.8)
    axes.set_xlabel("rounds")
    axes.set_ylabel("cosine with the global gradient")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=9)
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--every", type=int, default=5)
    parser.add_argument("--compressor", default="topk0.1", choices=COMPRESSORS)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument(
        "--rho", type=float, nargs=2, default=(0.05, 0.05), help="FedSynSAM FedLESAM"
    )
    args = parser.parse_args()
    torch.set_num_threads(1)
    args.out.mkdir(parents=True, exist_ok=True)
    runs = zip(("fedsynsam", "fedlesam"), args.rho, strict=True)
    found = {method: measured(method, args.lr, rho, args) for method, rho in runs}
    (args.out / f"direction-{args.compressor}.json").write_text(json.dumps(found, indent=1))
    draw(found, args.out / f"direction-{args.compressor}.png")


if __name__ == "__main__":
    main()
