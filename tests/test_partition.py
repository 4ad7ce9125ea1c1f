"""Who holds what: every published rule keeps what it promises, and says what it cannot do."""

from __future__ import annotations

import json
import time
from dataclasses import fields

import numpy as np
import pytest
import torch
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from rich.console import Console
from torch import Tensor

from flatfed.data.class_splits import ClassSplit, DoublyStochastic, sinkhorn, topped_up
from flatfed.data.hands import without_pairs
from flatfed.data.heterogeneity import BLOCK, Heterogeneity, class_counts, heterogeneity
from flatfed.data.partition import PARTITIONS, build, parameters
from flatfed.data.picture import draw, table
from flatfed.data.priors import Dirichlet, PriorReuse, dirichlet, race, turns, uniforms
from flatfed.data.shares import Pools, Shares, even
from flatfed.errors import FederationError, FlatfedError, SpecError
from flatfed.vec import seed_for

CUT = [name for name in PARTITIONS if name != "natural"]
SKEWED = [name for name in CUT if "alpha" in parameters(name)]
REUSING = ["prior_reuse", "pathological", "fedswa_prior"]  # a sample may be held twice
EXACT = [name for name in CUT if name not in REUSING]  # every sample by exactly one client
# never: sizes follow from the cuts (P4), from rounding (P5) or from how many share a class (P9).
UNEQUAL = ["class_split", "doubly_stochastic", "pathological_cover"]
EQUAL = [name for name in CUT if name not in UNEQUAL]
LABELS = torch.arange(10_000) % 10


def deal(name: str, clients: int, labels: Tensor = LABELS, seed: int = 0, **values) -> Shares:
    return build(name, clients=clients, **values).deal(labels, 10, seed=seed)


def statistics(name: str, clients: int, seed: int = 0, **values) -> Heterogeneity:
    return heterogeneity(deal(name, clients, seed=seed, **values), LABELS, 10)


def mean(name: str, clients: int, what: str, seeds: int = 10, **values) -> float:
    return np.mean([getattr(statistics(name, clients, s, **values), what) for s in range(seeds)])


def held(shares: Shares) -> list[list[int]]:
    return [shares.of(i).tolist() for i in range(len(shares))]


def parts(labels: Tensor, seed: int) -> tuple[Pools, np.random.Generator]:
    """What every rule starts from, and the stream that it draws from next."""
    rng = np.random.Generator(np.random.PCG64(seed_for(seed, "partition")))
    return Pools.of(labels.numpy(), rng), rng


def by_class(pools: Pools) -> list[list[int]]:
    return [pools.order[s : s + T].tolist() for s, T in zip(pools.starts, pools.counts)]  # noqa: B905


# Every rule.


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("clients", [1, 7, 10, 100])
def test_every_sample_is_held_by_exactly_one_client(name, clients) -> None:
    values = {"shards_per_client": 3} if name == "shards" else {}
    values = {"classes_per_client": 10} if (name, clients) == ("pathological_cover", 1) else values
    if name == "pathological_cover" and clients == 7:
        values = {"classes_per_client": 2}
    shares = deal(name, clients, **values)
    assert torch.equal(shares.indices.sort().values, torch.arange(len(LABELS)))
    assert len(shares) == clients
    assert min(shares.sizes) > 0


@pytest.mark.parametrize("name", CUT)
def test_what_a_client_holds_is_in_order(name) -> None:
    shares = deal(name, 10)
    assert all(own == sorted(own) for own in held(shares))


@pytest.mark.parametrize("name", EQUAL)
def test_sizes_are_equal_where_they_are_said_to_be(name) -> None:
    assert deal(name, 100).sizes.tolist() == [100] * 100


@pytest.mark.parametrize("name", EQUAL)
def test_what_does_not_divide_goes_where_the_rule_says(name) -> None:
    sizes = deal(name, 7, LABELS[:1003]).sizes.tolist()  # 7·143 + 2
    if name == "fedswa_prior":
        assert sizes == [143] * 7  # the rest is left out
    elif name in ("prior_reuse", "pathological"):
        assert sizes == [145] + [143] * 6
    elif name in ("dirichlet", "prior_weighted"):
        assert sizes == [144, 144] + [143] * 5
    else:
        assert sum(sizes) == 1003
        assert max(sizes) - min(sizes) <= (2 if name == "shards" else 1)


@pytest.mark.parametrize("name", CUT)
def test_a_seed_gives_one_partition(name) -> None:
    first, again, other = (held(deal(name, 10, seed=seed)) for seed in (0, 0, 1))
    assert first == again
    assert first != other


