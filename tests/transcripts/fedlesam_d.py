"""FedLESAM-D: the paper's algorithm box, line by line (sections 19, 17, 8)."""

import numpy as np


def unit(v):
    # U(v) = v / (||v|| + eps_0), all parameters together
    return v / (np.linalg.norm(v) + 1e-7)


def fedlesam_d(
    problem,
    rounds,
    *,
    rho,
    lam,
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
    h = np.zeros_like(w)
    h_i = np.zeros((N, w.size))
    history = []
    for t in range(rounds):
        # eta_t = eta_0 delta^t
        eta = lr * lr_decay**t
        S_t = problem.cohort(t)
        y = []
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
            for k in range(problem.steps(i, t)):
                # D_k = g(x_k + epsilon) - h_i + lambda (x_k - w)
                D = problem.grad(i, t, k, x + epsilon) - h_i[i] + lam * (x - w)
                norm = np.linalg.norm(D)
                if clip is not None and norm > clip:
                    D = D * (clip / norm)
                # x_{k+1} = x_k - eta (clip(D_k) + omega x_k)
                x = x - eta * (D + weight_decay * x)
            y_i = x
            # h_i <- h_i - lambda (y_i - w)
            h_i[i] = h_i[i] - lam * (y_i - w)
            y.append(y_i)
            # w_i^old <- w, the model received this round
            w_old[i] = w.copy()

        w_before = w.copy()
        # h <- h - (lambda / N) sum_S (y_i - w)
        h = h - (lam / N) * np.sum([y_i - w for y_i in y], axis=0)
        # w <- ybar - h / lambda, so the next movement includes the -h / lambda part
        w = np.mean(y, axis=0) - h / lam
        history.append(w.copy())
    return np.array(history)
