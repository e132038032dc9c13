"""What every registered method keeps: purity, determinism, resuming, permutation, silence."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

from ghn_fl.data import load
from ghn_fl.engines.message import decode, encode
from ghn_fl.engines.work import Bench, perform
from ghn_fl.methods import METHODS
from ghn_fl.simulation.config import RunConfig
from ghn_fl.simulation.fleet import tiers_of
from ghn_fl.simulation.run import build_world, setting_of
from ghn_fl.tree import equal
from ghn_fl.types import Answer, Client, Job, Method

OPTIONS = {"recipfl": {"ghn.width": 16, "ghn.decoder_width": 16}}


class Bed:
    """A small fleet, its method, and a `train` that really trains."""

    def __init__(self, name: str) -> None:
        self.config = RunConfig(
            dataset="synthetic",
            method=name,
            skew="1:3",
            epochs=1,
            lr=0.05,
            options=OPTIONS.get(name, {}),
        )
        dataset = load("synthetic", None)
        tiers = tiers_of(self.config, dataset.image_size, dataset.in_channels)
        self.world, self.clients = build_world(self.config, dataset, tiers)
        setting = setting_of(self.config, self.world, self.clients)
        self.method: Method = METHODS[name].build(self.config.method_config(), setting)
        self.bench = Bench(self.world)

    def train(self, number: int):  # type: ignore[no-untyped-def]
        def train(jobs: Sequence[Job]) -> list[Answer]:
            return [self.answer(number, job) for job in jobs]

        return train

    def answer(self, number: int, job: Job) -> Answer:
        models = [[str(spec), dict(weights)] for spec, weights in job.models]
        task = {
            "kind": "train",
            "round": number,
            "client": job.client.id,
            "models": models,
            "transfer": job.transfer,
        }
        result = perform(self.bench, decode(encode(task)))
        return Answer(
            client=job.client, weights=tuple(result["weights"]), samples=result["samples"]
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
    import zoo

    state, _ = bed.method.run_round(bed.method.init(), bed.clients[:1], bed.train(1))
    for client, weights in zip(
        bed.clients, bed.method.personalize(state, bed.clients), strict=True
    ):
        model = zoo.build(client.models[0], **bed.world.task)
        assert {n: w.shape for n, w in weights.items()} == {
            n: p.shape for n, p in model.named_parameters()
        }


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


def unsampled(bed: Bed) -> Client:
    return bed.clients[-1]


def test_recipfl_keeps_what_unsampled_clients_sent() -> None:
    bed = Bed("recipfl")
    first, _ = bed.method.run_round(bed.method.init(), bed.clients, bed.train(1))
    second, _ = bed.method.run_round(first, bed.clients[:1], bed.train(2))
    key = f"{unsampled(bed).id} {unsampled(bed).models[0]}"
    assert equal(first["current"][key], second["current"][key])
    own = f"0 {bed.clients[0].models[0]}"
    assert not equal(first["current"][own], second["current"][own])
    assert len(first["current"]) == 5  # the strong client has two models


def test_grouped_fedavg_by_hand() -> None:
    # two clients of 1 and 3 samples that answer 0 and 4: the mean is 3
    bed = Bed("allsmall")
    one, three = (replace(c, samples=n) for c, n in zip(bed.clients, (1, 3), strict=False))

    def train(jobs: Sequence[Job]) -> list[Answer]:
        return [
            Answer(
                client=job.client,
                samples=job.client.samples,
                weights=(
                    {
                        n: torch.full_like(w, 4.0 * (job.client.samples == 3))
                        for n, w in job.models[0][1].items()
                    },
                ),
            )
            for job in jobs
        ]

    state, _ = bed.method.run_round(bed.method.init(), [one, three], train)
    assert all((w == 3).all() for w in state["lenet5-d1"].values())
