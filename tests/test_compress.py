"""Compressors: what arrives, what it costs on the wire to the byte, and what is refused."""

from __future__ import annotations

import math
import pickle
import threading
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from flatfed import bits
from flatfed.blocks import stretches, tiles
from flatfed.errors import CompositionError, FederationError, NonFiniteError, SpecError
from flatfed.part import Compressor
from flatfed.parts.compress import Cast, Dense
from flatfed.parts.compressors import COMPRESSORS, build, parameters
from flatfed.parts.feedback import EF21, ErrorFeedback
from flatfed.parts.lowrank import LowRank, orthonormal
from flatfed.parts.quantise import QSGD, ScaledSign, Sign
from flatfed.parts.sparsify import RandomK, TopK
from flatfed.references import REFERENCES
from flatfed.vec import Layout, lay_out, length_of, seed_for

D = 320_010
CONVNET = lay_out({"weight": (D,)})
SINGLE = QSGD(blocks="global")

EVERY: list[Compressor] = [
    Dense(),
    Cast("float16"),
    Cast("bfloat16"),
    *(QSGD(b, n, g, i) for b, n, g, i in [
        (4, "linf", "tensor", "fixed"), (1, "l2", "global", "levels"), (1, "linf", 3, "literal"),
        (8, "l2", 5, "fixed"), (8, "linf", "global", "levels"), (15, "l2", "tensor", "literal"),
        (16, "linf", 1, "literal"),
    ]),
    Sign(0.5),
    Sign(0.5, "majority"),
    ScaledSign(),
    ScaledSign("tensor"),
    ScaledSign(4),
    TopK(0.1),
    TopK(0.01),
    TopK(1.0),
    RandomK(0.3),
    RandomK(0.3, "contractive"),
    LowRank(1),
    LowRank(2),
    ErrorFeedback(TopK(0.2)),
    ErrorFeedback(LowRank(1)),
    EF21(QSGD()),
    EF21(LowRank(2)),
]  # fmt: skip
# Of which a sign alone says nothing about lengths.
MEASURING = [c for c in EVERY if not isinstance(c, Sign)]


def vec(*numbers: float, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.tensor(numbers, dtype=dtype)


def flat(a: Tensor) -> Layout:
    return lay_out({"weight": (a.numel(),)})


def view(
    c: Compressor, a: Tensor, layout: Layout | None = None, seed: int = 0, **kept: Tensor
) -> SimpleNamespace:
    """What `encode` may read, with first values of what is not given."""
    first = {name: c.init(name, a) for name in c.keep}
    return SimpleNamespace(
        layout=layout or flat(a), t=0, k=1, seed=lambda purpose: seed_for(seed, purpose),
        **{**first, **kept},
    )  # fmt: skip


def through(c: Compressor, a: Tensor, layout: Layout | None = None, seed: int = 0) -> Tensor:
    """decode(encode(a))"""
    sent, _ = c.encode(a, view(c, a, layout, seed))
    return c.decode(sent, a, layout or flat(a))


def message(c: Compressor, a: Tensor, layout: Layout | None = None) -> tuple[Tensor, ...]:
    return c.encode(a, view(c, a, layout))[0]


def gaussian(d: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(d, generator=torch.Generator().manual_seed(seed), dtype=dtype)


POWERS = st.sampled_from([0, 0, 1, -30, 30, -38])


@st.composite
def vectors(draw):
    """A layout of a few tensors, and a vector on it, at any scale, with zeros and ties."""
    shapes = st.lists(st.integers(1, 12), max_size=3).map(tuple)
    layout = lay_out({f"{i}": s for i, s in enumerate(draw(st.lists(shapes, min_size=1)))})
    dtype = draw(st.sampled_from([torch.float32, torch.float64]))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 99)))
    a = torch.randn(length_of(layout), generator=generator, dtype=dtype)
    if draw(st.booleans()):
        a = a.round()
    return layout, a * 10.0 ** draw(POWERS)


# Every compressor


@pytest.mark.parametrize("c", EVERY, ids=repr)
@settings(max_examples=40)
@given(case=vectors())
def test_what_travels_is_what_is_counted_and_what_arrives_is_like_the_vector(c, case) -> None:
    layout, a = case
    before = a.clone()
    v = view(c, a, layout)
    kept = {name: getattr(v, name).clone() for name in c.keep}
    sent, new = c.encode(a, v)
    assert sum(t.nbytes for t in sent) == c.nbytes(layout, a.element_size())
    assert all(t.dim() == 1 for t in sent)
    assert set(new) == set(c.keep)
    for name, vector in new.items():
        assert vector.numel() == c.kept_size(name, layout)
        assert vector.dtype == a.dtype
    copies = [t.clone() for t in sent]
    back = c.decode(sent, a, layout)
    assert (back.shape, back.dtype) == (a.shape, a.dtype)
    assert back.isfinite().all()
    assert torch.equal(a, before)
    assert all(torch.equal(getattr(v, name), kept[name]) for name in c.keep)
    assert all(map(torch.equal, sent, copies))
    again, _ = c.encode(a, v)
    assert all(map(torch.equal, sent, again))
    assert c.entropy(sent, layout) >= 0
    assert c.nominal(layout, a.element_size()) > 0


