"""Every message names what was given, what was expected and what to do, in three lines at most."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, replace

import pytest
import torch

from flatfed import errors, methods
from flatfed.errors import (
    ClientError,
    CompositionError,
    FederationError,
    NonFiniteError,
    SpecError,
    UndeclaredName,
)
from flatfed.mean import Mean
from flatfed.method import Method
from flatfed.methods.fedtoga import TrajectorySAM
from flatfed.part import Correction, Part, View
from flatfed.parts.compress import Dense
from flatfed.parts.correct import Blend, ControlVariates, Dual, Proximal
from flatfed.parts.local import SGD, Falling
from flatfed.parts.perturb import SAM, Plain, Reusing
from flatfed.parts.server import Average, DualAverage
from flatfed.parts.track import PseudoGradient, RunningStatistics
from flatfed.rounds import LocalData, broadcast, client_round, one_round, server_round

LOCAL = SGD(lr=0.1, steps=2)
X = torch.tensor([1.0, 2.0])


def says(error: type[Exception], *lines: str):
    """A context that expects exactly this message."""

    class Expect:
        def __enter__(self):
            return self

        def __exit__(self, kind, value, traceback):
            assert kind is error, f"{kind} is not {error}"
            assert str(value).splitlines() == list(lines)
            assert len(lines) <= 3
            return True

    return Expect()


@dataclass(frozen=True)
class Named_(Part):
    """Declares whatever a test wants."""

    kind: str
    names: tuple

    def __post_init__(self) -> None:
        object.__setattr__(self, self.kind, self.names)


VALUES = [
    (lambda: SAM(rho=-0.1), "SAM got rho=-0.1, expected a number in [0, ∞)."),
    (lambda: SAM(rho=float("nan")), "SAM got rho=nan, expected a number in [0, ∞)."),
    (lambda: SAM(rho=float("inf")), "SAM got rho=inf, expected a number in [0, ∞)."),
    (lambda: SAM(rho=10**400), f"SAM got rho={10**400}, expected a number in [0, ∞)."),
    (lambda: SAM(rho="big"), "SAM got rho='big', expected a number in [0, ∞)."),
    (lambda: methods.fedsam(rho=-1), "SAM got rho=-1, expected a number in [0, ∞)."),
    (lambda: methods.fedsam(rho=True), "SAM got rho=True, expected a number in [0, ∞)."),
    (lambda: Blend(1.5), "Blend got alpha=1.5, expected a number in [0, 1]."),
    (lambda: Proximal(-1), "Proximal got lam=-1, expected a number in [0, ∞)."),
    (lambda: Dual(0), "Dual got lam=0, expected a number in (0, ∞)."),
    (lambda: Average(0.0), "Average got global_lr=0.0, expected a number in (0, ∞)."),
    (lambda: PseudoGradient(2), "PseudoGradient got gamma=2, expected a number in [0, 1]."),
    (lambda: ControlVariates("III"), "ControlVariates got option='III', expected 'I' or 'II'."),
    (lambda: Reusing(SAM(0.1), "G"), "Reusing got form='G', expected 'N' or 'F'."),
    (
        lambda: Reusing(Plain()),
        "Reusing got ascent=Plain(), which never asks for the gradient at w.",
    ),
    (lambda: Falling(0.1, 1.1), "Falling got ratio=1.1, expected a number in [0, 1]."),
    (lambda: SGD(lr=0, steps=1), "SGD got lr=0, expected a number in (0, ∞)."),
    (lambda: SGD(lr=0.1, steps=0), "SGD got steps=0, expected a whole number ≥ 1."),
    (lambda: SGD(lr=0.1, steps=2.5), "SGD got steps=2.5, expected a whole number ≥ 1."),
    (
        lambda: SGD(lr=0.1),
        "SGD got neither of steps=None and epochs=None, expected one.",
    ),
    (
        lambda: SGD(lr=0.1, steps=1, epochs=1, batch_size=5),
        "SGD got both of steps=1 and epochs=1, expected one.",
    ),
    (
        lambda: SGD(lr=0.1, epochs=1),
        "SGD got batch_size=None, expected a whole number ≥ 1, because epochs count batches.",
    ),
    (
        lambda: SGD(lr=0.1, steps=1, weight_decay=-1),
        "SGD got weight_decay=-1, expected a number in [0, ∞).",
    ),
    (
        lambda: SGD(lr=0.1, steps=1, decay="both"),
        "SGD got decay='both', expected 'outside' or 'inside'.",
    ),
    (lambda: SGD(lr=0.1, steps=1, clip=0), "SGD got clip=0, expected a number in (0, ∞)."),
    (
        lambda: SGD(lr=0.1, steps=1, clip_scope="all"),
        "SGD got clip_scope='all', expected 'direction' or 'data'.",
    ),
    (
        lambda: SGD(lr=0.1, steps=1, lr_decay=1.1),
        "SGD got lr_decay=1.1, expected a number in (0, 1].",
    ),
    (lambda: methods.fedavgm(beta=1.0), "Momentum got beta=1.0, expected a number in [0, 1)."),
    (
        lambda: methods.fedacg(lookahead=1),
        "LookAhead got lookahead=1, expected a number in [0, 1).",
    ),
    (lambda: methods.fedadam(tau=0), "Adaptive got tau=0, expected a number in (0, ∞)."),
    (
        lambda: methods.fedadam(beta2=1, bias_correction=True),
        "Adaptive got beta2=1, expected less than 1, to correct a bias.",
    ),
    (
        lambda: methods.fedadam(first_v="one"),
        "Adaptive got first_v='one', expected 'tau2' or 'zero'.",
    ),
    (lambda: methods.fedasam(zeta=-1), "AdaptiveSAM got zeta=-1, expected a number in [0, ∞)."),
    (
        lambda: methods.fedasam(swa_cycle=-3),
        "LateAverage got cycle=-3, expected a whole number ≥ 1.",
    ),
    (
        lambda: methods.fedasam(swa_low="abc"),
        "Cyclic got low='abc', expected a number in [0, ∞).",
    ),
    (
        lambda: methods.fedspeed(mixture=True),
        "MixedSAM got mixture=True, expected a number in [0, 1].",
    ),
    (
        lambda: methods.fedasam(swa_start=3, swa_cycle=2.5),
        "LateAverage got cycle=2.5, expected a whole number ≥ 1.",
    ),
    (
        lambda: methods.fedasam(swa_start=-1),
        "LateAverage got start=-1, expected a whole number ≥ 0.",
    ),
    (
        lambda: methods.fedasam(swa_start=3, swa_low="abc"),
        "Cyclic got low='abc', expected a number in [0, ∞).",
    ),
    (
        lambda: methods.fedavgm(nesterov="no"),
        "fedavgm got nesterov='no', expected True or False.",
    ),
    (
        lambda: methods.fedadam(bias_correction="no"),
        "fedadam got bias_correction='no', expected True or False.",
    ),
    (
        lambda: methods.fedasam(swa_start=3, swa_cycle=0),
        "LateAverage got cycle=0, expected a whole number ≥ 1.",
    ),
    (lambda: methods.fedspeed(ascent="G"), "fedspeed got ascent='G', expected 'L' or 'N'."),
    (
        lambda: methods.fedspeed(server="sum"),
        "fedspeed got server='sum', expected 'dual' or 'mean'.",
    ),
    (
        lambda: methods.fedspeed(ascent="N", mixture=0.5),
        "fedspeed got ascent='N' with mixture=0.5, expected mixture=1: with one gradient a step "
        "there is no plain gradient to mix.",
    ),
    (lambda: methods.fedsmoo(ascent="G"), "fedsmoo got ascent='G', expected 'L' or 'N'."),
    (
        lambda: methods.fedsmoo(form="short"),
        "ConsensusSAM got form='short', expected 'printed' or 'simplified'.",
    ),
    (
        lambda: methods.fedlesam_d(reference="first"),
        "fedlesam-d got reference='first', expected 'last_active' or 'last_round'.",
    ),
    (lambda: methods.fedtoga(kappa=-1), "TrajectorySAM got kappa=-1, expected a number in [0, ∞)."),
    (lambda: methods.fedtoga(ascent="L"), "fedtoga got ascent='L', expected 'G' or 'N' or 'F'."),
    (
        lambda: methods.fedtoga(delta_scale="K"),
        "fedtoga got delta_scale='K', expected 'step' or 'gradient'.",
    ),
    (
        lambda: methods.fedvssam(server_lr="auto"),
        "Follow got scale='auto', expected 'absolute' or 'relative'.",
    ),
    (lambda: methods.fedmo(option="III"), "MomentumControl got option='III', expected 'I' or "
     "'I-batch' or 'II'."),
    (
        lambda: Method(local=LOCAL, weights="n"),
        "Method got weights='n', expected 'uniform' or 'samples'.",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("make", "first"), VALUES, ids=[first for _, first in VALUES])
def test_a_wrong_value_is_named_with_what_was_expected(make, first) -> None:
    with pytest.raises(CompositionError) as error:
        make()
    lines = str(error.value).splitlines()
    assert lines[0] == first
    assert len(lines) <= 3


def test_a_composition_that_lacks_a_vector() -> None:
    with says(
        CompositionError,
        "TrajectorySAM needs 'delta' from the server, but no part of this method owns it.",
        "Parts that own 'delta': Trajectory, PseudoGradient, UphillStart.",
        "Add one, for example: Method(..., also=(Trajectory(),)).",
    ):
        Method(local=LOCAL, perturb=TrajectorySAM(rho=0.05, kappa=1.0))


def test_a_server_update_that_lacks_a_vector() -> None:
    with pytest.raises(CompositionError) as error:
        Method(local=LOCAL, server=DualAverage())
    said = str(error.value).splitlines()
    assert said[0] == "DualAverage reads 'h' on the server, but no part of this method owns it."
    assert said[1].startswith("Parts that own 'h': Dual, LinearDual")  # a test may have made more
    assert said[2] == "Add one, for example: Method(..., correct=(Dual(...),))."


def test_a_vector_that_a_server_update_owns() -> None:
    with pytest.raises(CompositionError, match=r"Method\(\.\.\., server=Adaptive\(\.\.\.\)\)"):
        Method(local=LOCAL, also=(Named_("uses", ("v",)),))


def test_a_vector_that_nobody_owns() -> None:
    with says(
        CompositionError,
        "Named_ needs 'nowhere' from the server, but no part of this method owns it.",
        "No known part owns 'nowhere': write one with server = ('nowhere',).",
    ):
        Method(local=LOCAL, also=(Named_("broadcast", ("nowhere",)),))


@pytest.mark.parametrize(
    ("two", "name", "kind", "owners"),
    [
        (
            (ControlVariates(), ControlVariates()),
            "c",
            "server",
            "ControlVariates and by ControlVariates",
        ),
        ((ControlVariates(), Dual(1.0), Dual(2.0)), "h", "server", "Dual and by Dual"),
    ],
    ids=["c", "h"],
)
def test_two_parts_that_own_the_same_vector(two, name, kind, owners) -> None:
    with says(
        CompositionError,
        f"{name!r} ({kind}) is owned by {owners}, expected one owner.",
        "Take one of them out, or rename the vector in one; any number of parts may read it.",
    ):
        Method(local=LOCAL, correct=two)


def test_two_parts_that_keep_the_same_vector() -> None:
    with says(
        CompositionError,
        "'c_i' (keep) is owned by ControlVariates and by Named_, expected one owner.",
        "Take one of them out, or rename the vector in one; any number of parts may read it.",
    ):
        Method(local=LOCAL, correct=(ControlVariates(),), also=(Named_("keep", ("c_i",)),))


def test_a_vector_with_a_views_own_name() -> None:
    with pytest.raises(CompositionError, match="Named_ calls a vector 'lr', which every View"):
        Method(local=LOCAL, also=(Named_("server", ("lr",)),))
    with pytest.raises(CompositionError, match="calls a vector 'dx'"):
        Method(local=LOCAL, also=(Named_("keep", ("dx",)),))


def test_a_declaration_that_is_no_tuple() -> None:
    with says(
        CompositionError,
        "Named_ declares server='c', expected a tuple of names.",
        "Write server = ('c',).",
    ):
        Method(local=LOCAL, also=(Named_("server", "c"),))


def test_a_mean_nobody_computes() -> None:
    with says(
        CompositionError,
        "Named_ declares means 'dx_lr', expected names among dx_K, dx_travel.",
        "Use one of those; mean.dx and every upload's mean need no declaration.",
    ):
        Method(local=LOCAL, also=(Named_("means", ("dx_lr",)),))
    with pytest.raises(
        CompositionError, match="declares asks 'all', expected names among first, whole"
    ):
        Method(local=LOCAL, also=(Named_("asks", ("all",)),))


def test_a_part_on_the_wrong_axis() -> None:
    with says(
        CompositionError,
        "perturb=Dual(lam=1.0) is no Perturbation, which is what goes there.",
        "It belongs in correct.",
    ):
        Method(local=LOCAL, perturb=Dual(1.0))
    with says(
        CompositionError,
        "correct=SAM(rho=0.1) is no Correction, which is what goes there.",
        "It belongs in perturb.",
    ):
        Method(local=LOCAL, correct=(SAM(0.1),))
    with says(
        CompositionError,
        "server=0.9 is no ServerUpdate, which is what goes there.",
        "It is no flatfed part.",
    ):
        Method(local=LOCAL, server=0.9)
    with says(
        CompositionError,
        "correct=Dual(lam=1.0) is no tuple, expected a tuple of Corrections.",
        "Write correct=(Dual(lam=1.0),).",
    ):
        Method(local=LOCAL, correct=Dual(1.0))


def test_a_first_value_nobody_owns() -> None:
    with says(
        CompositionError,
        "fedavg got a first value for buffers, which no part owns on the server.",
        "It owns: nothing.",
    ):
        methods.fedavg().start(X, buffers=X)


def test_an_unknown_method() -> None:
    with pytest.raises(SpecError) as error:
        methods.build("fedtogga")
    lines = str(error.value).splitlines()
    assert lines[0] == "'fedtogga' is no method of flatfed."
    assert lines[1].startswith(
        "Did you mean 'fedtoga'? Known: dp-fedsam, dynafed, fedacg, fedadam, "
    )


def test_an_unknown_key() -> None:
    with pytest.raises(SpecError) as error:
        methods.build("fedsam", rhoo=0.1)
    lines = str(error.value).splitlines()
    assert lines[0] == "fedsam has no parameter 'rhoo'."
    assert lines[1].startswith("Did you mean 'rho'? Known: batch_size, clip, ")
    with pytest.raises(SpecError, match="'stepz' is no setting of local work"):
        methods.fedsam(stepz=3)


def data(*answers, client: int = 0) -> LocalData:
    return LocalData(client, [lambda w, a=a: torch.as_tensor(a) for a in answers])


def test_a_nan_in_an_upload() -> None:
    method = methods.fedavg(steps=1, clip=None)
    with says(
        NonFiniteError,
        "Client 3 sent dx with 1 of 2 elements NaN or infinite, expected finite numbers.",
        "Lower its learning rate, set clip, or leave the client out.",
    ):
        one_round(method, method.start(X), {}, [data([1.0, float("nan")], client=3)], 0, 5)


def test_a_sum_that_overflows_is_no_nan() -> None:
    method = methods.fedavg(steps=1, clip=None, lr=1.0)
    huge = [-3e38, -3e38]
    new, _ = one_round(method, method.start(torch.zeros(2)), {}, [data(huge)], 0, 5)
    assert torch.equal(new["x"], torch.tensor([3e38, 3e38]))


def test_zero_local_steps() -> None:
    with says(
        ClientError,
        "Client 0 has 0 local steps in round 7, expected at least 1.",
        "Give it data, or leave it out of the cohort.",
    ):
        client_round(methods.fedavg(), {"x": X}, {}, data(), 7)


def test_an_empty_cohort() -> None:
    method = methods.fedavg()
    with says(
        FederationError,
        "The cohort is empty: 0 uploads arrived, expected at least 1.",
        "Draw a larger cohort, or lower cohort.drop.",
    ):
        one_round(method, method.start(X), {}, [], 0, 5)


def test_uploads_out_of_order() -> None:
    method = methods.fedavg(steps=1)
    sent = broadcast(method, method.start(X), 0, 5)
    uploads = [client_round(method, sent, {}, data([0.0, 1.0], client=i), 0)[0] for i in (2, 1)]
    mean = Mean(method, method.start(X))
    mean.add(uploads[0])
    with says(
        FederationError,
        "Client 1's upload came after client 2's, expected each client once and in order.",
        "Sort uploads by client before adding them.",
    ):
        mean.add(uploads[1])


def test_an_upload_of_another_model() -> None:
    method = methods.fedavg(steps=1)
    upload, _ = client_round(method, {"x": torch.zeros(3)}, {}, data([0.0, 1.0, 2.0]), 0)
    with says(
        FederationError,
        "Client 0 sent dx with 3 elements, expected 2.",
        "It trained another model: check its configuration.",
    ):
        Mean(method, method.start(X)).add(upload)


def test_a_whole_gradient_that_is_not_there() -> None:
    with says(
        FederationError,
        "ControlVariates asks client 0 for the gradient over all its data, expected "
        "LocalData(whole=...).",
        "Give one, or choose an option without it.",
    ):
        client_round(
            methods.scaffold(option="I"),
            {"x": X, "c": X},
            {},
            data([0.0, 1.0]),
            0,
        )


def test_what_fails_in_a_client_says_where() -> None:
    def broken(w):
        raise ValueError("no such batch\nand a long story\nover many\nlines")

    batches = [lambda w: w, broken, lambda w: w]
    with pytest.raises(ClientError) as error:
        client_round(methods.fedsam(), {"x": X}, {}, LocalData(5, batches), 3)
    e = error.value
    assert str(e).splitlines() == [
        "Client 5 failed in round 3 at step 1 of 3, in SAM: ValueError: no such batch",
        "What raised it is this error's cause (__cause__).",
    ]
    assert isinstance(e.__cause__, ValueError)
    assert (e.client, e.t, e.k, e.part) == (5, 3, 1, "SAM")
    again = pickle.loads(pickle.dumps(e))
    assert (str(again), again.client, again.t, again.k, again.part) == (str(e), 5, 3, 1, "SAM")


@dataclass(frozen=True)
class Failing(Correction):
    def direction(self, g, w, v):
        """g ← g"""
        return g

    def finish(self, y, v):
        """fails"""
        raise RuntimeError("late")


def test_what_fails_at_the_end_says_so() -> None:
    method = Method(local=LOCAL, correct=(Failing(),))
    with pytest.raises(
        ClientError, match="at the end of its steps, in Failing: RuntimeError: late"
    ):
        client_round(method, {"x": X}, {}, data([0.0, 1.0]), 3)


@dataclass(frozen=True)
class Forgetting(Correction):
    upload = ("dz",)

    def direction(self, g, w, v):
        """g ← g"""
        return g


@dataclass(frozen=True)
class Smuggling(Correction):
    def direction(self, g, w, v):
        """g ← g"""
        return g

    def absorb(self, mean, v):
        """z ← 0"""
        return {"z": v.x}


@dataclass(frozen=True)
class Noting(SAM):
    def gradient(self, w, grad, v):
        """g ← 0;  z ← 0"""
        return grad(w), {"z": w}


def test_a_part_that_reads_what_it_did_not_declare() -> None:
    with says(
        UndeclaredName,
        "Blend reads v.beta without declaring it.",
        "It may read: delta, x.",
        "Declare it in one of the part's tuples: server, broadcast, push, uses, keep, notes, "
        "upload, means, asks.",
    ):
        _ = View("Blend", {"x": X, "delta": X}).beta


def test_a_view_is_read_only() -> None:
    with pytest.raises(AttributeError, match=r"return \{'x': \.\.\.\} from the hook"):
        View("Blend", {"x": X}).x = X


def test_a_part_that_returns_what_it_did_not_declare() -> None:
    method = Method(local=LOCAL, correct=(Smuggling(),))
    with says(
        UndeclaredName,
        "Smuggling returned z without declaring it.",
        "From this hook it may return: nothing.",
        "Declare it in the part's tuples, or do not return it.",
    ):
        one_round(method, method.start(X), {}, [data([0.0, 1.0])], 0, 5)
    with pytest.raises(UndeclaredName, match="Noting returned z without declaring it"):
        client_round(replace(method, perturb=Noting(0.1)), {"x": X}, {}, data([0.0, 1.0]), 0)


def test_an_upload_that_is_declared_and_not_returned() -> None:
    with says(
        CompositionError,
        "Forgetting declares upload 'dz', but its finish returned no 'dz'.",
        "Return {'dz': ...} from Forgetting.finish, or take it out of upload.",
    ):
        client_round(
            Method(local=LOCAL, correct=(Forgetting(),)), {"x": X}, {}, data([0.0, 1.0]), 0
        )


def test_a_missing_server_round_input_is_named() -> None:
    method = methods.fedcm()
    with says(
        UndeclaredName,
        "A server hook reads mean.dx_travel, and no part declares it.",
        "It may read: S, dx.",
        "Declare it in the part that reads it: means = ('dx_travel',), or as an upload.",
    ):
        server_round(method, method.start(X), View("mean", {"dx": X, "S": 1}), 0, 5)


def test_a_constant_of_the_other_side() -> None:
    with says(
        UndeclaredName,
        "Blend reads v.N, which only hooks of the server have.",
        "It may read: x.",
        "Move what needs it to the other side, or do without.",
    ):
        _ = View("Blend", {"x": X}).N
    with pytest.raises(UndeclaredName, match=r"v\.lr, which only hooks of the client have"):
        _ = View("Dual", {"x": X, "S": 1, "N": 2}).lr


def test_a_refused_upload_leaves_no_trace_in_the_mean() -> None:
    """What is left out is left out whole: the others' mean is theirs."""
    method = methods.scaffold(steps=1, lr=1.0, clip=None, weight_decay=0.0)
    sent = {"x": torch.zeros(2), "c": torch.zeros(2)}
    uploads = [
        client_round(method, sent, {}, data([-float(g)] * 2, client=i), 0)[0]
        for i, g in enumerate((1, 100, 1))
    ]
    uploads[1].vectors["dc"][0][0] = float("nan")
    mean = Mean(method, method.start(torch.zeros(2)))
    mean.add(uploads[0])
    with pytest.raises(NonFiniteError, match="Client 1 sent dc with 1 of 2"):
        mean.add(uploads[1])
    mean.add(uploads[2])
    result = mean.result()
    assert result.S == 2
    assert torch.equal(result.dx, torch.ones(2))


