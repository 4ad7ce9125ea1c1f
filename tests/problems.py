"""Problems for transcripts and methods alike: NumPy float64, fixed by (client, round, step)."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from flatfed.flatmodel import FlatModel
from flatfed.method import Method
from flatfed.rounds import LocalData, one_round
from flatfed.vec import lay_out


class Quadratics:
    """Noisy quadratics: another matrix and another target for every client, and for every batch."""

    def __init__(
        self,
        seed: int = 0,
        *,
        N: int = 6,
        d: int = 5,
        noise: float = 0.3,
        full: bool = False,
        K: int | None = None,
    ) -> None:
        random = np.random.default_rng(seed)
        self.seed, self.N, self.d, self.noise, self.full, self.K = seed, N, d, noise, full, K
        self.x0 = random.normal(size=d)
        B = random.normal(size=(N, d, d))
        self.A = np.einsum("nij,nkj->nik", B, B) / d + 0.3 * np.eye(d)
        self.b = random.normal(size=(N, d))
        self.samples = random.integers(20, 200, size=N)
        self.layout = lay_out({"a.weight": (2,), "a.bias": (1,), "b.weight": (d - 3,)})
        self.adaptive = np.array([True, True, False] + [True] * (d - 3))
        self.rotation = np.eye(d)
        self.shift = np.zeros(d)

    def cohort(self, t: int) -> list[int]:
        if self.full:
            return list(range(self.N))
        random = np.random.default_rng([self.seed, 1, t])
        return sorted(random.choice(self.N, size=2 + t % 3, replace=False).tolist())

    def steps(self, i: int, t: int) -> int:
        return self.K or 1 + (i + t) % 4

    def grad(self, i: int, t: int, k: int, w: np.ndarray) -> np.ndarray:
        if not self.noise:  # every batch is all the data: no need to draw what is then not used
            return self.whole(i, w)
        random = np.random.default_rng([self.seed, 2, i, t, k])
        d, noise = self.d, self.noise
        B = random.normal(size=(d, d))
        A = self.A[i] + noise * (B + B.T) / (4 * d)
        b = self.b[i] + noise * random.normal(size=d)
        return self.rotation @ (A @ (self.rotation.T @ w - self.shift - b))

    def whole(self, i: int, w: np.ndarray) -> np.ndarray:
        return self.rotation @ (self.A[i] @ (self.rotation.T @ w - self.shift - self.b[i]))

    def moved(self, rotation: np.ndarray | None = None, shift: np.ndarray | None = None):
        """The same problem in other coordinates."""
        other = type(self)(
            self.seed, N=self.N, d=self.d, noise=self.noise, full=self.full, K=self.K
        )
        other.rotation = np.eye(self.d) if rotation is None else rotation
        other.shift = np.zeros(self.d) if shift is None else shift
        other.x0 = other.rotation @ (self.x0 + other.shift)
        return other

    def data(self, i: int, t: int) -> LocalData:
        """The same client as the library sees it."""

        def batch(k: int):
            return lambda w: torch.from_numpy(self.grad(i, t, k, w.numpy()))

        batches = [batch(k) for k in range(self.steps(i, t))]
        whole = lambda w: torch.from_numpy(self.whole(i, w.numpy()))  # noqa: E731
        return LocalData(i, batches, whole, int(self.samples[i]), self.layout)


class TanhNet:
    """A two-layer tanh net with full batches: backpropagation by hand, beside FlatModel's."""

    def __init__(
        self,
        seed: int = 0,
        *,
        N: int = 5,
        inputs: int = 3,
        hidden: int = 4,
        classes: int = 3,
        n: int = 8,
    ) -> None:
        random = np.random.default_rng(seed)
        self.seed, self.N = seed, N
        self.shapes = [(hidden, inputs), (hidden,), (classes, hidden), (classes,)]
        self.X = random.normal(size=(N, n, inputs))
        self.Y = random.integers(0, classes, size=(N, n))
        self.samples = np.full(N, n) + np.arange(N)
        module = nn.Sequential(nn.Linear(inputs, hidden), nn.Tanh(), nn.Linear(hidden, classes))
        self.model = FlatModel(module.double())
        self.layout = self.model.layout
        self.x0 = 0.5 * random.normal(size=self.model.d)
        self.adaptive = np.concatenate([np.full(int(np.prod(s)), len(s) == 2) for s in self.shapes])

    def cohort(self, t: int) -> list[int]:
        random = np.random.default_rng([self.seed, 1, t])
        return sorted(random.choice(self.N, size=2 + t % 2, replace=False).tolist())

    def steps(self, i: int, t: int) -> int:
        return 2 + (i + t) % 3

    def grad(self, i: int, t: int, k: int, w: np.ndarray) -> np.ndarray:
        return self.whole(i, w)

    def whole(self, i: int, w: np.ndarray) -> np.ndarray:
        cuts = np.cumsum([int(np.prod(s)) for s in self.shapes])[:-1]
        W1, b1, W2, b2 = (p.reshape(s) for p, s in zip(np.split(w, cuts), self.shapes, strict=True))
        X, Y = self.X[i], self.Y[i]
        H = np.tanh(X @ W1.T + b1)
        Z = H @ W2.T + b2
        P = np.exp(Z - Z.max(axis=1, keepdims=True))
        P /= P.sum(axis=1, keepdims=True)
        P[np.arange(len(Y)), Y] -= 1
        P /= len(Y)
        back = (P @ W2) * (1 - H**2)
        return np.concatenate([(back.T @ X).ravel(), back.sum(0), (P.T @ H).ravel(), P.sum(0)])

    def data(self, i: int, t: int) -> LocalData:
        oracle = self.model.oracle((torch.from_numpy(self.X[i]), torch.from_numpy(self.Y[i])))
        batches = [oracle] * self.steps(i, t)
        return LocalData(i, batches, oracle, int(self.samples[i]), self.layout)


class Run:
    """The library on one of these problems, round after round, with everything it left behind."""

    def __init__(self, method: Method, problem, rounds: int) -> None:
        self.method, self.problem = method, problem
        self.state = method.start(torch.from_numpy(problem.x0))
        self.kept: dict = {}
        self.states, self.kepts = [self.state], [self.kept]
        for t in range(rounds):
            cohort = [problem.data(i, t) for i in problem.cohort(t)]
            self.state, self.kept = one_round(
                method,
                self.state,
                self.kept,
                cohort,
                t,
                problem.N,
                mean_samples=float(problem.samples.mean()),
            )
            self.states.append(self.state)
            self.kepts.append(self.kept)

    @property
    def xs(self) -> np.ndarray:
        return np.stack([state["x"].numpy() for state in self.states[1:]])

    @property
    def results(self) -> np.ndarray:
        return np.stack([self.method.result(state).numpy() for state in self.states[1:]])
