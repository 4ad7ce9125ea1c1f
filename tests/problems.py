"""Problems for transcripts and methods alike: NumPy float64, fixed by (client, round, step)."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from flatfed.flatmodel import FlatModel
from flatfed.method import Method
from flatfed.rounds import LocalData, one_round
from flatfed.toy import Bench
from flatfed.vec import lay_out, seed_for


def normal(problem, i: int, t: int, d: int) -> np.ndarray:
    """Client i's d standard normal numbers of round t: those that a method draws for its noise."""
    random = torch.Generator().manual_seed(seed_for(0, "noise", t, i, problem.steps(i, t)))
    return torch.randn(d, generator=random, dtype=torch.float64).numpy()


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
        drawn = len(self.cohort(t))
        return LocalData(i, batches, whole, int(self.samples[i]), self.layout, drawn=drawn)

    normal = normal


class TanhNet:
    """A two-layer tanh net with full batches: backpropagation by hand, beside FlatModel's.

    Its features, for methods that look inside: what enters the tanh, and what leaves it.
    """

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
        module.feature_layers = ("1", "2")
        self.model = FlatModel(module.double())
        self.layout = self.model.layout
        self.x0 = 0.5 * random.normal(size=self.model.d)
        self.adaptive = np.concatenate([np.full(int(np.prod(s)), len(s) == 2) for s in self.shapes])

    def cohort(self, t: int) -> list[int]:
        random = np.random.default_rng([self.seed, 1, t])
        return sorted(random.choice(self.N, size=2 + t % 2, replace=False).tolist())

    def steps(self, i: int, t: int) -> int:
        return 2 + (i + t) % 3

    def batch(self, i: int, t: int, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Inputs and labels of one step."""
        return self.X[i], self.Y[i]

    def labels(self, i: int, t: int, k: int) -> np.ndarray:
        return self.batch(i, t, k)[1]

    def outputs(self, i: int, t: int, k: int, w: np.ndarray) -> np.ndarray:
        """The step's logits at w."""
        return self._forward(self.batch(i, t, k)[0], w)[2]

    def features(self, i: int, t: int, k: int, w: np.ndarray) -> list[np.ndarray]:
        """What enters the feature layers."""
        return list(self._forward(self.batch(i, t, k)[0], w)[:2])

    def vjp(self, i: int, t: int, k: int, w: np.ndarray, dZ, dF=None) -> np.ndarray:
        """The gradient of a loss whose derivatives by the logits and the features these are."""
        return self._backward(self.batch(i, t, k)[0], w, dZ, dF)

    def grad(self, i: int, t: int, k: int, w: np.ndarray) -> np.ndarray:
        return self._cross_entropy(*self.batch(i, t, k), w)

    def whole(self, i: int, w: np.ndarray) -> np.ndarray:
        return self._cross_entropy(self.X[i], self.Y[i], w)

    def _cut(self, w: np.ndarray) -> list[np.ndarray]:
        cuts = np.cumsum([int(np.prod(s)) for s in self.shapes])[:-1]
        return [p.reshape(s) for p, s in zip(np.split(w, cuts), self.shapes, strict=True)]

    def _forward(self, X: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, ...]:
        W1, b1, W2, b2 = self._cut(w)
        A = X @ W1.T + b1
        H = np.tanh(A)
        return A, H, H @ W2.T + b2

    def _backward(self, X: np.ndarray, w: np.ndarray, dZ, dF=None) -> np.ndarray:
        _, H, _ = self._forward(X, w)
        dA, dH = (np.zeros_like(H), np.zeros_like(H)) if dF is None else dF
        back = (dZ @ self._cut(w)[2] + dH) * (1 - H**2) + dA
        return np.concatenate([(back.T @ X).ravel(), back.sum(0), (dZ.T @ H).ravel(), dZ.sum(0)])

    def _cross_entropy(self, X: np.ndarray, Y: np.ndarray, w: np.ndarray) -> np.ndarray:
        Z = self._forward(X, w)[2]
        P = np.exp(Z - Z.max(axis=1, keepdims=True))
        P /= P.sum(axis=1, keepdims=True)
        P[np.arange(len(Y)), Y] -= 1
        return self._backward(X, w, P / len(Y))

    # What a server trains on its own: samples that are nobody's, real or complex.

    def logits(self, w: np.ndarray, X: np.ndarray) -> np.ndarray:
        return self._forward(X, w)[2]

    def backprop(self, w: np.ndarray, X: np.ndarray, dZ: np.ndarray) -> np.ndarray:
        return self._backward(X, w, dZ)

    @property
    def workbench(self) -> Bench:
        return Bench(self.model, (self.X.shape[-1],), self.shapes[-1][0])

    def first_samples(self, t: int, count: int) -> np.ndarray:
        """The noise that a method distils from."""
        random = torch.Generator().manual_seed(seed_for(0, "first samples", t))
        shape = (count, self.X.shape[-1])
        return torch.randn(shape, generator=random, dtype=torch.float64).numpy()

    def starts(self, t: int, high: int, count: int) -> list[int]:
        """Where on the trajectory a method's iterations begin."""
        random = torch.Generator().manual_seed(seed_for(0, "distillation", t))
        return [int(torch.randint(high, (), generator=random)) for _ in range(count)]

    def synthetic(self, i: int, t: int, k: int, count: int) -> list[int]:
        """The order in which client i takes synthetic samples in one step."""
        random = torch.Generator().manual_seed(seed_for(0, "synthetic", t, i, k))
        return torch.randperm(count, generator=random).tolist()

    def epochs(self, t: int, count: int, epochs: int) -> list[list[int]]:
        """The orders in which the server goes through its samples."""
        random = torch.Generator().manual_seed(seed_for(0, "fine-tuning", t))
        return [torch.randperm(count, generator=random).tolist() for _ in range(epochs)]

    def oracle(self, X: np.ndarray, Y: np.ndarray):
        return self.model.oracle((torch.from_numpy(X), torch.from_numpy(Y)))

    def data(self, i: int, t: int) -> LocalData:
        batches = [self.oracle(*self.batch(i, t, k)) for k in range(self.steps(i, t))]
        whole, drawn = self.oracle(self.X[i], self.Y[i]), len(self.cohort(t))
        return LocalData(i, batches, whole, int(self.samples[i]), self.layout, drawn=drawn)

    normal = normal


class NoisyNet(TanhNet):
    """The net on mini-batches, fresh and noisy in every step, of clients of unequal size: what
    Quadratics are to gradients, for methods that ask for outputs or features."""

    def __init__(self, seed: int = 0, *, N: int = 6, full: bool = False) -> None:
        super().__init__(seed, N=N, n=10)
        self.full = full
        self.samples = np.random.default_rng([seed, 3]).integers(20, 200, size=N)

    def cohort(self, t: int) -> list[int]:
        if self.full:
            return list(range(self.N))
        random = np.random.default_rng([self.seed, 1, t])
        return sorted(random.choice(self.N, size=2 + t % 3, replace=False).tolist())

    def steps(self, i: int, t: int) -> int:
        return 1 + (i + t) % 4

    def batch(self, i: int, t: int, k: int) -> tuple[np.ndarray, np.ndarray]:
        random = np.random.default_rng([self.seed, 2, i, t, k])
        X, Y = self.X[i], self.Y[i]
        # Of one class, of one sample: what a method must survive comes up now and then.
        size = 1 + int(random.integers(0, 7))
        chosen = random.choice(len(Y), size=size, replace=False)
        return X[chosen] + 0.3 * random.normal(size=(size, X.shape[1])), Y[chosen]


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
                workbench=getattr(problem, "workbench", None),
            )
            self.states.append(self.state)
            self.kepts.append(self.kept)

    @property
    def xs(self) -> np.ndarray:
        return np.stack([state["x"].numpy() for state in self.states[1:]])

    @property
    def results(self) -> np.ndarray:
        return np.stack([self.method.result(state).numpy() for state in self.states[1:]])
