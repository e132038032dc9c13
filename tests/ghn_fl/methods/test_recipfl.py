"""RecipFL with residuals: its own rules, beyond the contract of all methods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch

from ghn_fl.aggregate import weighted_mean
from ghn_fl.errors import ConfigError
from ghn_fl.hypernet import Request
from ghn_fl.simulation.config import RunConfig
from ghn_fl.tree import equal
from ghn_fl.types import Answer, Job, State, Train
from tests.ghn_fl.methods.bed import SMALL, Bed

SMALLEST = "lenet5-d1"


def moved(by: Mapping[int, float]) -> Train:
    """Clients that add a number to every weight; those that are not named fail."""

    def train(jobs: Sequence[Job]) -> list[Answer]:
        return [
            Answer(
                client=job.client,
                weights=tuple(
                    {n: w + by[job.client.id] for n, w in given.items()} for _, given in job.models
                ),
                samples=job.client.samples,
            )
            if job.client.id in by
            else Answer(client=job.client, failure="dropped out")
            for job in jobs
        ]

    return train


def shift(after: State, before: State, spec: str) -> float:
    """By how much all numbers of a residual have changed; they must agree."""
    (by,) = {
        round(float(d), 4)
        for n, w in after["residual"][spec].items()
        for d in (w - before["residual"][spec][n]).flatten()
    }
    return by


def test_a_residual_grows_by_the_clients_mean_change_weighted_by_samples() -> None:
    bed = Bed("recipfl")
    strong, one, other, _ = bed.clients
    state = bed.method.init()
    after, _ = bed.method.run_round(state, [strong, one, other], moved({0: 0.5, 1: -1, 2: 2}))
    n = [c.samples for c in bed.clients]
    expected = (0.5 * n[0] - 1 * n[1] + 2 * n[2]) / (n[0] + n[1] + n[2])
    assert shift(after, state, SMALLEST) == pytest.approx(expected, abs=2e-4)
    assert shift(after, state, "lenet5") == 0.5  # the strong one alone has it


def test_an_architecture_without_answers_keeps_its_residual() -> None:
    bed = Bed("recipfl")
    state = bed.method.init()
    after, _ = bed.method.run_round(state, bed.clients, moved({1: 1.0}))
    for key in ("residual", "current"):
        assert equal(after[key]["lenet5"], state[key]["lenet5"])
        assert not equal(after[key][SMALLEST], state[key][SMALLEST])


def test_what_is_given_is_the_generation_and_the_residual() -> None:
    bed = Bed("recipfl")
    state, _ = bed.method.run_round(bed.method.init(), bed.clients, moved({1: 1.0, 2: -0.5}))
    (served,) = bed.method.personalize(state, bed.clients[1:2])
    client = bed.clients[1]
    request = Request(
        graph=bed.setting.graphs[client.models[0]],
        client=torch.tensor(client.mix),
        current=state["current"][SMALLEST],
    )
    ghn = bed.method.hypernetwork(state)  # type: ignore[misc]
    (made,) = ghn.generate_many([request])  # type: ignore[attr-defined]
    for name, weight in served.items():
        torch.testing.assert_close(weight, made[name] + state["residual"][SMALLEST][name])


def test_with_a_hypernetwork_that_stands_still_it_is_fedavg_by_architecture() -> None:
    # steps of 1e-12 leave the generation where it is; weak devices only, for a strong one's small
    # model would join them; FedAvg then starts from the same generated weights
    still: dict[str, Any] = {
        "update.optimizer": "sgd",
        "update.lr": 1e-12,
        "ghn.descriptor": "none",
    }
    bed, weak = Bed("recipfl", transfer=False, **still), slice(1, None)
    state, sent = bed.method.init(), list[Job]()
    clients = bed.clients[weak]

    def watch(jobs: Sequence[Job]) -> list[Answer]:
        sent.extend(jobs)
        return [bed.answer(1, job) for job in jobs]

    state, _ = bed.method.run_round(state, clients, watch)
    answers = [bed.answer(1, job) for job in sent]
    mean = weighted_mean([a.weights[0] for a in answers], [a.samples for a in answers])
    (served,) = bed.method.personalize(state, clients[:1])
    # q_v has changed from the initial weights to the mean, and the generation with it, a little
    for name, weight in served.items():
        assert torch.allclose(weight, mean[name], atol=0.05)


def test_without_residual_only_the_generation_is_given() -> None:
    bed = Bed("recipfl", residual=0.0)
    state, _ = bed.method.run_round(bed.method.init(), bed.clients, bed.train(1))
    assert all(not w.any() for part in state["residual"].values() for w in part.values())


def test_both_models_of_a_strong_client_move_their_residuals() -> None:
    bed = Bed("recipfl")
    state = bed.method.init()
    after, _ = bed.method.run_round(state, bed.clients[:1], moved({0: -0.25}))
    assert shift(after, state, "lenet5") == shift(after, state, SMALLEST) == -0.25


def test_settings_that_cannot_be() -> None:
    with pytest.raises(ConfigError, match="residual must be at least 0, got -1"):
        RunConfig(method="recipfl", options=SMALL | {"residual": -1.0})
