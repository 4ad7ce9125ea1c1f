"""FedASAM with server weight averaging: the paper's algorithm box, line by line (section 13)."""

import numpy as np


def fedasam(
    problem,
    rounds,
    *,
    rho,
    zeta,
    swa_start,
    swa_cycle,
    swa_low,
    weighting,
    lr,
    lr_decay,
    weight_decay,
    clip=None,
):
    w = problem.x0.astype(np.float64)
    w_swa = problem.x0.astype(np.float64)
    n = 0
    history = []
    evaluated = []
    for t in range(rounds):
        # eta_t = eta_0 delta^t
        eta = lr * lr_decay**t

        # SWA rounds: eta(t) = (1 - tau_t) gamma_1 + tau_t gamma_2, tau_t = ((t mod c) + 1) / c;
        # no cycling for c = 1
        if swa_start is not None and t >= swa_start and swa_cycle > 1:
            tau = ((t % swa_cycle) + 1) / swa_cycle
            gamma_1 = eta
            gamma_2 = swa_low
            eta = (1 - tau) * gamma_1 + tau * gamma_2

        S_t = problem.cohort(t)
        y = []
        n_i = []
        for i in S_t:
            x = w.copy()
            for k in range(problem.steps(i, t)):
                g = problem.grad(i, t, k, x)
                # T_k = diag(|x_k| + zeta) on the weights, identity on the rest
                T = np.where(problem.adaptive, np.abs(x) + zeta, 1.0)
                # epsilon_k = rho T_k^2 g_k / (||T_k g_k|| + 1e-16)
                epsilon = rho * T**2 * g / (np.linalg.norm(T * g) + 1e-16)
                # D_k = g~_k
                D = problem.grad(i, t, k, x + epsilon)
                norm = np.linalg.norm(D)
                if clip is not None and norm > clip:
                    D = D * (clip / norm)
                # x_{k+1} = x_k - eta (clip(D_k) + omega x_k)
                x = x - eta * (D + weight_decay * x)
            y.append(x)
            n_i.append(problem.samples[i])

        # w <- sum_i p_i y_i with p_i = n_i / sum_S n_j (or 1/S)
        if weighting == "samples":
            p = np.array(n_i, dtype=float) / np.sum(n_i)
        elif weighting == "uniform":
            p = np.full(len(S_t), 1.0 / len(S_t))
        else:
            raise ValueError(f"weighting={weighting!r}")
        w = np.zeros_like(w)
        for p_i, y_i in zip(p, y, strict=True):
            w = w + p_i * y_i

        # end of a cycle, (t - t_0 + 1) mod c = 0: w_swa <- (n w_swa + w) / (n + 1), n <- n + 1
        if swa_start is not None and t >= swa_start and (t - swa_start + 1) % swa_cycle == 0:
            w_swa = (n * w_swa + w) / (n + 1)
            n = n + 1

        history.append(w.copy())
        # evaluation uses w_swa once it exists; training goes on from w
        evaluated.append(w_swa.copy() if n > 0 else w.copy())
    return np.array(history), np.array(evaluated)
