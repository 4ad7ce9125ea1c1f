"""FedMoSWA: the paper's algorithm box, line by line (sections 24, 23)."""

import numpy as np


def fedmoswa(
    problem,
    rounds,
    *,
    ratio,
    alpha,
    gamma,
    option,
    lr,
    lr_decay,
    weight_decay,
    clip=None,
):
    r = ratio
    alpha_s = alpha
    N = problem.N
    w = problem.x0.astype(np.float64)
    m = np.zeros_like(w)
    c_i = np.zeros((N, w.size))
    history = []
    for t in range(rounds):
        # eta_t = eta_0 delta^t
        eta_t = lr * lr_decay**t
        S_t = problem.cohort(t)
        S = len(S_t)
        y = []
        dc = []
        for i in S_t:
            K = problem.steps(i, t)
            x = w.copy()
            sum_eta = 0.0
            for k in range(K):
                # eta_{t,k} = eta_t [(1 - k/K) + (k/K) r]
                eta = eta_t * ((1 - k / K) + (k / K) * r)
                # D_k = g_k - c_i + m
                D = problem.grad(i, t, k, x) - c_i[i] + m
                norm = np.linalg.norm(D)
                if clip is not None and norm > clip:
                    D = D * (clip / norm)
                # x_{k+1} = x_k - eta_{t,k} (clip(D_k) + omega x_k)
                x = x - eta * (D + weight_decay * x)
                sum_eta = sum_eta + eta
            y_i = x
            if option == "I":
                # c_i^+ = g_i(w), over all data of the client
                c_plus = problem.whole(i, w)
            elif option == "I-batch":
                # c_i^+ = g_i(w; xi_0), on the first mini-batch of the round
                c_plus = problem.grad(i, t, 0, w)
            elif option == "II":
                # c_i^+ = c_i - m + (w - y_i) / sum_k eta_{t,k}
                c_plus = c_i[i] - m + (w - y_i) / sum_eta
            else:
                raise ValueError(f"option={option!r}")
            y.append(y_i)
            # the client sends c_i^+ - m
            dc.append(c_plus - m)
            # c_i <- c_i^+
            c_i[i] = c_plus

        # m <- m + gamma (1/S) sum_S (c_i^+ - m)
        m = m + gamma * (1 / S) * np.sum(dc, axis=0)
        # w <- w + alpha_s (ybar - w)
        w = w + alpha_s * (np.mean(y, axis=0) - w)
        history.append(w.copy())
    return np.array(history)
