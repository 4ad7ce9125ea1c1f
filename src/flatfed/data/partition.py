"""The catalogue: every published way to share samples out, by its name.

    >>> targets = torch.arange(1000) % 10
    >>> shares = build("shards", clients=5, shards_per_client=2).deal(targets, 10, seed=0)
    >>> shares.sizes
    tensor([200, 200, 200, 200, 200])

What papers call a Dirichlet split is any of prior_reuse, dirichlet, prior_weighted, class_split
and fedswa_prior: they differ in sizes, in severity, and in whether a sample is held twice.
"""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any

import torch  # noqa: F401  for the example above

from flatfed.data.class_splits import ClassSplit, DoublyStochastic, GroupedClassSplit
from flatfed.data.hands import IID, Natural, PathologicalCover, Shards
from flatfed.data.priors import Dirichlet, FedSWAPrior, Pathological, PriorReuse, PriorWeighted
from flatfed.data.shares import Partition
from flatfed.errors import SpecError, nearest

PARTITIONS: dict[str, type[Partition]] = {
    "prior_reuse": PriorReuse,
    "dirichlet": Dirichlet,
    "prior_weighted": PriorWeighted,
    "class_split": ClassSplit,
    "doubly_stochastic": DoublyStochastic,
    "grouped_class_split": GroupedClassSplit,
    "shards": Shards,
    "pathological": Pathological,
    "pathological_cover": PathologicalCover,
    "iid": IID,
    "fedswa_prior": FedSWAPrior,
    "natural": Natural,
}


def parameters(name: str, /) -> dict[str, Any]:
    """A partition's own parameters with their defaults; `clients` has none and is not among them.

    >>> parameters("dirichlet")
    {'alpha': 0.1, 'size_sigma': 0.0}
    """
    return {f.name: f.default for f in fields(_find(name)) if f.default is not MISSING}


def build(name: str, /, **settings: Any) -> Partition:
    """A partition by its name; all but natural need to be told how many `clients`.

    >>> build("dirichlet", clients=100, alpha=0.6)
    Dirichlet(clients=100, alpha=0.6, size_sigma=0.0)
    """
    partition = _find(name)
    known = {f.name for f in fields(partition)}
    for key in settings:
        if key not in known:
            listed = nearest(key, known) if known else "It has none."
            raise SpecError(f"{name} has no parameter {key!r}.\n{listed}")
    if "clients" in known - {*settings}:
        raise SpecError(
            f"{name} got no clients, expected a whole number ≥ 1.\nSay how many clients there are."
        )
    return partition(**settings)


def _find(name: str) -> type[Partition]:
    if name not in PARTITIONS:
        raise SpecError(f"{name!r} is no partition of flatfed.\n{nearest(name, PARTITIONS)}")
    return PARTITIONS[name]
