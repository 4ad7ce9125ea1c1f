"""A run that is killed twenty times ends with the same bytes as one that is left alone.

    python benchmarks/kills.py                 # five methods, twenty SIGKILLs each: ten minutes
    python benchmarks/kills.py --kills 3 fedavg

For every method: the demo's task is run with one worker, with two, with two again; then once more,
killed with SIGKILL at random moments and gone on with --resume, with one worker and two in turns.
All params_sha256 must be equal. Moments are drawn from the whole life of the process: while it
imports, while it trains, while it writes a checkpoint.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SPEC = Path(__file__).parents[1] / "examples" / "demo.toml"
METHODS = ("fedavg", "scaffold", "fedsmoo", "fedtoga", "fedmoswa")
ROUNDS = 240


def command(method: str, out: Path, workers: int) -> list[str]:
    keys = [f"method.name={method}", f"run.rounds={ROUNDS}", "run.checkpoint_every=3",
            "run.evaluate_every=20"]  # fmt: skip
    sets = [word for key in keys for word in ("--set", key)]
    return [sys.executable, "-m", "flatfed", "run", str(SPEC), *sets, "--out", str(out),
            "--workers", str(workers), "--resume", "--quiet"]  # fmt: skip


def sha256(out: Path) -> str:
    return json.loads((out / "manifest.json").read_text())["params_sha256"]


def left_alone(method: str, out: Path, workers: int) -> str:
    subprocess.run(command(method, out, workers), check=True)
    return sha256(out)


def rounds(out: Path) -> int:
    """At the last complete checkpoint."""
    return max((int(p.name) for p in (out / "checkpoint").glob("[0-9]*")), default=0)


def killed(
    method: str, folder: Path, kills: int, moments: random.Random
) -> tuple[list[str], list[int]]:
    """Hashes, and how many rounds the checkpoint had whenever it was killed.

    A run that ends before it has been killed often enough is followed by another.
    """
    reached: list[int] = []
    runs = [folder / "killed-0"]
    while len(reached) < kills:
        process = subprocess.Popen(command(method, runs[-1], 1 + len(reached) % 2))
        time.sleep(moments.uniform(0.5, 5.0))
        if process.poll() is not None:
            runs.append(folder / f"killed-{len(runs)}")
            continue
        process.send_signal(signal.SIGKILL)
        process.wait()
        reached.append(rounds(runs[-1]))
    left_alone(method, runs[-1], 2)
    return [sha256(out) for out in runs], reached


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("methods", nargs="*", default=METHODS)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    wrong = 0
    for method in asked.methods or METHODS:
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder)
            hashes = [
                left_alone(method, out / name, workers)
                for name, workers in (("one", 1), ("two", 2), ("again", 2))
            ]
            after, reached = killed(method, out, asked.kills, random.Random(asked.seed))
            same = len({*hashes, *after}) == 1
            wrong += not same
            said = "equal" if same else f"DIFFERENT: {hashes} {after}"
            print(f"{method:9} {after[0][:16]}  {said}; killed after {reached} rounds", flush=True)
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