def test_the_global_random_state_is_neither_read_nor_moved() -> None:
    np.random.seed(0)
    before = deal("dirichlet", 10), np.random.get_state()[1].tolist(), torch.get_rng_state()
    np.random.seed(0)
    after = deal("dirichlet", 10), np.random.get_state()[1].tolist(), torch.get_rng_state()
    assert held(before[0]) == held(after[0])
    assert before[1] == after[1]
    assert torch.equal(before[2], after[2])


@pytest.mark.parametrize("name", SKEWED)
def test_a_large_alpha_approaches_the_global_mix(name) -> None:
    assert statistics(name, 10, alpha=1000.0).total_variation < 0.1
    assert mean(name, 10, "total_variation", 2, alpha=0.1) > 0.3


@pytest.mark.parametrize("name", ["prior_reuse", "prior_weighted", "fedswa_prior"])
def test_a_small_alpha_leaves_one_dominant_class(name) -> None:
    assert mean(name, 100, "max_share", alpha=0.01) > 0.9


@pytest.mark.parametrize("name", ["class_split", "grouped_class_split"])
def test_a_cut_class_leaves_one_dominant_class_at_a_smaller_alpha(name) -> None:
    """A client whose part of a class is small may still have nothing larger."""
    assert 0.7 < mean(name, 10, "max_share", alpha=0.01, **MIN_1[name]) < 0.9
    assert mean(name, 10, "max_share", alpha=1e-4, **MIN_1[name]) > 0.97


@pytest.mark.parametrize("alpha", [5e-324, 1e-3, 1e6, 1e308, 3])
@pytest.mark.parametrize("name", SKEWED)
def test_any_alpha_is_dealt(name, alpha) -> None:
    shares = deal(name, 10, LABELS[:200], alpha=alpha, **MIN_1.get(name, {}))
    assert min(shares.sizes) > 0


MIN_1 = {name: {"min_size": 1} for name in ("class_split", "grouped_class_split")}


@pytest.mark.parametrize("name", CUT)
def test_one_sample_for_each_client_is_enough(name) -> None:
    values = MIN_1.get(name, {"shards_per_client": 1} if name == "shards" else {})
    values = values if name != "pathological" else {"classes_per_client": 1}
    shares = deal(name, 20, LABELS[:20], **values)
    assert shares.sizes.tolist() == [1] * 20


def test_a_million_clients_are_dealt_in_seconds() -> None:
    labels = torch.arange(1_000_000) % 10
    start = time.perf_counter()
    shares = build("iid", clients=1_000_000).deal(labels, 10, seed=0)
    found = heterogeneity(shares, labels, 10)
    assert time.perf_counter() - start < 10
    assert (found.size_min, found.size_max, found.distinct) == (1, 1, 1_000_000)
    assert (found.total_variation, found.max_share) == (0.9, 1.0)


# Properties: whatever the labels, and whichever classes have none.


@st.composite
def federations(draw):
    classes = draw(st.integers(1, 8))
    present = draw(st.lists(st.integers(0, classes - 1), min_size=1, max_size=classes))
    labels = draw(st.lists(st.sampled_from(present), min_size=1, max_size=80))
    return torch.tensor(labels), classes, draw(st.integers(1, len(labels)))


@pytest.mark.parametrize("name", CUT)
@settings(max_examples=60)
@given(federation=federations(), seed=st.integers(0, 1000), some=st.integers(1, 3))
def test_whatever_the_labels(name, federation, seed, some) -> None:
    labels, classes, clients = federation
    own = {"shards": "shards_per_client", "iid": "stratified"}.get(name, "classes_per_client")
    values = MIN_1.get(name, {})
    if own in parameters(name):
        values = {own: some if own != "stratified" else some > 1}
    if name == "shards":
        values["per_class"] = seed % 2 == 0
    try:
        shares = build(name, clients=clients, **values).deal(labels, classes, seed=seed)
    except FederationError:  # too few samples for so many parts
        if name not in ("shards", "pathological", "pathological_cover"):
            raise
        reject()
    assert len(shares) == clients
    assert min(shares.sizes) > 0
    assert shares.offsets[-1] == len(shares.indices)
    times = torch.bincount(shares.indices, minlength=len(labels))
    if name in EXACT:
        assert times.tolist() == [1] * len(labels)
    else:  # a class is dealt to the end before it is dealt again
        for c in labels.unique():
            assert times[labels == c].max() - times[labels == c].min() <= 1
    if name == "pathological_cover":
        assert all(len(labels[shares.of(i)].unique()) == some for i in range(clients))


