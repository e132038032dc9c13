"""AFD: scores, masks that stay or are drawn anew, and what a round leaves as it was."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from ghn_fl import masks
from ghn_fl.aggregate import weighted_mean
from ghn_fl.engines.message import decode, encode
from ghn_fl.errors import ConfigError
from ghn_fl.methods.afd import adapt
from ghn_fl.simulation.config import RunConfig
from ghn_fl.tree import equal
from ghn_fl.types import Answer, Client, Job, Method, State
from tests.ghn_fl.methods.bed import Bed
from tests.ghn_fl.methods.stubs import (
    IMAGES,
    all_are,
    answering,
    fleet_of,
    nudged,
    unmoved,
)

MODEL = "lenet5"  # 6, 16, 120 and 84 units


def after(method: Method, clients: Sequence[Client], *losses: float) -> list[State]:
    """The states after rounds in which the clients' mean loss is this."""
    states = [method.init()]
    for loss in losses:
        state, report = method.run_round(
            states[-1], clients, answering(nudged, loss=lambda job, loss=loss: loss)
        )
        assert report["loss"] == pytest.approx(loss)
        states.append(state)
    return states[1:]


def test_scores_and_masks_by_hand() -> None:
    # 2.0 -> 1.5: kept units gain (2 - 1.5) / 2 = 0.25; 1.5 -> 1.6 and 1.6 -> 1.6: a new mask
    method, clients = fleet_of("afd", MODEL, MODEL)
    first, fell, rose, equal_loss = (
        s["maps"]["all"] for s in after(method, clients, 2.0, 1.5, 1.6, 1.6)
    )
    for group, mask in first["masks"].items():
        assert (first["scores"][group] == 1).all()
        assert torch.equal(fell["masks"][group], mask)
        assert (fell["scores"][group][mask] == 1.25).all()
        assert (fell["scores"][group][~mask] == 1.0).all()
    assert equal(rose["scores"], fell["scores"]) and not equal(rose["masks"], fell["masks"])
    assert equal(equal_loss["scores"], fell["scores"])
    assert not equal(equal_loss["masks"], rose["masks"])
    assert [m["loss"] for m in (first, fell, rose, equal_loss)] == [2.0, 1.5, 1.6, 1.6]


def test_gains_add_up_and_follow_the_last_loss() -> None:
    # 2 -> 1: 1/2; 1 -> 4: a new mask; 4 -> 3: 1/4 to the kept units of the new one
    method, clients = fleet_of("afd", MODEL)
    _, fell, rose, last = (s["maps"]["all"] for s in after(method, clients, 2.0, 1.0, 4.0, 3.0))
    old, new = fell["masks"]["fc"], rose["masks"]["fc"]
    assert torch.equal(last["scores"]["fc"], 1 + 0.5 * old + 0.25 * new)


def test_the_loss_is_weighted_by_samples() -> None:
    # clients of 1 and 3 samples with losses 2 and 4: (2 + 12) / 4 = 3.5
    method, clients = fleet_of("afd", MODEL, MODEL)
    loss = {0: 2.0, 1: 4.0}
    train = answering(nudged, loss=lambda job: loss[job.client.id])
    state, report = method.run_round(method.init(), clients, train)
    assert report["loss"] == state["maps"]["all"]["loss"] == 3.5


def test_a_unit_of_score_0_is_never_drawn() -> None:
    scores = {"fc": torch.tensor([1.0, 0.0, 1.25, 0.0, 3.0])}
    for seed in range(200):
        mask = masks.drawn(scores, {"fc": 2}, torch.Generator().manual_seed(seed))["fc"]
        assert int(mask.sum()) == 2 and not mask[1] and not mask[3]


def test_units_of_higher_score_are_drawn_more_often() -> None:
    # of two units with scores 1 and 3 the second is first in 3 of 4 draws
    rng, scores = torch.Generator().manual_seed(0), {"fc": torch.tensor([1.0, 3.0])}
    second = [bool(masks.drawn(scores, {"fc": 1}, rng)["fc"][1]) for _ in range(4000)]
    assert sum(second) / 4000 == pytest.approx(0.75, abs=0.03)


def test_a_mask_is_drawn_by_score() -> None:
    old = {"scores": {"fc": torch.tensor([1.0, 0.0, 1.0])}, "masks": {"fc": None}, "loss": 1.0}
    new = adapt(old, 1.0, {"fc": 2}, torch.Generator().manual_seed(0))
    assert new["masks"]["fc"].tolist() == [True, False, True]


