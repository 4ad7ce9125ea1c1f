"""What a message costs to make and to read: encode and decode of 11 million float32 on one thread.

    python benchmarks/compress.py            # a table on the terminal
    python benchmarks/compress.py --markdown # the table of benchmarks/README.md

The vector is Gaussian and laid out like ResNet-18: a few large matrices and many short vectors.
Median of five repeats. Limit: 0.25 s for both together, for QSGD with 4 bits and Top-k with 10 %.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from flatfed.memory import keep_pages
from flatfed.part import Compressor
from flatfed.parts.compress import Cast, Dense
from flatfed.parts.feedback import EF21, ErrorFeedback
from flatfed.parts.lowrank import LowRank
from flatfed.parts.quantise import QSGD, ScaledSign
from flatfed.parts.sparsify import RandomK, TopK
from flatfed.vec import Layout, lay_out, length_of

REPEATS = 5
MEASURED: tuple[Compressor, ...] = (
    Dense(),
    Cast("bfloat16"),
    QSGD(),
    QSGD(blocks=512),
    QSGD(norm="l2", blocks="global", intervals="literal"),
    QSGD(bits=8),
    ScaledSign(),
    ScaledSign(blocks="tensor"),
    TopK(0.1),
    TopK(0.01),
    RandomK(0.1),
    LowRank(),
    ErrorFeedback(TopK(0.1)),
    EF21(QSGD()),
)


def resnet() -> Layout:
    """The tensors of a ResNet-18 for ten classes: 11 million numbers in 62 pieces."""
    shapes: dict[str, tuple[int, ...]] = {"stem": (64, 3, 3, 3)}
    wide = 64
    for stage, out in enumerate((64, 128, 256, 512)):
        for block in range(2):
            name = f"{stage}.{block}"
            shapes |= {f"{name}.a": (out, wide, 3, 3), f"{name}.a.bias": (out,)}
            shapes |= {f"{name}.a.scale": (out,), f"{name}.b": (out, out, 3, 3)}
            shapes |= {f"{name}.b.bias": (out,), f"{name}.b.scale": (out,)}
            if wide != out:
                shapes[f"{name}.short"] = (out, wide, 1, 1)
            wide = out
    return lay_out({**shapes, "head": (10, 512), "head.bias": (10,)})


def median(run: Callable[[], Any]) -> float:
    """Milliseconds."""
    times = []
    for _ in range(REPEATS + 1):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return 1e3 * statistics.median(times[1:])  # the first warms up


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--markdown", action="store_true")
    options = arguments.parse_args()
    torch.set_num_threads(1)
    kept = keep_pages()
    layout = resnet()
    d = length_of(layout)
    a = torch.randn(d, generator=torch.Generator().manual_seed(0))
    print(
        f"torch {torch.__version__}, numpy {np.__version__}, one thread, freed pages "
        f"{'kept' if kept else 'given back'}, {d:,} numbers in {len(layout)} tensors\n"
    )
    wide = max(len(repr(compressor)) for compressor in MEASURED)
    table = f"| {{:<{wide}}} | {{:>9}} | {{:>9}} | {{:>7}} | {{:>10}} |"
    row = table if options.markdown else f"{{:<{wide}}}{{:>11}}{{:>11}}{{:>9}}{{:>12}}"
    print(row.format("compressor", "encode ms", "decode ms", "both ms", "bits a num"))
    if options.markdown:
        print("|---|--:|--:|--:|--:|")
    for compressor in MEASURED:
        memory = {name: compressor.init(name, a) for name in compressor.keep}
        v = SimpleNamespace(layout=layout, t=0, k=1, seed=lambda purpose: 1, **memory)
        sent, _ = compressor.encode(a, v)
        there = median(lambda c=compressor, v=v: c.encode(a, v))
        back = median(lambda c=compressor, sent=sent: c.decode(sent, a, layout))
        each = 8 * compressor.nbytes(layout, 4) / d
        cells = (f"{there:.0f}", f"{back:.0f}", f"{there + back:.0f}", f"{each:.2f}")
        print(row.format(repr(compressor), *cells), flush=True)


if __name__ == "__main__":
    main()
