"""FedCM: the paper's algorithm box, line by line (section 7)."""

import numpy as np


def fedcm(problem, rounds, *, alpha, global_lr, decay, lr, lr_decay, weight_decay, clip=None):
    w = problem.x0.astype(np.float64)
    # Delta^0 = 0
    Delta = np.zeros_like(w)
    omega = weight_decay
    if decay not in ("inside", "outside"):
        raise ValueError(f"decay={decay!r}")
    history = []
    for t in range(rounds):
        # eta_t = eta_0 * delta^t
        eta_t = lr * lr_decay**t
        u = []
        slope = []
        for i in problem.cohort(t):
            K_i = problem.steps(i, t)
            # x_0 = w
            x = w.copy()
            for k in range(K_i):
                g = problem.grad(i, t, k, x)
                if decay == "inside":
                    # g_k replaced by g_k + omega * x_k, before the correction
                    g = g + omega * x
                # D_k = alpha g_k + (1 - alpha) Delta
                D = alpha * g + (1 - alpha) * Delta
                norm = np.linalg.norm(D)
                if clip is not None and norm > clip:
                    D = D * (clip / norm)
                # inside:  x_{k+1} = x_k - eta * clip(D_k)
                # outside: x_{k+1} = x_k - eta * (clip(D_k) + omega * x_k)
                if decay == "outside":
                    D = D + omega * x
                x = x - eta_t * D
            # u_i = y_i - w
            u_i = x - w
            u.append(u_i)
            slope.append(u_i / (K_i * eta_t))
        # Delta <- -ubar / (K eta_t), every client by its own K_i: -(1/S) sum_i u_i / (K_i eta_t)
        Delta = -np.mean(slope, axis=0)
        # w <- w + eta_g * ubar
        w = w + global_lr * np.mean(u, axis=0)
        history.append(w.copy())
    return np.array(history)