@pytest.mark.parametrize("mode", ["single", "multi", "federated_dropout"])
def test_masks_have_the_right_number_of_distinct_units(mode: str) -> None:
    # N - int(N / 2) of 6, 16, 120 and 84
    method, clients = fleet_of("afd", MODEL, MODEL, mode=mode)
    jobs: list[Job] = []
    state = method.init()
    for loss in (1.0, 2.0):
        train = answering(nudged, loss=lambda job, loss=loss: loss, seen=jobs)
        state, _ = method.run_round(state, clients, train)
    for found in state["maps"].values():
        sizes = {g: int(m.sum()) for g, m in found["masks"].items()}
        assert sizes == {"conv1": 3, "conv2": 8, "fc": 60, "fc1": 42}
    for job in jobs:
        assert str(job.models[0][0]) == "lenet5-w0.5"
        assert job.models[0][1]["exits.2.body.fc1.weight"].shape == (42, 60)


def test_dropped_parameters_are_unchanged_and_a_new_mask_comes_after_the_mean() -> None:
    # clients of 1 and 3 samples answer 2 and -2: what is kept becomes (2 - 6) / 4 = -1
    method, clients = fleet_of("afd", MODEL, MODEL)
    (first,) = after(method, clients, 1.0)
    train = answering(all_are(lambda job: 2.0 - 4 * job.client.id), loss=lambda job: 2.0)
    second, _ = method.run_round(first, clients, train)  # the loss rose
    old, new = (s["maps"]["all"]["masks"] for s in (first, second))
    assert not equal(old, new)
    kept = old["fc1"][:, None] & old["fc"][None, :]
    before, now = (s["global"]["exits.2.body.fc1.weight"] for s in (first, second))
    assert int(kept.sum()) == 42 * 60 and (now[kept] == -1).all()
    assert torch.equal(now[~kept], before[~kept])


def test_nothing_dropped_is_fedavg() -> None:
    for mode in ("single", "multi", "federated_dropout"):
        method, clients = fleet_of("afd", MODEL, MODEL, MODEL, drop=0.0, mode=mode)
        answers: list[Answer] = []

        def train(jobs: Any, answers: list[Answer] = answers) -> Any:
            assert all(job.models[0][0] == job.client.models[0] for job in jobs)
            answers.extend(answering(nudged)(jobs))
            return answers

        state, _ = method.run_round(method.init(), clients, train)
        expected = weighted_mean([a.weights[0] for a in answers], [1, 3, 5])
        torch.testing.assert_close(state["global"], expected)


def test_federated_dropout_draws_a_mask_a_round_for_all() -> None:
    method, clients = fleet_of("afd", MODEL, MODEL, mode="federated_dropout")
    jobs: list[Job] = []
    state = method.init()
    for _ in range(2):
        state, _ = method.run_round(state, clients, answering(unmoved, seen=jobs))
    one, same, other, _ = (job.models[0][1] for job in jobs)
    assert equal(one, same) and not equal(one, other)
    assert state["maps"] == {}  # no scores
    assert equal(state["global"], method.init()["global"])  # sliced and put back


def test_multi_has_a_map_of_each_client() -> None:
    # client 0 falls from 2 to 1, client 1 rises from 2 to 3, client 2 was not there
    method, clients = fleet_of("afd", MODEL, MODEL, MODEL, mode="multi")
    state, _ = method.run_round(method.init(), clients[:2], answering(nudged, loss=lambda job: 2.0))
    assert not equal(state["maps"]["0"]["masks"], state["maps"]["1"]["masks"])
    assert set(state["maps"]) == {"0", "1"}
    now, _ = method.run_round(
        state, clients[:2], answering(nudged, loss=lambda job: 1.0 + 2 * job.client.id)
    )
    fell, rose = now["maps"]["0"], now["maps"]["1"]
    assert equal(fell["masks"], state["maps"]["0"]["masks"])
    assert (fell["scores"]["fc"][fell["masks"]["fc"]] == 1.5).all()
    assert equal(rose["scores"], state["maps"]["1"]["scores"])
    assert not equal(rose["masks"], state["maps"]["1"]["masks"])
    assert equal(decode(encode(now)), now)  # a state that can be stored


