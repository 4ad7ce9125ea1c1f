"""FedGloSS: the paper's algorithm box, line by line (section 4.3)."""

import numpy as np


def unit(v):
    # u(v) = v / (||v|| + eps_0), all parameters together
    return v / (np.linalg.norm(v) + 1e-7)


def radius(target, rho_0, rise, t):
    # from rho_0 to the target in a line over T_s rounds, never from above
    first = min(rho_0, target)
    if t >= rise:
        return target
    return first + (target - first) * t / rise


def fedgloss(
    problem,
    rounds,
    *,
    rho_s,
    rho_l,
    lam,
    rho_0,
    rise,
    global_lr,
    lr,
    lr_decay,
    weight_decay,
    clip=None,
):
    N = problem.N
    beta = 1 / lam
    w = problem.x0.astype(np.float64)
    sigma = np.zeros_like(w)
    sigma_i = np.zeros((N, w.size))
    Delta = None
    omega = weight_decay
    history = []
    for t in range(rounds):
        # eta_t = eta_0 * delta^t
        eta_t = lr * lr_decay**t
        # eps~ = rho_s u(Delta~) if there is one; w^ = w + eps~ is broadcast
        w_hat = w.copy() if Delta is None else w + radius(rho_s, rho_0, rise, t) * unit(Delta)
        y = []
        for i in problem.cohort(t):
            x = w_hat.copy()
            for k in range(problem.steps(i, t)):
                g = problem.grad(i, t, k, x)
                g = problem.grad(i, t, k, x + radius(rho_l, rho_0, rise, t) * unit(g))
                # g~ - sigma_i + (w_k - w^) / beta
                D = g - sigma_i[i] + (x - w_hat) / beta
                norm = np.linalg.norm(D)
                if clip is not None and norm > clip:
                    D = D * (clip / norm)
                x = x - eta_t * (D + omega * x)
            # sigma_i <- sigma_i - (y_i - w^) / beta
            sigma_i[i] = sigma_i[i] - (x - w_hat) / beta
            y.append(x)
        # Delta~ <- w^ - mean(y_i)
        Delta = w_hat - np.mean(y, axis=0)
        # w <- w - eta_s Delta~, at the unperturbed w
        w = w - global_lr * Delta
        # sigma <- sigma - (1 / (beta N)) sum (y_i - w^)
        sigma = sigma - np.sum([y_i - w_hat for y_i in y], axis=0) / (beta * N)
        # w <- w - beta sigma
        w = w - beta * sigma
        history.append(w.copy())
    return np.array(history)
