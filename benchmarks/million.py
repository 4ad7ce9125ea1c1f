"""A population of a million clients, a hundred of them a round: memory and checkpoint.

    python benchmarks/million.py [--rounds 30] [--workers 2]

SCAFFOLD, which keeps a vector at every client, on the two-layer MLP (101 770 parameters). A million
images of noise, one for each client: what they show is of no importance here, where they lie is.
Memory is what all processes hold together, pages that they share counted once (Pss).
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
import time
from pathlib import Path

import torch

from flatfed.data import DataSet, Split
from flatfed.run import run
from flatfed.run.folder import RunFolder
from flatfed.spec import Spec

N = 1_000_000


def noise() -> DataSet:
    """A million images, uint8."""
    random = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (N, 1, 28, 28), dtype=torch.uint8, generator=random)
    targets = torch.arange(N) % 10
    test = Split(images[:1000], targets[:1000])
    names = tuple("0123456789")
    return DataSet("noise", Split(images, targets), test, names, (0.5,), (0.29,))


def held() -> int:
    """Bytes of this process and its children."""
    me, total = os.getpid(), 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if int(folder.name) == me or parent == me:
                lines = (folder / "smaps_rollup").read_text().splitlines()
                total += next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
        except (OSError, StopIteration):  # it has ended meanwhile
            continue
    return 1024 * total


class Peak(threading.Thread):
    """The most that was held at any look."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.bytes, self.over = 0, threading.Event()

    def run(self) -> None:
        while not self.over.wait(0.5):
            self.bytes = max(self.bytes, held())


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


class Watching:
    """Says what a checkpoint takes, and how many clients have taken part."""

    def __init__(self, out: Path, peak: Peak) -> None:
        self.out, self.peak, self.started = out, peak, time.monotonic()

    def begin(self, training, history) -> None:
        print("round  clients so far  checkpoint MB  memory now GiB  at most  seconds")

    def round(self, record) -> None:
        if (record.round + 1) % 10 == 0:
            folder = self.out / "checkpoint"
            clients = len([*(folder / "clients").rglob("*.safetensors")])
            now = held()
            self.peak.bytes = max(self.peak.bytes, now)
            print(
                f"{record.round + 1:5}  {clients:14}  {size(folder) / 1e6:13.1f}  "
                f"{now / 2**30:14.2f}  {self.peak.bytes / 2**30:7.2f}  "
                f"{time.monotonic() - self.started:7.0f}",
                flush=True,
            )

    def end(self, status) -> None: ...


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--workers", type=int, default=2)
    asked = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parent))
    spec = Spec.of(
        {
            "run": {"rounds": asked.rounds, "evaluate_every": 10},
            "data": {"source": "million:noise", "clients": N, "partition": "iid"},
            "model": {"name": "mlp2"},
            "method": {"name": "scaffold"},
            "cohort": {"size": 100},
            "local": {"steps": 5, "batch_size": 10, "lr": 0.05},
            "engine": {"workers": asked.workers},
        }
    )
    peak = Peak()
    peak.start()
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        run(spec, out=out, watchers=[Watching(out, peak)])
        peak.over.set()
        print("status:", RunFolder(out).manifest()["status"])
    print(f"at most {peak.bytes / 2**30:.2f} GiB in memory")


if __name__ == "__main__":
    main()
