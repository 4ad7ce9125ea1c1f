"""Methods whose uploads are compressed: what travels, what is billed, what clients remember."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch

from flatfed import methods
from flatfed.check import examine
from flatfed.errors import CompositionError, SpecError
from flatfed.method import Method
from flatfed.parts import compressors
from flatfed.parts.feedback import EF21
from flatfed.parts.local import SGD
from flatfed.parts.sparsify import TopK
from flatfed.parts.track import RunningStatistics
from flatfed.run import run
from flatfed.spec import Spec
from flatfed.training import fit
from problems import Quadratics, Run
from spotted import tables
from tiny import numbers

ALL = {
    "qsgd": {"bits": 2},
    "topk": {"fraction": 0.4},
    "randomk": {"fraction": 0.4},
    "sign": {"scale": 0.01},
    "scaled_sign": {},
    "lowrank": {"rank": 1},
    "cast": {"to": "bfloat16"},
}
# Quadratics have no outputs, which FedGMT asks for.
KEEPERS = [n for n in methods.CATALOGUE if methods.build(n).names("keep") and n != "fedgmt"]
SENDS_TWO = ("scaffold", "fedgamma", "feddc", "fedlesam-s", "fedsmoo", "fedmoswa")


def compressed(method: Method, name: str, **settings) -> Method:
    return replace(method, compress=compressors.build(name, **settings))


@pytest.mark.parametrize("feedback", [None, "ef", "ef21"])
@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("method", ["fedavg", "feddc", "fedsmoo"])
def test_a_compressed_method_keeps_every_claim_of_the_suite(method, name, feedback) -> None:
    if feedback == "ef21" and method == "feddc":
        method = "feddyn"  # which asks for no mean but dx's
    mine = compressed(methods.build(method), name, **ALL[name], feedback=feedback)
    assert [f for f in examine(mine) if f.wrong] == []
    mine = replace(mine, kept="synced")
    assert [f for f in examine(mine) if f.wrong] == []


@pytest.mark.parametrize("name", methods.CATALOGUE)
def test_every_method_keeps_every_claim_under_top_k(name) -> None:
    if name == "dp-fedsam":  # which refuses it
        return
    mine = compressed(methods.build(name), "topk", fraction=0.5, feedback="ef")
    assert [f for f in examine(mine) if f.wrong] == []


@pytest.mark.parametrize("name", SENDS_TWO)
def test_two_vectors_take_twice_the_bits_of_one(name) -> None:
    one = compressed(methods.fedavg(), "qsgd", bits=3).bill(1000)
    two = compressed(methods.build(name), "qsgd", bits=3).bill(1000)
    assert two.bytes_up == 2 * one.bytes_up
    assert one.bytes_up == 500 + 4
    assert two.bytes_down == methods.build(name).bill(1000).bytes_down


def test_without_a_compressor_32_bits_a_number_travel() -> None:
    assert methods.fedavg().bill(1000).bytes_up == 4000


def problem() -> Quadratics:
    return Quadratics(3)


def ended(method: Method, rounds: int = 14) -> Run:
    return Run(method, problem(), rounds)


WALK = {"lr": 0.05, "lr_decay": 0.95, "weight_decay": 0.02, "clip": None, "steps": 1}


@pytest.mark.parametrize("how", [{"bits": 1}, {"bits": 2, "feedback": "ef"}], ids=["", "ef"])
@pytest.mark.parametrize("increment", ["sent", "derived"])
@pytest.mark.parametrize(
    ("name", "shared", "own"),
    [("scaffold", "c", "c_i"), ("fedgamma", "c", "c_i"), ("fedlesam-s", "c", "c_i"),
     ("fedlesam-d", "h", "h_i")],
)  # fmt: skip
def test_synced_clients_agree_with_the_server_for_ever(name, shared, own, increment, how) -> None:
    """c = (1/N)·Σc_i and h = (1/N)·Σh_i after every round, whatever was lost on the way."""
    method = methods.build(name, increment=increment, **WALK)
    coarse = replace(method, compress=compressors.build("qsgd", **how), kept="synced")
    run = ended(coarse)
    for state, kept in zip(run.states, run.kepts, strict=True):
        total = sum((mine[own] for mine in kept.values()), torch.zeros_like(state["x"]))
        torch.testing.assert_close(state[shared], total / 6, rtol=0, atol=1e-12)
    if increment == "sent" or own == "h_i":
        run = ended(replace(coarse, kept="exact"))  # and exact ones drift from it
        total = sum(mine[own] for mine in run.kepts[-1].values())
        assert float((run.state[shared] - total / 6).abs().max()) > 1e-3


@pytest.mark.parametrize("name", ["scaffold", "feddyn", "fedmoswa"])
@pytest.mark.parametrize("fraction", [1.0, 0.4])
def test_synced_clients_under_ef21_know_what_the_server_knows(name, fraction) -> None:
    method = methods.build(name, **WALK)
    topk = compressors.build("topk", fraction=fraction, feedback="ef21")
    everybody = Quadratics(3, full=True)
    run = Run(replace(method, compress=topk, kept="synced"), everybody, 8)
    plain = Run(method, everybody, 8)
    if fraction == 1.0:
        torch.testing.assert_close(run.state["x"], plain.state["x"], rtol=0, atol=1e-11)
    if name == "scaffold":
        total = sum(kept["c_i"] for kept in run.kepts[-1].values())
        torch.testing.assert_close(run.state["c"], total / 6, rtol=0, atol=1e-11)


@pytest.mark.parametrize("cohort", [{"size": 2}, {"drop": 0.1}], ids=str)
def test_ef21_asks_for_everybody(cohort) -> None:
    from flatfed.cohort import Cohort

    mine = compressed(methods.fedavg(lr=0.1, steps=1), "topk", feedback="ef21")
    with pytest.raises(SpecError, match="EF21 needs all 8 clients in every round, the cohort has"):
        fit(mine, numbers(), rounds=1, cohort=Cohort(**cohort))


def test_what_is_derived_of_what_was_rounded_wants_synced_clients() -> None:
    with pytest.raises(CompositionError, match="expected kept='synced': the server works dc out"):
        compressed(methods.scaffold(increment="derived"), "qsgd")


def test_a_majority_decides_every_numbers_sign() -> None:
    mine = compressed(methods.build("fedavg", **WALK), "sign", scale=0.01, vote="majority")
    run = ended(mine)
    steps = {round(float(x), 12) for a, b in zip(run.states, run.states[1:], strict=False)
             for x in b["x"] - a["x"]}  # fmt: skip
    assert steps <= {-0.01, 0.0, 0.01}
    with pytest.raises(CompositionError, match=r"Sign puts a mean of its own .* dx_travel"):
        compressed(methods.fedcm(), "sign", vote="majority")
    mean = compressed(methods.build("fedavg", **WALK), "sign", scale=0.01)
    moved = (ended(mean).states[1]["x"] - ended(mean).states[0]["x"]).abs()
    assert bool((moved <= 0.01 + 1e-12).all())


@pytest.mark.parametrize("kept", ["exact", "synced"])
@pytest.mark.parametrize("name", KEEPERS)
def test_without_a_compressor_exact_and_synced_are_one(name, kept) -> None:
    method = methods.build(name, **WALK)
    run, other = ended(method, 6), ended(replace(method, kept=kept), 6)
    assert torch.equal(run.state["x"], other.state["x"])


@pytest.mark.parametrize("momentum", [0.0, 0.6])
@pytest.mark.parametrize("name", ["scaffold", "fedgamma", "fedlesam-s", "fedlesam-d"])
def test_without_a_compressor_what_is_derived_is_what_is_sent(name, momentum) -> None:
    walk = {**WALK, "momentum": momentum}
    sent, derived = (
        ended(methods.build(name, increment=how, **walk)) for how in ("sent", "derived")
    )
    torch.testing.assert_close(sent.state["x"], derived.state["x"], rtol=0, atol=1e-12)
    bills = [methods.build(name, increment=how).bill(10) for how in ("sent", "derived")]
    assert [bill.bytes_up for bill in bills] == [80, 40]


def test_nobody_derives_a_gradient_over_all_data() -> None:
    with pytest.raises(CompositionError, match="Nobody can derive"):
        methods.scaffold(option="I", increment="derived")


def test_ef21_with_everybody_and_nothing_lost_is_no_compression() -> None:
    plain = Run(methods.build("feddyn", **WALK), Quadratics(3, full=True), 10)
    mine = compressed(methods.build("feddyn", **WALK), "topk", fraction=1.0, feedback="ef21")
    run = Run(mine, Quadratics(3, full=True), 10)
    torch.testing.assert_close(run.state["x"], plain.state["x"], rtol=0, atol=1e-12)


def test_ef21s_mean_is_that_of_what_all_clients_keep() -> None:
    mine = compressed(methods.build("fedavg", **WALK), "topk", fraction=0.3, feedback="ef21")
    run = ended(mine)
    assert isinstance(mine.compress, EF21)
    for before, state, kept in zip(run.states, run.states[1:], run.kepts[1:], strict=False):
        mean = sum(own["h_i:dx"] for own in kept.values()) / 6
        torch.testing.assert_close(state["h:dx"], mean, rtol=0, atol=1e-12)
        torch.testing.assert_close(state["x"], before["x"] + mean, rtol=0, atol=1e-12)


def test_ef21_has_no_mean_that_is_divided_client_by_client() -> None:
    with pytest.raises(CompositionError, match=r"EF21 puts a mean of its own .* dx_travel"):
        compressed(methods.fedcm(), "topk", feedback="ef21")


def test_error_feedback_brings_in_the_end_what_it_held_back() -> None:
    """Σ of what arrived, and e, is Σ of what was to be sent, for every client."""
    mine = compressed(methods.build("fedavg", **WALK), "topk", fraction=0.2, feedback="ef")
    problem, arrived, asked = Quadratics(3), {}, {}
    from flatfed.rounds import broadcast, client_round

    state, kept = mine.start(torch.from_numpy(problem.x0)), {}
    for t in range(8):
        for i in problem.cohort(t):
            data = problem.data(i, t)
            sent = broadcast(mine, state, t, 6)
            upload, kept[i] = client_round(mine, sent, kept.get(i, {}), data, t)
            plain, _ = client_round(methods.build("fedavg", **WALK), sent, {}, data, t)
            decoded = mine.compress.decode(upload.vectors["dx"], state["x"], data.layout)
            arrived[i] = arrived.get(i, 0) + decoded
            asked[i] = asked.get(i, 0) + plain.vectors["dx"][0]
    for i, mine_kept in kept.items():
        torch.testing.assert_close(arrived[i] + mine_kept["e:dx"], asked[i], rtol=0, atol=1e-12)


def test_scalars_and_running_statistics_travel_as_they_are() -> None:
    method = compressed(methods.fednova(mu=0.1, steps=2), "topk", fraction=0.01)
    method = replace(method, also=(RunningStatistics(),))
    bill = method.bill(1000, buffers=10, buffers_i=10)
    assert bill.bytes_up == TopK(0.01).nbytes(((layout(1000)),)[0], 4) + 4 + 40


def layout(d: int):
    from flatfed.vec import lay_out

    return lay_out({"weight": (d,)})


# In a run


@pytest.mark.parametrize("name", ALL)
def test_counted_bytes_are_the_bytes_of_what_arrived(name) -> None:
    method = methods.build("scaffold", lr=0.1, epochs=1, batch_size=3)
    federation = numbers()
    mine = compressed(method, name, **ALL[name])
    result = fit(mine, federation, rounds=2)
    model = federation.model
    expected = 8 * mine.bill(model.d, layout=model.layout).bytes_up
    assert [record.bytes_up for record in result.history] == [expected, expected]
    for record in result.history:
        assert record.bits_up_nominal is not None
        assert record.bits_up_entropy is not None
        assert record.bits_up_entropy <= 8 * record.bytes_up + 64 * 8
        width = model.x0.element_size()
        assert record.bits_up_nominal == 8 * 2 * mine.compress.nominal(model.layout, width)
    plain = fit(method, federation, rounds=1).history[0]
    assert (plain.bits_up_nominal, plain.bits_up_entropy) == (None, None)
    assert "bits_up_nominal" not in plain.as_dict()


def spec(folder, **more) -> Spec:
    return Spec.of(tables(folder, **more))


def test_a_spec_names_a_compressor_and_the_folder_says_all_of_it(tmp_path) -> None:
    asked = {"name": "qsgd", "bits": 3, "feedback": "ef", "kept": "synced"}
    result = run(spec(tmp_path, compress=asked), out=tmp_path / "r")
    assert result.training.method.kept == "synced"
    written = Spec.read(tmp_path / "r" / "spec.toml").compress
    assert (written.name, written.kept) == ("qsgd", "synced")
    assert written.settings == {
        "bits": 3, "norm": "linf", "blocks": "tensor", "intervals": "fixed", "feedback": "ef"
    }  # fmt: skip
    line = json.loads((tmp_path / "r" / "rounds.jsonl").read_text().splitlines()[0])
    assert line["bits_up_nominal"] < 8 * line["bytes_up"]
    manifest = json.loads((tmp_path / "r" / "manifest.json").read_text())
    assert "as ErrorFeedback(inner=QSGD(bits=3" in manifest["bill"]


@pytest.mark.parametrize("compress", [
    {"name": "qsgd", "bits": 2, "feedback": "ef"},
    {"name": "randomk", "fraction": 0.2, "feedback": "ef21"},
    {"name": "lowrank", "rank": 1, "feedback": "ef"},
], ids=lambda c: c["name"])  # fmt: skip
def test_a_compressed_run_that_was_interrupted_ends_with_the_same_bytes(tmp_path, compress) -> None:
    def of(rounds: int) -> Spec:
        settings = {"rounds": rounds, "checkpoint_every": 1}
        asked = spec(tmp_path, compress=compress, method={"name": "feddyn"})
        return asked.replaced(run=settings, cohort={"size": 8})

    whole = run(of(4), out=tmp_path / "whole")
    run(of(2), out=tmp_path / "parts")
    again = run(of(4), out=tmp_path / "parts", resume=True)
    assert again.params_sha256 == whole.params_sha256


@pytest.mark.parametrize(("compress", "said"), [
    ({"name": "qsdg"}, r"'qsdg' is no compressor of flatfed\.\nDid you mean 'qsgd'"),
    ({"name": "topk", "fracton": 0.1}, r"\[compress\] topk has no key 'fracton'.\nDid you mean"),
    ({"name": "topk", "feedback": "ef22"}, "feedback='ef22', expected 'ef', 'ef21' or none"),
    ({"name": "topk", "feedback": ["ef"]}, r"feedback=\['ef'\], expected"),
    ({"kept": "both"}, r"\[compress\] kept = 'both', expected 'exact' or 'synced'"),
])  # fmt: skip
def test_a_wrong_compressor_is_refused_by_name(compress, said, tmp_path) -> None:
    with pytest.raises(SpecError, match=said):
        run(spec(tmp_path, compress=compress), out=tmp_path / "r")


# Momentum on the client


def test_momentum_walks_as_torch_does() -> None:
    local = SGD(lr=0.1, momentum=0.7, weight_decay=0.3, steps=4)
    quadratics = Quadratics(3, N=1, noise=0.0, full=True, K=4)
    run = Run(Method(local=local), quadratics, 1)
    w = torch.nn.Parameter(torch.from_numpy(quadratics.x0.copy()))
    optimiser = torch.optim.SGD([w], lr=0.1, momentum=0.7, weight_decay=0.3)
    for _ in range(4):
        w.grad = torch.from_numpy(quadratics.whole(0, w.detach().numpy()))
        optimiser.step()
    torch.testing.assert_close(run.state["x"], w.detach(), rtol=0, atol=1e-12)


def test_travel_is_the_way_of_a_constant_gradient() -> None:
    local = SGD(lr=0.1, momentum=0.7, steps=5)
    w = velocity = 0.0
    for _ in range(5):
        velocity = 0.7 * velocity + 1
        w -= 0.1 * velocity
    assert local.travel(local.rates(0, 5)) == pytest.approx(-w)
    assert SGD(lr=0.1, steps=5).travel([0.1] * 5) == pytest.approx(0.5)


def test_a_box_with_a_compressor_says_what_travels_and_what_is_remembered() -> None:
    mine = compressed(methods.scaffold(), "topk", feedback="ef")
    box = replace(mine, kept="synced").describe()
    assert "up 2d" in box
    assert "as ErrorFeedback(inner=TopK(fraction=0.1))" in box
    assert "a ← a + e" in box
    assert "client, when it has sent   (all as the server decodes it)" in box


def test_every_message_has_draws_of_its_own() -> None:
    """Of two uploads, of two clients, of two rounds: never the same places."""
    from flatfed.rounds import broadcast, client_round

    mine = compressed(methods.build("scaffold", **WALK), "randomk", fraction=0.4)
    quadratics = Quadratics(3, d=40)
    state = mine.start(torch.from_numpy(quadratics.x0))
    sent = broadcast(mine, state, 0, 6)
    seeds = []
    for t, i in ((0, 0), (0, 1), (1, 0)):
        upload, _ = client_round(mine, sent, {}, quadratics.data(i, t), t)
        again, _ = client_round(mine, sent, {}, quadratics.data(i, t), t)
        for name, tensors in upload.vectors.items():
            assert all(map(torch.equal, tensors, again.vectors[name]))
            seeds.append(next(int(t) for t in tensors if t.dtype == torch.int64))
    assert len(set(seeds)) == 6


def test_another_seed_of_the_run_is_another_draw() -> None:
    from flatfed.rounds import client_round

    mine = compressed(methods.build("fedavg", **WALK), "randomk", fraction=0.4)
    quadratics = Quadratics(3, d=40)
    x = torch.from_numpy(quadratics.x0)
    one, two, again = (
        client_round(mine, {"x": x}, {}, replace(quadratics.data(0, 0), seed=seed), 0)[0].vectors
        for seed in (1, 2, 1)
    )
    assert all(map(torch.equal, one["dx"], again["dx"]))
    assert not all(map(torch.equal, one["dx"], two["dx"]))


def test_ef21_leaves_a_scalar_as_it_came() -> None:
    """Only messages that were compressed have a mean of the compressor's own."""
    plain = methods.fednova(mu=0.5, lr=0.05, steps=1, weight_decay=0.0, clip=None)
    lossless = compressed(plain, "topk", fraction=1.0, feedback="ef21")
    assert set(lossless.names("server")) == {"h:dx"}
    one, two = (Run(method, Quadratics(3, full=True), 5) for method in (plain, lossless))
    torch.testing.assert_close(one.state["x"], two.state["x"], rtol=0, atol=1e-11)


def test_client_and_server_cut_the_model_alike_whoever_knows_how() -> None:
    """Layouts of the data, of its oracles, or of nobody: blocks are the same on both sides."""
    from flatfed.flatmodel import FlatModel
    from flatfed.rounds import LocalData, one_round

    model = FlatModel(torch.nn.Linear(4, 3).double())
    oracle = model.oracle((torch.ones(2, 4).double(), torch.tensor([0, 2])))
    mine = compressed(methods.build("fedavg", **WALK), "qsgd", bits=2)
    for data in (
        LocalData(0, [oracle], layout=model.layout),
        LocalData(0, [oracle]),
        LocalData(0, [lambda w: oracle(w)]),
    ):
        state, _ = one_round(mine, {"x": model.x0}, {}, [data], 0, 1)
        assert not torch.equal(state["x"], model.x0)