@pytest.mark.parametrize("c", MEASURING, ids=repr)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_zero_arrives_as_zero(c, dtype) -> None:
    layout = lay_out({"w": (7, 9), "b": (5,)})
    assert torch.equal(through(c, torch.zeros(68, dtype=dtype), layout), torch.zeros(68).to(dtype))


@pytest.mark.parametrize("c", EVERY, ids=repr)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [1e38, 3.4e38, 1e-38, 1e-45])
def test_huge_and_tiny_numbers_stay_finite(c, dtype, size) -> None:
    if size == 3.4e38 and (c.keep or isinstance(c, RandomK)):
        size = 1e38  # what is added to it, or multiplied with, has to be a float itself
    layout = lay_out({"w": (20, 25), "b": (3,)})
    for a in (torch.full((503,), size, dtype=dtype), size * gaussian(503).clamp(-1, 1).to(dtype)):
        v = view(c, a, layout)
        for _ in range(2):
            sent, new = c.encode(a, v)
            assert c.decode(sent, a, layout).isfinite().all()
            assert all(vector.isfinite().all() for vector in new.values())
            v = view(c, a, layout, **new)


@pytest.mark.parametrize("c", MEASURING, ids=repr)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_no_finite_number_arrives_as_none(c, bad) -> None:
    """The server has to see that a client diverged; only what was not drawn can hide it."""
    layout = lay_out({"w": (20, 25), "b": (3,)})
    for dtype in (torch.float32, torch.float64):
        a = gaussian(503, dtype=dtype) * 1e37
        a[4] = bad
        if not isinstance(c, RandomK):
            assert not through(c, a, layout).isfinite().all()


@pytest.mark.parametrize("c", EVERY, ids=repr)
def test_a_compressor_pickles_and_names_what_it_is_from(c) -> None:
    assert pickle.loads(pickle.dumps(c)) == c
    assert set(c.references) <= set(REFERENCES)
    assert all(c.equations(hook) for hook in ("encode", "decode"))


@pytest.mark.parametrize("c", EVERY, ids=repr)
@pytest.mark.parametrize("tamper", ["shorter", "longer", "type", "fewer", "more", "square"])
def test_a_message_of_another_form_is_refused(c, tamper) -> None:
    layout = lay_out({"w": (8, 9), "b": (8,)})
    a = gaussian(80)
    sent = message(c, a, layout)
    other = {
        "shorter": (sent[0][:-1], *sent[1:]),
        "longer": (*sent[:-1], torch.cat([sent[-1], sent[-1][:1], sent[-1].new_zeros(1)])),
        "type": (*sent[:-1], sent[-1].to(torch.int32)),
        "fewer": sent[:-1],
        "more": (*sent, sent[0]),
        "square": (sent[0].reshape(1, -1), *sent[1:]),
    }[tamper]
    with pytest.raises(
        FederationError, match=r"received .*, expected (?s:.*)leave this client out"
    ):
        c.decode(other, a, layout)


def test_a_refusal_says_what_came_and_what_was_expected() -> None:
    a = torch.zeros(16)
    sent = message(QSGD(), a)
    with pytest.raises(FederationError, match="9 × uint8 and 1 × float32, expected 10 × uint8 and"):
        QSGD().decode((sent[0][1:], sent[1]), a, flat(a))
    with pytest.raises(FederationError, match="received nothing, expected 16 × float32"):
        Dense().decode((), a, flat(a))
    with pytest.raises(FederationError, match=r"\(4, 4\) × float32, expected 16"):
        Dense().decode((a.reshape(4, 4),), a, flat(a))


@pytest.mark.parametrize("c", [SINGLE, TopK(0.1), LowRank(2), ScaledSign(), RandomK(0.1)], ids=repr)
def test_the_number_of_threads_changes_no_bit(c) -> None:
    layout = lay_out({"w": (600, 500)})
    a = gaussian(300_000, dtype=torch.float32)
    one = [*message(c, a, layout), through(c, a, layout)]
    try:
        torch.set_num_threads(2)
        two = [*message(c, a, layout), through(c, a, layout)]
    finally:
        torch.set_num_threads(1)
    assert all(map(torch.equal, one, two))


