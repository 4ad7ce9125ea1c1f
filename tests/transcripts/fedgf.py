"""FedGF: the paper's algorithm box, line by line (section 4.2)."""

import numpy as np


def unit(v):
    # u(v) = v / (||v|| + eps_0), all parameters together
    return v / (np.linalg.norm(v) + 1e-7)


def fedgf(
    problem,
    rounds,
    *,
    rho,
    rho_g,
    threshold,
    window,
    lr,
    lr_decay,
    weight_decay,
    clip=None,
):
    w = problem.x0.astype(np.float64)
    # first round: no perturbed copy, c = 0
    w_tilde = None
    c = 0.0
    bits = []
    radius_g = rho if rho_g is None else rho_g
    omega = weight_decay
    history = []
    for t in range(rounds):
        # eta_t = eta_0 * delta^t
        eta_t = lr * lr_decay**t
        y = []
        for i in problem.cohort(t):
            x = w.copy()
            for k in range(problem.steps(i, t)):
                # g = g(w; xi); a = w + rho u(g)
                g = problem.grad(i, t, k, x)
                a = x + rho * unit(g)
                # b = c w~ + (1 - c) a
                b = a if w_tilde is None else c * w_tilde + (1 - c) * a
                D = problem.grad(i, t, k, b)
                norm = np.linalg.norm(D)
                if clip is not None and norm > clip:
                    D = D * (clip / norm)
                # w <- w - eta (clip(g(b)) + omega w)
                x = x - eta_t * (D + omega * x)
            y.append(x)
        # v_t = (1/M) sum ||w - y_i||
        v_t = np.mean([np.linalg.norm(w - y_i) for y_i in y])
        # append 1[v_t > T_D]; c = mean of the last W bits
        bits.append(1.0 if v_t > threshold else 0.0)
        if len(bits) > window:
            bits.pop(0)
        c = sum(bits) / len(bits)
        # p = w_old - w_new
        new = np.mean(y, axis=0)
        p = w - new
        w = new
        # w~ = w_new + rho_g u(p)
        w_tilde = w + radius_g * unit(p)
        history.append(w.copy())
    return np.array(history)
