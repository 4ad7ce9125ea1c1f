"""Who holds what, as a picture and as a table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from flatfed.data.heterogeneity import Heterogeneity
from flatfed.data.shares import Ints
from flatfed.errors import SpecError

if TYPE_CHECKING:
    from rich.console import Group

SUFFIXES = (".png", ".svg")
CLIENTS = 1000  # the most that a picture shows: more would be narrower than a pixel
NAMED = 40  # classes, or clients, up to which every one is labelled
DOTTED = (60, 40)  # clients and classes up to which dots are told apart better than shades
WIDE = 20  # classes up to which a table has a column for each
DEEP = "#08306b"  # the dark end of Blues, which any eye tells from white


def draw(
    counts: Ints, classes: Sequence[str], path: str | Path, *, title: str = "Who holds what"
) -> None:
    """Clients from left to right, classes from top to bottom, to a PNG or an SVG.

    A dot's area is its number of samples; where dots would be too small, cells are shaded.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    path = Path(path)
    if path.suffix.lower() not in SUFFIXES:
        raise SpecError(
            f"The picture's file is {path.name!r}, expected a name in {' or '.join(SUFFIXES)}.\n"
            "Its ending says what kind of picture to write."
        )
    shown = counts[:CLIENTS]
    clients, rows = shown.shape
    width = 2.2 + min(max(0.26 * clients, 3.2), 14)
    height = 1.3 + min(max(0.26 * rows, 1.6), 10)
    # Ids inside an SVG are drawn by lot unless told not to be: the same shares, the same file.
    with rc_context({"svg.hashsalt": "flatfed"}):
        figure = Figure(figsize=(width, height), layout="constrained", dpi=150)
        axes = figure.add_subplot()
        if clients <= DOTTED[0] and rows <= DOTTED[1]:
            key = _dots(axes, shown)
        else:
            key = _shades(figure, axes, shown)
        several = f"{clients} clients"
        if len(counts) > clients:
            several = f"the first {clients} of {len(counts)} clients"
        axes.set_title(f"{title}: {several}, {shown.sum()} samples\n{key}", fontsize=9)
        axes.set_xlabel("client")
        axes.set_ylabel("class")
        # Half a cell more each way, and the first class on top, as it is in the table.
        axes.set(xlim=(-0.5, clients - 0.5), ylim=(rows - 0.5, -0.5))
        _name(axes.xaxis, [str(i) for i in range(clients)])
        _name(axes.yaxis, [str(name) for name in classes])
        plain = {"Date": None} if path.suffix.lower() == ".svg" else {}
        figure.savefig(path, metadata=plain, bbox_inches="tight")


def table(found: Heterogeneity, classes: Sequence[str], *, limit: int = 40) -> Group:
    """Class counts of the first clients, below them all samples held, and the statistics.

    With many classes only the three that a client holds most of are named.
    """
    from rich.console import Group
    from rich.table import Table

    counts = found.counts_of(0, min(limit, found.clients))
    held = np.bincount(found.labels[found.shares.indices.numpy()], minlength=len(classes))
    result = Table(box=None, pad_edge=False, show_footer=True)
    result.add_column("client", "all", justify="right")
    if len(classes) <= WIDE:
        for name, total in zip(classes, held, strict=True):
            result.add_column(name, str(total), justify="right")
    else:
        result.add_column("classes", str(np.count_nonzero(held)), justify="right")
        result.add_column("most of", _most(held, classes))
    result.add_column("samples", str(found.held), justify="right")
    for i, row in enumerate(counts):
        many = (str(np.count_nonzero(row)), _most(row, classes))
        cells = map(str, row) if len(classes) <= WIDE else many
        result.add_row(str(i), *cells, str(row.sum()))
    return Group(result, _said(found, len(counts)))


def _dots(axes: Any, counts: Ints) -> str:
    c, i = np.nonzero(counts.T)
    number = counts[i, c]
    # The largest fills its cell of 0.26 inches, so no two overlap.
    axes.scatter(i, c, s=(0.26 * 72 * 0.95) ** 2 * number / number.max(), c=DEEP, linewidths=0)
    axes.set_aspect("equal")
    return f"largest dot: {number.max()} samples"


def _shades(figure: Any, axes: Any, counts: Ints) -> str:
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap, PowerNorm

    # One sample is told from none, which stays white; by the root, few are seen beside many.
    blues = ListedColormap(colormaps["Blues"](np.linspace(0.15, 1, 256)))
    some = np.ma.masked_equal(counts.T, 0)
    norm = PowerNorm(0.5, vmin=0, vmax=counts.max())
    image = axes.imshow(some, cmap=blues, norm=norm, aspect="auto", interpolation="nearest")
    figure.colorbar(image, ax=axes, label="samples", pad=0.01, aspect=40)
    return "white: none"


def _name(axis: Any, names: list[str]) -> None:
    """A label for each, or for every so many in round numbers."""
    step = next(s for s in (1, 2, 5, 10, 20, 50, 100) if len(names) <= NAMED * s)
    at = range(0, len(names), step)
    axis.set_ticks(list(at), [names[k] for k in at], fontsize=8)


def _most(row: Ints, classes: Sequence[str]) -> str:
    """The classes of which there is most, with how many."""
    order = np.argsort(-row, kind="stable")[:3]
    return ", ".join(f"{classes[c]} {row[c]}" for c in order if row[c])


def _said(found: Heterogeneity, shown: int) -> str:
    more = f"and {found.clients - shown} more clients\n" if found.clients > shown else ""
    moved = f", {found.moved} moved" if found.moved else ""
    return (
        f"{more}"
        f"sizes {found.size_min} to {found.size_max}, mean {found.size_mean:.1f}{moved}; "
        f"{found.distinct} of {len(found.labels)} samples held\n"
        f"total variation to the global mix {found.total_variation:.3f}, "
        f"largest class {found.max_share:.3f} of a client's samples (means over clients)"
    )
