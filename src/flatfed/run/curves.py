"""Test accuracy by round, a line for every method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from flatfed.history import History

# Okabe and Ito's colours, which colour-blind readers can tell apart; then the line changes too.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#000000")
STYLES = ("-", "--", ":", "-.")


def draw_curves(
    histories: Mapping[str, Sequence[History]], path: Path, *, target: float | None = None
) -> None:
    """Mean over a method's runs where all were measured; their range where there are several."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 4.5), layout="constrained")
    axes = figure.add_subplot()
    for number, (method, runs) in enumerate(histories.items()):
        measured = [run for history in runs if (run := dict(history.measured))]
        rounds = sorted(set.intersection(*(set(run) for run in measured))) if measured else []
        if not rounds:
            continue
        accuracies = 100 * np.array([[run[done] for done in rounds] for run in measured])
        colour = COLOURS[number % len(COLOURS)]
        style = STYLES[number // len(COLOURS) % len(STYLES)]
        axes.plot(rounds, accuracies.mean(0), style, color=colour, label=method, linewidth=1.6)
        if len(measured) > 1:
            axes.fill_between(
                rounds, accuracies.min(0), accuracies.max(0), color=colour, alpha=0.15, linewidth=0
            )
    if target is not None:
        axes.axhline(100 * target, color="0.6", linewidth=0.8)
    axes.set_xlabel("rounds")
    axes.set_ylabel("test accuracy (%)")
    axes.grid(color="0.9", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False, fontsize=9)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