def test_an_upload_of_another_method() -> None:
    upload, _ = client_round(methods.fedavg(steps=1), {"x": X}, {}, data([0.0, 1.0]), 0)
    with says(
        FederationError,
        "Client 0 sent dx, expected dx, dc.",
        "It runs another method: check its configuration.",
    ):
        Mean(methods.scaffold(), methods.scaffold().start(X)).add(upload)


def test_a_client_without_samples_under_sample_weights() -> None:
    method = methods.fedavg(steps=1, weights="samples")
    empty = replace(data([0.0, 1.0]), samples=0)
    with says(
        FederationError,
        "Client 0 has samples=0, expected at least 1, for means are weighted by samples.",
        "Give its count, or weights='uniform'.",
    ):
        one_round(method, method.start(X), {}, [empty], 0, 5)


def test_a_mean_count_of_nothing() -> None:
    method = methods.fedavg(steps=1, weights="samples")
    with says(
        FederationError,
        "The mean got mean_samples=0, expected a number above 0.",
        "It is the mean of n_i over all clients; leave it out if no method weighs by them.",
    ):
        Mean(method, method.start(X), mean_samples=0)


def test_rates_that_sum_to_nothing() -> None:
    method = Method(local=SGD(lr=warm_up, steps=1))
    with says(
        CompositionError,
        "The rates of round 0 sum to 0.0 over 1 steps, expected more than 0.",
        f"Let lr(t, k, K) of {method.local!r} start above 0.",
    ):
        client_round(method, {"x": X}, {}, data([0.0, 1.0]), 0)


