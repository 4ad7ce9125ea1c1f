"""DP-FedSAM: the algorithm, line by line, with the clip over the whole update (section 4.8).

What is spent is no part of the models: tests/test_privacy.py holds it against the formula.
"""

import numpy as np


def dp_fedsam(
    problem,
    rounds,
    *,
    rho,
    ascent,
    bound,
    sigma,
    delta,
    weighting,
    momentum,
    lr,
    lr_decay,
    weight_decay,
    clip=None,
):
    assert weighting == "uniform"
    w = problem.x0.astype(np.float64)
    d = w.size
    history = []
    for t in range(rounds):
        eta = lr * lr_decay**t
        S_t = problem.cohort(t)
        M = len(S_t)
        total = np.zeros_like(w)
        for i in S_t:
            x = w.copy()
            velocity = np.zeros_like(w)
            for k in range(problem.steps(i, t)):
                g = problem.grad(i, t, k, x)
                if ascent == "adaptive":
                    # eps = rho w^2 g / || |w| g ||
                    epsilon = rho * x**2 * g / (np.linalg.norm(np.abs(x) * g) + 1e-12)
                elif ascent == "plain":
                    # eps = rho g / ||g||
                    epsilon = rho * g / (np.linalg.norm(g) + 1e-7)
                else:
                    raise ValueError(f"ascent={ascent!r}")
                D = problem.grad(i, t, k, x + epsilon)
                norm = np.linalg.norm(D)
                if clip is not None and norm > clip:
                    D = D * (clip / norm)
                velocity = momentum * velocity + (D + weight_decay * x)
                x = x - eta * velocity
            Delta = x - w
            # Delta^ = Delta min(1, C / ||Delta||)
            Delta = Delta * min(1.0, bound / np.linalg.norm(Delta))
            # send Delta^ + N(0, (sigma C)^2 / M I)
            if sigma > 0:
                Delta = Delta + sigma * bound / np.sqrt(M) * problem.normal(i, t, d)
            total = total + Delta
        # w <- w + (1/M) sum
        w = w + total / M
        history.append(w.copy())
    return np.array(history)
