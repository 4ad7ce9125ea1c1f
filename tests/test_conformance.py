"""The whole catalogue against the conformance suite; its bills, boxes and references."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from flatfed import methods
from flatfed.check import examine
from flatfed.errors import FlatfedError, UndeclaredName
from flatfed.method import Method
from flatfed.methods.fedasam import size
from flatfed.methods.fedspeed import LocalDual
from flatfed.parts.correct import ControlVariates
from flatfed.parts.local import SGD
from flatfed.parts.perturb import SAM, Reusing
from flatfed.parts.track import RunningStatistics
from flatfed.toy import trace
from flatfed.vec import lay_out
from test_transcripts import CASES, label

LOCAL = SGD(lr=0.1, steps=2)


@pytest.mark.parametrize("case", CASES, ids=label)
def test_a_method_keeps_every_claim(case) -> None:
    name, settings = case
    wrong = [f for f in examine(methods.build(name, **settings)) if f.wrong]
    assert wrong == []


@pytest.mark.parametrize("case", CASES, ids=label)
def test_gradients_counted_are_gradients_billed(case) -> None:
    name, settings = case
    method = methods.build(name, **settings)
    bill = method.bill()
    for _, K, gradients, forwards in trace(method).counted:
        extra = len(bill.gradients_per_round)
        assert K * bill.gradients_least + extra <= gradients
        assert gradients <= K * bill.gradients_per_step + extra
        assert forwards == K * bill.forwards_per_step


def test_the_published_bill() -> None:
    """Columns extra down, extra up, client state and gradients of the decomposition table."""
    published = {
        "fedavg": (1, 1, 0, 1), "fedavgm": (1, 1, 0, 1), "fedprox": (1, 1, 0, 1),
        "fedadam": (1, 1, 0, 1), "fedyogi": (1, 1, 0, 1), "scaffold": (2, 2, 1, 1),
        "fedcm": (2, 1, 0, 1), "feddyn": (1, 1, 1, 1), "feddc": (2, 2, 2, 1),
        "fedacg": (1, 1, 0, 1), "fedsam": (1, 1, 0, 2), "mofedsam": (2, 1, 0, 2),
        "fedasam": (1, 1, 0, 2), "fedspeed": (1, 1, 1, 2), "fedgamma": (2, 2, 1, 2),
        "fedsmoo": (2, 2, 2, 2), "fedlesam": (1, 1, 1, 1), "fedlesam-s": (2, 2, 2, 1),
        "fedlesam-d": (1, 1, 2, 1), "fedtoga": (2, 1, 1, 2), "fedvssam": (2, 1, 0, 2),
        "fedswa": (1, 1, 0, 1), "fedmoswa": (2, 2, 1, 1), "fedmo": (2, 2, 1, 1),
        "fednova": (1, 1, 0, 1), "fedgf": (2, 1, 0, 2), "fedgloss": (1, 1, 1, 2),
        "fedwmsam": (3, 1, 1, 1),
        "fedrcl": (1, 1, 0, 1), "fedgmt": (2, 1, 1, 1), "fedsol": (1, 1, 0, 2),
        "dp-fedsam": (1, 1, 0, 2), "dynafed": (1, 1, 0, 1), "fedsynsam": (1, 1, 0, 3),
    }  # fmt: skip
    assert published.keys() == methods.CATALOGUE.keys()
    for name, expected in published.items():
        bill = methods.build(name).bill()
        vectors = [bill.full(names) for names in (bill.down, bill.up, bill.kept)]
        counted = (*vectors, bill.gradients_per_step)
        assert counted == expected, name
    gu = methods.fedvssam(lf=False, lu=False).bill()
    assert (gu.down, gu.up) == (("x",), ("dx",))
    assert methods.fedlesam(reference="last_round").bill().down == ("x", "x_last")
    assert methods.fedtoga(ascent="N").bill().gradients_per_step == 1
    assert methods.scaffold(option="I").bill().gradients_per_round == ("whole",)


def test_bytes_follow_the_vectors() -> None:
    bill = methods.fedsmoo().bill(1000, itemsize=8)
    assert (bill.bytes_down, bill.bytes_up, bill.bytes_kept) == (16_000, 16_000, 16_000)
    batchnorm = replace(methods.fedavg(), also=(RunningStatistics(),))
    bill = batchnorm.bill(1000, buffers=10, buffers_i=10)
    assert (bill.down, bill.bytes_down) == (("x", "buffers"), 4 * 1010)
    assert (bill.up, bill.bytes_up) == (("dx", "buffers_i"), 4 * 1010)


@pytest.mark.parametrize("perturb", [Reusing(SAM(0.1)), Reusing(SAM(0.1), "F"), SAM(0.1)], ids=repr)
def test_any_composition_keeps_every_claim(perturb) -> None:
    mine = Method(perturb=perturb, correct=(ControlVariates(),), local=LOCAL)
    assert [f for f in examine(mine) if f.wrong] == []


def test_running_statistics_keep_every_claim() -> None:
    method = replace(methods.fedsam(), also=(RunningStatistics(),))
    assert [f for f in examine(method) if f.wrong] == []


def test_errors_are_flatfed_errors() -> None:
    assert issubclass(UndeclaredName, FlatfedError)


def test_the_second_uplink_of_option_ii_is_derivable() -> None:
    for name in ("scaffold", "fedgamma", "fedlesam-s", "feddc"):
        assert methods.build(name).bill().up_minimal == ("dx",)
        assert "up 2d (1d would do)" in str(methods.build(name).bill())
    assert methods.scaffold(option="I").bill().up_minimal == ("dx", "dc")
    assert methods.fedmoswa().bill().up_minimal == ("dx", "dm")


def test_a_fused_ascent_keeps_its_brackets() -> None:
    from flatfed.methods.fedspeed import MixedSAM

    (line,) = Reusing(MixedSAM(0.1, 0.25), "F").equations("gradient")
    assert line.startswith("g ← (1−a)·(∇F(w) + g_last) + a·∇F(w + ρ·unit(∇F(w) + g_last))")
    (line,) = Reusing(SAM(0.1), "F").equations("gradient")
    assert line == "g ← ∇F(w + ρ·unit(∇F(w) + g_last));  g_last ← g"
    mixed = Method(perturb=Reusing(MixedSAM(0.1, 0.25)), local=LOCAL)
    assert [f for f in examine(mixed) if f.wrong] == []


def test_a_bill_speaks() -> None:
    assert str(methods.scaffold(option="I").bill()) == (
        "down 2d, up 2d, kept 1d, 1 gradient a step, one full local gradient a round"
    )
    assert str(methods.fedmo(option="I-batch").bill()).endswith(
        "1 gradient a step, one more a round"
    )


def test_citations_name_the_method_and_its_parts() -> None:
    assert [line.split(" et al.")[0] for line in methods.fedgamma().cite().splitlines()] == [
        "Dai", "Foret", "Karimireddy"
    ]  # fmt: skip
    assert all(methods.build(name).cite() for name in methods.CATALOGUE)


def test_epochs_and_steps_replace_each_other() -> None:
    assert methods.fedavg().local.steps_for(510) == 55
    assert methods.fedavg(steps=7).local.steps_for(510) == 7
    assert methods.fedavg(epochs=1).local.steps_for(510) == 11
    assert methods.fedavg(epochs=1, steps=None, batch_size=10).local.steps_for(510) == 51


ENDS = [
    ("fedsmoo", {"rho": 0.0}),
    ("fedcm", {"alpha": 0.0}),
    ("fedadam", {"beta2": 1.0}),
    ("fedyogi", {"beta2": 1.0}),
    ("fedvssam", {"gamma_g": 0.0}),
    ("fedvssam", {"gamma_l": 0.0}),
    ("fedmo", {"gamma": 0.0}),
    ("fedmoswa", {"gamma": 0.0}),
    ("fedavg", {"lr": 1000.0, "clip": None}),
    ("scaffold", {"lr": 1e-50}),
]


@pytest.mark.parametrize("case", ENDS, ids=label)
def test_a_method_at_the_end_of_its_range_keeps_every_claim(case) -> None:
    name, settings = case
    assert [f for f in examine(methods.build(name, **settings)) if f.wrong] == []


def test_the_box_says_how_means_are_weighted() -> None:
    assert "\nserver   (means weighted by samples)\n" in methods.fedasam().describe()
    assert "\nserver\n" in methods.fedavg().describe()


def test_what_replaces_dx_leaves_nothing_to_derive() -> None:
    both = Method(correct=(LocalDual(0.1), ControlVariates()), local=LOCAL)
    assert both.bill().up_minimal == ("dx", "dc")


def test_a_bill_counts_vectors_of_another_length_apart() -> None:
    batchnorm = replace(methods.fedavg(), also=(RunningStatistics(),))
    assert str(batchnorm.bill(1000, buffers=10, buffers_i=10)).startswith("down 1d + 10, up 1d + 1")


def test_asam_sizes_every_tensor_whose_name_contains_weight_and_no_other() -> None:
    w = torch.tensor([1.0, -2.0, 3.0, 4.0, 5.0])
    names = {"lstm.weight_ih_l0": (2,), "lstm.bias_ih_l0": (1,), "head.weight": (1,), "token": (1,)}
    assert size(w, 0.5, lay_out(names)).tolist() == [1.5, 2.5, 1.0, 4.5, 1.0]


def test_before_its_first_capture_the_average_is_the_model() -> None:
    method = methods.fedasam(swa_start=5, steps=1)
    x = torch.ones(3)
    assert torch.equal(method.result(method.start(x)), x)