def warm_up(t: int, k: int, K: int) -> float:
    return 0.1 * t


def test_a_hook_that_returns_nothing() -> None:
    method = Method(local=LOCAL, correct=(Silent(),))
    with says(
        CompositionError,
        "A hook of Silent returned None, expected a dict of vectors.",
        "Return {} where there is nothing new.",
    ):
        client_round(method, {"x": X}, {}, data([0.0, 1.0]), 0)
    with pytest.raises(CompositionError, match="A hook of Vague returned None"):
        client_round(Method(local=LOCAL, perturb=Vague(0.1)), {"x": X}, {}, data([0.0, 1.0]), 0)


@dataclass(frozen=True)
class Silent(Correction):
    def direction(self, g, w, v):
        """g ← g"""
        return g

    def finish(self, y, v):
        """nothing"""


@dataclass(frozen=True)
class Vague(SAM):
    def gradient(self, w, grad, v):
        """g ← ∇F(w)"""
        return grad(w), None


def test_a_name_that_one_part_reads_twice() -> None:
    with pytest.raises(CompositionError) as error:
        Method(local=LOCAL, correct=(ControlVariates(),), also=(Twice(),))
    assert str(error.value).splitlines() == [
        "Twice declares 'c' 2 times among broadcast, push, keep and notes, expected once.",
        "v.c could only be one of them: rename the others.",
    ]