def test_two_threads_at_once_do_not_disturb_each_other() -> None:
    a = gaussian(100_000, dtype=torch.float32)
    alone, found = message(QSGD(), a), []
    threads = [threading.Thread(target=lambda: found.append(message(QSGD(), a))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(sent[0], alone[0]) for sent in found)


@pytest.mark.parametrize("c", EVERY, ids=repr)
def test_an_ideal_code_is_never_much_longer_than_what_travels(c) -> None:
    a = gaussian(4096, dtype=torch.float32)
    layout = lay_out({"w": (64, 64)})
    sent = message(c, a, layout)
    assert c.entropy(sent, layout) <= 8 * c.nbytes(layout, 4) + 1e-6


# QSGD


def test_of_three_four_the_levels_have_probability_06_and_08() -> None:
    a = vec(3, 4)
    c = QSGD(bits=1, norm="l2")
    draws = torch.stack([through(c, a, seed=seed) for seed in range(10_000)])
    assert set(draws.unique().tolist()) == {0.0, 5.0}
    up = (draws == 5).double().mean(0)
    assert float(up[0]) == pytest.approx(0.6, abs=4 * math.sqrt(0.24 / 10_000))
    assert float(up[1]) == pytest.approx(0.8, abs=4 * math.sqrt(0.16 / 10_000))
    error = (draws - a).square().sum(1).mean()
    assert float(error) == pytest.approx(10, rel=0.05)
    assert float(error) <= 25 * min(2, math.sqrt(2))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "c", [QSGD(2), QSGD(2, "l2", 8, "levels"), QSGD(1, "l2", "global", "literal")]
)
def test_quantisation_is_right_on_average_and_as_wrong_as_the_formula_says(c, dtype) -> None:
    layout = lay_out({"w": (4, 3), "b": (9,)})
    a = gaussian(21, 5, dtype)
    draws = torch.stack([through(c, a, layout, seed) for seed in range(10_000)]).double()
    exact, bound = torch.zeros(21, dtype=torch.float64), 0.0
    for start, count, length in stretches(c.blocks, layout):
        for block in range(count):
            at = slice(start + block * length, start + (block + 1) * length)
            x = a[at].double().abs()
            sigma = x.max() if c.norm == "linf" else x.norm()
            share = c.s * x / sigma
            exact[at] = (sigma / c.s) ** 2 * (share - share.floor()) * (1 - share + share.floor())
            ratio = length / (4 * c.s**2) if c.norm == "linf" else length / c.s**2
            if c.norm == "l2":
                ratio = min(ratio, math.sqrt(length) / c.s)
            bound += float(ratio * sigma**2)
    gap = (draws.mean(0) - a.double()).abs()
    assert (gap <= 4 * (exact / 10_000).sqrt() + 1e-6).all()
    error = float((draws - a.double()).square().sum(1).mean())
    assert error == pytest.approx(float(exact.sum()), rel=0.05)
    assert error <= bound
    assert error == pytest.approx(float((draws.var(0)).sum()), rel=0.05)


def test_few_numbers_survive_coarse_l2_quantisation() -> None:
    a, c = gaussian(4096), QSGD(1, "l2", "global")
    survive = [int(through(c, a, seed=seed).count_nonzero()) for seed in range(50)]
    assert 0 < np.mean(survive) <= c.s * (c.s + math.sqrt(4096))


@pytest.mark.parametrize("intervals", ["fixed", "levels", "literal"])
def test_bits_have_three_meanings(intervals) -> None:
    for b in range(1, 17):
        c = QSGD(b, intervals=intervals)
        assert c.s == 2**b + {"fixed": -1, "levels": 0, "literal": 1}[intervals]
        assert c.width == 1 + math.ceil(math.log2(c.s + 1))


@pytest.mark.parametrize("c", [c for c in EVERY if isinstance(c, QSGD)], ids=repr)
def test_quantised_numbers_are_next_to_the_numbers(c) -> None:
    layout = lay_out({"w": (40, 30), "b": (17,)})
    for dtype in (torch.float32, torch.float64):
        a = gaussian(1217, 3, dtype)
        back = through(c, a, layout)
        for at, _ in tiles(stretches(c.blocks, layout)):
            x, y = a[at], back[at]
            longest = float(x.norm()) if isinstance(c.blocks, str) else float(a.norm())
            assert float((x - y).abs().max()) <= longest / c.s * (1 + 1e-6)
            assert (x * y >= 0).all()


def test_many_levels_are_the_vector() -> None:
    a = gaussian(1000)
    errors = [float((through(QSGD(b), a) - a).abs().max() / a.abs().max()) for b in (4, 8, 12, 16)]
    assert all(e <= 1 / (2**b - 1) for e, b in zip(errors, (4, 8, 12, 16), strict=True))


def test_each_block_has_a_scale_of_its_own() -> None:
    a = torch.cat([gaussian(30), 1e-6 * gaussian(20), 1e6 * gaussian(7)])
    layout = lay_out({"w": (5, 6), "empty": (0, 3), "v": (20,), "b": (7,)})
    largest = [part.abs().max() for part in a.split([30, 20, 7])]
    assert torch.equal(message(QSGD(), a, layout)[1], torch.stack(largest))
    norms = torch.stack([part.norm() for part in a.split(10)])
    torch.testing.assert_close(message(QSGD(norm="l2", blocks=10), a, layout)[1], norms)
    assert torch.equal(message(QSGD(blocks="global"), a)[1], a.abs().max()[None])
    assert message(QSGD(blocks=1000), a)[1].numel() == 1


def test_a_largest_number_travels_exactly_whatever_is_drawn() -> None:
    """s·1 + u rounds up to s + 1 for a u next to 1: the level must not spill into the sign."""
    a = torch.full((200_000,), -0.1)
    for b in (1, 4, 8, 15):
        assert torch.equal(through(QSGD(b), a), a)


