"""RecipFL's own rules, beyond the contract of all methods."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from ghn_fl.errors import ConfigError
from ghn_fl.simulation.config import RunConfig
from ghn_fl.tree import equal
from ghn_fl.types import Answer, Job
from tests.ghn_fl.methods.bed import Bed


def watched(bed: Bed, jobs: list[Job], answers: list[Answer]):  # type: ignore[no-untyped-def]
    def train(asked: Sequence[Job]) -> list[Answer]:
        jobs.extend(asked)
        answers.extend(bed.train(1)(asked))
        return answers

    return train


def test_what_unsampled_clients_sent_is_kept() -> None:
    bed = Bed("recipfl-paper")
    first, _ = bed.method.run_round(bed.method.init(), bed.clients, bed.train(1))
    second, _ = bed.method.run_round(first, bed.clients[:1], bed.train(2))
    absent, present = bed.clients[-1], bed.clients[0]
    assert len(first["current"]) == 5  # the strong client has two models
    key = f"{absent.id} {absent.models[0]}"
    assert equal(first["current"][key], second["current"][key])
    key = f"{present.id} {present.models[0]}"
    assert not equal(first["current"][key], second["current"][key])


@pytest.mark.parametrize("source", ["client_last", "generated_last"])
def test_nodes_are_encoded_with_what_was_sent_or_given(source: str) -> None:
    bed, jobs, answers = Bed("recipfl-paper", q_source=source), list[Job](), list[Answer]()
    client = bed.clients[1]
    state, _ = bed.method.run_round(bed.method.init(), [client], watched(bed, jobs, answers))
    kept = state["current"][f"{client.id} {client.models[0]}"]
    given, sent = jobs[0].models[0][1], answers[0].weights[0]
    assert equal(kept, dict(sent if source == "client_last" else given))
    assert not equal(dict(given), dict(sent))


def test_a_strong_client_trains_both_models_and_both_teach_the_server() -> None:
    bed, jobs, answers = Bed("recipfl-paper"), list[Job](), list[Answer]()
    strong = bed.clients[0]
    bed.method.run_round(bed.method.init(), [strong], watched(bed, jobs, answers))
    assert [str(spec) for spec, _ in jobs[0].models] == ["lenet5", "lenet5-d1"]
    assert [r.teacher for r in jobs[0].recipes] == [None, 0] and len(answers[0].weights) == 2

    def spoil(index: int):  # type: ignore[no-untyped-def]
        def train(asked: Sequence[Job]) -> list[Answer]:
            (answer,) = bed.train(1)(asked)
            weights = list(answer.weights)
            weights[index] = dict(asked[0].models[index][1])  # this model did not move
            return [Answer(client=strong, weights=tuple(weights), samples=answer.samples)]

        return train

    both, _ = bed.method.run_round(bed.method.init(), [strong], bed.train(1))
    for index in (0, 1):
        one, _ = bed.method.run_round(bed.method.init(), [strong], spoil(index))
        assert not equal(one["ghn"], both["ghn"])


def test_without_transfer_the_small_model_learns_from_labels_alone() -> None:
    def trained(transfer: bool) -> list[Answer]:
        bed, answers = Bed("recipfl-paper", transfer=transfer), list[Answer]()
        bed.method.run_round(bed.method.init(), bed.clients[:1], watched(bed, [], answers))
        return answers

    with_it, without = trained(True)[0], trained(False)[0]
    assert equal(dict(with_it.weights[0]), dict(without.weights[0]))  # the large one is the same
    assert not equal(dict(with_it.weights[1]), dict(without.weights[1]))


def test_messages_hold_parameters_only() -> None:
    bed, jobs = Bed("recipfl-paper"), list[Job]()
    bed.method.run_round(bed.method.init(), bed.clients, watched(bed, jobs, []))
    for job in jobs:
        for _, weights in job.models:
            assert not any("running" in name or "num_batches" in name for name in weights)
        if job.client.tier == "weak":
            assert [str(spec) for spec, _ in job.models] == ["lenet5-d1"]


def test_bad_settings() -> None:
    with pytest.raises(ConfigError, match="q_source must be client_last or generated_last"):
        RunConfig(method="recipfl-paper", options={"q_source": "nowhere"})


def test_a_hypernetwork_can_be_taken_out_of_the_state() -> None:
    bed = Bed("recipfl-paper")
    assert bed.method.hypernetwork is not None
    ghn = bed.method.hypernetwork(bed.method.init())
    client = bed.clients[1]
    (served,) = bed.method.personalize(bed.method.init(), [client])
    graph_weights = ghn.generate_many([_request(bed, client.id)])[0]  # type: ignore[attr-defined]
    assert all(torch.equal(served[n], w) for n, w in graph_weights.items())


def _request(bed: Bed, number: int):  # type: ignore[no-untyped-def]
    from ghn_fl import Request
    from ghn_fl.simulation.build import setting_of

    client = bed.clients[number]
    setting = setting_of(bed.config, bed.world, bed.clients)
    spec = client.models[0]
    return Request(
        graph=setting.graphs[spec],
        client=torch.tensor(client.mix),
        current=setting.initial[spec],
    )
