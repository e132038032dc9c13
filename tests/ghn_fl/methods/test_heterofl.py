"""HeteroFL's and FedRolex's own rules, beyond the contract of all methods."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from ghn_fl.aggregate import weighted_mean
from ghn_fl.engines.message import decode, encode
from ghn_fl.errors import ConfigError
from ghn_fl.simulation.config import RunConfig
from ghn_fl.tree import equal
from ghn_fl.types import Job
from tests.ghn_fl.methods.bed import Bed
from tests.ghn_fl.methods.stubs import answering, fleet, nudged, sending, unmoved

# lenet5 has 6, 16, 120 and 84 units, lenet5-w0.5 has 3, 8, 60 and 42; images of 16 pixels leave
# one position for each channel before the dense layers
WIDE, NARROW = "lenet5", "lenet5-w0.5"
CONV1, CONV2, FC = "stages.1.conv.weight", "stages.2.conv.weight", "exits.2.body.fc.weight"
CLASSIFIER = "exits.2.classifier"


def test_parts_are_averaged_over_those_who_hold_them() -> None:
    bed = fleet("heterofl", NARROW, NARROW, WIDE)
    state = bed.method.init()
    after, _ = bed.method.run_round(state, bed.clients, sending(1, 3, 5))
    for name, cut in ((CONV1, (3, 1)), (CONV2, (8, 3)), (FC, (60, 8))):
        w = after["global"][name].clone()
        assert torch.all(w[: cut[0], : cut[1]] == 3)  # (1 + 3 + 5) / 3
        w[: cut[0], : cut[1]] = 5
        assert torch.all(w == 5)
    after, _ = bed.method.run_round(state, bed.clients[:2], sending(1, 3))
    w = after["global"][CONV2]
    assert torch.all(w[:8, :3] == 2)  # (1 + 3) / 2
    assert torch.equal(w[8:], state["global"][CONV2][8:])
    assert torch.equal(w[:8, 3:], state["global"][CONV2][:8, 3:])
    # everybody is served what his model holds of it
    small, _, large = bed.method.personalize(after, bed.clients)
    assert torch.equal(small[CONV2], w[:8, :3]) and torch.equal(large[CONV2], w)


def test_a_strong_devices_small_model_is_one_more_contributor() -> None:
    bed = fleet("heterofl", NARROW, NARROW, f"{WIDE} {NARROW}")

    def value(job: Job, spec: Any, *_: Any) -> float:
        return {0: 1.0, 1: 3.0}.get(job.client.id, 5.0 if str(spec) == WIDE else -5.0)

    after, _ = bed.method.run_round(bed.method.init(), bed.clients, answering(value))
    assert torch.all(after["global"][CONV1][:3] == 1)  # (1 + 3 + 5 - 5) / 4
    assert torch.all(after["global"][CONV1][3:] == 5)


def test_weighting_by_samples() -> None:
    bed = fleet("heterofl", NARROW, NARROW, WIDE, weighting="samples")
    after, _ = bed.method.run_round(bed.method.init(), bed.clients, sending(-6, 3, 4))
    assert torch.all(after["global"][CONV1][:3] == 2)  # (1 * -6 + 2 * 3 + 3 * 4) / 6
    assert torch.all(after["global"][CONV1][3:] == 4)


@pytest.mark.parametrize("variant", ["heterofl", "fedrolex"])
@pytest.mark.parametrize("weighting", ["count", "samples"])
def test_one_width_is_fedavg(variant: str, weighting: str) -> None:
    bed = fleet("heterofl", WIDE, WIDE, WIDE, variant=variant, weighting=weighting)
    jobs: list[Job] = []
    train = answering(nudged, seen=jobs)
    after, _ = bed.method.run_round(bed.method.init(), bed.clients, train)
    sent = [answer.weights[0] for answer in train(jobs[:3])]
    mean = weighted_mean(sent, [1, 1, 1] if weighting == "count" else [1, 2, 3])
    (served, *_) = bed.method.personalize(after, bed.clients)
    assert all(torch.allclose(served[n], w, atol=1e-6) for n, w in mean.items())


@pytest.mark.parametrize("variant", ["heterofl", "fedrolex"])
@pytest.mark.parametrize(
    "models",
    [
        (WIDE, NARROW),
        (WIDE, "lenet5-d1"),
        (f"{WIDE} lenet5-d1", NARROW, "lenet5-d1", "lenet5-d1-w0.5"),
    ],
)
def test_weights_that_did_not_move_change_nothing(variant: str, models: tuple[str, ...]) -> None:
    bed = fleet("heterofl", *models, variant=variant)
    state = bed.method.init()
    for _ in range(3):
        after, _ = bed.method.run_round(state, bed.clients, answering(unmoved))
        assert equal(after["global"], state["global"]) and after["t"] == state["t"] + 1
        state = after


def test_a_client_changes_the_classifiers_rows_of_its_own_classes() -> None:
    # client 0 has classes 0 and 2, client 1 has 2 and 3, nobody the others
    mixes = {0: (0.5, 0, 0.5, *[0.0] * 7), 1: (0, 0, 0.1, 0.9, *[0.0] * 6)}
    bed = fleet("heterofl", NARROW, WIDE, mixes=mixes)
    state = bed.method.init()
    after, _ = bed.method.run_round(state, bed.clients, sending(-1, 5))
    for name in (f"{CLASSIFIER}.weight", f"{CLASSIFIER}.bias"):
        old, new = (s["global"][name] for s in (state, after))
        held = (slice(42),) if new.ndim == 2 else ()  # columns of the small model
        assert torch.all(new[(0, *held)] == -1)  # of the first alone
        assert torch.all(new[(2, *held)] == 2)  # (-1 + 5) / 2
        assert torch.all(new[3] == 5)  # of the second alone
        assert torch.equal(new[[1, 4, 5, 6, 7, 8, 9]], old[[1, 4, 5, 6, 7, 8, 9]])
    assert torch.all(after["global"][f"{CLASSIFIER}.weight"][2, 42:] == 5)
    assert torch.equal(
        after["global"][f"{CLASSIFIER}.weight"][0, 42:],
        state["global"][f"{CLASSIFIER}.weight"][0, 42:],
    )
    assert torch.all(after["global"][CONV1][:3] == 2)  # other layers have no classes
    bed = fleet("heterofl", NARROW, WIDE, mixes=mixes, label_split=False)
    after, _ = bed.method.run_round(bed.method.init(), bed.clients, sending(-1, 5))
    assert torch.all(after["global"][f"{CLASSIFIER}.bias"] == 2)


def test_clients_are_told_how_to_train() -> None:
    def recipes(**options: Any) -> list[tuple[float, bool, float]]:
        bed, jobs = fleet("heterofl", "lenet5-w0.8 lenet5-w0.2", "lenet5-w0.2", **options), []
        bed.method.run_round(bed.method.init(), bed.clients, answering(unmoved, seen=jobs))
        return [(r.rate, r.own_classes, r.clip) for job in jobs for r in job.recipes]

    # the rate is the width over the largest model's: 0.2 / 0.8
    assert recipes() == [(1, True, 0), (0.25, True, 0), (0.25, True, 0)]
    plain = recipes(scaler=False, masked_loss=False, clip=1.0)
    assert plain == [(1, False, 1)] * 3


def test_static_norm_is_a_choice() -> None:
    assert fleet("heterofl", WIDE).method.static_norm
    assert not fleet("heterofl", WIDE, norm="shared").method.static_norm


def test_fedrolexs_window_moves_by_one_unit_a_round() -> None:
    bed = fleet("heterofl", NARROW, WIDE, variant="fedrolex")
    state = bed.method.init()
    state["global"][CONV1] = torch.arange(6.0).reshape(6, 1, 1, 1).expand(6, 1, 5, 5).clone()
    # rounds 1 to 6: from unit t mod 6 on, cyclic; in ascending order
    for held in ([1, 2, 3], [2, 3, 4], [3, 4, 5], [0, 4, 5], [0, 1, 5], [0, 1, 2]):
        jobs: list[Job] = []
        small, large = bed.method.personalize(state, bed.clients)
        state, _ = bed.method.run_round(state, bed.clients, answering(unmoved, seen=jobs))
        given = jobs[0].models[0][1][CONV1]
        assert given[:, 0, 0, 0].tolist() == held
        assert torch.equal(small[CONV1], given)  # served as it would be trained
        assert large[CONV1][:, 0, 0, 0].tolist() == [0, 1, 2, 3, 4, 5]
    assert jobs[0].models[0][1][CONV2].shape == (8, 3, 5, 5)


def test_fedrolex_writes_back_where_it_took() -> None:
    bed = fleet("heterofl", NARROW, NARROW, WIDE, variant="fedrolex")
    state = bed.method.init()
    after, _ = bed.method.run_round(state, bed.clients, sending(1, 3, 5))
    assert after["global"][CONV1][:, 0, 0, 0].tolist() == [5, 3, 3, 3, 5, 5]
    # round 2: conv2 has 16 units, 8 from 2 on; it reads conv1's 2, 3, 4
    again, _ = bed.method.run_round(after, bed.clients[:1], sending(-7))
    changed = (again["global"][CONV2][:, :, 0, 0] == -7).nonzero().tolist()
    assert changed == [[i, j] for i in range(2, 10) for j in (2, 3, 4)]


def test_models_of_other_depth_share_tensors_of_the_same_name() -> None:
    bed = fleet("heterofl", WIDE, "lenet5-d1", "lenet5-d1", "lenet5-d1-w0.5")
    after, _ = bed.method.run_round(bed.method.init(), bed.clients, sending(2, 4, 6, -8))
    block, own = after["global"][CONV1], after["global"]["exits.1.body.block.conv.weight"]
    assert torch.all(block[:3] == 1) and torch.all(block[3:] == 4)  # (2+4+6-8)/4, (2+4+6)/3
    # the exit that the largest lacks is the second's: 3 channels, of which the last has 1
    assert own.shape == (3, 6, 5, 5)
    expected = torch.full((3, 6, 5, 5), 5.0)  # (4 + 6) / 2
    expected[:1, :3] = 2 / 3  # (4 + 6 - 8) / 3
    assert torch.allclose(own, expected)
    assert torch.all(after["global"][CONV2] == 2)
    served = bed.method.personalize(after, bed.clients)[3]
    assert torch.equal(served["exits.1.body.block.conv.weight"], own[:1, :3])


def test_concatenated_channels() -> None:
    # the second layer reads [12 new, 24 of the stem]; with half of the width [6 new, 12]
    name = "stages.1.block.1.bn1.weight"
    for mode, held in (
        ("segment", [*range(6), *range(12, 24)]),
        ("topleft", list(range(18))),
    ):
        bed = fleet("heterofl", "densenet121-d1", "densenet121-d1-w0.5", index_mode=mode)
        state = bed.method.init()
        state["global"][name] = torch.arange(36.0)
        served = bed.method.personalize(state, bed.clients)[1]
        assert served[name].tolist() == held


def test_widths_are_rounded_up_in_heterofls_own_network() -> None:
    bed = fleet("heterofl", "heterofl_cnn", "heterofl_cnn-w0.3")
    served = bed.method.personalize(bed.method.init(), bed.clients)[1]
    assert served["stages.1.conv.weight"].shape[0] == 20  # ceil(0.3 * 64 = 19.2)


@pytest.mark.parametrize("variant", ["heterofl", "fedrolex"])
def test_a_stored_state_goes_on(variant: str) -> None:
    bed = Bed("heterofl", variant=variant)
    state = bed.method.init()
    for number in (1, 2):
        before = copy.deepcopy(state)
        after, _ = bed.method.run_round(state, bed.clients[:2], bed.train(number))
        assert equal(state, before)
        state = after
    one, _ = bed.method.run_round(state, bed.clients[1:], bed.train(3))
    other, _ = bed.method.run_round(decode(encode(state)), bed.clients[1:], bed.train(3))
    assert equal(one, other)


def test_it_learns() -> None:
    torch.set_num_threads(1)
    bed = Bed("heterofl")
    state, losses = bed.method.init(), []

    def train(jobs: Any) -> Any:
        answers = bed.train(len(losses))(jobs)
        losses.append(sum(a.metrics["loss"] for a in answers) / len(answers))
        return answers

    for _ in range(8):
        state, _ = bed.method.run_round(state, bed.clients, train)
    assert losses[0] > 2.2 and losses[-1] < 1.6  # ln 10 = 2.3 is guessing


@pytest.mark.parametrize(
    ("models", "options", "says"),
    [
        ((WIDE, "timm:mobilenetv3_small_050"), {}, "does not say which units belong together"),
        ((NARROW, "lenet5-d1"), {}, "the sub-model has 6 units in 'conv1', its parent 3"),
        ((WIDE, "resnet18-d1-w0.1"), {}, "no tensor in common .* such as lenet5 and lenet5-w0.5"),
        ((WIDE, "femnist_cnn"), {}, r"shape \(120, 16\), what can be cut from femnist_cnn has"),
        ((WIDE, "lenet5-d1-w0.5"), {"variant": "fedrolex"}, "as wide as the largest"),
    ],
)
def test_fleets_that_it_cannot_serve(
    models: tuple[str, ...], options: dict[str, Any], says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        fleet("heterofl", *models, **options)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"variant": "rolex"}, "variant must be heterofl or fedrolex, got 'rolex'"),
        ({"norm": "batch"}, "norm must be static or shared"),
        ({"index_mode": "left"}, "index_mode must be segment or topleft"),
        ({"weighting": "size"}, "weighting must be count or samples"),
        ({"clip": -1}, "clip must be at least 0"),
        ({"variant": "fedrolex", "index_mode": "topleft"}, "fedrolex needs index_mode=segment"),
    ],
)
def test_bad_settings(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        RunConfig(method="heterofl", options=options)


def rng(number: int) -> torch.Generator:
    return torch.Generator().manual_seed(number)
