"""FedVSSAM and its ablations: the paper's algorithm box, line by line (section 22)."""

import numpy as np


def unit(v):
    # U(v) = v / (||v|| + eps_0), all parameters together
    return v / (np.linalg.norm(v) + 1e-7)


def fedvssam(
    problem,
    rounds,
    *,
    rho,
    gamma_l,
    gamma_g,
    lf,
    lu,
    gu,
    global_lr,
    server_lr,
    decay,
    lr,
    lr_decay,
    weight_decay,
    clip=None,
):
    # a part that is switched off has its gamma at 1
    gamma_lf = gamma_l if lf else 1.0
    gamma_lu = gamma_l if lu else 1.0
    gamma_gu = gamma_g if gu else 1.0

    w = problem.x0.astype(np.float64)
    H = np.zeros_like(w)
    history = []
    for t in range(rounds):
        # eta_t = eta_0 delta^t
        eta = lr * lr_decay**t
        S_t = problem.cohort(t)
        S = len(S_t)
        ratios = []
        sums = []
        for i in S_t:
            x = w.copy()
            sum_eta = 0.0
            for k in range(problem.steps(i, t)):
                g = problem.grad(i, t, k, x)
                # LF: v_k = (1 - gamma_LF) H + gamma_LF g_k
                v = (1 - gamma_lf) * H + gamma_lf * g
                # epsilon_k = rho U(v_k)
                epsilon = rho * unit(v)
                g_tilde = problem.grad(i, t, k, x + epsilon)
                if decay == "inside":
                    # decay inside: g~_k + omega x_k takes the place of g~_k
                    # LU: D_k = (1 - gamma_LU) H + gamma_LU g~_k
                    D = (1 - gamma_lu) * H + gamma_lu * (g_tilde + weight_decay * x)
                elif decay == "outside":
                    # LU: D_k = (1 - gamma_LU) H + gamma_LU g~_k
                    D = (1 - gamma_lu) * H + gamma_lu * g_tilde
                else:
                    raise ValueError(f"decay={decay!r}")
                norm = np.linalg.norm(D)
                if clip is not None and norm > clip:
                    D = D * (clip / norm)
                if decay == "inside":
                    # x_{k+1} = x_k - eta clip(D_k)
                    x = x - eta * D
                elif decay == "outside":
                    # x_{k+1} = x_k - eta (clip(D_k) + omega x_k)
                    x = x - eta * (D + weight_decay * x)
                else:
                    raise ValueError(f"decay={decay!r}")
                sum_eta = sum_eta + eta
            y_i = x
            ratios.append((y_i - w) / sum_eta)
            sums.append(sum_eta)

        # ghat = -(1/S) sum_S u_i / (sum_k eta_{t,k})_i
        ghat = -(1 / S) * np.sum(ratios, axis=0)
        # GU: H <- (1 - gamma_GU) H + gamma_GU ghat
        H = (1 - gamma_gu) * H + gamma_gu * ghat
        # relative: eta_g = r (mean over S_t of sum_k eta_{t,k})
        if server_lr == "absolute":
            eta_g = global_lr
        elif server_lr == "relative":
            eta_g = global_lr * np.mean(sums)
        else:
            raise ValueError(f"server_lr={server_lr!r}")
        # w <- w - eta_g H_new
        w = w - eta_g * H
        history.append(w.copy())
    return np.array(history)
