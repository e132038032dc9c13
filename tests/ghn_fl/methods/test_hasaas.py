"""Hasaas: masks, who counts for which element, draws, and what changes when."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

import zoo
from ghn_fl import masks
from ghn_fl.aggregate import weighted_mean
from ghn_fl.errors import ConfigError
from ghn_fl.methods.hasaas import filter_norms
from ghn_fl.simulation.config import RunConfig
from ghn_fl.tree import equal
from ghn_fl.types import Answer, Job, State
from tests.ghn_fl.methods.bed import Bed
from tests.ghn_fl.methods.stubs import (
    IMAGES,
    active,
    all_are,
    answering,
    fleet_of,
    nudged,
    unmoved,
)
from zoo import ModelSpec, slicing

FAST, SLOW = "lenet5", "lenet5-w0.5"  # of 6, 16, 120 and 84 units slow clients have half


def kept(state: State, group: str, spec: str = SLOW) -> list[int]:
    found: list[int] = state["masks"][spec][group].nonzero().flatten().tolist()
    return found


def is_fast(job: Job) -> bool:
    return str(job.models[0][0]) == FAST


def by_speed(fast: float, slow: float) -> Any:
    return lambda job: fast if is_fast(job) else slow


def quiet(**extras: Any) -> Any:
    """Clients that learn nothing and are equally active everywhere."""
    return answering(unmoved, extras=active(lambda job: 1.0), **extras)


def test_an_element_is_averaged_over_those_who_have_it() -> None:
    # fast: 1 sample, all 4; slow: 3 samples, all -2; so (4 - 6) / 4 = -0.5 where both are, else 4
    method, clients = fleet_of("hasaas", FAST, SLOW, aggregation="mean")
    state = method.init()
    train = answering(all_are(by_speed(4.0, -2.0)), extras=active(lambda job: 1.0))
    after, _ = method.run_round(state, clients, train)
    weight = after["global"]["exits.2.body.fc1.weight"]  # 84 outputs, 120 inputs
    out, inp = state["masks"][SLOW]["fc1"], state["masks"][SLOW]["fc"]
    both = out[:, None] & inp[None, :]
    assert int(both.sum()) == 42 * 60
    assert (weight[both] == -0.5).all()
    assert (weight[~both] == 4).all()  # also a kept output's weight of a dropped input
    assert (after["global"]["exits.2.classifier.bias"] == -0.5).all()  # classes are never cut
    bias = after["global"]["exits.2.body.fc1.bias"]
    assert torch.equal(bias == -0.5, out) and torch.equal(bias == 4, ~out)


def test_what_no_fast_client_trained_keeps_its_value() -> None:
    method, clients = fleet_of("hasaas", FAST, SLOW)
    state = method.init()
    train = answering(all_are(lambda job: 7.0), extras=active(lambda job: 1.0))
    after, _ = method.run_round(state, clients[1:], train)
    name, out = "exits.2.body.fc1.bias", state["masks"][SLOW]["fc1"]
    assert (after["global"][name][out] == 7).all()
    assert torch.equal(after["global"][name][~out], state["global"][name][~out])


def test_slice_and_expand_is_the_identity() -> None:
    method, clients = fleet_of("hasaas", FAST, SLOW, SLOW)
    state = method.init()
    after, _ = method.run_round(state, clients, quiet())
    assert equal(after["global"], state["global"])  # nobody differs: sigma is 0, too
    assert after["round"] == 1


def test_clients_that_agree_give_fedavg_without_noise() -> None:
    method, clients = fleet_of("hasaas", FAST, SLOW)
    train = answering(all_are(lambda job: 0.3), extras=active(lambda job: 1.0))
    after, _ = method.run_round(method.init(), clients, train)
    assert all((w == torch.tensor(0.3)).all() for w in after["global"].values())


def test_mean_without_slow_clients_is_fedavg() -> None:
    method, clients = fleet_of("hasaas", FAST, FAST, FAST, aggregation="mean")
    state = method.init()
    answers: list[Answer] = []

    def train(jobs: Any) -> Any:
        answers.extend(answering(nudged)(jobs))
        return answers

    after, _ = method.run_round(state, clients, train)
    expected = weighted_mean([a.weights[0] for a in answers], [1, 3, 5])
    torch.testing.assert_close(after["global"], expected)


@pytest.mark.parametrize(("sigma", "variance"), [("paper", 1.0), ("code", 0.75)])
@pytest.mark.parametrize(("sigma_norm", "divisor"), [("sqrt_t", 2.0), ("none", 1.0), ("t", 4.0)])
def test_weights_are_drawn_around_the_mean(
    sigma: str, variance: float, sigma_norm: str, divisor: float
) -> None:
    # n = (1, 3), W = (1, 3): mu 2.5, variance 1 or 0.75; in round 4 sigma is divided by 2, 1 or 4
    method, clients = fleet_of("hasaas", FAST, FAST, sigma=sigma, sigma_norm=sigma_norm)
    state = {**method.init(), "round": 3}
    after, _ = method.run_round(state, clients, answering(all_are(lambda j: j.client.samples)))
    assert all((w == 2.5).all() for w in after["mean"].values())
    drawn = torch.cat([w.flatten() for w in after["global"].values()])  # 14 thousand draws
    assert float(drawn.mean()) == pytest.approx(2.5, abs=0.05)
    assert float(drawn.std()) == pytest.approx(variance**0.5 / divisor, rel=0.03)


def test_served_with_and_without_noise() -> None:
    results = {}
    for serve in ("drawn", "mean"):
        method, clients = fleet_of("hasaas", FAST, SLOW, SLOW, serve=serve)
        train = answering(nudged, extras=active(lambda job: 1.0))
        state, _ = method.run_round(method.init(), clients, train)
        seen: list[Job] = []
        method.run_round(state, clients, quiet(seen=seen))
        assert equal(seen[0].models[0][1], state["global"])  # they train from the drawn ones
        results[serve] = method.personalize(state, clients)[0]
        assert equal(results[serve], state["global" if serve == "drawn" else "mean"])
    assert not equal(results["drawn"], results["mean"])


def test_the_mean_of_elements_without_a_fast_client_stays_without_noise() -> None:
    method, clients = fleet_of("hasaas", FAST, FAST, SLOW)
    train = answering(nudged, extras=active(lambda job: 1.0))
    first, _ = method.run_round(method.init(), clients, train)
    second, _ = method.run_round(first, clients[2:], train)
    name, dropped = "exits.2.body.fc1.bias", ~first["masks"][SLOW]["fc1"]
    for kind in ("mean", "global"):
        assert torch.equal(second[kind][name][dropped], first[kind][name][dropped])
    assert not torch.equal(first["mean"][name][dropped], first["global"][name][dropped])


def test_largest_activations_and_norms_are_kept() -> None:
    score = {"fc": torch.tensor([3.0, 1.0, 2.0, 0.0])}
    assert masks.largest(score, {"fc": 2})["fc"].nonzero().flatten().tolist() == [0, 2]
    assert (
        masks.largest({"fc": torch.ones(4)}, {"fc": 2})["fc"].tolist() == [True] * 2 + [False] * 2
    )
    # four filters of 1 x 1 x 2 x 2 with both signs: l1 norms 4, 1, 3, 2
    filters = torch.zeros(64, 1, 3, 3)
    for i, values in enumerate([(2.0, -2.0), (-1.0, 0.0), (-1.0, -2.0), (1.0, 1.0)]):
        filters[i, 0, 0, :2] = torch.tensor(values)
    model = zoo.build("heterofl_cnn")
    weights = {n: p.detach() for n, p in model.named_parameters()} | {
        "stages.1.conv.weight": filters
    }
    norms = filter_norms(model, weights)["conv1"]
    assert norms[:5].tolist() == [4, 1, 3, 2, 0]
    mask = masks.largest({"conv1": norms[:4]}, {"conv1": 2})["conv1"]
    assert mask.tolist() == [True, False, True, False]


def test_units_that_several_layers_write_have_the_sum_of_their_filters_norms() -> None:
    model = zoo.build("resnet18-d1")
    ones = {n: torch.ones_like(p) for n, p in model.named_parameters()}
    # stem: 3 inputs of 3x3; second convolution of both blocks: 64 of 3x3
    assert set(filter_norms(model, ones)["stage1"].tolist()) == {27.0 + 2 * 576.0}


def test_filters_are_ranked_by_the_new_global_weights() -> None:
    method, clients = fleet_of("hasaas", FAST, SLOW, every=1)
    scale = torch.tensor([4.0, -1.0, 3.0, -2.0, -6.0, 0.5])  # keep 3 of 6: units 0, 2 and 4

    def value(job: Job, spec: ModelSpec, name: str, given: Tensor) -> Tensor:
        return scale[:, None, None, None] if name == "stages.1.conv.weight" else given

    train = answering(value, extras=active(lambda job: 1.0))
    state, _ = method.run_round(method.init(), clients[:1], train)
    assert kept(state, "conv1") == [0, 2, 4]


@pytest.mark.parametrize(("slow", "stays"), [(0.0, False), (2.0, True)])
def test_activations_count_where_a_client_has_the_unit(slow: float, stays: bool) -> None:
    # Fast (1 sample) reports 1 everywhere, slow (3 samples) 0 or 2: dropped units have 1, kept ones
    # (1 + 0) / 4 or (1 + 6) / 4. So all kept units go, or all stay: half of them are kept.
    method, clients = fleet_of("hasaas", FAST, SLOW, every=2)
    train = answering(unmoved, extras=active(by_speed(1.0, slow)))
    begin = method.init()
    first, _ = method.run_round(begin, clients, train)
    mask = begin["masks"][SLOW]["fc"]
    seen = first["activations"]["fc"]
    mean = seen["sum"] / seen["samples"]
    assert (mean[mask] == (1 + 3 * slow) / 4).all() and (mean[~mask] == 1).all()
    assert equal(first["masks"], begin["masks"])  # not yet
    second, report = method.run_round(first, clients, train)
    assert torch.equal(second["masks"][SLOW]["fc"], mask if stays else ~mask)
    assert torch.equal(second["masks"][SLOW]["fc1"].sum(), torch.tensor(42))
    assert (second["activations"]["fc"]["samples"] == 0).all()  # begins anew
    assert report["changed_units"] >= (0 if stays else 60 + 42)


def test_activations_are_means_over_rounds_and_samples() -> None:
    # round 1: 1 sample of activation 8; round 2: 3 samples of activation 4: (8 + 12) / 4 = 5
    method, clients = fleet_of("hasaas", FAST, FAST, SLOW)
    state, _ = method.run_round(
        method.init(), clients[:1], answering(unmoved, extras=active(lambda j: 8.0))
    )
    state, _ = method.run_round(
        state, clients[1:2], answering(unmoved, extras=active(lambda j: 4.0))
    )
    seen = state["activations"]["fc1"]
    assert (seen["sum"] / seen["samples"] == 5).all()


def test_a_dense_mask_waits_for_a_fast_client() -> None:
    method, clients = fleet_of("hasaas", FAST, SLOW, every=1)
    train = answering(nudged, extras=active(by_speed(1.0, 0.0)))
    begin = method.init()
    state, _ = method.run_round(begin, clients[1:], train)
    for group in ("fc", "fc1"):  # dropped units were not measured: nothing to compare with
        assert torch.equal(state["masks"][SLOW][group], begin["masks"][SLOW][group])
        assert int(state["activations"][group]["samples"].sum()) > 0
    state, _ = method.run_round(state, clients[:1], train)
    assert not torch.equal(state["masks"][SLOW]["fc"], begin["masks"][SLOW]["fc"])


def test_masks_change_only_when_due_and_keep_their_sizes() -> None:
    for persist in (False, True):
        method, clients = fleet_of("hasaas", FAST, SLOW, every=3, persist=persist)
        state, changes = method.init(), []
        train = answering(nudged, extras=active(by_speed(1.0, 0.0)))
        for t in range(1, 8):
            before = state["masks"]
            state, _ = method.run_round(state, clients, train)
            assert {g: int(m.sum()) for g, m in state["masks"][SLOW].items()} == {
                "conv1": 3,
                "conv2": 8,
                "fc": 60,
                "fc1": 42,
            }
            if not equal(before, state["masks"]):
                changes.append(t)
        assert changes == ([3] if persist else [3, 6])


def test_random_masks() -> None:
    seen = {}
    for mask in ("random_each_round", "random_fixed"):
        method, clients = fleet_of("hasaas", FAST, SLOW, mask=mask, every=1)
        states, jobs = [method.init()], list[Job]()
        for _ in range(3):
            state, _ = method.run_round(states[-1], clients, answering(nudged, seen=jobs))
            states.append(state)
        assert not any(job.recipes[0].activations for job in jobs)  # nobody measures in vain
        seen[mask] = [kept(s, "fc") for s in states]
        assert {len(units) for units in seen[mask]} == {60}
    fixed, fresh = seen["random_fixed"], seen["random_each_round"]
    assert all(units == fixed[0] for units in fixed)
    assert len({tuple(units) for units in fresh}) == 4
    assert fixed[0] == fresh[0]


def test_a_flattened_channel_is_a_block_of_the_dense_layers_inputs() -> None:
    # 16 channels of 4x4: channel c is inputs 16 c to 16 c + 15, channel first
    task = IMAGES | {"image_size": 28}
    method, clients = fleet_of("hasaas", FAST, SLOW, task=task)
    state, jobs = method.init(), list[Job]()
    method.run_round(
        state, clients[1:], answering(unmoved, extras=active(lambda j: 1.0), seen=jobs)
    )
    weights, name = jobs[0].models[0][1], "exits.2.body.fc.weight"
    columns = [16 * c + i for c in kept(state, "conv2") for i in range(16)]
    rows = kept(state, "fc")
    assert torch.equal(weights[name], state["global"][name][rows][:, columns])
    model = zoo.build(SLOW, **task)
    assert {n: w.shape for n, w in weights.items()} == {
        n: p.shape for n, p in model.named_parameters()
    }


def test_lstm_cells_keep_their_random_mask() -> None:
    task = {"num_classes": 2, "vocab_size": 50, "sequence_length": 5}
    method, clients = fleet_of("hasaas", "lstm", "lstm-w0.5", task=task, every=1)
    train = answering(nudged, extras=lambda job: {"activation/fc": torch.rand(_units(job))})
    begin = method.init()
    state, _ = method.run_round(begin, clients, train)
    old, new = begin["masks"]["lstm-w0.5"], state["masks"]["lstm-w0.5"]
    assert torch.equal(old["cells0"], new["cells0"]) and torch.equal(old["cells1"], new["cells1"])
    assert not torch.equal(old["fc"], new["fc"]) and list(state["activations"]) == ["fc"]


def _units(job: Job) -> int:
    return len(job.models[0][1]["exits.1.body.fc.bias"])


def test_everybody_trains_the_small_model_under_hms() -> None:
    method, clients = fleet_of("hasaas", FAST, SLOW, serving="hms")
    state, jobs = method.init(), list[Job]()
    state, _ = method.run_round(
        state, clients, answering(nudged, extras=active(lambda j: 1.0), seen=jobs)
    )
    assert [str(job.models[0][0]) for job in jobs] == [SLOW, SLOW]
    served = method.personalize(state, clients)
    assert str(clients[0].models[0]) == SLOW and equal(served[0], served[1])


def test_slow_clients_may_be_evaluated_with_the_global_model() -> None:
    for serving in ("dms", "hms"):
        method, clients = fleet_of("hasaas", FAST, SLOW, evaluate="global", serving=serving)
        state, jobs = method.init(), list[Job]()
        method.run_round(state, clients, answering(nudged, extras=active(lambda j: 1.0), seen=jobs))
        assert str(jobs[1].models[0][0]) == SLOW and str(clients[1].models[0]) == FAST
        assert all(equal(w, state["global"]) for w in method.personalize(state, clients))


def test_several_smaller_models_have_masks_one_within_the_other() -> None:
    smaller = "lenet5-w0.25"
    method, clients = fleet_of("hasaas", FAST, SLOW, smaller, every=1)
    state, train = method.init(), answering(nudged, extras=active(by_speed(1.0, 0.0)))
    for _ in range(3):
        for group in ("conv1", "conv2", "fc", "fc1"):
            assert set(kept(state, group, smaller)) < set(kept(state, group))
        state, _ = method.run_round(state, clients, train)
    for client, weights in zip(clients, method.personalize(state, clients), strict=True):
        model = zoo.build(client.models[0], **IMAGES)
        assert {n: w.shape for n, w in weights.items()} == {
            n: p.shape for n, p in model.named_parameters()
        }


def test_leafs_cnn_has_the_papers_sizes() -> None:
    large, small = ModelSpec.parse("femnist_cnn"), ModelSpec.parse("femnist_cnn-w0.5")
    task = {"num_classes": 62, "in_channels": 1, "image_size": 28}
    counts = masks.unit_counts(large, small, task)
    assert counts == {"conv1": 16, "conv2": 32, "fc": 1024}
    model, rng = masks.skeleton(large, task), torch.Generator().manual_seed(0)
    alike = {group: torch.ones(n) for group, n in slicing.groups(model).items()}
    where = masks.where(model, masks.drawn(alike, counts, rng))
    sizes = [torch.tensor([len(i) for i in index]).prod() for index in where.values()]
    assert int(torch.stack(sizes).sum()) == 1_683_454
    assert sum(p.numel() for p in model.parameters()) == 6_603_710


def test_a_failed_slow_client_is_not_measured() -> None:
    method, clients = fleet_of("hasaas", FAST, SLOW)

    def train(jobs: Any) -> Any:
        fast, _ = quiet()(jobs)
        return [fast, Answer(client=clients[1], failure="dropped out")]

    one, _ = method.run_round(method.init(), clients, train)
    other, _ = method.run_round(method.init(), clients[:1], quiet())
    assert equal(one, other)


@pytest.mark.parametrize("small", ["lenet5-d1", "heterofl_cnn-w0.0625", "lenet5-d1-exits"])
def test_small_models_of_another_kind_are_refused(small: str) -> None:
    says = (
        f"must be lenet5 scaled in width, got {small}; choose models such as lenet5 and lenet5-w0.5"
    )
    with pytest.raises(ConfigError, match=says):
        fleet_of("hasaas", FAST, small)


def test_models_that_cannot_be_sliced_are_refused() -> None:
    with pytest.raises(ConfigError, match="no sub-model of resnet18 that masks could cut"):
        fleet_of(
            "hasaas", "resnet18", "timm:mobilenetv3_small_050", task=IMAGES | {"image_size": 32}
        )


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"mask": "best"}, "mask must be activation or random_each_round or random_fixed, got 'be"),
        ({"aggregation": "sum"}, "aggregation must be clt or mean, got 'sum'"),
        ({"sigma": "s"}, "sigma must be paper or code, got 's'"),
        ({"sigma_norm": "s"}, "sigma_norm must be sqrt_t or none or t, got 's'"),
        ({"serving": "s"}, "serving must be dms or hms, got 's'"),
        ({"evaluate": "s"}, "evaluate must be submodel or global, got 's'"),
        ({"serve": "s"}, "serve must be drawn or mean, got 's'"),
        ({"every": 0}, "every must be 1 round or more, got 0"),
    ],
)
def test_bad_settings(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        RunConfig(method="hasaas", options=options)


def test_clients_really_measure_and_learn() -> None:
    bed = Bed("hasaas", every=2)
    bed.learn_faster()
    state, answers = bed.method.init(), list[Sequence[Answer]]()

    def watch(jobs: Sequence[Job]) -> Sequence[Answer]:
        answers.append(bed.train(len(answers) + 1)(jobs))
        return answers[-1]

    for _ in range(4):
        state, _ = bed.method.run_round(state, bed.clients, watch)
        assert [len(a.extras["activation/fc"]) for a in answers[-1]] == [120, 60, 60, 60]
    # ten classes: who knows nothing has ln 10 = 2.3
    assert all(a.metrics["loss"] < 1.15 for a in answers[-1])
