"""What the contract costs per local step, beside the gradient.

    python benchmarks/overhead.py            # a table on the terminal
    python benchmarks/overhead.py --markdown # the table of benchmarks/README.md

Every method's `client_round` runs with an oracle that answers at once, so that all of its time is
overhead: hooks, views, and the vector arithmetic of the method's equations. Two sizes:

- d = 1e5: microseconds a step, and of these Python's: what is left of them at d = 10. Limit: 150.
- d = 1e7: time per vector operation of the method's equations, in units of one `w + a*g` pass,
  measured in turns in the same process. Limit: 2.5.

Vector operations are counted in the equation lines of the step's hooks: every + and − that joins
vectors, every unit(·) and every clip(·). One process, one thread, median of five repeats.
"""

from __future__ import annotations

import argparse
import re
import statistics
import time
from collections.abc import Callable

import torch

from flatfed import methods
from flatfed.mean import Upload
from flatfed.memory import keep_pages
from flatfed.method import Method
from flatfed.rounds import LocalData, broadcast, client_round
from flatfed.vec import Named, Vec

REPEATS = 5


def seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def model_and_gradient(d: int) -> tuple[Vec, Vec]:
    random = torch.Generator().manual_seed(0)
    return torch.randn(d, generator=random), torch.randn(d, generator=random)


def client(method: Method, d: int, K: int) -> Callable[[], tuple[Upload, Named]]:
    x, g = model_and_gradient(d)
    sent = broadcast(method, method.start(x), 0, 10)
    data = LocalData(0, [lambda w: g] * K, whole=lambda w: g)
    return lambda: client_round(method, sent, {}, data, 0)


def vector_operations(method: Method) -> int:
    """Of one local step, as its equation lines spell it."""
    walk = [(method.perturb, "gradient"), (method.local, "prepare"), (method.local, "step")]
    walk += [(part, "direction") for part in method.correct]
    lines = [line for part, hook in walk for line in part.equations(hook)]
    # Scalars in brackets, like (1−γ), are no vector operations; T = |w| + ζ and T·g are.
    text = re.sub(r"\(1−\w+\)", "c", "; ".join(lines)).replace("T²∇F", "T·T·∇F")
    return sum(text.count(mark) for mark in ("+", "−", "unit(", "clip(", "T·", "‖T"))


def per_step(name: str, d: int, K: int) -> float:
    """Seconds."""
    run = client(methods.build(name, steps=K), d, K)
    run()
    return statistics.median(seconds(run) for _ in range(REPEATS)) / K


def passes(d: int, times: int) -> Callable[[], None]:
    """`w + a*g`, so many times."""
    w, g = model_and_gradient(d)

    def run() -> None:
        for _ in range(times):
            w + 0.1 * g

    return run


def one_pass(d: int) -> float:
    """Seconds: how fast this machine's memory is today."""
    run = passes(d, 200)
    run()
    return statistics.median(seconds(run) for _ in range(REPEATS)) / 200


def per_operation(name: str, d: int, K: int) -> tuple[int, float]:
    """(vector operations a step, time of each in `w + a*g` passes)."""
    method = methods.build(name, steps=K)
    run, n = client(method, d, K), vector_operations(method)
    yardstick = passes(d, n * K)
    run()
    yardstick()
    ratios = [seconds(run) / seconds(yardstick) for _ in range(REPEATS)]
    return n, statistics.median(ratios)


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--markdown", action="store_true")
    arguments.add_argument("--default-malloc", action="store_true")
    options = arguments.parse_args()
    torch.set_num_threads(1)
    kept = not options.default_malloc and keep_pages()
    print(
        f"torch {torch.__version__}, one thread, freed pages {'kept' if kept else 'given back'}, "
        f"one w + 0.1 * g at d = 1e5 in {one_pass(100_000) * 1e6:.0f} µs\n"
    )
    table = "| {:<10} | {:>9} | {:>6} | {:>10} | {:>10} |"
    row = table if options.markdown else "{:<12}{:>10}{:>8}{:>12}{:>12}"
    print(row.format("method", "µs a step", "Python", "operations", "passes per"))
    if options.markdown:
        print("|---|--:|--:|--:|--:|")
    for name in methods.CATALOGUE:
        micro, python = (per_step(name, d, 200) * 1e6 for d in (100_000, 10))
        n, ratio = per_operation(name, 10_000_000, 3)
        print(row.format(name, f"{micro:.0f}", f"{python:.0f}", n, f"{ratio:.2f}"), flush=True)


if __name__ == "__main__":
    main()
