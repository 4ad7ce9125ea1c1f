"""FedSMOO: the paper's algorithm box, line by line (sections 16, 20)."""

import numpy as np


def unit(v):
    # U(v) = v / (||v|| + eps_0), all parameters together
    return v / (np.linalg.norm(v) + 1e-7)


def fedsmoo(
    problem,
    rounds,
    *,
    rho,
    lam,
    form,
    ascent,
    lr,
    lr_decay,
    weight_decay,
    clip=None,
):
    N = problem.N
    w = problem.x0.astype(np.float64)
    h = np.zeros_like(w)
    s = np.zeros_like(w)
    h_i = np.zeros((N, w.size))
    mu_i = np.zeros((N, w.size))
    history = []
    for t in range(rounds):
        # eta_t = eta_0 delta^t
        eta = lr * lr_decay**t
        S_t = problem.cohort(t)
        y = []
        s_tilde = []
        for i in S_t:
            x = w.copy()
            # g~_{-1} = 0 at the start of every round; mu_i is kept from the last participation
            g_tilde = np.zeros_like(w)
            for k in range(problem.steps(i, t)):
                # L: q_k = g_k - mu_i - s; N: q_k = g~_{k-1} - mu_i - s
                if ascent == "L":
                    q = problem.grad(i, t, k, x) - mu_i[i] - s
                elif ascent == "N":
                    q = g_tilde - mu_i[i] - s
                else:
                    raise ValueError(f"ascent={ascent!r}")
                # epsilon_k = rho U(q_k)
                epsilon = rho * unit(q)
                # mu_i <- mu_i + (epsilon_k - s)
                mu_i[i] = mu_i[i] + (epsilon - s)
                g_tilde = problem.grad(i, t, k, x + epsilon)
                # D_k = g~_k - h_i + lambda (x_k - w)
                D = g_tilde - h_i[i] + lam * (x - w)
                norm = np.linalg.norm(D)
                if clip is not None and norm > clip:
                    D = D * (clip / norm)
                # x_{k+1} = x_k - eta (clip(D_k) + omega x_k)
                x = x - eta * (D + weight_decay * x)
            y_i = x
            # printed: s~_i = mu_i - epsilon_{K-1}; simplified: s~_i = mu_i
            if form == "printed":
                s_tilde.append(mu_i[i] - epsilon)
            elif form == "simplified":
                s_tilde.append(mu_i[i].copy())
            else:
                raise ValueError(f"form={form!r}")
            # h_i <- h_i - lambda (y_i - w)
            h_i[i] = h_i[i] - lam * (y_i - w)
            y.append(y_i)

        # s <- rho U((1/S) sum_S s~_i)
        s = rho * unit(np.mean(s_tilde, axis=0))
        # h <- h - (lambda / N) sum_S (y_i - w)
        h = h - (lam / N) * np.sum([y_i - w for y_i in y], axis=0)
        # w <- ybar - h / lambda
        w = np.mean(y, axis=0) - h / lam
        history.append(w.copy())
    return np.array(history)
