"""FedYogi: the paper's algorithm box, line by line (section 5)."""

import numpy as np


def fedyogi(
    problem,
    rounds,
    *,
    beta1,
    beta2,
    tau,
    global_lr,
    v0,
    bias_correction,
    lr,
    lr_decay,
    weight_decay,
    clip=None,
):
    w = problem.x0.astype(np.float64)
    # m^0 = 0;  v^0 = tau^2, or 0
    m = np.zeros_like(w)
    if v0 == "tau2":
        v = np.full_like(w, tau**2)
    elif v0 == "zero":
        v = np.zeros_like(w)
    else:
        raise ValueError(f"v0={v0!r}")
    omega = weight_decay
    history = []
    for t in range(rounds):
        # eta_t = eta_0 * delta^t
        eta_t = lr * lr_decay**t
        u = []
        for i in problem.cohort(t):
            # x_0 = w
            x = w.copy()
            for k in range(problem.steps(i, t)):
                # D_k = g_k
                D = problem.grad(i, t, k, x)
                norm = np.linalg.norm(D)
                if clip is not None and norm > clip:
                    D = D * (clip / norm)
                # x_{k+1} = x_k - eta * (clip(D_k) + omega * x_k)
                x = x - eta_t * (D + omega * x)
            # u_i = y_i - w
            u.append(x - w)
        # ubar = (1/S) sum_i u_i
        ubar = np.mean(u, axis=0)
        # m <- beta_1 m + (1 - beta_1) ubar
        m = beta1 * m + (1 - beta1) * ubar
        # v <- v - (1 - beta_2) ubar^2 * sign(v - ubar^2)
        v = v - (1 - beta2) * ubar**2 * np.sign(v - ubar**2)
        # eta_g, or eta_g * sqrt(1 - beta_2^(r+1)) / (1 - beta_1^(r+1)) with r = 0, 1, ...
        eta_g = global_lr
        if bias_correction:
            eta_g = global_lr * np.sqrt(1 - beta2 ** (t + 1)) / (1 - beta1 ** (t + 1))
        # w <- w + eta_g * m / (sqrt(v) + tau)
        w = w + eta_g * m / (np.sqrt(v) + tau)
        history.append(w.copy())
    return np.array(history)
