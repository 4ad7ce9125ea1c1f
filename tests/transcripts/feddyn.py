"""FedDyn: the paper's algorithm box, line by line (section 8)."""

import numpy as np


def feddyn(problem, rounds, *, lam, lr, lr_decay, weight_decay, clip=None):
    w = problem.x0.astype(np.float64)
    # h = 0 and h_i = 0 for every client
    h = np.zeros_like(w)
    h_i = np.zeros((problem.N, w.size))
    omega = weight_decay
    history = []
    for t in range(rounds):
        # eta_t = eta_0 * delta^t
        eta_t = lr * lr_decay**t
        y = []
        for i in problem.cohort(t):
            # x_0 = w
            x = w.copy()
            for k in range(problem.steps(i, t)):
                g = problem.grad(i, t, k, x)
                # D_k = g_k - h_i + lambda * (x_k - w)
                D = g - h_i[i] + lam * (x - w)
                norm = np.linalg.norm(D)
                if clip is not None and norm > clip:
                    D = D * (clip / norm)
                # x_{k+1} = x_k - eta * (clip(D_k) + omega * x_k)
                x = x - eta_t * (D + omega * x)
            y_i = x
            # h_i <- h_i - lambda * (y_i - w)
            h_i[i] = h_i[i] - lam * (y_i - w)
            y.append(y_i)
        # h <- h - (lambda/N) sum over S_t of (y_i - w)
        total = np.zeros_like(w)
        for y_i in y:
            total = total + (y_i - w)
        h = h - lam / problem.N * total
        # w <- ybar - h / lambda
        ybar = np.mean(y, axis=0)
        w = ybar - h / lam
        history.append(w.copy())
    return np.array(history)