@dataclass(frozen=True)
class Twice(Part):
    broadcast, notes = ("c",), ("c",)


def test_what_one_part_keeps_and_another_sends_may_share_a_name() -> None:
    method = Method(local=LOCAL, correct=(KeepsDc(), ControlVariates()))
    upload, kept = client_round(method, {"x": X, "c": 0 * X}, {}, data([0.0, 1.0], [0.0, 1.0]), 0)
    assert torch.equal(kept["dc"], torch.tensor([7.0, 7.0]))
    assert not torch.equal(upload.vectors["dc"][0], kept["dc"])


@dataclass(frozen=True)
class KeepsDc(Correction):
    keep = ("dc",)

    def direction(self, g, w, v):
        """g ← g"""
        return g

    def finish(self, y, v):
        """dc ← 7"""
        return {"dc": torch.full_like(y, 7.0)}


def test_running_statistics_without_a_flat_model() -> None:
    from flatfed.parts.track import RunningStatistics

    method = Method(local=LOCAL, also=(RunningStatistics(),))
    with pytest.raises(FederationError, match="expected an oracle that can observe"):
        client_round(method, {"x": X, "buffers": X}, {}, data([0.0, 1.0]), 0)


def test_a_size_of_a_vector_that_is_not_there() -> None:
    with says(
        CompositionError,
        "fedavg got sizes of bufers, which it does not send or keep.",
        "Its vectors: dx.",
    ):
        methods.fedavg().bill(1000, bufers=10)


