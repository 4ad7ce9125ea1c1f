"""FedACG: the paper's algorithm box, line by line (section 10)."""

import numpy as np


def fedacg(problem, rounds, *, lookahead, lam, lr, lr_decay, weight_decay, clip=None):
    w = problem.x0.astype(np.float64)
    # m^0 = 0
    m = np.zeros_like(w)
    lambda_m = lookahead
    omega = weight_decay
    history = []
    for t in range(rounds):
        # eta_t = eta_0 * delta^t
        eta_t = lr * lr_decay**t
        # z = w + lambda_m m, the only thing that is sent
        z = w + lambda_m * m
        u_z = []
        for i in problem.cohort(t):
            # x_0 = z
            x = z.copy()
            for k in range(problem.steps(i, t)):
                g = problem.grad(i, t, k, x)
                # D_k = g_k + lambda * (x_k - z)
                D = g + lam * (x - z)
                norm = np.linalg.norm(D)
                if clip is not None and norm > clip:
                    D = D * (clip / norm)
                # x_{k+1} = x_k - eta * (clip(D_k) + omega * x_k)
                x = x - eta_t * (D + omega * x)
            # upload y_i - z
            u_z.append(x - z)
        # ubar_z = mean(y_i - z)
        ubar_z = np.mean(u_z, axis=0)
        # m <- lambda_m m + ubar_z
        m = lambda_m * m + ubar_z
        # w <- w + m
        w = w + m
        history.append(w.copy())
    return np.array(history)