@pytest.mark.parametrize("intervals", ["levels", "literal"])
def test_a_level_above_the_highest_is_refused(intervals) -> None:
    a = torch.ones(8)
    c = QSGD(2, intervals=intervals)
    _, scale = message(c, a)
    codes = torch.from_numpy(bits.pack(np.full(8, 7, np.uint8), c.width))
    with pytest.raises(FederationError, match=f"a level of 7, expected levels of 0 to {c.s}"):
        c.decode((codes, scale), a, flat(a))


def test_the_bits_of_quantised_messages_are_the_worked_numbers() -> None:
    """The codes round up to whole bytes: 1 600 050 bits are 200 007 bytes, 6 bits more."""
    assert 8 * Dense().nbytes(CONVNET, 4) == Dense().nominal(CONVNET, 4) == 10_240_320
    four, eight = SINGLE, replace(SINGLE, bits=8)
    assert (8 * four.nbytes(CONVNET, 4), 8 * eight.nbytes(CONVNET, 4)) == (1_600_088, 2_880_128)
    for c, exact in ((four, 1_600_082), (eight, 2_880_122)):
        assert exact <= 8 * c.nbytes(CONVNET, 4) < exact + 8
        assert c.nominal(CONVNET, 4) == c.bits * D + 32
        assert c.nominal(CONVNET, 8) == c.bits * D + 64
    assert replace(four, blocks=512).nbytes(CONVNET, 4) == 200_007 + 4 * 626


def test_entropy_of_levels_is_that_of_their_histogram() -> None:
    a = gaussian(5000, dtype=torch.float32)
    c = QSGD(3, blocks="global")
    sent = message(c, a)
    levels = (c.decode(sent, a, flat(a)) / sent[1] * c.s).round().long()
    share = levels.unique(return_counts=True)[1] / 5000
    expected = 32 - 5000 * float((share * share.log2()).sum())
    assert c.entropy(sent, flat(a)) == pytest.approx(expected, rel=1e-5)
    at = levels.nonzero().flatten().tolist()
    gaps = [b - a for a, b in zip([-1, *at], at, strict=False)]
    sizes = [abs(int(levels[j])) for j in at]
    assert c.elias(sent, flat(a)) == 32 + sum(map(bits.elias_omega, gaps + sizes)) + len(at)


def test_elias_in_the_dense_regime_takes_at_most_28_bits_a_number() -> None:
    """s = √d with the 2-norm, as the paper bounds it."""
    a = gaussian(64**2)
    c = QSGD(6, "l2", "global", "levels")
    assert np.mean([c.elias(message(c, a), flat(a))]) <= 2.8 * 64**2 + 64


# Bits


def test_elias_omega_has_the_published_lengths() -> None:
    lengths = {1: 1, 2: 3, 3: 3, 4: 6, 7: 6, 8: 7, 15: 7, 16: 11, 100: 13}
    assert {k: bits.elias_omega(k) for k in lengths} == lengths


@given(
    width=st.integers(1, 20), n=st.sampled_from([0, 1, 7, 8, 9, 1000, 32768, 32769, 70001]),
    seed=st.integers(0, 99),
)  # fmt: skip
@settings(max_examples=60)
def test_packed_numbers_come_back_and_take_their_bits(width, n, seed) -> None:
    numbers = np.random.default_rng(seed).integers(0, 1 << width, n)
    stream = bits.pack(numbers, width)
    assert stream.nbytes == math.ceil(n * width / 8) == bits.packed_size(n, width)
    assert np.array_equal(bits.unpack(stream, width, n), numbers)


def test_the_stream_is_runs_of_planes_from_the_lowest_bit() -> None:
    """What is on the wire, pinned: clients and servers of two releases must read each other."""
    numbers = np.zeros(bits.RUN + 3, np.uint8)
    numbers[[0, 9]], numbers[-3:] = (1, 2), (1, 0, 3)
    stream = bits.pack(numbers, 2)
    plane = bits.RUN // 8
    assert plane == 4096
    assert {int(j): int(stream[j]) for j in np.flatnonzero(stream)} == {
        0: 0b1000_0000, plane + 1: 0b0100_0000, 2 * plane: 0b101_001_00,
    }  # fmt: skip


def test_numbers_of_no_bits_take_none() -> None:
    assert bits.pack(np.zeros(5, np.int64), 0).size == 0
    assert np.array_equal(bits.unpack(np.zeros(0, np.uint8), 0, 5), np.zeros(5))


# Top-k and random-k


def test_of_equal_magnitudes_the_first_is_kept() -> None:
    assert torch.equal(through(TopK(0.5), vec(1, -3, 2, -3)), vec(0, -3, 0, -3))
    assert torch.equal(through(TopK(0.25), vec(1, -3, 2, -3)), vec(0, -3, 0, 0))
    assert torch.equal(through(TopK(0.5), vec(0, -0.0, 0, 0)), vec(0, 0, 0, 0))
    assert torch.equal(through(TopK(0.75), vec(2, -2, 2, 2)), vec(2, -2, 2, 0))


