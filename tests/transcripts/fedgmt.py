"""FedGMT: the published code, line by line (section 4.4)."""

import numpy as np


def softmax(Z):
    P = np.exp(Z - Z.max(axis=1, keepdims=True))
    return P / P.sum(axis=1, keepdims=True)


def fedgmt(
    problem,
    rounds,
    *,
    alpha,
    gamma,
    tau,
    lam,
    weighting,
    momentum,
    lr,
    lr_decay,
    weight_decay,
    clip=None,
):
    beta = 1 / lam
    N = problem.N
    w = problem.x0.astype(np.float64)
    # e_0 = w_0, h_i = 0
    e = problem.x0.astype(np.float64)
    h_i = np.zeros((N, w.size))
    # in a mean over clients, client i counts n_i / nbar times (or once)
    if weighting == "samples":
        share = np.asarray(problem.samples, dtype=float) / np.mean(problem.samples)
    elif weighting == "uniform":
        share = np.ones(N)
    else:
        raise ValueError(f"weighting={weighting!r}")
    history = []
    for t in range(rounds):
        eta = lr * lr_decay**t
        S_t = problem.cohort(t)
        y = []
        for i in S_t:
            x = w.copy()
            velocity = np.zeros_like(w)
            for k in range(problem.steps(i, t)):
                f_w = problem.outputs(i, t, k, x)
                f_e = problem.outputs(i, t, k, e)
                Y = problem.labels(i, t, k)
                n = len(Y)
                # d CE / d f_w
                d_CE = (softmax(f_w) - np.eye(f_w.shape[1])[Y]) / n
                # d KL( softmax(f_e/tau) || softmax(f_w/tau) ) / d f_w, batch mean, e frozen
                d_KL = (softmax(f_w / tau) - softmax(f_e / tau)) / tau / n
                # loss = CE + gamma tau^2 KL + (1/beta) <w, h_i>
                D = problem.vjp(i, t, k, x, d_CE + gamma * tau**2 * d_KL)
                D = D + h_i[i] / beta
                norm = np.linalg.norm(D)
                if clip is not None and norm > clip:
                    D = D * (clip / norm)
                # SGD with momentum
                velocity = momentum * velocity + (D + weight_decay * x)
                x = x - eta * velocity
            # h_i <- h_i + Delta_i
            h_i[i] = h_i[i] + (x - w)
            y.append(x)
        # wbar = sum over S_t of p_i w_i
        p = share[S_t] / share[S_t].sum()
        wbar = np.zeros_like(w)
        for p_i, y_i in zip(p, y, strict=True):
            wbar = wbar + p_i * y_i
        # w <- wbar + (1/N) sum over all i of h_i, the new ones
        w = wbar + (share[:, None] * h_i).sum(axis=0) / N
        # e <- alpha e + (1 - alpha) w
        e = alpha * e + (1 - alpha) * w
        history.append(w.copy())
    return np.array(history)
