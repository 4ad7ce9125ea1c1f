"""FedNova: the paper's algorithm box, line by line (section 4.7)."""

import numpy as np


def normaliser(K, eta, mu, momentum):
    # plain SGD: a_i = K_i
    if not mu and not momentum:
        return float(K)
    # momentum rho_m: a_i = (K_i - rho_m (1 - rho_m^K_i) / (1 - rho_m)) / (1 - rho_m)
    if momentum:
        return (K - momentum * (1 - momentum**K) / (1 - momentum)) / (1 - momentum)
    # proximal mu: a_i = (1 - (1 - eta mu)^K_i) / (eta mu)
    return (1 - (1 - eta * mu) ** K) / (eta * mu)


def fednova(problem, rounds, *, mu, weighting, lr, lr_decay, weight_decay, momentum=0.0, clip=None):
    w = problem.x0.astype(np.float64)
    omega = weight_decay
    history = []
    for t in range(rounds):
        # eta_t = eta_0 * delta^t
        eta_t = lr * lr_decay**t
        S_t = problem.cohort(t)
        d = []
        tau = []
        for i in S_t:
            K_i = problem.steps(i, t)
            # x_0 = w; the momentum buffer starts anew
            x = w.copy()
            buffer = np.zeros_like(w)
            for k in range(K_i):
                # D_k = g_k + mu (x_k - w)
                D = problem.grad(i, t, k, x) + mu * (x - w)
                norm = np.linalg.norm(D)
                if clip is not None and norm > clip:
                    D = D * (clip / norm)
                # buffer <- rho_m buffer + clip(D_k) + omega x_k
                buffer = momentum * buffer + D + omega * x
                x = x - eta_t * buffer
            a_i = normaliser(K_i, eta_t, mu, momentum)
            # d_i = (w - y_i) / a_i
            d.append((w - x) / a_i)
            # tau_eff counts a_i; for proximal, K_i
            tau.append(K_i if mu else a_i)
        # p over the cohort: n_i / sum n, or 1/S
        if weighting == "uniform":
            p = np.full(len(S_t), 1.0 / len(S_t))
        elif weighting == "samples":
            n = np.array([problem.samples[i] for i in S_t], dtype=np.float64)
            p = n / n.sum()
        else:
            raise ValueError(f"weighting={weighting!r}")
        # tau_eff = sum_i p_i a_i
        tau_eff = sum(p_i * tau_i for p_i, tau_i in zip(p, tau, strict=True))
        # w <- w - tau_eff sum_i p_i d_i
        total = np.zeros_like(w)
        for p_i, d_i in zip(p, d, strict=True):
            total = total + p_i * d_i
        w = w - tau_eff * total
        history.append(w.copy())
    return np.array(history)