@pytest.mark.parametrize("fraction", [0.004, 0.1, 0.3, 1.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@settings(max_examples=30)
@given(d=st.integers(1, 900), seed=st.integers(0, 99), ties=st.booleans())
def test_the_largest_arrive_exactly_and_the_rest_is_bounded(fraction, dtype, d, seed, ties) -> None:
    a = gaussian(d, seed, dtype)
    if ties:
        a = a.round()
    k = min(d, max(1, math.ceil(round(fraction * d, 9))))
    order = sorted(range(d), key=lambda j: (-abs(float(a[j])), j))[:k]
    expected = torch.zeros_like(a)
    expected[order] = a[order]
    back = through(TopK(fraction), a)
    assert torch.equal(back, expected)
    left = float((back - a).double().square().sum())
    assert left <= (1 - k / d) * float(a.double().square().sum()) + 1e-9
    assert fraction < 1 or torch.equal(back, a)


def test_values_travel_in_ascending_order_of_index() -> None:
    _, values = message(TopK(0.5), vec(1, -5, 2, 9, -3, 0))
    assert torch.equal(values, vec(-5, 9, -3))


def test_a_fraction_means_what_is_written() -> None:
    """0.07·100 is 7.000000000000001 as a float, and ⌈·⌉ of it 8."""
    assert message(TopK(0.07), gaussian(100))[1].numel() == 7
    assert message(RandomK(0.07), gaussian(100))[1].numel() == 7


@pytest.mark.parametrize(
    ("fraction", "listed", "mapped", "ideal"),
    [(0.1, 1_632_051, 1_344_042, 1_174_116), (0.25, 4_080_153, 2_880_106, 2_819_714)],
)
def test_the_bits_of_top_k_are_the_worked_numbers(fraction, listed, mapped, ideal) -> None:
    """The bitmap rounds up to whole bytes, 6 bits more; no flag travels, for d and k tell."""
    c = TopK(fraction)
    sent = message(c, gaussian(D, dtype=torch.float32))
    assert c.nominal(CONVNET, 4) == listed
    assert 8 * c.nbytes(CONVNET, 4) == mapped + 6
    assert c.entropy(sent, CONVNET) == pytest.approx(ideal, abs=1)


def test_indices_travel_where_they_are_shorter_than_a_bitmap() -> None:
    few = TopK(0.01)
    k = math.ceil(0.01 * D)
    assert few.nbytes(CONVNET, 4) == 4 * k + math.ceil(k * 19 / 8)
    assert TopK(0.06).nbytes(CONVNET, 4) == 4 * math.ceil(0.06 * D) + math.ceil(D / 8)


def test_a_bitmap_with_too_many_or_too_few_positions_is_refused() -> None:
    a = gaussian(64)
    where, values = message(TopK(0.5), a)
    for wrong in (where ^ 1, torch.zeros_like(where), ~torch.zeros_like(where)):
        with pytest.raises(FederationError, match=r"received \d+ positions, expected 32\."):
            TopK(0.5).decode((wrong, values), a, flat(a))


@pytest.mark.parametrize("indices", [[3, 1000], [5, 5], [9, 2], [1023, 1023]])
def test_indices_out_of_bounds_or_order_are_refused(indices) -> None:
    a = gaussian(1000)
    c = TopK(0.002)
    _, values = message(c, a)
    where = torch.from_numpy(bits.pack(np.array(indices), 10))
    with pytest.raises(FederationError, match="indices out of order or bounds, expected 2 rising"):
        c.decode((where, values), a, flat(a))


@pytest.mark.parametrize("fraction", [0.1, 0.3])
def test_random_k_is_unbiased_with_the_formulas_error(fraction) -> None:
    d = 20
    a = gaussian(d, 1)
    k = math.ceil(fraction * d)
    draws = torch.stack([through(RandomK(fraction), a, seed=seed) for seed in range(10_000)])
    assert (draws.count_nonzero(1) == k).all()
    error = (d / k - 1) * a.square()
    assert ((draws.mean(0) - a).abs() <= 4 * (error / 10_000).sqrt()).all()
    total = (draws - a).square().sum(1).mean()
    assert float(total) == pytest.approx(float(error.sum()), rel=0.05)
    narrow = torch.stack([through(RandomK(fraction, "contractive"), a, seed=s) for s in range(99)])
    torch.testing.assert_close(narrow * d / k, draws[:99])


def test_random_k_sends_a_seed_in_place_of_indices() -> None:
    c = RandomK(0.1)
    assert 8 * c.nbytes(CONVNET, 4) == c.nominal(CONVNET, 4) == 32 * 32_001 + 64
    a = gaussian(10)
    seed, values = message(RandomK(0.5), a)
    with pytest.raises(FederationError, match=r"received the seed -1, expected a seed ≥ 0"):
        c.decode((seed * 0 - 1, values[:1]), a, flat(a))
    assert RandomK(0.5).decode((seed * 0 + 2**63 - 1, values), a, flat(a)).count_nonzero() == 5


# Signs


def test_signs_have_the_mean_magnitude_of_their_block_and_zero_is_positive() -> None:
    a = vec(1, -2, 0, 5, -0.5, 0.5)
    layout = lay_out({"w": (2, 2), "b": (2,)})
    assert torch.equal(through(ScaledSign(), a, layout), 1.5 * vec(1, -1, 1, 1, -1, 1))
    assert torch.equal(through(ScaledSign("tensor"), a, layout), vec(2, -2, 2, 2, -0.5, 0.5))


@settings(max_examples=30)
@given(d=st.integers(1, 300), seed=st.integers(0, 99), blocks=st.sampled_from(["global", 7]))
def test_scaled_signs_contract_by_their_factor(d, seed, blocks) -> None:
    a = gaussian(d, seed)
    error = float((through(ScaledSign(blocks), a) - a).square().sum())
    lengths = [d] if blocks == "global" else [7] * (d // 7) + [d % 7] * (d % 7 > 0)
    left = sum(float(p.square().sum() - p.abs().sum() ** 2 / len(p)) for p in a.split(lengths))
    assert error == pytest.approx(left, abs=1e-9)


def test_signs_take_a_bit_each_and_a_float_a_block() -> None:
    assert ScaledSign().nominal(CONVNET, 4) == D + 32
    assert 8 * ScaledSign().nbytes(CONVNET, 4) == D + 6 + 32
    a = torch.tensor([1.0, 1.0, -1.0, 1.0])
    assert ScaledSign().entropy(message(ScaledSign(), a), flat(a)) == pytest.approx(
        32 - 4 * (0.25 * math.log2(0.25) + 0.75 * math.log2(0.75))
    )


def test_the_servers_mean_weighs_each_clients_signs_by_its_own_scale() -> None:
    one, two = vec(3, 1, -2), vec(-30, 10, -20)
    mean = (through(ScaledSign(), one) + through(ScaledSign(), two)) / 2
    assert torch.equal(mean, (2 * vec(1, 1, -1) + 20 * vec(-1, 1, -1)) / 2)
    assert torch.equal(mean.sign(), vec(-1, 1, -1))  # a vote would be a draw in the first place


# Casts


def test_what_sixteen_bits_can_say_arrives_exactly() -> None:
    for name, values in (("float16", vec(1.5, -65504, 2**-24, 0)), ("bfloat16", vec(3e38, -1, 0))):
        short = values.to(getattr(torch, name)).double()
        assert torch.equal(through(Cast(name), short), short)


def test_what_sixteen_bits_cannot_say_is_the_largest_they_can() -> None:
    a = vec(1e6, -1e6, 65519, 3)
    assert torch.equal(through(Cast(), a), vec(65504, -65504, 65504, 3))
    top = torch.finfo(torch.bfloat16).max
    assert torch.equal(through(Cast("bfloat16"), vec(3.4e38, -1e300)), vec(top, -top))
    assert Cast().nominal(CONVNET, 4) == 16 * D


# Low rank


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_a_matrix_of_no_higher_rank_arrives_after_one_iteration(dtype, rank) -> None:
    layout = lay_out({"w": (24, 5, 6), "b": (9,), "head": (4, 3)})
    matrix = gaussian(24 * rank).reshape(24, rank) @ gaussian(30 * rank, 1).reshape(rank, 30)
    a = torch.cat([matrix.flatten(), gaussian(21, 2)]).to(dtype)
    back = through(LowRank(3), a, layout)
    torch.testing.assert_close(back, a)
    assert torch.equal(back[720:], a[720:])


def test_warm_starts_find_the_largest_directions_of_every_matrix() -> None:
    layout, a = lay_out({"w": (40, 30), "b": (7,), "v": (20, 6, 5)}), gaussian(1807)
    best = a.clone()
    for at, n in ((slice(0, 1200), 40), (slice(1207, 1807), 20)):
        left, sizes, right = torch.linalg.svd(a[at].reshape(n, 30))
        best[at] = ((left[:, :2] * sizes[:2]) @ right[:2]).flatten()
    c, kept, errors = LowRank(2), {}, []
    for _ in range(200):
        v = view(c, a, layout, **kept)
        sent, kept = c.encode(a, v)
        errors.append(float((c.decode(sent, a, layout) - a).norm()))
    assert errors[-1] < errors[0]
    assert errors[-1] == pytest.approx(float((best - a).norm()), rel=1e-3)


def test_a_direction_that_died_is_drawn_anew() -> None:
    """A round in which nothing moved must not leave a warm start of zeros for ever."""
    layout, a = lay_out({"w": (20, 20)}), gaussian(400)
    c = LowRank(2)
    _, kept = c.encode(0 * a, view(c, a, layout))
    assert not kept["q"].any()
    sent, _ = c.encode(a, view(c, a, layout, **kept))
    assert float(c.decode(sent, a, layout).norm()) > 0.1 * float(a.norm())


def test_what_is_sent_of_a_matrix_is_its_projection() -> None:
    layout, a = lay_out({"w": (20, 30)}), gaussian(600)
    c = LowRank(3)
    P = message(c, a, layout)[0].reshape(3, 20)
    torch.testing.assert_close(P @ P.T, torch.eye(3, dtype=torch.float64))
    V = a.reshape(20, 30)
    torch.testing.assert_close(through(c, a, layout), (P.T @ (P @ V)).flatten())


def test_a_basis_is_orthonormal_though_its_rows_are_nearly_or_wholly_spanned() -> None:
    rows = gaussian(60).reshape(3, 20).numpy()
    rows[1] = rows[0] + 1e-13 * rows[1]
    P = orthonormal(1e-200 * rows)
    np.testing.assert_allclose(P @ P.T, np.eye(3), atol=1e-12)
    rows[0], rows[1:] = 1, 0
    assert np.array_equal(orthonormal(rows) != 0, rows != 0)


def test_small_matrices_and_vectors_travel_whole() -> None:
    """Where r(a + b) ≥ ab/2: here 2·(8 + 8) = 64/2 is too much, 2·(8 + 9) < 72/2 is not."""
    c = LowRank(2)
    assert c.nbytes(lay_out({"w": (8, 8), "b": (100,), "scale": ()}), 4) == 4 * 165
    assert c.nbytes(lay_out({"w": (8, 9)}), 4) == 4 * 2 * 17
    assert c.nominal(lay_out({"w": (8, 3, 3), "b": (5,)}), 4) == 32 * (2 * 17 + 5)
    assert c.kept_size("q", lay_out({"w": (8, 9), "b": (5,)})) == 2 * 9
    a = gaussian(165)
    assert torch.equal(through(c, a, lay_out({"w": (8, 8), "b": (100,), "scale": ()})), a)


# Error feedback


def rounds(c: Compressor, asked: list[Tensor], layout: Layout) -> tuple[list[Tensor], dict]:
    """What arrives of one client's vectors, round by round, and what it keeps in the end."""
    kept: dict[str, Tensor] = {}
    arrived = []
    for t, a in enumerate(asked):
        sent, kept = c.encode(a, view(c, a, layout, seed=t, **kept))
        arrived.append(c.decode(sent, a, layout))
    return arrived, kept


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "inner",
    [TopK(0.1), RandomK(0.2, "contractive"), QSGD(4, intervals="levels"), Dense()],
    ids=repr,
)
def test_what_arrived_and_what_is_left_are_what_was_asked_bit_for_bit(inner, dtype) -> None:
    """Of whole numbers every sum here is exact.

    With s = 2⁴ so are QSGD's levels, as long as four more binary places a round fit into a float.
    """
    times = 3 if isinstance(inner, QSGD) else 30
    asked = [(100 * gaussian(50, t, dtype)).round() for t in range(times)]
    arrived, kept = rounds(ErrorFeedback(inner), asked, flat(asked[0]))
    assert torch.equal(sum(arrived) + kept["e"], sum(asked))
    assert (inner == Dense()) == (not kept["e"].any())


@pytest.mark.parametrize("c", [c for c in EVERY if not c.keep], ids=repr)
def test_what_arrived_and_what_is_left_are_what_was_asked(c) -> None:
    """To rounding: sums of any floats are not exact."""
    layout = lay_out({"w": (10, 10), "b": (5,)})
    asked = [gaussian(105, t) for t in range(10)]
    arrived, kept = rounds(ErrorFeedback(c), asked, layout)
    torch.testing.assert_close(sum(arrived) + kept["e"], sum(asked), rtol=1e-9, atol=1e-9)


def test_in_each_round_top_k_splits_the_vector_bit_for_bit() -> None:
    c, e = ErrorFeedback(TopK(0.1)), torch.zeros(50)
    for t in range(10):
        a = gaussian(50, t, torch.float32)
        sent, new = c.encode(a, view(c, a, e=e))
        assert torch.equal(c.decode(sent, a, flat(a)) + new["e"], a + e)
        e = new["e"]


def test_without_loss_nothing_is_left_and_ef21_knows_the_vector() -> None:
    a = gaussian(20)
    for identity in (Dense(), TopK(1.0)):
        assert not rounds(ErrorFeedback(identity), [a, 2 * a], flat(a))[1]["e"].any()
        known = rounds(EF21(identity), [a, 2 * a], flat(a))[1]["h_i"]
        torch.testing.assert_close(known, 2 * a)


def test_ef21_learns_a_vector_that_stays() -> None:
    a = gaussian(50)
    _, kept = rounds(EF21(TopK(0.1)), [a] * 10, flat(a))
    assert torch.equal(kept["h_i"], a)


@pytest.mark.parametrize("present", [[0, 1, 2], [0, 2]])
def test_the_servers_h_is_the_mean_of_what_it_knows_of_all_clients(present) -> None:
    """Under full participation that of the cohort; else EF21-PP's, over all N."""
    c, N = EF21(TopK(0.2)), 3
    h = torch.zeros(20, dtype=torch.float64)
    known = {i: torch.zeros_like(h) for i in range(N)}
    for t in range(5):
        arrived = []
        for i in present if t else range(N):
            a = gaussian(20, 10 * t + i)
            sent, new = c.encode(a, view(c, a, h_i=known[i]))
            known[i] = new["h_i"]
            arrived.append(c.decode(sent, a, flat(a)))
        mean = sum(arrived) / len(arrived)
        seen, new = c.gather(mean, SimpleNamespace(h=h, S=len(arrived), N=N))
        h = new["h"]
        assert torch.equal(seen, h)
        torch.testing.assert_close(h, sum(known.values()) / N)


def test_a_wrapped_compressor_keeps_its_own_memory() -> None:
    layout, a = lay_out({"w": (20, 20)}), gaussian(400)
    c = ErrorFeedback(LowRank(2))
    assert (c.keep, EF21(LowRank(2)).keep) == (("e", "q"), ("h_i", "q"))
    assert (c.server, EF21(Dense()).server) == ((), ("h",))
    assert (c.kept_size("e", layout), c.kept_size("q", layout)) == (400, 40)
    assert (c.init("e", a).numel(), c.init("q", a).numel()) == (400, 0)
    _, kept = rounds(c, [a], layout)
    assert torch.equal(kept["q"], message(LowRank(2), a, layout)[1])
    assert c.gather(a, SimpleNamespace()) == (a, {})


def test_a_wrapper_says_what_it_does_around_the_inner_equations() -> None:
    before, sent, after = ErrorFeedback(TopK()).equations("encode")
    assert (before, sent) == ("a ← a + e", *TopK().equations("encode"))
    assert after == "e ← a − decode(sent)"
    assert EF21(QSGD()).equations("encode")[-1] == "h_i ← h_i + decode(sent)"
    assert EF21(QSGD()).equations("gather") == ("h ← h + (S/N)·mean;  mean ← h",)
    assert ErrorFeedback(QSGD()).equations("gather") == ()
    assert "‖a‖₂" in QSGD(norm="l2").equations("encode")[0]
    assert ErrorFeedback(RandomK()).equations("decode") == RandomK().equations("decode")


# The catalogue


@pytest.mark.parametrize("name", COMPRESSORS)
def test_a_compressor_is_built_by_its_name_and_its_defaults(name) -> None:
    own = parameters(name)
    assert build(name, **own) == build(name) == COMPRESSORS[name]()
    if name != "none":
        assert build(name, feedback="ef") == ErrorFeedback(build(name))
        assert build(name, feedback="ef21") == EF21(build(name))


def test_a_wrong_name_or_parameter_is_answered_with_the_right_ones() -> None:
    with pytest.raises(
        SpecError, match=r"'topq' is no compressor of flatfed\.\nDid you mean 'topk'"
    ):
        build("topq")
    with pytest.raises(SpecError, match=r"no parameter 'fractoin'\.\nDid you mean 'fraction'\?"):
        build("topk", fractoin=0.1)
    with pytest.raises(SpecError, match=r"none has no parameter 'feedback'\.\nIt has none\."):
        build("none", feedback="ef")
    with pytest.raises(SpecError, match="topk got feedback='yes', expected 'ef', 'ef21' or none"):
        build("topk", feedback="yes")


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: QSGD(bits=0), r"QSGD got bits=0, expected a whole number ≥ 1"),
        (lambda: QSGD(bits=17), r"bits=17, expected a whole number in \[1, 16\]"),
        (lambda: QSGD(norm="l1"), "norm='l1', expected 'linf' or 'l2'"),
        (lambda: QSGD(blocks="layer"), "blocks='layer', expected 'tensor', 'global' or a whole"),
        (lambda: ScaledSign(blocks=0), "ScaledSign got blocks=0, expected"),
        (lambda: ScaledSign(blocks=True), "ScaledSign got blocks=True, expected"),
        (lambda: QSGD(intervals="s"), "intervals='s', expected 'fixed' or 'levels' or 'literal'"),
        (lambda: Cast("float8"), "Cast got to='float8', expected 'float16' or 'bfloat16'"),
        (lambda: TopK(0.0), r"TopK got fraction=0.0, expected a number in \(0, 1\]\.\nDense\(\)"),
        (lambda: RandomK(1.5), r"RandomK got fraction=1.5, expected a number in \(0, 1\]"),
        (lambda: RandomK(0.1, "none"), "scale='none', expected 'unbiased' or 'contractive'"),
        (lambda: LowRank(0), "LowRank got rank=0, expected a whole number ≥ 1"),
        (lambda: ErrorFeedback(EF21(TopK())), r"ErrorFeedback got inner=EF21.*without error"),
        (lambda: EF21("topk"), "EF21 got inner='topk', expected a compressor"),
    ],
)  # fmt: skip
def test_a_wrong_field_is_refused(make, said) -> None:
    with pytest.raises(CompositionError, match=said):
        make()


def test_a_sign_is_a_bit_and_a_step_of_fixed_length() -> None:
    a = vec(3, -0.1, 0, -0.0, -7)
    assert torch.equal(through(Sign(0.5), a), vec(0.5, -0.5, 0.5, 0.5, -0.5))
    assert (Sign().nominal(CONVNET, 4), Sign().nbytes(CONVNET, 4)) == (D, 40_002)
    mean = vec(0.5, -0.1, 0.0)
    assert torch.equal(Sign(2.0, "majority").gather(mean, None)[0], vec(2, -2, 0))
    assert Sign(2.0).gather(mean, None)[0] is mean


def test_a_sign_of_what_is_no_number_is_refused() -> None:
    with pytest.raises(NonFiniteError, match="Sign got a vector with 1 of 2 elements NaN or inf"):
        message(Sign(), vec(1, math.nan))
