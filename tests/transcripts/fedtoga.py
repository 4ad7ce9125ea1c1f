"""FedTOGA: the paper's algorithm box, line by line (sections 21, 20)."""

import numpy as np


def unit(v):
    # U(v) = v / (||v|| + eps_0), all parameters together
    return v / (np.linalg.norm(v) + 1e-7)


def fedtoga(
    problem,
    rounds,
    *,
    rho,
    kappa,
    beta,
    lam,
    ascent,
    delta_scale,
    lr,
    lr_decay,
    weight_decay,
    clip=None,
):
    N = problem.N
    w = problem.x0.astype(np.float64)
    h = np.zeros_like(w)
    Delta = np.zeros_like(w)
    h_i = np.zeros((N, w.size))
    history = []
    for t in range(rounds):
        # eta_t = eta_0 delta^t
        eta = lr * lr_decay**t
        S_t = problem.cohort(t)
        S = len(S_t)
        y = []
        ratios = []
        for i in S_t:
            K = problem.steps(i, t)
            x = w.copy()
            # g~_{-1} = 0 at the start of every round
            g_tilde = np.zeros_like(w)
            for k in range(K):
                if ascent == "G":
                    # v_k = g_k + kappa Delta
                    v = problem.grad(i, t, k, x) + kappa * Delta
                elif ascent == "N":
                    # v_k = g~_{k-1} + kappa Delta
                    v = g_tilde + kappa * Delta
                elif ascent == "F":
                    # v_k = g_k + g~_{k-1} + kappa Delta
                    v = problem.grad(i, t, k, x) + g_tilde + kappa * Delta
                else:
                    raise ValueError(f"ascent={ascent!r}")
                # epsilon_k = rho U(v_k)
                epsilon = rho * unit(v)
                g_tilde = problem.grad(i, t, k, x + epsilon)
                # D_k = g~_k - h_i + beta Delta + lambda (x_k - w)
                D = g_tilde - h_i[i] + beta * Delta + lam * (x - w)
                norm = np.linalg.norm(D)
                if clip is not None and norm > clip:
                    D = D * (clip / norm)
                # x_{k+1} = x_k - eta (clip(D_k) + omega x_k)
                x = x - eta * (D + weight_decay * x)
            y_i = x
            # h_i <- h_i - lambda (y_i - w)
            h_i[i] = h_i[i] - lam * (y_i - w)
            y.append(y_i)
            # step: u_i / K_i; gradient: u_i / (K_i eta_t)
            if delta_scale == "step":
                ratios.append((y_i - w) / K)
            elif delta_scale == "gradient":
                ratios.append((y_i - w) / (K * eta))
            else:
                raise ValueError(f"delta_scale={delta_scale!r}")

        # Delta <- -(1/S) sum_S u_i / K_i
        Delta = -(1 / S) * np.sum(ratios, axis=0)
        # h <- h - (lambda / N) sum_S (y_i - w)
        h = h - (lam / N) * np.sum([y_i - w for y_i in y], axis=0)
        # w <- ybar - h / lambda
        w = np.mean(y, axis=0) - h / lam
        history.append(w.copy())
    return np.array(history)
