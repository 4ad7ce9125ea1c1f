"""FedWMSAM: the paper's algorithm box, line by line (section 4.5)."""

import numpy as np


def unit(v):
    # u(v) = v / (||v|| + eps_0), all parameters together
    return v / (np.linalg.norm(v) + 1e-7)


def fedwmsam(
    problem,
    rounds,
    *,
    rho,
    alpha,
    anchor_scale,
    global_lr,
    lr,
    lr_decay,
    weight_decay,
    clip=None,
):
    N = problem.N
    w = problem.x0.astype(np.float64)
    m = np.zeros_like(w)
    c = np.zeros_like(w)
    # all of them on the server, as in the code
    c_i = np.zeros((N, w.size))
    omega = weight_decay
    history = []
    for t in range(rounds):
        # eta_t = eta_0 * delta^t
        eta = lr * lr_decay**t
        S_t = problem.cohort(t)
        Delta = []
        slope = []
        for i in S_t:
            K = problem.steps(i, t)
            # m_i = m + (alpha / (1 - alpha)) (c - c_i), what goes down beside w
            m_i = m + (alpha / (1 - alpha)) * (c - c_i[i])
            x = w.copy()
            for k in range(K):
                # delta = (w + k m_i) - x_k, k eta m_i with anchor_scale "rate"
                if anchor_scale == "one":
                    delta = (w + k * m_i) - x
                elif anchor_scale == "rate":
                    delta = (w + k * eta * m_i) - x
                else:
                    raise ValueError(f"anchor_scale={anchor_scale!r}")
                # g = g(x_k + rho u(delta))
                g = problem.grad(i, t, k, x + rho * unit(delta))
                # v = alpha g + (1 - alpha) m_i
                v = alpha * g + (1 - alpha) * m_i
                norm = np.linalg.norm(v)
                if clip is not None and norm > clip:
                    v = v * (clip / norm)
                # x_{k+1} = x_k - eta (clip(v) + omega x_k)
                x = x - eta * (v + omega * x)
            Delta.append(x - w)
            slope.append((x - w) / (K * eta))
        # value = mean(1 + cos(Delta_i, m)), with the m that the clients had
        value = np.mean([1 + unit(D) @ unit(m) for D in Delta])
        # c_i+ = c_i - c - Delta_i / (K eta); c <- c + (1/N) sum (c_i+ - c_i)
        change = np.zeros_like(w)
        for i, s_i in zip(S_t, slope, strict=True):
            new = c_i[i] - c - s_i
            change = change + (new - c_i[i])
            c_i[i] = new
        c = c + change / N
        # m <- -mean(Delta_i / (K eta))
        m = -np.mean(slope, axis=0)
        # w <- w + eta_g mean(Delta_i)
        w = w + global_lr * np.mean(Delta, axis=0)
        # alpha <- 0.99 alpha + 0.01 clip(value, 0.1, 0.9)
        alpha = 0.99 * alpha + 0.01 * min(max(value, 0.1), 0.9)
        history.append(w.copy())
    return np.array(history)
