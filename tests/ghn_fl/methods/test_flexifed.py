"""FlexiFed's own rules, beyond the contract of all methods."""

from __future__ import annotations

import copy
from collections.abc import Hashable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ghn_fl.engines.message import decode, encode
from ghn_fl.errors import ConfigError
from ghn_fl.methods.flexifed import groups_of, layer_keys
from ghn_fl.simulation.config import RunConfig
from ghn_fl.tree import equal
from ghn_fl.types import Job
from tests.ghn_fl.methods.bed import Bed
from tests.ghn_fl.methods.stubs import answering, fleet, sending, unmoved

# A = [x, y, z], B = [x, y, w], C = [x, q], where x is the first block, y the second, and so on
A, B, C = (f"heterofl_cnn-d{depth}-w0.05" for depth in (3, 2, 1))
X, Y, Z = (f"stages.{d}.conv.weight" for d in (1, 2, 3))
HEAD_A, HEAD_B, HEAD_C = (f"exits.{d}.classifier.weight" for d in (3, 2, 1))
VARIANTS = ("basic", "clustered", "max")


def values(weights: Any) -> dict[str, float]:
    """The one value of every tensor, of those in which there is one."""
    return {n: float(w.flatten()[0]) for n, w in weights.items() if w.unique().numel() == 1}


def sent(job: Any, spec: Any, name: str, given: Any) -> float:
    """x: 1, 2, 3; y: 1, 3; the others 10, 20, 30."""
    if name.startswith("stages.1"):
        return (1.0, 2.0, 3.0)[job.client.id]
    if name.startswith("stages.2"):
        return (1.0, 3.0)[job.client.id]
    return (10.0, 20.0, 30.0)[job.client.id]


@pytest.mark.parametrize("variant", VARIANTS)
def test_three_architectures(variant: str) -> None:
    bed = fleet("flexifed", A, B, C, variant=variant)
    state, report = bed.method.run_round(bed.method.init(), bed.clients, answering(sent))
    a, b, c = map(values, bed.method.personalize(state, bed.clients))
    assert a[X] == b[X] == c[X] == 2  # (1 + 2 + 3) / 3
    # y is common to A and B only: Max-Common averages it, (1 + 3) / 2
    assert (a[Y], b[Y]) == ((2, 2) if variant == "max" else (1, 3))
    assert (a[Z], a[HEAD_A], b[HEAD_B], c[HEAD_C]) == (10, 10, 20, 30)
    assert report == {"common_layers": 2}  # the first block's convolution and its norm


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(("weighting", "mean"), [("count", -1), ("samples", 0)])
def test_equal_architectures_are_fedavg(variant: str, weighting: str, mean: float) -> None:
    bed = fleet("flexifed", A, A, variant=variant, weighting=weighting)
    state, report = bed.method.run_round(bed.method.init(), bed.clients, sending(-4, 2))
    for weights in bed.method.personalize(state, bed.clients):
        # (-4 + 2) / 2, or by samples (1 * -4 + 2 * 2) / 3
        assert set(values(weights).values()) == {mean} and len(values(weights)) == len(weights)
    assert report == {"common_layers": 7}
    assert not state["personal"]


@pytest.mark.parametrize("variant", VARIANTS)
def test_one_client_keeps_what_it_sent(variant: str) -> None:
    bed = fleet("flexifed", A, B, C, variant=variant)
    train = answering(lambda c, s, n, w: w + 1)
    state, _ = bed.method.run_round(bed.method.init(), bed.clients[1:2], train)
    served = bed.method.personalize(state, bed.clients)[1]
    assert all(
        torch.equal(served[n], w + 1) for n, w in bed.initial[bed.clients[1].models[0]].items()
    )


@pytest.mark.parametrize("variant", VARIANTS)
def test_weights_that_did_not_move_change_nothing_of_a_served_client(variant: str) -> None:
    bed = fleet("flexifed", A, A, B, B, variant=variant)
    state, _ = bed.method.run_round(bed.method.init(), bed.clients, sending(1, 2, 3, 4))
    again, _ = bed.method.run_round(state, bed.clients, answering(unmoved))
    before, after = (bed.method.personalize(s, bed.clients) for s in (state, again))
    assert all(equal(dict(b), dict(a)) for b, a in zip(before, after, strict=True))


def test_clusters_are_complete_architectures() -> None:
    bed = fleet("flexifed", A, B, A, B)
    state, _ = bed.method.run_round(bed.method.init(), bed.clients, sending(1, 2, -3, 8))
    a, b, *_ = map(values, bed.method.personalize(state, bed.clients))
    assert a[X] == b[X] == 2 and a[Y] == b[Y] == 2  # (1 + 2 - 3 + 8) / 4: the common prefix
    assert (a[Z], a[HEAD_A], b[HEAD_B]) == (-1, -1, 5)  # (1 - 3) / 2 and (2 + 8) / 2


def test_a_strong_devices_small_model_is_one_more_contributor() -> None:
    def value(job: Any, spec: Any, *_: Any) -> float:
        return 9.0 if str(spec) == A else (-3.0, 6.0)[job.client.id]

    for variant, personal in (("basic", {"0 " + A, "0 " + C, "1 " + C}), ("clustered", set())):
        bed = fleet("flexifed", f"{A} {C}", C, variant=variant)
        state, _ = bed.method.run_round(bed.method.init(), bed.clients, answering(value))
        large, small = map(values, bed.method.personalize(state, bed.clients))
        assert large[X] == small[X] == 4  # (9 - 3 + 6) / 3
        assert large[HEAD_A] == 9
        assert small[HEAD_C] == (6 if variant == "basic" else 1.5)  # its own, or (-3 + 6) / 2
        assert state["personal"].keys() == personal
        jobs: list[Job] = []
        bed.method.run_round(state, bed.clients, answering(unmoved, seen=jobs))
        assert values(jobs[0].models[1][1])[HEAD_C] == (-3 if variant == "basic" else 1.5)


