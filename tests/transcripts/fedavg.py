"""FedAvg: the paper's algorithm box, line by line (section 1)."""

import numpy as np


def fedavg(problem, rounds, *, global_lr, weighting, lr, lr_decay, weight_decay, clip=None):
    w = problem.x0.astype(np.float64)
    omega = weight_decay
    history = []
    for t in range(rounds):
        # eta_t = eta_0 * delta^t
        eta_t = lr * lr_decay**t
        S_t = problem.cohort(t)
        u = []
        for i in S_t:
            # x_0 = w
            x = w.copy()
            for k in range(problem.steps(i, t)):
                # D_k = g_k
                D = problem.grad(i, t, k, x)
                norm = np.linalg.norm(D)
                if clip is not None and norm > clip:
                    D = D * (clip / norm)
                # x_{k+1} = x_k - eta * (clip(D_k) + omega * x_k)
                x = x - eta_t * (D + omega * x)
            # u_i = y_i - w
            u.append(x - w)
        # p_i = 1/S, or n_i over the samples of the cohort
        if weighting == "uniform":
            p = np.full(len(S_t), 1.0 / len(S_t))
        elif weighting == "samples":
            n = np.array([problem.samples[i] for i in S_t], dtype=np.float64)
            p = n / n.sum()
        else:
            raise ValueError(f"weighting={weighting!r}")
        # ubar = sum_i p_i u_i
        ubar = np.zeros_like(w)
        for p_i, u_i in zip(p, u, strict=True):
            ubar = ubar + p_i * u_i
        # w <- w + eta_g * ubar
        w = w + global_lr * ubar
        history.append(w.copy())
    return np.array(history)
