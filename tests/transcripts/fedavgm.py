"""FedAvgM: the paper's algorithm box, line by line (section 2)."""

import numpy as np


def fedavgm(problem, rounds, *, beta, global_lr, nesterov, lr, lr_decay, weight_decay, clip=None):
    w = problem.x0.astype(np.float64)
    # m^0 = 0
    m = np.zeros_like(w)
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
                # D_k = g_k
                D = problem.grad(i, t, k, x)
                norm = np.linalg.norm(D)
                if clip is not None and norm > clip:
                    D = D * (clip / norm)
                # x_{k+1} = x_k - eta * (clip(D_k) + omega * x_k)
                x = x - eta_t * (D + omega * x)
            # u_i = y_i - w
            u.append(x - w)
        # ubar = (1/S) sum_i u_i
        ubar = np.mean(u, axis=0)
        # m <- beta * m + ubar
        m = beta * m + ubar
        # w <- w + eta_g * m;  Nesterov: w <- w + eta_g * (ubar + beta * m_new)
        step = m
        if nesterov:
            step = ubar + beta * m
        w = w + global_lr * step
        history.append(w.copy())
    return np.array(history)
