"""FedProx: the paper's algorithm box, line by line (section 3)."""

import numpy as np


def fedprox(problem, rounds, *, lam, global_lr, lr, lr_decay, weight_decay, clip=None):
    w = problem.x0.astype(np.float64)
    omega = weight_decay
    history = []
    for t in range(rounds):
        # eta_t = eta_0 * delta^t
        eta_t = lr * lr_decay**t
        u = []
        for i in problem.cohort(t):
            # x_0 = w
            x = w.copy()
            for k in range(problem.steps(i, t)):
                g = problem.grad(i, t, k, x)
                # D_k = g_k + lambda * (x_k - w), the gradient of (lambda/2) ||x - w||^2
                D = g + lam * (x - w)
                norm = np.linalg.norm(D)
                if clip is not None and norm > clip:
                    D = D * (clip / norm)
                # x_{k+1} = x_k - eta * (clip(D_k) + omega * x_k)
                x = x - eta_t * (D + omega * x)
            # u_i = y_i - w
            u.append(x - w)
        # ubar = (1/S) sum_i u_i
        ubar = np.mean(u, axis=0)
        # w <- w + eta_g * ubar
        w = w + global_lr * ubar
        history.append(w.copy())
    return np.array(history)