# P1, P2, P4, word by word from the description, on the same random numbers.


def p1(clients: int, pools: list[list[int]], prior, who, draw) -> list[list[int]]:
    total = sum(map(len, pools))
    n = total // clients
    r = [n] * clients
    r[0] += total - clients * n
    pointer = [len(pool) for pool in pools]
    holds: list[list[int]] = [[] for _ in range(clients)]
    while sum(r) > 0:
        i = next(who)
        r[i] -= 1
        assert r[i] >= 0
        while True:
            cumulative = np.cumsum(prior[i])
            cumulative[-1] = 1.0
            U = next(draw)
            label = next(c for c in range(len(pools)) if cumulative[c] >= U)
            if pointer[label] == 0:
                pointer[label] = len(pools[label])
                continue
            pointer[label] -= 1
            holds[i].append(pools[label][pointer[label]])
            break
    return holds


def p2(clients: int, pools: list[list[int]], prior, who, draw) -> list[list[int]]:
    n = sum(map(len, pools)) // clients
    r, prior = [n] * clients, prior.copy()
    pointer = [len(pool) for pool in pools]
    holds: list[list[int]] = [[] for _ in range(clients)]
    while sum(r) > 0:
        i = next(who)
        r[i] -= 1
        cumulative = np.cumsum(prior[i])
        cumulative[-1] = 1.0
        U = next(draw)
        label = next(c for c in range(len(pools)) if cumulative[c] >= U)
        pointer[label] -= 1
        holds[i].append(pools[label][pointer[label]])
        if pointer[label] == 0 and sum(pointer):
            for q in prior:
                q[label] = 0
                if q.sum() < 1e-12:
                    q[:] = pointer
                q /= q.sum()
    return holds


@pytest.mark.parametrize(("rule", "slowly"), [(PriorReuse, p1), (Dirichlet, p2)])
@pytest.mark.parametrize("alpha", [0.02, 0.3, 50.0])
def test_draws_by_a_prior_are_those_of_the_description(rule, slowly, alpha) -> None:
    labels = torch.randint(0, 6, (600,), generator=torch.Generator().manual_seed(1))
    for seed in range(5):
        pools, rng = parts(labels, seed)
        prior = dirichlet(rng, alpha, 12, 6)
        order = iter(turns(np.full(12, 50), rng).tolist())
        slow = slowly(12, by_class(pools), prior, order, uniforms(rng))
        fast = rule(clients=12, alpha=alpha).deal(labels, 6, seed=seed)
        assert held(fast) == [sorted(own) for own in slow]


def test_turns_are_as_if_clients_were_drawn_until_one_is_not_done() -> None:
    sizes, rng, trials = np.array([1, 2, 4]), np.random.default_rng(0), 4000

    def slowly() -> tuple[int, ...]:
        r, order = sizes.copy(), []
        while r.sum():
            i = rng.integers(3)
            if r[i]:
                r[i] -= 1
                order.append(int(i))
        return tuple(order)

    slow, fast = ([] for _ in range(2))
    for _ in range(trials):
        slow.append(slowly())
        fast.append(tuple(turns(sizes, rng).tolist()))
    possible = {*slow, *fast}
    assert len(possible) == 105  # 7! / (1!·2!·4!)
    # Frequencies of all orders: a χ² of two samples, 104 degrees of freedom, 6 deviations.
    a, b = (np.array([found.count(order) for order in sorted(possible)]) for found in (slow, fast))
    assert ((a - b) ** 2 / (a + b)).sum() < 104 + 6 * np.sqrt(208)


def p4(clients: int, pools: list[list[int]], alpha: float, balance: bool, least: int, rng):
    """Shares, and how often it was begun anew; None where 1000 times were not enough."""
    total = sum(map(len, pools))
    for attempt in range(1000):
        holds: list[list[int]] = [[] for _ in range(clients)]
        for pool, q in zip(pools, dirichlet(rng, alpha, len(pools), clients), strict=True):
            if balance:
                q = q * [len(own) < total / clients for own in holds]
                q = q / q.sum()
            ends = [int(end) for end in np.floor(np.cumsum(q) * len(pool) + 1e-9)]
            for i, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
                holds[i] += pool[start:end]
        if min(map(len, holds)) >= least:
            return holds, attempt
    return None, 1000


