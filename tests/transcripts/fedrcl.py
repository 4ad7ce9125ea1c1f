"""FedRCL: the published code's loss, sample by sample and pair by pair (section 4.1)."""

import numpy as np


def penalties(features, Y, *, tau, threshold, pairs, contrast, relax):
    """(the two penalties' value, its derivative by every level's features)"""
    n = len(Y)
    total = 0.0
    derivatives = []
    for F in features:
        # phi_i = F_i / ||F_i||, s_ij = <phi_i, phi_j>
        length = np.linalg.norm(F, axis=1, keepdims=True)
        phi = F / length
        s = phi @ phi.T
        d_s = np.zeros((n, n))
        for i in range(n):
            # s+ = min over same-class j, i itself included
            same = [j for j in range(n) if Y[j] == Y[i]]
            j_plus = min(same, key=lambda j: s[i, j])
            # s- = the 2 largest similarities to other classes
            others = [j for j in range(n) if Y[j] != Y[i]]
            others = sorted(others, key=lambda j: -s[i, j])[:2]
            # L_scl = -log( e^{s+/tau} / (e^{s+/tau} + sum e^{s-/tau}) ); 0 if there is one class
            if others:
                e_plus = np.exp(s[i, j_plus] / tau)
                e_minus = [np.exp(s[i, j] / tau) for j in others]
                Z = e_plus + sum(e_minus)
                total += -contrast * np.log(e_plus / Z) / n
                d_s[i, j_plus] += contrast * (e_plus / Z - 1) / tau / n
                for j, e in zip(others, e_minus, strict=True):
                    d_s[i, j] += contrast * e / Z / tau / n

            # L_div = -log( e^{1/tau} / (e^{1/tau} + penalised pairs) )
            partners = [j for j in same if j != i]
            one = np.exp(1 / tau)
            if pairs == "hardest":
                # s_p = min over same-class j != i if that is >= lambda_r, else -1
                j_p = min(partners, key=lambda j: s[i, j]) if partners else None
                if j_p is not None and s[i, j_p] >= threshold:
                    e_p = np.exp(s[i, j_p] / tau)
                    d_s[i, j_p] += relax * e_p / (one + e_p) / tau / n
                else:
                    e_p = np.exp(-1 / tau)
                total += -relax * np.log(one / (one + e_p)) / n
            elif pairs == "all":
                # all same-class j != i with s_ij > lambda_r
                chosen = [j for j in partners if s[i, j] > threshold]
                Z = one + sum(np.exp(s[i, j] / tau) for j in chosen)
                total += -relax * np.log(one / Z) / n
                for j in chosen:
                    d_s[i, j] += relax * np.exp(s[i, j] / tau) / Z / tau / n
            else:
                raise ValueError(f"pairs={pairs!r}")
        # s_ij holds phi_i and phi_j; phi_i is F_i on the sphere
        d_phi = (d_s + d_s.T) @ phi
        d_F = (d_phi - phi * (phi * d_phi).sum(axis=1, keepdims=True)) / length
        derivatives.append(d_F)
    # means over the levels
    levels = len(features)
    return total / levels, [d / levels for d in derivatives]


def fedrcl(
    problem,
    rounds,
    *,
    tau,
    threshold,
    pairs,
    contrast,
    relax,
    epoch_decay,
    epochs=1,
    lr,
    lr_decay,
    weight_decay,
    clip=None,
):
    w = problem.x0.astype(np.float64)
    history = []
    for t in range(rounds):
        y = []
        for i in problem.cohort(t):
            x = w.copy()
            K = problem.steps(i, t)
            for k in range(K):
                # eta = eta_0 delta^t, times 0.998 for every local epoch that is over
                eta = lr * lr_decay**t * epoch_decay ** (k * epochs // K)
                Z = problem.outputs(i, t, k, x)
                Y = problem.labels(i, t, k)
                n = len(Y)
                # cross-entropy
                P = np.exp(Z - Z.max(axis=1, keepdims=True))
                P = P / P.sum(axis=1, keepdims=True)
                d_Z = (P - np.eye(P.shape[1])[Y]) / n
                # + mean_l mean_i L_scl + mean_l mean_i L_div
                _, d_F = penalties(
                    problem.features(i, t, k, x),
                    Y,
                    tau=tau,
                    threshold=threshold,
                    pairs=pairs,
                    contrast=contrast,
                    relax=relax,
                )
                D = problem.vjp(i, t, k, x, d_Z, d_F)
                norm = np.linalg.norm(D)
                if clip is not None and norm > clip:
                    D = D * (clip / norm)
                x = x - eta * (D + weight_decay * x)
            y.append(x)
        w = np.mean(y, axis=0)
        history.append(w.copy())
    return np.array(history)
