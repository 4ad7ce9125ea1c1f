"""What the contract adds to the arithmetic of a method's equations.

    python benchmarks/by_hand.py

Each method's `client_round` beside the same round as somebody would write it who needs no other
method: one loop, the same torch operations, fused where they can be, no parts and no views. Both in
turns in one process, float32, one thread, d = 1e5, an oracle that answers at once; median of five.
Their results are compared first.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import TypeAlias

import torch
from overhead import REPEATS, client, model_and_gradient, seconds

from flatfed import methods
from flatfed.memory import keep_pages
from flatfed.oracle import Oracle
from flatfed.vec import Vec, per_length, shrink

D, K = 100_000, 200
ETA, OMEGA, CLIP = 0.1, 1e-3, 10.0  # every method's own defaults
ROW = "| {:<10} | {:>9} | {:>7} | {:>13} | {:>6} |"

# What a client ends its round with: dx, and what it sends and keeps beside it.
Ended: TypeAlias = tuple[Vec, ...]


def descend(w: Vec, g: Vec) -> Vec:
    shorter = shrink(g, CLIP)  # first, while g is in the cache
    return (w * (1 - ETA * OMEGA)).addcmul_(g, shorter, value=-ETA)


def fedavg(x: Vec, zero: Vec, grad: Oracle) -> Ended:
    w = x
    for _ in range(K):
        w = descend(w, grad(w))
    return (w - x,)


def fedsam(x: Vec, zero: Vec, grad: Oracle, rho: float = 0.1) -> Ended:
    w = x
    for _ in range(K):
        g = grad(w)
        w = descend(w, grad(w.addcmul(g, per_length(g), value=rho)))
    return (w - x,)


def scaffold(x: Vec, zero: Vec, grad: Oracle) -> Ended:
    w, c, c_i = x, zero, zero
    for _ in range(K):
        w = descend(w, (grad(w) - c_i).add_(c))
    dc = (x - w) / (K * ETA) - c
    return w - x, dc, c_i + dc


def fedtoga(
    x: Vec,
    zero: Vec,
    grad: Oracle,
    rho: float = 0.1,
    kappa: float = 1.0,
    beta: float = 0.8,
    lam: float = 0.1,
) -> Ended:
    w, delta, h_i = x, zero, zero
    for _ in range(K):
        up = grad(w).add(delta, alpha=kappa)
        g = grad(w.addcmul(up, per_length(up), value=rho))
        g = g.add((w - x).add_(h_i), alpha=lam).add(delta, alpha=beta)
        w = descend(w, g)
    return w - x, h_i + (w - x)


def fedsmoo(x: Vec, zero: Vec, grad: Oracle, rho: float = 0.1, lam: float = 0.1) -> Ended:
    w, s, h_i, mu_i = x, zero, zero, zero
    for _ in range(K):
        eps = (grad(w) - mu_i).sub_(s)
        eps.mul_(per_length(eps).mul_(rho))
        mu_i = (mu_i + eps).sub_(s)
        g = grad(w + eps).add((w - x).add_(h_i), alpha=lam)
        w = descend(w, g)
    return w - x, mu_i - eps, mu_i, h_i + (w - x)


def main() -> None:
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, one thread, freed pages kept: {keep_pages()}\n")
    print(ROW.format("method", "µs a step", "by hand", "contract adds", "ratio"))
    print("|---|--:|--:|--:|--:|")
    for hand in (fedavg, fedsam, scaffold, fedtoga, fedsmoo):
        compare(hand)


def compare(hand: Callable[[Vec, Vec, Oracle], Ended]) -> None:
    x, g = model_and_gradient(D)
    zero = torch.zeros_like(x)  # what the server and the client keep, in round 0
    name = hand.__name__
    ours = client(methods.build(name, steps=K), D, K)

    def by_hand() -> Ended:
        return hand(x, zero, lambda w: g)

    upload, _ = ours()
    torch.testing.assert_close(upload.vectors["dx"][0], by_hand()[0], rtol=1e-5, atol=1e-5)
    pairs = [(seconds(ours) / K, seconds(by_hand) / K) for _ in range(REPEATS)]
    contract, bare = (statistics.median(times) * 1e6 for times in zip(*pairs, strict=True))
    ratio = statistics.median(a / b for a, b in pairs)
    times = (f"{time:.0f}" for time in (contract, bare, contract - bare))
    print(ROW.format(name, *times, f"{ratio:.2f}"), flush=True)


if __name__ == "__main__":
    main()