@pytest.mark.parametrize(("balance", "least"), [(True, 80), (False, 30)])
def test_class_split_is_that_of_the_description(balance, least) -> None:
    labels = torch.randint(0, 6, (900,), generator=torch.Generator().manual_seed(2))
    attempts = 0
    for seed in range(8):
        pools, rng = parts(labels, seed)
        slow, again = p4(8, by_class(pools), 0.5, balance, least, rng)
        attempts += again
        rule = ClassSplit(clients=8, alpha=0.5, balance=balance, min_size=least)
        shares = rule.deal(labels, 6, seed=seed)
        assert held(shares) == [sorted(own) for own in slow]
        assert shares.moved == 0
    assert attempts > 0  # the restart has been seen


# What is particular to one.


def test_prior_reuse_holds_samples_twice_and_says_how_many_are_distinct() -> None:
    found = statistics("prior_reuse", 10, alpha=0.1)
    assert found.held == 10_000
    assert found.distinct == len({j for own in held(deal("prior_reuse", 10)) for j in own}) < 9500
    assert statistics("dirichlet", 10).distinct == 10_000


def test_prior_reuse_leaves_classes_out_as_the_simulation_says() -> None:
    """7.8 of 10 classes on average with 10 clients; all of them in 99 % of draws with 50."""
    some = [(statistics("prior_reuse", 10, s, alpha=0.01).counts.sum(0) > 0) for s in range(60)]
    assert abs(np.mean([s.sum() for s in some]) - 7.8) < 0.5
    all_of_them = [
        (statistics("prior_reuse", 50, s, alpha=0.01).counts.sum(0) > 0).all() for s in range(30)
    ]
    assert np.mean(all_of_them) > 0.9


def test_dirichlet_is_milder_than_its_alpha_says() -> None:
    """Largest share 0.55 and 4 classes above 2 % where the prior itself would say 1 and 1."""
    found = [statistics("dirichlet", 10, s, alpha=0.01) for s in range(30)]
    assert abs(np.mean([f.max_share for f in found]) - 0.55) < 0.06
    above = [(f.counts > 0.02 * f.counts.sum(1, keepdims=True)).sum(1).mean() for f in found]
    assert abs(np.mean(above) - 4) < 0.7


def test_dirichlet_draws_sizes_when_asked() -> None:
    sizes = deal("dirichlet", 100, size_sigma=1.0).sizes.double()
    assert sizes.sum() == 10_000
    assert min(sizes) >= 1
    # The deviation of the logarithm is size_sigma, but for the one sample that all begin with.
    assert 0.7 < sizes.log().std() < 1.2
    assert min(deal("dirichlet", 100, size_sigma=5.0).sizes) == 1


def test_a_prior_has_its_limits_where_floating_point_ends() -> None:
    assert abs(dirichlet(_rng(), 1e308, 5, 4) - 0.25).max() < 1e-5
    alone = dirichlet(_rng(), 5e-324, 200, 4)
    assert {*alone.ravel().tolist()} == {0.0, 1.0}
    assert abs(alone.sum(0) - 50).max() < 35  # each class as often: deviation 6


def test_weighted_draws_are_as_if_samples_were_drawn_one_by_one() -> None:
    q, left, rng = np.array([0.7, 0.25, 0.05, 0.0]), np.array([4, 6, 20, 9]), _rng()

    def slowly() -> list[int]:
        remaining, taken = left.copy(), [0, 0, 0, 0]
        for _ in range(9):
            weights = q * remaining
            c = rng.choice(4, p=weights / weights.sum())
            remaining[c] -= 1
            taken[c] += 1
        return taken

    slow = np.mean([slowly() for _ in range(3000)], axis=0)
    fast = np.mean([race(q, left, 9, rng) for _ in range(3000)], axis=0)
    assert abs(slow - fast).max() < 0.12  # deviations of one draw are below 1.2
    assert fast[3] == 0


def test_prior_weighted_takes_anything_when_its_classes_are_gone() -> None:
    found = statistics("prior_weighted", 10, alpha=1e-6)
    assert found.distinct == 10_000
    assert found.size_min == found.size_max == 1000


def test_class_split_gives_nothing_more_to_a_client_with_its_even_share() -> None:
    """Before its last class a client had less than the even share: no size beyond share + class."""
    with_, without = (
        [statistics("class_split", 10, s, alpha=0.3, balance=b).size_max for s in range(20)]
        for b in (True, False)
    )
    assert max(with_) <= 2000
    assert max(without) > 2000
    assert np.mean(with_) < np.mean(without)


def test_class_split_honours_its_minimum_by_restart_and_else_by_moving() -> None:
    restarted = statistics("class_split", 20, alpha=0.3, min_size=50)
    assert restarted.size_min >= 50
    assert restarted.moved == 0
    moved = statistics("class_split", 100, alpha=0.05, min_size=80)
    assert moved.size_min == 80
    assert moved.moved > 0
    assert moved.distinct == 10_000
    assert statistics("class_split", 100, alpha=0.05, min_size=100).size_max == 100


