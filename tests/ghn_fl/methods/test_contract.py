"""What every registered method keeps: purity, determinism, resuming, permutation, silence."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import pytest
import torch

import zoo
from ghn_fl.engines.message import decode, encode
from ghn_fl.errors import ConfigError
from ghn_fl.methods import METHODS
from ghn_fl.tree import all_finite, equal
from ghn_fl.types import Answer, Job, State
from tests.ghn_fl.methods.bed import Bed

ONE_MODEL = ("fedavg", "fedprox", "fedadam", "pfedhn", "afd")


# what methods can be besides their defaults, as far as it changes how a round goes
VARIANTS: Sequence[tuple[str, dict[str, Any]]] = (
    ("afd", {"mode": "multi"}),
    ("afd", {"mode": "federated_dropout"}),
    ("depthfl", {"feddyn": 0.1, "own_and_smallest": True, "weighting": "samples"}),
    ("depthfl", {"inference": "last"}),
    ("exclusivefl", {"mode": "drop_weak", "server": "fedadam"}),
    ("fedadam", {"optimizer": "yogi", "v0": "tau2"}),
    ("fedadam", {"optimizer": "avgm", "weighted": True}),
    ("fedavg", {"aggregation": "clt"}),
    ("fedmdp", {"work": "drop", "average": "probabilities"}),
    ("fedprox", {"partial": True, "aggregation": "clt"}),
    ("flexifed", {"variant": "basic"}),
    ("flexifed", {"variant": "max", "weighting": "samples"}),
    ("hasaas", {"mask": "random_each_round", "every": 1}),
    ("hasaas", {"serving": "hms", "evaluate": "global", "aggregation": "mean"}),
    ("heterofl", {"variant": "fedrolex", "weighting": "samples"}),
    ("inclusivefl", {"server": "fedadam", "momentum_source": "before_injection"}),
    ("inclusivefl", {"hetero_aggregation": False, "weights": "clients"}),
    ("pfedhn", {"personal_classifier": True}),
    ("recipfl", {"ghn.dropout": 0.5, "odds": 0, "window": 0, "settle": 0}),
    ("recipfl", {"ghn.descriptor": "none", "update.weighting": "share"}),
    ("recipfl-paper", {"ghn.dropout": 0.5, "ghn.descriptor": "id"}),
    ("recipfl-paper", {"ghn.tiling": "full", "q_source": "generated_last"}),
)


@pytest.fixture(params=METHODS.names())
def bed(request: pytest.FixtureRequest) -> Bed:
    torch.set_num_threads(1)
    return Bed(request.param)


def test_the_state_that_goes_in_is_unchanged(bed: Bed) -> None:
    state = bed.method.init()
    before = copy.deepcopy(state)
    after, report = bed.method.run_round(state, bed.clients, bed.train(1))
    assert equal(state, before)
    assert not equal(after, before)
    assert all(isinstance(v, float | int) for v in report.values())


def test_two_runs_are_the_same_bit_for_bit(bed: Bed) -> None:
    states = []
    for _ in range(2):
        state = bed.method.init()
        for number in (1, 2):
            state, _ = bed.method.run_round(state, bed.clients[:3], bed.train(number))
        states.append(state)
    assert equal(*states)


def test_a_stored_state_goes_on_like_the_one_in_memory(bed: Bed) -> None:
    first, _ = bed.method.run_round(bed.method.init(), bed.clients, bed.train(1))
    stored = decode(encode(first))
    gone_on, _ = bed.method.run_round(first, bed.clients, bed.train(2))
    resumed, _ = bed.method.run_round(stored, bed.clients, bed.train(2))
    assert equal(gone_on, resumed)


def test_the_order_of_clients_does_not_matter(bed: Bed) -> None:
    state = bed.method.init()
    one, _ = bed.method.run_round(state, bed.clients, bed.train(1))
    other, _ = bed.method.run_round(state, bed.clients[::-1], bed.train(1))
    for a, b in zip(
        bed.method.personalize(one, bed.clients),
        bed.method.personalize(other, bed.clients),
        strict=True,
    ):
        assert all(torch.allclose(a[n], b[n], rtol=1e-3, atol=1e-4) for n in a)


def test_everybody_is_served_weights_of_his_own_model(bed: Bed) -> None:
    state, _ = bed.method.run_round(bed.method.init(), bed.clients[:1], bed.train(1))
    _check_served(bed, state)


def _check_served(bed: Bed, state: State) -> None:
    for client, weights in zip(
        bed.clients, bed.method.personalize(state, bed.clients), strict=True
    ):
        model = zoo.build(client.models[0], **bed.world.task)
        assert {n: w.shape for n, w in weights.items()} == {
            n: p.shape for n, p in model.named_parameters()
        }
        assert not all_finite(weights)


@pytest.mark.parametrize(
    ("name", "options"), VARIANTS, ids=[f"{n} {' '.join(map(str, o))}" for n, o in VARIANTS]
)
def test_variants_keep_it_too(name: str, options: dict[str, Any]) -> None:
    bed = Bed(name, **options)
    state = bed.method.init()
    before = copy.deepcopy(state)
    first, _ = bed.method.run_round(state, bed.clients, bed.train(1))
    assert equal(state, before) and not equal(first, before)
    second, _ = bed.method.run_round(first, bed.clients, bed.train(2))
    resumed, _ = bed.method.run_round(decode(encode(first)), bed.clients, bed.train(2))
    assert equal(second, resumed)
    other, _ = bed.method.run_round(state, bed.clients[::-1], bed.train(1))
    for a, b in zip(
        bed.method.personalize(first, bed.clients),
        bed.method.personalize(other, bed.clients),
        strict=True,
    ):
        assert all(torch.allclose(a[n], b[n], rtol=1e-3, atol=1e-4) for n in a)
    _check_served(bed, second)


FLEETS = {
    "width": ("lenet5", "lenet5-w0.5"),
    "other": ("lenet5", "heterofl_cnn-w0.0625"),
}
# what differs too much for them; `docs/methods/README.md` has the whole table
REFUSED = {
    "width": ("flexifed", "inclusivefl", "depthfl", *ONE_MODEL),
    "other": ("flexifed", "inclusivefl", "depthfl", "heterofl", "hasaas", *ONE_MODEL),
}


@pytest.mark.parametrize("fleet", FLEETS)
@pytest.mark.parametrize("name", METHODS.names())
def test_fleets_of_unequal_models_are_served_or_refused(name: str, fleet: str) -> None:
    large, small = FLEETS[fleet]
    if name in REFUSED[fleet]:
        with pytest.raises(ConfigError, match=rf"{large}|{small}"):
            Bed(name, large=large, small=small)
        return
    bed = Bed(name, large=large, small=small)
    state, _ = bed.method.run_round(bed.method.init(), bed.clients, bed.train(1))
    _check_served(bed, state)


@pytest.mark.parametrize("skew", ["1:0", "0:1"])
@pytest.mark.parametrize("name", METHODS.names())
def test_a_fleet_of_one(name: str, skew: str) -> None:
    bed = Bed(name, skew=skew)
    state, _ = bed.method.run_round(bed.method.init(), bed.clients, bed.train(1))
    _check_served(bed, state)


def test_nobody_answered(bed: Bed) -> None:
    def silent(jobs: Sequence[Job]) -> list[Answer]:
        return [Answer(client=job.client, failure="dropped out") for job in jobs]

    state = bed.method.init()
    after, _ = bed.method.run_round(state, bed.clients, silent)
    assert equal(state, after)


def test_a_failed_client_counts_for_nothing(bed: Bed) -> None:
    def without(jobs: Sequence[Job]) -> list[Answer]:
        return [
            Answer(client=job.client, failure="dropped out")
            if job.client.id == bed.clients[-1].id
            else bed.answer(1, job)
            for job in jobs
        ]

    state = bed.method.init()
    failed, _ = bed.method.run_round(state, bed.clients, without)
    absent, _ = bed.method.run_round(state, bed.clients[:-1], bed.train(1))
    same = zip(
        bed.method.personalize(failed, bed.clients),
        bed.method.personalize(absent, bed.clients),
        strict=True,
    )
    for a, b in same:
        assert all(torch.allclose(a[n], b[n], rtol=1e-3, atol=1e-4) for n in a)


def test_a_client_is_given_only_models_that_it_has(bed: Bed) -> None:
    seen: list[Job] = []

    def watch(jobs: Sequence[Job]) -> list[Answer]:
        seen.extend(jobs)
        return [bed.answer(1, job) for job in jobs]

    bed.method.run_round(bed.method.init(), bed.clients, watch)
    for job in seen:
        assert {spec for spec, _ in job.models} <= set(job.client.models)
