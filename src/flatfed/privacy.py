"""What a run has given away: ε of Gaussian noise, by the Rényi accountant of dp-accounting."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import lru_cache
from importlib import import_module
from typing import Any

from flatfed.errors import CompositionError


def epsilon(releases: Iterable[tuple[float, float, int]], delta: float) -> float:
    """ε at δ when every (q, σ, n) has happened: n releases of a sum to which a client contributes
    with probability q, under Gaussian noise of σ times what one client can change it by.

    It is the least bound over the accountant's orders α > 1, of which RDP(α) is what all releases
    together spend:  RDP(α) − (ln δ + ln α)/(α − 1) + ln((α − 1)/α).
    """
    rdp = _library().rdp
    spent = [[n * order for order in _spent(q, sigma)] for q, sigma, n in releases]
    if not spent:
        return 0.0
    totals = [sum(at) for at in zip(*spent, strict=True)]
    return float(rdp.compute_epsilon(_orders(), totals, delta)[0])


@lru_cache(maxsize=4096)  # a tenth of a second each, and asked for in every round
def _spent(q: float, sigma: float) -> tuple[float, ...]:
    """RDP of one release, at each of the accountant's orders; infinite where it is not known."""
    library = _library()
    accountant = library.rdp.RdpAccountant(_orders())
    absl = logging.getLogger("absl")
    quiet, absl.disabled = absl.disabled, True  # it says which orders it leaves out; others remain
    try:
        accountant.compose(library.PoissonSampledDpEvent(q, library.GaussianDpEvent(sigma)))
    finally:
        absl.disabled = quiet
    return tuple(float(order) for order in accountant._rdp)


def _orders() -> list[float]:
    return list(_library().rdp.rdp_privacy_accountant.DEFAULT_RDP_ORDERS)


def _library() -> Any:
    try:
        library = import_module("dp_accounting")
        import_module("dp_accounting.rdp")
    except ImportError as error:
        raise CompositionError(
            f"ε needs dp-accounting, which cannot be imported: {error}.\n"
            "Install it with pip install 'flatfed[privacy]'."
        ) from error
    return library