def test_class_split_moves_nothing_that_a_restart_spares() -> None:
    for seed in range(40):
        rule = ClassSplit(clients=6, alpha=0.5, min_size=5)
        shares = rule.deal(LABELS[:60], 10, seed=seed)
        assert min(shares.sizes) >= 5
        assert shares.moved == 0


def test_the_largest_gives_to_the_smallest_and_each_sample_is_counted() -> None:
    pools, rng = parts(torch.tensor([0] * 12), 0)
    shares = topped_up(pools, np.array([[7, 0, 1, 4]]), 2, rng)
    assert shares.sizes.tolist() == [4, 2, 2, 4]
    assert shares.moved == 3


def test_doubly_stochastic_is_doubly_stochastic() -> None:
    matrix = sinkhorn(_rng().dirichlet(np.full(20, 0.5), 10))
    assert abs(matrix.sum(1) - 1).max() < 1e-9
    assert abs(matrix.sum(0) - 0.5).max() < 1e-9
    sizes = deal("doubly_stochastic", 20, alpha=0.5).sizes
    assert max(sizes) - min(sizes) <= 2 * 10  # a sample for every class that is cut
    assert DoublyStochastic(clients=1).deal(LABELS, 10, seed=0).sizes.tolist() == [10_000]


def test_doubly_stochastic_is_close_to_a_class_each_with_as_many_clients_as_classes() -> None:
    assert mean("doubly_stochastic", 10, "max_share", alpha=0.01) > 0.75


def test_grouped_class_split_draws_every_group_of_ten_by_itself() -> None:
    """Every group has the global mix, though its clients have not."""
    counts = statistics("grouped_class_split", 40, alpha=0.05).counts
    groups = counts.reshape(4, 10, 10).sum(1)
    assert abs(groups - 250).max() < 80  # a hypergeometric draw: deviation 14
    assert statistics("grouped_class_split", 40, alpha=0.05).max_share > 0.5
    assert deal("grouped_class_split", 25).sizes.tolist() == [400] * 25


def test_shards_are_of_neighbouring_classes() -> None:
    found = statistics("shards", 50, shards_per_client=2)  # 100 shards of 100: none of two classes
    assert ((found.counts > 0).sum(1) <= 2).all()
    assert {*found.counts.ravel().tolist()} == {0, 100, 200}


def test_shards_per_class_cut_every_class_as_often() -> None:
    found = statistics("shards", 50, shards_per_client=3, per_class=True)
    assert {*found.counts.ravel().tolist()} <= {0, 66, 67, 133, 134, 199, 200, 201}
    assert (found.counts > 67).any()  # two shards of one class: nobody swaps
    assert found.distinct == 10_000


@pytest.mark.parametrize("c", [1, 3, 10])
def test_pathological_holds_exactly_so_many_classes_evenly(c) -> None:
    counts = statistics("pathological", 10, classes_per_client=c).counts
    assert ((counts > 0).sum(1) == c).all()
    assert abs(counts[counts > 0] - 1000 / c).max() < 6 * np.sqrt(1000 / c)


def test_pathological_chooses_every_class_as_often() -> None:
    chosen = statistics("pathological", 1000, classes_per_client=3).counts > 0
    assert abs(chosen.sum(0) - 300).max() < 5 * np.sqrt(1000 * 0.3 * 0.7)
    three = chosen[chosen.sum(1) == 3]  # of ten samples, a few clients got none of a class
    assert len({tuple(row) for row in three.tolist()}) == 120  # every 3 of 10


@pytest.mark.parametrize(("clients", "c"), [(10, 1), (4, 3), (7, 2), (100, 6), (13, 10), (5, 9)])
def test_pathological_cover_uses_every_class_and_none_twice(clients, c) -> None:
    for seed in range(5):
        counts = statistics("pathological_cover", clients, seed, classes_per_client=c).counts
        assert ((counts > 0).sum(1) == c).all()
        holders = (counts > 0).sum(0)
        assert holders.min() >= 1
        assert holders.max() - holders.min() <= 1
        for of_class in counts.T:  # a class is cut evenly among its holders
            assert np.ptp(of_class[of_class > 0]) <= 1


