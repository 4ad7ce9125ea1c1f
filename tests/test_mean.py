"""The cohort's mean: weights, ratios, and what a refused upload leaves behind."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch

from flatfed import methods
from flatfed.errors import FederationError, NonFiniteError
from flatfed.mean import Mean, Upload
from flatfed.method import Method
from flatfed.part import Part
from flatfed.parts import compressors
from flatfed.parts.local import SGD

X = torch.zeros(2, dtype=torch.float64)


@dataclass(frozen=True)
class Everything(Part):
    """Asks for every mean there is."""

    means = ("dx_K", "dx_travel")
    upload = ("dz",)
    apart = ("dz",)


METHOD = Method(local=SGD(lr=0.1, steps=1), also=(Everything(),))


def upload(client: int, dx: list, dz: list, K: int, travel: float, samples: int) -> Upload:
    vectors = {"dx": torch.tensor(dx).double(), "dz": torch.tensor(dz).double()}
    lengths = {name: vector.numel() for name, vector in vectors.items()}
    sent = {name: (vector,) for name, vector in vectors.items()}
    return Upload(client, sent, lengths, K, travel, samples)


ONE = upload(0, [1.0, 2.0], [4.0], K=2, travel=0.2, samples=10)
TWO = upload(3, [3.0, -2.0], [8.0], K=4, travel=0.8, samples=30)


@pytest.mark.parametrize("weights", ["uniform", "samples"])
def test_every_mean_weighs_a_client_alike(weights) -> None:
    method = replace(METHOD, weights=weights)
    mean = Mean(method, {"x": X}, mean_samples=16.0)
    mean.add(ONE)
    mean.add(TWO)
    result = mean.result()
    a, b = (0.5, 0.5) if weights == "uniform" else (0.25, 0.75)
    one, two = ONE.vectors["dx"][0], TWO.vectors["dx"][0]
    torch.testing.assert_close(result.dx, a * one + b * two)
    torch.testing.assert_close(result.dx_K, a * one / 2 + b * two / 4)
    torch.testing.assert_close(result.dx_travel, a * one / 0.2 + b * two / 0.8)
    assert float(result.dz) == pytest.approx(a * 4 + b * 8)
    assert result.travel == pytest.approx(a * 0.2 + b * 0.8)
    assert float(result.S) == (2 if weights == "uniform" else 2.5)  # 40 samples, 16 a client


def test_a_refused_upload_can_be_sent_again() -> None:
    mean = Mean(METHOD, {"x": X})
    broken = upload(0, [float("nan"), 0.0], [4.0], K=2, travel=0.2, samples=10)
    with pytest.raises(NonFiniteError):
        mean.add(broken)
    mean.add(ONE)
    mean.add(TWO)
    torch.testing.assert_close(mean.result().dx, torch.tensor([2.0, 0.0]).double())
    assert mean.result().S == 2


def test_an_upload_of_another_length_is_refused_by_name() -> None:
    mean = Mean(METHOD, {"x": X})
    mean.add(ONE)
    with pytest.raises(FederationError, match="Client 3 sent dz with 2 elements, expected 1"):
        mean.add(upload(3, [3.0, -2.0], [8.0, 9.0], K=4, travel=0.8, samples=30))


def test_without_the_mean_count_of_everybody_there_is_no_s_to_read() -> None:
    mean = Mean(replace(methods.fedavg(), weights="samples"), {"x": X})
    mean.add(ONE)
    assert mean.result().S is None


@dataclass(frozen=True)
class Counted(Part):
    """Sends a number beside dx."""

    upload = ("n",)
    scalars = ("n",)


def test_a_scalar_is_one_element_whoever_sends_it_first() -> None:
    method = Method(local=SGD(lr=0.1, steps=1), also=(Counted(),))
    dx, n = torch.zeros(2).double(), torch.zeros(2).double()
    sent = Upload(0, {"dx": (dx,), "n": (n,)}, {"dx": 2, "n": 2}, 1, 0.1, 1)
    with pytest.raises(FederationError, match="Client 0 sent n with 2 elements, expected 1"):
        Mean(method, {"x": X}).add(sent)
    untrue = replace(sent, lengths={"dx": 2, "n": 1})
    with pytest.raises(FederationError, match="Client 0 sent n with 2 elements, expected 1"):
        Mean(method, {"x": X}).add(untrue)


def test_a_message_that_cannot_be_read_is_its_clients() -> None:
    topk = replace(methods.fedavg(), compress=compressors.build("topk", fraction=0.5))
    sent = Upload(4, {"dx": (torch.zeros(2).double(),)}, {"dx": 2}, 1, 0.1, 1)
    with pytest.raises(
        FederationError, match=r"Client 4's dx: TopK\(fraction=0.5\) received 2 × f"
    ):
        Mean(topk, {"x": X}).add(sent)