@pytest.mark.parametrize("switch", ["lf", "lu", "gu"])
def test_a_switch_is_true_or_false(switch) -> None:
    with says(CompositionError, f"fedvssam got {switch}='False', expected True or False."):
        methods.fedvssam(**{switch: "False"})


def test_numpy_numbers_are_numbers() -> None:
    import numpy as np

    method = methods.fedsam(rho=np.float32(0.5), steps=np.int64(3), lr=np.float64(0.1))
    assert method.local.steps_for(1) == 3


def test_the_tree_in_the_docstring_is_the_tree() -> None:
    listed = [line.split()[1] for line in errors.__doc__.splitlines() if "── " in line]
    real = [kind.__name__ for kind in errors.FlatfedError.__subclasses__()
            if kind.__module__ == errors.__name__]  # fmt: skip
    assert listed == real


@dataclass(frozen=True)
class Packing(Dense):
    """Declares, or returns, what a compressor may not."""

    fault: str = ""

    def __post_init__(self) -> None:
        if self.fault:
            object.__setattr__(self, self.fault, ("q",))

    def encode(self, a, v):
        """sent ← a"""
        return a, {}


@pytest.mark.parametrize("kind", ["broadcast", "push", "uses", "notes", "upload"])
def test_a_compressor_that_declares_more_than_what_it_keeps(kind) -> None:
    with says(
        CompositionError,
        f"Packing declares {kind}=('q',), expected a compressor to declare nothing but keep and "
        "server.",
        "Put what it shares into a part of its own: Method(..., also=(...,)).",
    ):
        Method(local=LOCAL, compress=Packing(kind))