@settings(max_examples=60)
@given(st.integers(1, 12), st.integers(1, 6), st.integers(0, 5), st.integers(0, 10_000))
def test_hands_without_pairs_hold_the_same_cards(hands, c, more, seed) -> None:
    L, rng = c + more, np.random.default_rng(seed)
    cards = rng.permutation(np.arange(hands * c) % L).reshape(hands, c)
    dealt = cards.copy()
    without_pairs(dealt, rng)
    assert sorted(dealt.ravel()) == sorted(cards.ravel())
    assert all(len({*hand}) == c for hand in dealt.tolist())


def test_iid_is_a_shuffle_and_stratified_cuts_every_class_too() -> None:
    # With n samples of L classes the mean distance is near √(L/(2πn)).
    assert 0.03 < statistics("iid", 20).total_variation < 0.09
    assert statistics("iid", 20, stratified=True).total_variation == 0
    uneven = heterogeneity(deal("iid", 7, LABELS[:1003], stratified=True), LABELS[:1003], 10)
    assert np.ptp(uneven.counts, axis=0).max() <= 1
    again = deal("iid", 20, seed=1, stratified=True)
    assert held(deal("iid", 20, stratified=True)) != held(again)


def test_fedswa_prior_leaves_the_remainder_out() -> None:
    found = heterogeneity(deal("fedswa_prior", 7, LABELS[:1003]), LABELS[:1003], 10)
    assert (found.held, found.size_min, found.size_max) == (1001, 143, 143)
    assert found.distinct < 1001


def test_fedswa_prior_shuffles_a_class_before_it_deals_it_again() -> None:
    labels = torch.tensor([0] * 100 + [1] * 900)
    shares = build("fedswa_prior", clients=100, alpha=1e9).deal(labels, 2, seed=0)
    dealt = shares.indices[labels[shares.indices] == 0].numpy()  # client by client
    assert len(dealt) > 300
    when = [np.argsort(dealt[k : k + 100]) for k in (0, 100)]
    # Each time all of them, up to the order within one client; and in no order seen before.
    assert len({*dealt[:90].tolist()}) > 85
    assert abs(np.corrcoef(when)[0, 1]) < 0.4


def test_natural_clients_are_those_of_the_data() -> None:
    owners = torch.tensor([5, 2, 5, 9, 2, 5])
    shares = build("natural").deal(torch.zeros(6, dtype=torch.int64), 1, seed=0, owners=owners)
    assert held(shares) == [[1, 4], [0, 2, 5], [3]]


def test_even_parts_differ_by_one() -> None:
    for total, count in ((0, 3), (7, 3), (10, 5), (5, 7)):
        assert even(total, count).sum() == total
        assert np.ptp(even(total, count)) <= 1


# Statistics.


def test_statistics_are_those_of_a_calculation_by_hand() -> None:
    labels = torch.tensor([0, 0, 0, 1, 1, 3])
    shares = Shares(torch.tensor([0, 1, 3, 3, 4]), torch.tensor([0, 3, 5]), moved=2)
    found = heterogeneity(shares, labels, 4)
    assert found.counts.tolist() == [[2, 1, 0, 0], [0, 2, 0, 0]]
    assert found.counts.dtype == np.int64
    # Global mix 1/2, 1/3, 0, 1/6: distances ½(1/6 + 0 + 1/6) and ½(1/2 + 2/3 + 1/6).
    assert found.total_variation == pytest.approx((1 / 6 + 2 / 3) / 2)
    assert found.max_share == pytest.approx((2 / 3 + 1) / 2)
    assert found.as_dict() == {
        "clients": 2,
        "held": 5,
        "distinct": 4,
        "moved": 2,
        "size_min": 2,
        "size_mean": 2.5,
        "size_max": 3,
        "total_variation": found.total_variation,
        "max_share": found.max_share,
        "mix": [3 / 6, 2 / 6, 0.0, 1 / 6],
    }
    found.counts  # noqa: B018  kept once computed, and still no part of the JSON unless asked for
    assert "counts" not in json.loads(json.dumps(found.as_dict()))
    assert json.loads(json.dumps(found.as_dict(counts=True)))["counts"] == found.counts.tolist()


def test_statistics_are_the_same_in_blocks(monkeypatch) -> None:
    whole = statistics("dirichlet", 100)
    monkeypatch.setattr("flatfed.data.heterogeneity.BLOCK", 70)
    blocks = statistics("dirichlet", 100)
    assert blocks.as_dict() == whole.as_dict()
    assert BLOCK > 70
    shares = deal("dirichlet", 100)
    assert (class_counts(shares, LABELS.numpy(), 10, 30, 33) == whole.counts[30:33]).all()


# What people see.


def text(found: Heterogeneity, classes: list[str], **values) -> str:
    console = Console(width=160)
    with console.capture() as capture:
        console.print(table(found, classes, **values))
    return capture.get()


