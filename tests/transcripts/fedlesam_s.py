"""FedLESAM-S: the paper's algorithm box, line by line (sections 18, 17, 6)."""

import numpy as np


def unit(v):
    # U(v) = v / (||v|| + eps_0), all parameters together
    return v / (np.linalg.norm(v) + 1e-7)


def fedlesam_s(
    problem,
    rounds,
    *,
    rho,
    global_lr,
    reference,
    lr,
    lr_decay,
    weight_decay,
    clip=None,
):
    N = problem.N
    w = problem.x0.astype(np.float64)
    w_before = problem.x0.astype(np.float64)
    w_old = {}
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
            # last active: epsilon = rho U(w_i^old - w), zero at the first participation;
            # last round: epsilon = rho U(w^{t-1} - w^t), zero at t = 0
            if reference == "last_active":
                epsilon = rho * unit(w_old[i] - w) if i in w_old else np.zeros_like(w)
            elif reference == "last_round":
                epsilon = rho * unit(w_before - w)
            else:
                raise ValueError(f"reference={reference!r}")

            x = w.copy()
            sum_eta = 0.0
            for k in range(problem.steps(i, t)):
                # D_k = g(x_k + epsilon) - c_i + c
                D = problem.grad(i, t, k, x + epsilon) - c_i[i] + c
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
            # w_i^old <- w, the model received this round
            w_old[i] = w.copy()

        w_before = w.copy()
        # w <- w + eta_g ubar
        w = w + global_lr * np.mean(u, axis=0)
        # c <- c + (1/N) sum_S (c_i^+ - c_i)
        c = c + np.sum(dc, axis=0) / N
        history.append(w.copy())
    return np.array(history)
