"""FedSWA: the paper's algorithm box, line by line (section 23)."""

import numpy as np


def fedswa(problem, rounds, *, ratio, alpha, lr, lr_decay, weight_decay, clip=None):
    r = ratio
    alpha_s = alpha
    w = problem.x0.astype(np.float64)
    history = []
    for t in range(rounds):
        # eta_t = eta_0 delta^t
        eta_t = lr * lr_decay**t
        S_t = problem.cohort(t)
        y = []
        for i in S_t:
            K = problem.steps(i, t)
            x = w.copy()
            for k in range(K):
                # eta_{t,k} = eta_t [(1 - k/K) + (k/K) r]
                eta = eta_t * ((1 - k / K) + (k / K) * r)
                # D_k = g_k
                D = problem.grad(i, t, k, x)
                norm = np.linalg.norm(D)
                if clip is not None and norm > clip:
                    D = D * (clip / norm)
                # x_{k+1} = x_k - eta_{t,k} (clip(D_k) + omega x_k)
                x = x - eta * (D + weight_decay * x)
            y.append(x)

        # w <- w + alpha_s (ybar - w)
        w = w + alpha_s * (np.mean(y, axis=0) - w)
        history.append(w.copy())
    return np.array(history)
