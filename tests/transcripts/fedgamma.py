"""FedGAMMA: the paper's algorithm box, line by line (sections 15, 6)."""

import numpy as np


def unit(v):
    # U(v) = v / (||v|| + eps_0), all parameters together
    return v / (np.linalg.norm(v) + 1e-7)


def fedgamma(problem, rounds, *, rho, global_lr, lr, lr_decay, weight_decay, clip=None):
    N = problem.N
    w = problem.x0.astype(np.float64)
    c = np.zeros_like(w)
    c_i = np.zeros((N, w.size))
    history = []
    for t in range(rounds):
        # eta_t = eta_0 delta^t
        eta = lr * lr_decay**t
        S_t = problem.cohort(t)
        u = []
        dc = []
        for i in S_t:
            K = problem.steps(i, t)
            x = w.copy()
            sum_eta = 0.0
            for k in range(K):
                # epsilon_k = rho U(g_k), the uncorrected local gradient
                g = problem.grad(i, t, k, x)
                epsilon = rho * unit(g)
                g_tilde = problem.grad(i, t, k, x + epsilon)
                # D_k = g~_k - c_i + c
                D = g_tilde - c_i[i] + c
                norm = np.linalg.norm(D)
                if clip is not None and norm > clip:
                    D = D * (clip / norm)
                # x_{k+1} = x_k - eta (clip(D_k) + omega x_k)
                x = x - eta * (D + weight_decay * x)
                sum_eta = sum_eta + eta
            y_i = x
            # option II, with the old c: c_i^+ = c_i - c + (w - y_i) / sum_k eta_{t,k}
            c_plus = c_i[i] - c + (w - y_i) / sum_eta
            u.append(y_i - w)
            dc.append(c_plus - c_i[i])
            c_i[i] = c_plus

        # w <- w + eta_g ubar
        w = w + global_lr * np.mean(u, axis=0)
        # c <- c + (1/N) sum_S (c_i^+ - c_i)
        c = c + np.sum(dc, axis=0) / N
        history.append(w.copy())
    return np.array(history)
