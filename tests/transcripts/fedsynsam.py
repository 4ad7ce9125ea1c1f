"""FedSynSAM: the paper's algorithm, line by line (section 1.1).

The gradient of the matching loss is taken by complex steps: L(X + i·h·e_j).imag / h is exact to
the last bits for h = 1e-30, and nothing has to be differentiated twice by hand.
"""

import numpy as np

H = 1e-30


def unit(v):
    return v / (np.linalg.norm(v) + 1e-7)


def fedsynsam(
    problem,
    rounds,
    *,
    rho,
    beta,
    warmup,
    iterations,
    ipc,
    inner_steps,
    gap,
    optimiser,
    momentum_images,
    lr_images,
    lr_alpha,
    measure,
    alpha,
    synthetic_batch,
    batch_size=None,
    global_lr,
    lr,
    lr_decay,
    weight_decay,
    clip=None,
):
    gap = inner_steps if gap is None else gap
    w = problem.x0.copy()
    cache = [w]
    X = Y = None
    history = []

    def cross_entropy_gradient(theta, X, Y):
        Z = problem.logits(theta, X)
        P = np.exp(Z - Z.max(axis=1, keepdims=True))
        P = P / P.sum(axis=1, keepdims=True)
        return problem.backprop(theta, X, (P - np.eye(Z.shape[1])[Y]) / len(Y))

    def L(X, a, theta_0, target):
        theta = theta_0
        for _ in range(inner_steps):
            theta = theta - a * cross_entropy_gradient(theta, X, Y)
        off = ((theta - target) ** 2).sum()
        if measure == "normalised":
            return off / (((theta_0 - target) ** 2).sum() + 1e-12)
        return off if measure == "sse" else off / len(target)

    for t in range(rounds):
        eta = lr * lr_decay**t
        deltas, ways = [], []
        for i in problem.cohort(t):
            y = w.copy()
            K = problem.steps(i, t)
            for k in range(K):
                g_loc = problem.grad(i, t, k, y)
                if X is None:
                    # phase 1: FedSAM
                    g_hat = g_loc
                else:
                    # zeta ~ D_syn without replacement, min(B, n_syn)
                    zeta = list(range(len(Y)))
                    B = len(Y) if synthetic_batch == "all" or batch_size is None else batch_size
                    if len(Y) > B:
                        zeta = problem.synthetic(i, t, k, len(Y))[:B]
                    g_syn = cross_entropy_gradient(y, X[zeta], Y[zeta])
                    # mixed before normalising
                    g_hat = beta * g_loc + (1 - beta) * g_syn
                g = problem.grad(i, t, k, y + rho * unit(g_hat))
                norm = np.linalg.norm(g)
                if clip is not None and norm > clip:
                    g = g * (clip / norm)
                y = y - eta * (g + weight_decay * y)
            deltas.append(y - w)
            ways.append(eta * K)
        w = w + global_lr * np.mean(deltas, axis=0)
        history.append(w)

        if X is not None:
            continue
        cache.append(w)
        if len(cache) <= warmup:
            continue
        # distillation, once, after round R - 1
        classes = problem.logits(w, problem.X[0]).shape[1]
        Y = np.repeat(np.arange(classes), ipc)
        X = problem.first_samples(t, len(Y))
        a = alpha if alpha is not None else global_lr * np.mean(ways)
        first, second = np.zeros((2, X.size + 1))
        momentum = np.zeros(X.size + 1)
        for n, r in enumerate(problem.starts(t, len(cache) - gap, iterations), start=1):
            theta_0, target = cache[r], cache[r + gap]
            slope = np.zeros(X.size + 1)
            for j in range(X.size):
                step = np.zeros(X.size, complex)
                step[j] = 1j * H
                slope[j] = L(X + step.reshape(X.shape), a, theta_0, target).imag / H
            slope[-1] = L(X, a + 1j * H, theta_0, target).imag / H
            if optimiser == "adam":
                first = 0.9 * first + 0.1 * slope
                second = 0.999 * second + 0.001 * slope**2
                move = (first / (1 - 0.9**n)) / (np.sqrt(second / (1 - 0.999**n)) + 1e-8)
            else:
                momentum = slope if n == 1 else momentum_images * momentum + slope
                move = momentum
            X = X - lr_images * move[:-1].reshape(X.shape)
            a = max(a - lr_alpha * move[-1], 1e-6)
    return np.array(history)