def test_who_is_not_sampled_is_served_what_is_common_now() -> None:
    bed = fleet("flexifed", A, B, C, A, C)
    state, _ = bed.method.run_round(bed.method.init(), bed.clients[:2], sending(1, 3))
    *_, c, a, never = bed.method.personalize(state, bed.clients)
    assert values(a)[X] == values(c)[X] == values(never)[X] == 2  # the common prefix is C's as well
    assert values(a)[Y] == 2 and values(a)[HEAD_A] == 1  # of its architecture
    initial = bed.initial[bed.clients[2].models[0]][HEAD_C]
    assert torch.equal(c[HEAD_C], initial) and torch.equal(never[HEAD_C], initial)


def test_a_personal_layer_stays_until_there_is_a_newer_mean() -> None:
    bed = fleet("flexifed", A, B, B, variant="basic")
    a, b1, b2 = bed.clients
    state, _ = bed.method.run_round(bed.method.init(), [a, b1], sending(1, 3, 0))
    assert state["personal"].keys() == {f"0 {A}", f"1 {B}"}
    served = bed.method.personalize(state, bed.clients)
    assert values(served[1])[HEAD_B] == 3  # its own
    assert torch.equal(served[2][HEAD_B], bed.initial[b2.models[0]][HEAD_B])  # it has none yet
    # a round of A alone has nothing new for B's head
    state, _ = bed.method.run_round(state, [a], sending(-5))
    served = bed.method.personalize(state, bed.clients)
    assert values(served[1])[X] == -5 and values(served[1])[HEAD_B] == 3
    # in a round of B alone its head is common to all who take part
    state, report = bed.method.run_round(state, [b2], sending(0, 0, 7))
    served = bed.method.personalize(state, bed.clients)
    assert report == {"common_layers": 5}
    assert values(served[1])[HEAD_B] == values(served[2])[HEAD_B] == 7
    assert values(served[0])[X] == 7 and values(served[0])[HEAD_A] == -5
    assert not state["personal"]


def test_equal_heads_on_other_bodies() -> None:
    # both classifiers are 10 x 84, under other names
    large, small = "exits.2.classifier.weight", "exits.1.classifier.weight"

    def heads(**options: Any) -> tuple[float, float, float]:
        bed = fleet("flexifed", "lenet5", "lenet5-d1", **options)
        state, report = bed.method.run_round(bed.method.init(), bed.clients, sending(-1, 5))
        a, b = map(values, bed.method.personalize(state, bed.clients))
        assert a[X] == b[X] == 2
        return a[large], b[small], report["common_layers"]

    assert heads() == (-1, 5, 2)
    assert heads(compare_names=False) == (-1, 5, 2)
    assert heads(allow_nonprefix_match=True) == (-1, 5, 2)
    assert heads(allow_nonprefix_match=True, compare_names=False) == (2, 2, 3)


MODELS = st.lists(st.text("xyz", min_size=1, max_size=4), min_size=1, max_size=5)


@given(MODELS, st.booleans())
def test_every_variant_averages_over_more(models: list[str], nonprefix: bool) -> None:
    keys = [layer_keys(m, nonprefix) for m in models]

    def averaged_over(variant: str) -> list[list[set[int]]]:
        """For every layer of every model the models whose layer is in its group."""
        groups = [groups_of(k, keys, variant) for k in keys]

        def members(i: int, group: Hashable | None) -> set[int]:
            return {i} if group is None else {j for j, own in enumerate(groups) if group in own}

        return [[members(i, group) for group in own] for i, own in enumerate(groups)]

    for basic, clustered, most in zip(*map(averaged_over, VARIANTS), strict=True):
        for few, some, many in zip(basic, clustered, most, strict=True):
            assert few <= some <= many


@given(MODELS)
def test_max_common_is_what_two_models_share_from_the_input(models: list[str]) -> None:
    keys = [layer_keys(m, nonprefix=False) for m in models]
    for a, own in zip(models, keys, strict=True):
        for b, other in zip(models, keys, strict=True):
            shared = [k for k in range(len(a)) if own[k] in other]
            assert shared == [k for k in range(len(a)) if a[: k + 1] == b[: k + 1]]


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_stored_state_goes_on(variant: str) -> None:
    bed = Bed("flexifed", variant=variant)
    state = bed.method.init()
    for number in (1, 2):
        before = copy.deepcopy(state)
        after, _ = bed.method.run_round(state, bed.clients[:2], bed.train(number))
        assert equal(state, before)
        state = after
    one, _ = bed.method.run_round(state, bed.clients[1:], bed.train(3))
    other, _ = bed.method.run_round(decode(encode(state)), bed.clients[1:], bed.train(3))
    assert equal(one, other)


def test_fleets_that_it_cannot_serve() -> None:
    with pytest.raises(ConfigError, match=r"counted from the input, .* there is heterofl"):
        fleet("flexifed", "lenet5", "lenet5-w0.5")
    with pytest.raises(ConfigError, match="lenet5 has no layer in common"):
        fleet("flexifed", "lenet5", "lenet5-w0.5", allow_nonprefix_match=True)


def test_bad_settings() -> None:
    with pytest.raises(ConfigError, match="variant must be basic, clustered or max, got 'most'"):
        RunConfig(method="flexifed", options={"variant": "most"})
    with pytest.raises(ConfigError, match="weighting must be count or samples, got 'size'"):
        RunConfig(method="flexifed", options={"weighting": "size"})
