"""FedSOL: the published code, line by line (section 4.6)."""

import numpy as np


def softmax(Z):
    P = np.exp(Z - Z.max(axis=1, keepdims=True))
    return P / P.sum(axis=1, keepdims=True)


def fedsol(
    problem,
    rounds,
    *,
    rho,
    tau,
    strength,
    weighting,
    momentum,
    lr,
    lr_decay,
    weight_decay,
    clip=None,
):
    w = problem.x0.astype(np.float64)
    history = []
    for t in range(rounds):
        eta = lr * lr_decay**t
        S_t = problem.cohort(t)
        y = []
        for i in S_t:
            x = w.copy()
            velocity = np.zeros_like(w)
            for k in range(problem.steps(i, t)):
                # L_p(x) = KL( softmax(f_w/3) || softmax(f_x/3) ), batch mean, no tau^2
                f_x = problem.outputs(i, t, k, x)
                f_w = problem.outputs(i, t, k, w)
                d_L_p = (softmax(f_x / tau) - softmax(f_w / tau)) / tau / len(f_x)
                g_p = problem.vjp(i, t, k, x, d_L_p)
                # A = 1, or |x_l - w_l| of unit l2 norm along every tensor's first dimension
                if strength == "fixed":
                    A = np.ones_like(x)
                elif strength == "adaptive":
                    A = []
                    start = 0
                    for shape in problem.shapes:
                        stop = start + int(np.prod(shape))
                        away = np.abs(x[start:stop] - w[start:stop]).reshape(shape)
                        length = np.sqrt((away**2).sum(axis=0, keepdims=True))
                        A.append((away / np.maximum(length, 1e-12)).ravel())
                        start = stop
                    A = np.concatenate(A)
                else:
                    raise ValueError(f"strength={strength!r}")
                # eps = rho A g_p / (||g_p|| + 1e-12); at the first step w = w^t and g_p = 0
                if k == 0:
                    epsilon = np.zeros_like(x)
                else:
                    epsilon = rho * A * g_p / (np.linalg.norm(g_p) + 1e-12)
                # w <- w - eta (g(w + eps) + lambda w), with momentum
                D = problem.grad(i, t, k, x + epsilon)
                norm = np.linalg.norm(D)
                if clip is not None and norm > clip:
                    D = D * (clip / norm)
                velocity = momentum * velocity + (D + weight_decay * x)
                x = x - eta * velocity
            y.append(x)
        # sample-weighted mean (or 1/S)
        if weighting == "samples":
            p = np.array([problem.samples[i] for i in S_t], dtype=float)
        elif weighting == "uniform":
            p = np.ones(len(S_t))
        else:
            raise ValueError(f"weighting={weighting!r}")
        p = p / p.sum()
        w = np.zeros_like(w)
        for p_i, y_i in zip(p, y, strict=True):
            w = w + p_i * y_i
        history.append(w.copy())
    return np.array(history)
