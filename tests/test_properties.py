"""Whatever the problem: moving it moves the run, and nothing depends on what it must not."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from flatfed import methods
from flatfed.rounds import LocalData, broadcast, client_round
from flatfed.vec import clip, lay_out, seed_for, unit
from problems import Quadratics, Run
from test_transcripts import OF_OUTPUTS

LOCAL = {"lr": 0.05, "lr_decay": 0.95, "clip": 2.0, "steps": 1}
ROUNDS = 4

# Weight decay pulls to the origin, so a shifted problem is another problem: ω = 0 there.
# never: ASAM's and Adam's and Yogi's geometry is the coordinates themselves.
NOT_ROTATED = {
    "fedasam": "its radius is measured in each coordinate's own size",
    "fedadam": "its steps are divided coordinate by coordinate",
    "fedyogi": "its steps are divided coordinate by coordinate",
    "dp-fedsam": "its radius is measured in each coordinate's own size; its noise does not turn",
}
NOT_SHIFTED = {
    "fedasam": "its radius is measured from the origin",
    "dp-fedsam": "its radius is measured from the origin",
}
# What asks for outputs has a net for a problem, and a net has no other coordinates.
MOVABLE = [name for name in methods.CATALOGUE if name not in OF_OUTPUTS]


def run(name: str, problem, weight_decay: float = 0.02) -> np.ndarray:
    method = methods.build(name, **LOCAL, weight_decay=weight_decay)
    return Run(method, problem, ROUNDS).xs


def rotation(seed: int, d: int) -> np.ndarray:
    q, r = np.linalg.qr(np.random.default_rng(seed).normal(size=(d, d)))
    return q * np.sign(np.diag(r))


@pytest.mark.parametrize("name", [n for n in MOVABLE if n not in NOT_ROTATED])
@settings(max_examples=8)
@given(seed=st.integers(0, 10_000), turn=st.integers(0, 10_000))
def test_a_rotated_problem_gives_the_rotated_run(name, seed, turn) -> None:
    problem, R = Quadratics(seed), rotation(turn, 5)
    gap = np.abs(run(name, problem.moved(rotation=R)) - run(name, problem) @ R.T).max()
    assert gap < 1e-9


@pytest.mark.parametrize("name", [n for n in MOVABLE if n not in NOT_SHIFTED])
@settings(max_examples=8)
@given(seed=st.integers(0, 10_000), far=st.integers(0, 10_000))
def test_a_shifted_problem_gives_the_shifted_run(name, seed, far) -> None:
    problem = Quadratics(seed)
    shift = np.random.default_rng(far).normal(size=5)
    moved = run(name, problem.moved(shift=shift), weight_decay=0.0)
    gap = np.abs(moved - (run(name, problem, weight_decay=0.0) + shift)).max()
    assert gap < 1e-9


def test_the_exceptions_are_exceptions() -> None:
    """What is marked as not moving along really does not."""
    problem, R, shift = Quadratics(1), rotation(1, 5), np.ones(5)
    for name in NOT_ROTATED:
        assert np.abs(run(name, problem.moved(rotation=R)) - run(name, problem) @ R.T).max() > 1e-4
    for name in NOT_SHIFTED:
        moved = run(name, problem.moved(shift=shift), weight_decay=0.0)
        assert np.abs(moved - run(name, problem, weight_decay=0.0) - shift).max() > 1e-4
    # Weight decay is the one exception that every method shares.
    assert np.abs(
        run("fedavg", problem.moved(shift=shift)) - run("fedavg", problem) - shift
    ).max() > (1e-4)


vectors = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20).map(
    lambda xs: torch.tensor(xs, dtype=torch.float64)
)


@given(vectors, st.floats(1e-3, 1e3))
def test_clip_shortens_to_the_limit_and_never_turns(v, limit) -> None:
    c = clip(v, limit)
    assert float(c.norm()) <= limit * (1 + 1e-12)
    if float(v.norm()) < limit * (1 - 1e-12):
        assert torch.equal(c, v)
    torch.testing.assert_close(c * v.norm(), v * c.norm(), rtol=1e-9, atol=1e-6)


@given(vectors)
def test_unit_is_finite_and_at_most_one(v) -> None:
    assert torch.isfinite(unit(v)).all()
    assert float(unit(v).norm()) <= 1


def test_unit_of_nothing_is_nothing() -> None:
    assert (unit(torch.zeros(3)) == 0).all()


@given(st.lists(st.lists(st.integers(1, 4), max_size=3), max_size=5))
def test_a_layout_covers_the_vector_without_gaps(shapes) -> None:
    layout = lay_out({str(i): shape for i, shape in enumerate(shapes)})
    ends = [0, *(slot.at.stop for slot in layout)]
    assert [slot.at.start for slot in layout] == ends[:-1]
    assert all(slot.at.stop - slot.at.start == np.prod(slot.shape) for slot in layout)


@given(st.integers(0, 2**31), st.sampled_from(["cohort", "order"]), st.lists(st.integers(0, 99)))
def test_seeds_depend_on_purpose_and_place(run, purpose, at) -> None:
    seed = seed_for(run, purpose, *at)
    assert 0 <= seed < 2**63
    assert seed == seed_for(run, purpose, *at) != seed_for(run, purpose + "'", *at)
    assert seed != seed_for(run + 1, purpose, *at)
    assert seed != seed_for(run, purpose, *at, 0)


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("name", MOVABLE)
def test_a_cohort_through_vmap_is_the_loop(name) -> None:
    """Four clients as one batch, every vector with a dimension for them: the same, one by one."""
    quiet = {"dp-fedsam": {"sigma": 0.0}}  # numbers drawn within vmap would be everybody's
    n, d, K = 4, 6, 3
    random = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=random, dtype=torch.float64)

    method = methods.build(name, steps=K, lr=0.05, clip=0.5, **quiet.get(name, {}))
    B, b = draw(n, K, d, d), draw(n, K, d)
    A = B @ B.mT / d
    sent = {key: v + draw(d) for key, v in broadcast(method, method.start(draw(d)), 0, n).items()}
    sent = {key: v.expand(n, d) for key, v in sent.items()}
    kept = {key: draw(n, d) for key in method.names("keep")}

    def client(A, b, sent, kept):
        batches = [lambda w, k=k: A[k] @ (w - b[k]) for k in range(K)]
        upload, kept = client_round(method, sent, kept, LocalData(0, batches), 0)
        return {key: tensors[0] for key, tensors in upload.vectors.items()}, kept

    together = torch.vmap(client)(A, b, sent, kept)
    for i in range(n):
        mine = ({key: v[i] for key, v in vectors.items()} for vectors in (sent, kept))
        alone = client(A[i], b[i], *mine)
        for batched, single in zip(together, alone, strict=True):
            assert batched.keys() == single.keys()
            for key in single:
                torch.testing.assert_close(batched[key][i], single[key], rtol=0, atol=1e-12)
