"""FedSpeed: the paper's algorithm box, line by line (sections 14, 20)."""

import numpy as np


def unit(v):
    # U(v) = v / (||v|| + eps_0), all parameters together
    return v / (np.linalg.norm(v) + 1e-7)


def fedspeed(
    problem,
    rounds,
    *,
    rho,
    mixture,
    lam,
    server,
    ascent,
    lr,
    lr_decay,
    weight_decay,
    clip=None,
):
    a = mixture
    N = problem.N
    w = problem.x0.astype(np.float64)
    h = np.zeros_like(w)
    h_i = np.zeros((N, w.size))
    history = []
    for t in range(rounds):
        # eta_t = eta_0 delta^t
        eta = lr * lr_decay**t
        S_t = problem.cohort(t)
        y = []
        uploads = []
        for i in S_t:
            x = w.copy()
            # g~_{-1} = 0 at the start of every round
            g_tilde = np.zeros_like(w)
            for k in range(problem.steps(i, t)):
                g = problem.grad(i, t, k, x)
                # L: v_k = g_k; N: v_k = g~_{k-1}
                if ascent == "L":
                    v = g
                elif ascent == "N":
                    v = g_tilde
                else:
                    raise ValueError(f"ascent={ascent!r}")
                # epsilon_k = rho U(v_k)
                epsilon = rho * unit(v)
                g_tilde = problem.grad(i, t, k, x + epsilon)
                # q_k = (1 - a) g_k + a g~_k
                q = (1 - a) * g + a * g_tilde
                # D_k = q_k - h_i + lambda (x_k - w)
                D = q - h_i[i] + lam * (x - w)
                norm = np.linalg.norm(D)
                if clip is not None and norm > clip:
                    D = D * (clip / norm)
                # x_{k+1} = x_k - eta (clip(D_k) + omega x_k)
                x = x - eta * (D + weight_decay * x)
            y_i = x
            # h_i <- h_i - lambda (y_i - w)
            h_i[i] = h_i[i] - lam * (y_i - w)
            y.append(y_i)
            # original form: the client sends y_i - h_i^+ / lambda
            uploads.append(y_i - h_i[i] / lam)

        if server == "dual":
            # h <- h - (lambda / N) sum_S (y_i - w)
            h = h - (lam / N) * np.sum([y_i - w for y_i in y], axis=0)
            # w <- ybar - h / lambda
            w = np.mean(y, axis=0) - h / lam
        elif server == "mean":
            # w <- mean over S_t of the uploads
            w = np.mean(uploads, axis=0)
        else:
            raise ValueError(f"server={server!r}")
        history.append(w.copy())
    return np.array(history)
