"""FedDC: the paper's algorithm box, line by line (section 9)."""

import numpy as np


def feddc(problem, rounds, *, lam, lr, lr_decay, weight_decay, clip=None):
    w = problem.x0.astype(np.float64)
    # c = 0, c_i = 0 and H_i = 0 for every client
    c = np.zeros_like(w)
    c_i = np.zeros((problem.N, w.size))
    H_i = np.zeros((problem.N, w.size))
    omega = weight_decay
    history = []
    for t in range(rounds):
        # eta_t = eta_0 * delta^t
        eta_t = lr * lr_decay**t
        S_t = problem.cohort(t)
        y = []
        c_i_plus = []
        for i in S_t:
            K_i = problem.steps(i, t)
            # x_0 = w
            x = w.copy()
            for k in range(K_i):
                g = problem.grad(i, t, k, x)
                # D_k = g_k + lambda * (x_k - w + H_i) + (c - c_i)
                D = g + lam * (x - w + H_i[i]) + (c - c_i[i])
                norm = np.linalg.norm(D)
                if clip is not None and norm > clip:
                    D = D * (clip / norm)
                # x_{k+1} = x_k - eta * (clip(D_k) + omega * x_k)
                x = x - eta_t * (D + omega * x)
            y_i = x
            # u_i = y_i - w
            u_i = y_i - w
            # H_i <- H_i + u_i
            H_i[i] = H_i[i] + u_i
            # c_i+ = c_i - c - u_i / (K_i eta_t), with the c that was received
            c_i_plus.append(c_i[i] - c - u_i / (K_i * eta_t))
            y.append(y_i)
        # w <- ybar + (1/N) sum over all clients j of H_j
        w = np.mean(y, axis=0) + np.sum(H_i, axis=0) / problem.N
        # c <- c + (1/N) sum over S_t of (c_i+ - c_i)
        dc = np.zeros_like(c)
        for i, new in zip(S_t, c_i_plus, strict=True):
            dc = dc + (new - c_i[i])
        c = c + dc / problem.N
        # c_i <- c_i+, participants only
        for i, new in zip(S_t, c_i_plus, strict=True):
            c_i[i] = new
        history.append(w.copy())
    return np.array(history)