def test_a_table_has_the_first_clients_the_sums_and_the_statistics() -> None:
    found = statistics("class_split", 50, alpha=0.1, min_size=60)
    said = text(found, [f"class {c}" for c in range(10)])
    assert said.splitlines()[0].split("  ")[0] == "client"
    assert said.splitlines()[40].split()[0] == "39"
    assert said.splitlines()[40].split()[1:-1] == [str(n) for n in found.counts[39]]
    assert said.splitlines()[41].split() == ["all", *["1000"] * 10, "10000"]
    assert "and 10 more clients" in said
    assert f"{found.moved} moved" in said
    assert f"total variation to the global mix {found.total_variation:.3f}" in said
    assert "more clients" not in text(found, ["c"] * 10, limit=50)


def test_a_table_of_many_classes_names_those_of_which_there_is_most() -> None:
    labels = torch.tensor([7] * 5 + [30] * 3 + [2])
    shares = build("iid", clients=1).deal(labels, 40, seed=0)
    said = text(heterogeneity(shares, labels, 40), [f"c{c}" for c in range(40)])
    assert "c7 5, c30 3, c2 1" in said
    assert said.splitlines()[1].split()[:2] == ["0", "3"]


@pytest.mark.parametrize(("clients", "classes"), [(2, 2), (30, 10), (61, 10), (1200, 200)])
@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_a_picture_is_drawn_and_the_same_again(tmp_path, clients, classes, suffix) -> None:
    counts = _rng().integers(0, 9, (clients, classes))
    files = []
    for name in ("one", "two"):
        path = tmp_path / f"{name}{suffix}"
        draw(counts, [f"class {c}" for c in range(classes)], path)
        files.append(path.read_bytes())
    assert files[0] == files[1]
    assert files[0].startswith(b"\x89PNG" if suffix == ".png" else b"<?xml")


def test_a_picture_needs_a_suffix_it_can_write(tmp_path) -> None:
    with pytest.raises(SpecError) as caught:
        draw(np.ones((2, 2), np.int64), ["a", "b"], tmp_path / "split.gif")
    assert str(caught.value) == (
        "The picture's file is 'split.gif', expected a name in .png or .svg.\n"
        "Its ending says what kind of picture to write."
    )


# What is refused.

NAN, INF = float("nan"), float("inf")
TOO_FEW = LABELS[:30]
VALUES = [
    ("dirichlet", {"alpha": 0}, "Dirichlet got alpha=0, expected a number in (0, ∞)."),
    ("class_split", {"alpha": -1.0}, "ClassSplit got alpha=-1.0, expected a number in (0, ∞)."),
    ("prior_reuse", {"alpha": NAN}, "PriorReuse got alpha=nan, expected a number in (0, ∞)."),
    ("fedswa_prior", {"alpha": INF}, "FedSWAPrior got alpha=inf, expected a number in (0, ∞)."),
    ("doubly_stochastic", {"alpha": "a"},
     "DoublyStochastic got alpha='a', expected a number in (0, ∞)."),
    ("dirichlet", {"size_sigma": -1}, "Dirichlet got size_sigma=-1, expected a number in [0, 10]."),
    ("iid", {"clients": 0}, "IID got clients=0, expected a whole number ≥ 1."),
    ("iid", {"clients": 2.5}, "IID got clients=2.5, expected a whole number ≥ 1."),
    ("iid", {"stratified": "no"}, "IID got stratified='no', expected True or False."),
    ("class_split", {"balance": None}, "ClassSplit got balance=None, expected True or False."),
    ("class_split", {"min_size": 0}, "ClassSplit got min_size=0, expected a whole number ≥ 1."),
    ("shards", {"shards_per_client": 0},
     "Shards got shards_per_client=0, expected a whole number ≥ 1."),
    ("shards", {"per_class": 3}, "Shards got per_class=3, expected True or False."),
    ("pathological", {"classes_per_client": 0},
     "Pathological got classes_per_client=0, expected a whole number ≥ 1."),
    ("pathological_cover", {"classes_per_client": 0},
     "PathologicalCover got classes_per_client=0, expected a whole number ≥ 1."),
]  # fmt: skip


@pytest.mark.parametrize(("name", "values", "message"), VALUES)
def test_a_value_that_no_data_could_satisfy_is_refused_at_once(name, values, message) -> None:
    with pytest.raises(FederationError) as caught:
        build(name, **{"clients": 10, **values})
    assert str(caught.value) == message