def test_a_compressor_that_returns_no_tuple() -> None:
    with says(
        CompositionError,
        "Packing.encode returned Tensor for dx, expected a tuple of tensors.",
        "Return (tensor,), {}.",
    ):
        client_round(Method(local=LOCAL, compress=Packing()), {"x": X}, {}, data([0.0, 1.0]), 0)


def test_a_compressor_whose_declaration_is_no_tuple() -> None:
    @dataclass(frozen=True)
    class Keeping(Dense):
        keep = "e_i"

    with says(
        CompositionError,
        "Keeping declares keep='e_i', expected a tuple of names.",
        "Write keep = ('e_i',).",
    ):
        Method(local=LOCAL, compress=Keeping())


@dataclass(frozen=True)
class Instead(Part):
    """Wants a vector evaluated in place of x."""

    result: str
    server: tuple = ()


def test_a_result_that_the_server_does_not_own() -> None:
    with says(
        CompositionError,
        "Instead wants 'nowhere' evaluated in place of x, expected one such part, and a vector "
        "that the server owns.",
        "Parts that want it: Instead ('nowhere').",
    ):
        Method(local=LOCAL, also=(Instead("nowhere"),))


def test_two_results() -> None:
    with says(
        CompositionError,
        "Instead wants 'a' evaluated in place of x, expected one such part, and a vector that the "
        "server owns.",
        "Parts that want it: Instead ('a'), Instead ('b').",
    ):
        Method(local=LOCAL, also=(Instead("a", ("a",)), Instead("b", ("b",))))