def test_multi_averages_where_masks_meet() -> None:
    # clients of 1 and 3 samples answer 4 and -4: both: -2; one: 4 or -4; nobody: as it was
    method, clients = fleet_of("afd", MODEL, MODEL, mode="multi")
    begin = method.init()
    train = answering(all_are(lambda job: 4.0 - 8 * job.client.id))
    state, _ = method.run_round(begin, clients, train)
    a, b = (state["maps"][k]["masks"]["fc1"] for k in "01")
    bias, old = (s["global"]["exits.2.body.fc1.bias"] for s in (state, begin))
    assert (bias[a & b] == -2).all() and (bias[a & ~b] == 4).all() and (bias[~a & b] == -4).all()
    assert torch.equal(bias[~a & ~b], old[~a & ~b])


@pytest.mark.parametrize("mode", ["single", "multi", "federated_dropout"])
def test_the_order_of_clients_shows_in_nothing(mode: str) -> None:
    method, clients = fleet_of("afd", MODEL, MODEL, MODEL, mode=mode)
    one = other = method.init()
    for loss in (1.0, 3.0):
        train = answering(nudged, loss=lambda job, loss=loss: loss + 0.1 * job.client.id)
        one, _ = method.run_round(one, clients, train)
        other, _ = method.run_round(other, clients[::-1], train)
    torch.testing.assert_close(one["global"], other["global"])
    assert equal(
        {k: one["maps"][k] for k in sorted(one["maps"])},
        {k: other["maps"][k] for k in sorted(other["maps"])},
    )


def test_clients_use_the_whole_model() -> None:
    method, clients = fleet_of("afd", MODEL, MODEL)
    (state,) = after(method, clients, 1.0)
    assert [str(spec) for spec in clients[0].models] == ["lenet5", "lenet5-w0.5"]
    assert all(equal(w, state["global"]) for w in method.personalize(state, clients))


def test_a_flattened_channel_is_a_block_of_the_dense_layers_inputs() -> None:
    # 16 channels of 4x4: channel c is inputs 16 c to 16 c + 15, channel first
    method, clients = fleet_of("afd", MODEL, task=IMAGES | {"image_size": 28})
    jobs: list[Job] = []
    begin = method.init()
    state, _ = method.run_round(begin, clients, answering(unmoved, seen=jobs))
    mask = state["maps"]["all"]["masks"]
    columns = [16 * c + i for c in mask["conv2"].nonzero().flatten().tolist() for i in range(16)]
    name = "exits.2.body.fc.weight"
    expected = begin["global"][name][mask["fc"]][:, columns]
    assert torch.equal(jobs[0].models[0][1][name], expected)


def test_counts_are_those_of_the_sub_model() -> None:
    # heterofl_cnn rounds up: N - int(0.3 N) of 64 is 64 - 19 = 45; lenet5 rounds down: of 6 it
    # keeps 4 where N - int(0.3 N) is 5
    for model, group, count in (("heterofl_cnn", "conv1", 45), ("lenet5", "conv1", 4)):
        method, clients = fleet_of("afd", model, drop=0.3)
        state, _ = method.run_round(method.init(), clients, answering(unmoved))
        assert int(state["maps"]["all"]["masks"][group].sum()) == count
    assert str(fleet_of("afd", "heterofl_cnn", drop=0.9)[1][0].models[1]) == "heterofl_cnn-w0.1"


def test_other_fleets_are_refused() -> None:
    with pytest.raises(ConfigError, match="one model for all devices, got lenet5 and lenet5-d1;"):
        fleet_of("afd", MODEL, "lenet5-d1")
    with pytest.raises(
        ConfigError, match=r"a part of fedmdp_mnist_1: .* cannot be scaled in width"
    ):
        fleet_of("afd", "fedmdp_mnist_1")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"drop": 1.0}, r"drop must be from 0 to below 1 \(1 would mask every unit\), got 1"),
        ({"drop": -0.5}, "drop must be from 0 to below 1 .*, got -0.5"),
        ({"mode": "double"}, "mode must be single or multi or federated_dropout, got 'double'"),
    ],
)
def test_bad_settings(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        RunConfig(method="afd", options=options)


def test_clients_really_learn() -> None:
    bed = Bed("afd", drop=0.25)
    bed.learn_faster()
    state = bed.method.init()
    for number in range(1, 6):
        state, report = bed.method.run_round(state, bed.clients, bed.train(number))
    assert report["loss"] < 1.15  # ten classes: who knows nothing has ln 10 = 2.3