REFUSED = [
    (
        lambda: deal("iid", 31, TOO_FEW),
        "IID got clients=31 for 30 samples, expected a sample for every client.\n"
        "Lower clients, or take other data.",
    ),
    (
        lambda: deal("pathological", 5, classes_per_client=11),
        "Pathological got classes_per_client=11 for 10 classes with samples, expected at most 10.\n"
        "Lower classes_per_client, or take other data.",
    ),
    (
        lambda: deal("pathological_cover", 5, classes_per_client=11),
        "PathologicalCover got classes_per_client=11 for 10 classes with samples, expected at most "
        "10.\nLower classes_per_client, or take other data.",
    ),
    (
        lambda: deal("pathological_cover", 3, classes_per_client=2),
        "PathologicalCover got clients=3, classes_per_client=2 for 10 classes with samples, "
        "expected at least 10 in all, so that each is held.\n"
        "Raise clients or classes_per_client, or take other data.",
    ),
    (
        lambda: deal("shards", 20, TOO_FEW, per_class=False),
        "Shards got clients=20, shards_per_client=2 for 30 samples, expected at most 30 shards.\n"
        "Lower clients or shards_per_client, or take other data.",
    ),
    (
        lambda: deal("shards", 3, torch.tensor([0] * 9 + [1]), per_class=True),
        "Shards got clients=3, shards_per_client=2 for a class with 1 samples, expected at least 3 "
        "to cut.\nLower clients or shards_per_client, or take other data.",
    ),
    (
        lambda: deal("class_split", 4, TOO_FEW),
        "ClassSplit got clients=4, min_size=10 for 30 samples, expected at least 40.\n"
        "Lower clients or min_size, or take other data.",
    ),
    (
        lambda: deal("grouped_class_split", 4, TOO_FEW),
        "GroupedClassSplit got clients=4, min_size=10 for 30 samples, expected at least 40.\n"
        "Lower clients or min_size, or take other data.",
    ),
    (
        lambda: deal("iid", 2, torch.tensor([0, 10, 3])),
        "Targets hold 10, expected whole numbers in [0, 10).\n"
        "Number the classes from 0, and say how many there are.",
    ),
    (
        lambda: deal("iid", 2, torch.tensor([0, -1, 3])),
        "Targets hold -1, expected whole numbers in [0, 10).\n"
        "Number the classes from 0, and say how many there are.",
    ),
    (
        lambda: deal("iid", 2, torch.tensor([0.0, 1.0])),
        "Targets are torch.float32 of shape (2,), expected a vector of whole numbers.\n"
        "Give every sample the number of its class.",
    ),
    (
        lambda: build("natural").deal(LABELS, 10, seed=0),
        "Natural got data without client ids, expected one for every sample.\n"
        "Name the column that holds them, or take a partition like 'dirichlet'.",
    ),
    (
        lambda: build("natural").deal(LABELS, 10, seed=0, owners=torch.tensor(3)),
        "Natural got 1 client ids for 10000 samples, expected one for every sample.\n"
        "Drop samples and ids together.",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("wrong", "message"), REFUSED)
def test_what_cannot_be_dealt_is_said(wrong, message) -> None:
    with pytest.raises(FederationError) as caught:
        wrong()
    assert str(caught.value) == message
    assert len(message.splitlines()) <= 3


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: build("dirichlett"), "'dirichlett' is no partition of flatfed.\n"
         f"Did you mean 'dirichlet'? Known: {', '.join(sorted(PARTITIONS))}."),
        (lambda: parameters("p2"), "'p2' is no partition of flatfed.\n"
         f"Known: {', '.join(sorted(PARTITIONS))}."),
        (lambda: build("iid", client=3), "iid has no parameter 'client'.\n"
         "Did you mean 'clients'? Known: clients, stratified."),
        (lambda: build("natural", clients=3), "natural has no parameter 'clients'.\nIt has none."),
        (lambda: build("iid"), "iid got no clients, expected a whole number ≥ 1.\n"
         "Say how many clients there are."),
    ],
)  # fmt: skip
def test_a_wrong_name_is_answered_with_the_right_ones(wrong, message) -> None:
    with pytest.raises(SpecError) as caught:
        wrong()
    assert str(caught.value) == message


def test_every_partition_says_what_it_is_and_whose() -> None:
    for name, rule in PARTITIONS.items():
        assert rule.__doc__, name
        assert not rule.__doc__.startswith(f"{rule.__name__}("), name  # a dataclass's own
        assert {*parameters(name)} == {f.name for f in fields(rule)} - {"clients"}
    assert issubclass(FederationError, FlatfedError)


def _rng() -> np.random.Generator:
    return np.random.default_rng(0)