def test_more_uploads_than_clients() -> None:
    method = methods.fedavg(steps=1)
    with says(
        FederationError,
        "Round 0 has S=1 uploads of N=0 clients in all, expected at most N.",
        "Give the number of all clients as N, and the mean of all their n_i as mean_samples.",
    ):
        one_round(method, method.start(X), {}, [data([0.0, 1.0])], 0, 0)


def test_sample_weights_without_the_mean_count_of_everybody() -> None:
    method = replace(methods.scaffold(steps=1), weights="samples")
    with says(
        UndeclaredName,
        "ControlVariates reads v.S, which is not known here.",
        "It may read: N, c, seed, t, x.",
        "It is from absorb on; with weights='samples', give Mean or one_round mean_samples, the "
        "mean of n_i over all N clients.",
    ):
        one_round(method, method.start(X), {}, [data([0.0, 1.0])], 0, 5)


@dataclass(frozen=True)
class Lost(Average):
    def step(self, x, mean, v):
        """x ← x"""


def test_a_server_step_that_returns_nothing() -> None:
    method = Method(local=LOCAL, server=Lost())
    with says(
        CompositionError,
        "Lost.step returned NoneType of shape (), expected a vector like x.",
        "Return the next global model.",
    ):
        one_round(method, method.start(X), {}, [data([0.0, 1.0])], 0, 5)


