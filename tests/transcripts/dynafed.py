"""DynaFed in the reading of FedSynSAM's comparison, line by line (section 1.2).

The gradient of the matching loss is taken by complex steps: L(X + i·h·e_j).imag / h is exact to
the last bits for h = 1e-30, and nothing has to be differentiated twice by hand.
"""

import numpy as np

H = 1e-30


def softmax(Z):
    E = np.exp(Z - Z.max(axis=1, keepdims=True))
    return E / E.sum(axis=1, keepdims=True)


def cut(z, X, Y, soft):
    # images, labels, alpha
    labels = z[X.size + 1 :].reshape(Y.shape) if soft else Y
    return z[: X.size].reshape(X.shape), labels, z[X.size]


def dynafed(
    problem,
    rounds,
    *,
    epochs_server,
    lr_server,
    batch_server,
    warmup,
    iterations,
    ipc,
    inner_steps,
    gap,
    optimiser,
    lr_images,
    lr_alpha,
    lr_labels,
    labels,
    alpha,
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

    def gradient(theta, X, Y):
        Z = problem.logits(theta, X)
        n, C = Z.shape
        if labels == "hard":
            return problem.backprop(theta, X, (softmax(Z) - np.eye(C)[Y]) / n)
        # kd(z, y) = mean over batch and classes of -softmax(y) log softmax(z)
        return problem.backprop(theta, X, (softmax(Z) - softmax(Y)) / (n * C))

    def L(X, Y, a, theta_0, target):
        theta = theta_0
        for _ in range(inner_steps):
            theta = theta - a * gradient(theta, X, Y)
        off = ((theta - target) ** 2).sum()
        return off / (((theta_0 - target) ** 2).sum() + 1e-12)

    for t in range(rounds):
        eta = lr * lr_decay**t
        deltas, ways = [], []
        for i in problem.cohort(t):
            y = w.copy()
            K = problem.steps(i, t)
            for k in range(K):
                g = problem.grad(i, t, k, y)
                norm = np.linalg.norm(g)
                if clip is not None and norm > clip:
                    g = g * (clip / norm)
                y = y - eta * (g + weight_decay * y)
            deltas.append(y - w)
            ways.append(eta * K)
        w = w + global_lr * np.mean(deltas, axis=0)
        if X is not None:
            # n_ft epochs over D_syn with a fresh Adam
            first, second = np.zeros((2, w.size))
            n = 0
            for order in problem.epochs(t, len(X), epochs_server):
                for at in range(0, len(X), batch_server):
                    batch = order[at : at + batch_server]
                    n += 1
                    g = gradient(w, X[batch], Y[batch])
                    first = 0.9 * first + 0.1 * g
                    second = 0.999 * second + 0.001 * g**2
                    move = (first / (1 - 0.9**n)) / (np.sqrt(second / (1 - 0.999**n)) + 1e-8)
                    w = w - lr_server * move
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
        if labels == "soft":
            Y = np.zeros((len(Y), classes))
        sizes = [X.size, 1] + ([Y.size] if labels == "soft" else [])
        rates = np.repeat([lr_images, lr_alpha, lr_labels][: len(sizes)], sizes)
        z = np.concatenate([X.ravel(), [a], Y.ravel() if labels == "soft" else []])

        first, second, momentum = np.zeros((3, z.size))
        for n, r in enumerate(problem.starts(t, len(cache) - gap, iterations), start=1):
            slope = np.zeros(z.size)
            for j in range(z.size):
                step = z.astype(complex)
                step[j] += 1j * H
                slope[j] = L(*cut(step, X, Y, labels == "soft"), cache[r], cache[r + gap]).imag / H
            if optimiser == "adam":
                first = 0.9 * first + 0.1 * slope
                second = 0.999 * second + 0.001 * slope**2
                move = (first / (1 - 0.9**n)) / (np.sqrt(second / (1 - 0.999**n)) + 1e-8)
            else:
                momentum = slope if n == 1 else 0.5 * momentum + slope
                move = momentum
            z = z - rates * move
            z[X.size] = max(z[X.size], 1e-6)
        X, Y, _ = cut(z, X, Y, labels == "soft")
    return np.array(history)