@dataclass(frozen=True)
class Counting(Part):
    """Sends a bare number."""

    upload = ("total",)

    def finish(self, y, v):
        """total ← 3"""
        return {"total": 3.0}


def test_a_number_in_place_of_a_vector() -> None:
    with says(
        CompositionError,
        "A hook of Counting returned total=3.0, expected a vector.",
        "A number travels as a vector of one element: x.new_tensor([...]).",
    ):
        method = Method(local=LOCAL, also=(Counting(),))
        client_round(method, {"x": X}, {}, data([0.0, 1.0]), 0)


def test_running_statistics_without_their_first_values() -> None:
    with says(
        FederationError,
        "RunningStatistics got no first value for 'buffers', expected the model's own.",
        "Start with method.start(model.x0, buffers=model.b0).",
    ):
        replace(methods.fedavg(), also=(RunningStatistics(),)).start(X)


def test_the_nearest_name_is_found_whatever_the_case() -> None:
    with pytest.raises(SpecError, match="Did you mean 'fedtoga'"):
        methods.build("FedTOGA")
    with pytest.raises(SpecError, match="Did you mean 'rho'"):
        methods.build("fedsam", RHO=0.1)


@dataclass(frozen=True)
class Loud(Part):
    """Wants written down what is no scalar of its own."""

    server = ("c",)
    logged = ("c",)


def test_what_is_written_down_is_a_scalar_on_the_server() -> None:
    with says(
        CompositionError,
        "Loud wants 'c' written down, expected one of its scalars on the server, of a name that no "
        "line of a run has yet.",
        "Declare it: server = ('c',) and scalars = ('c',).",
    ):
        Method(local=LOCAL, also=(Loud(),))


@dataclass(frozen=True)
class Borrowing(Part):
    """Reads what is pushed by nobody."""

    push = ("samples",)


def test_what_is_pushed_is_owned_by_somebody() -> None:
    with pytest.raises(CompositionError, match="Borrowing needs 'samples' from the server"):
        Method(local=LOCAL, also=(Borrowing(),))


@dataclass(frozen=True)
class Dividing(Correction):
    """Reads how many were drawn."""

    def direction(self, g, w, v):
        """g ← g/drawn"""
        return g / v.drawn


def test_a_hook_that_needs_what_the_caller_did_not_give() -> None:
    with pytest.raises(
        UndeclaredName, match=r"Dividing reads v\.drawn, which was not given\."
    ) as e:
        client_round(Method(local=LOCAL, correct=(Dividing(),)), {"x": X}, {}, data([0.0, 1.0]), 0)
    assert "Give drawn= to whoever runs the round, as Training does." in str(e.value)


def test_an_unknown_way_to_remember() -> None:
    with pytest.raises(CompositionError, match="kept='both', expected 'exact' or 'synced'"):
        Method(local=LOCAL, kept="both")
