"""pFedHN's own rules, beyond the contract of all methods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from ghn_fl.errors import ConfigError
from ghn_fl.methods.pfedhn import generate, pull_back
from ghn_fl.simulation.config import RunConfig
from ghn_fl.tree import equal
from ghn_fl.types import Answer, Job, Train
from tests.ghn_fl.methods.bed import Bed
from tests.ghn_fl.methods.stubs import method_for

# one target of two numbers, three clients, embeddings of two numbers: theta = W e + b
LINEAR = {
    "embedding": torch.tensor([[1.0, -2.0], [0.5, 0.0], [3.0, 1.0]]),
    "head.w.weight": torch.tensor([[2.0, 0.0], [1.0, -1.0]]),
    "head.w.bias": torch.tensor([0.5, -0.5]),
}
PLAIN = {"momentum": 0.0, "weight_decay": 0.0, "clip": 0.0}


def test_linear_hypernetwork_by_hand() -> None:
    theta = generate(LINEAR, [0], {"w": (2,)})["w"]
    assert theta.tolist() == [[2.5, 2.5]]  # (2 + 0.5, 1 + 2 - 0.5)
    g = pull_back(LINEAR, [0], [{"w": torch.tensor([1.0, -3.0])}])
    # dW = delta e^T, db = delta, de = W^T delta = (2 - 3, 3)
    assert g["head.w.weight"].tolist() == [[1.0, -2.0], [-3.0, 6.0]]
    assert g["head.w.bias"].tolist() == [1.0, -3.0]
    assert g["embedding"].tolist() == [[-1.0, 3.0], [0.0, 0.0], [0.0, 0.0]]


def test_a_step_changes_the_weights_by_the_first_order_formula() -> None:
    delta, a = torch.tensor([1.0, -3.0]), 1e-4
    g = pull_back(LINEAR, [0], [{"w": delta}])
    after = {name: p - a * g[name] for name, p in LINEAR.items()}
    moved = (generate(after, [0], {"w": (2,)})["w"] - generate(LINEAR, [0], {"w": (2,)})["w"])[0]
    # -a (1 + |e|^2) delta - a W W^T delta; |e|^2 = 5, W W^T = ((4, 2), (2, 2))
    # W W^T delta = (4 - 6, 2 - 6) = (-2, -4): together -a (6 - 2, -18 - 4) = -a (4, -22)
    assert moved.tolist() == pytest.approx([-4e-4, 22e-4], rel=2e-3)


def test_gradients_of_several_clients_are_averaged() -> None:
    deltas = [{"w": torch.tensor([1.0, -3.0])}, {"w": torch.tensor([-2.0, 4.0])}]
    both = pull_back(LINEAR, [0, 2], deltas)
    for name, g in both.items():
        one, other = (
            pull_back(LINEAR, [r], [d])[name] for r, d in zip((0, 2), deltas, strict=True)
        )
        torch.testing.assert_close(g, (one + other) / 2)
    swapped = pull_back(LINEAR, [2, 0], deltas[::-1])
    for name, g in both.items():
        torch.testing.assert_close(g, swapped[name])


def moving(step: float) -> Train:
    """Every client's weights move by `step` in every number."""

    def train(jobs: Sequence[Job]) -> list[Answer]:
        return [
            Answer(
                client=job.client,
                weights=({n: w + step for n, w in job.models[0][1].items()},),
                samples=job.client.samples,
            )
            for job in jobs
        ]

    return train


@pytest.mark.parametrize("step", [1.0, -1.0])
def test_what_a_client_is_served_moves_to_where_it_went(step: float) -> None:
    bed = Bed("pfedhn", lr=1e-3, **PLAIN)
    state, client = bed.method.init(), bed.clients[:1]
    after, _ = bed.method.run_round(state, client, moving(step))
    (before,), (now,) = bed.method.personalize(state, client), bed.method.personalize(after, client)
    moved = torch.cat([(now[n] - w).flatten() for n, w in before.items()])
    # <step, J J^T step> with the heads' biases' part of J J^T, the identity, alone is lr step^2
    assert float((moved * step).mean()) > 0.999e-3


def test_a_client_that_went_nowhere_teaches_nothing() -> None:
    bed = Bed("pfedhn", weight_decay=0.0)
    state = bed.method.init()
    after, report = bed.method.run_round(state, bed.clients, moving(0.0))
    assert equal(after["phi"], state["phi"]) and report["gradient_norm"] == 0
    bed = Bed("pfedhn", lr=0.1, weight_decay=0.5)
    after, _ = bed.method.run_round(state, bed.clients, moving(0.0))
    for name, p in state["phi"].items():  # only decays: p - 0.1 * 0.5 p
        torch.testing.assert_close(after["phi"][name], 0.95 * p)


def test_only_the_embeddings_of_sampled_clients_change() -> None:
    bed = Bed("pfedhn", **PLAIN)
    state = bed.method.init()
    after, _ = bed.method.run_round(state, [bed.clients[2]], moving(1.0))
    changed = (after["phi"]["embedding"] != state["phi"]["embedding"]).any(1)
    assert changed.tolist() == [False, False, True, False]


def test_the_servers_gradient_is_clipped_over_all_of_phi() -> None:
    settings: dict[str, Any] = PLAIN | {"lr": 1.0, "clip": 0.5}
    bed = Bed("pfedhn", **settings)
    state = bed.method.init()
    after, report = bed.method.run_round(state, bed.clients, moving(1.0))
    moved = [(after["phi"][n] - p).square().sum() for n, p in state["phi"].items()]
    assert report["gradient_norm"] > 0.5
    assert float(torch.stack(moved).sum().sqrt()) == pytest.approx(0.5, rel=1e-3)


def test_embeddings_have_one_and_a_quarter_of_the_clients() -> None:
    assert Bed("pfedhn").method.init()["phi"]["embedding"].shape == (4, 2)  # int(1 + 4/4)
    assert Bed("pfedhn", dim=7).method.init()["phi"]["embedding"].shape == (4, 7)


def test_heads_begin_with_the_models_initial_weights() -> None:
    bed = Bed("pfedhn")
    phi, plain = bed.method.init()["phi"], Bed("fedavg").method.init()["models"]["lenet5-d1"]
    for name, w in plain.items():
        assert torch.equal(phi[f"head.{name}.bias"], w.flatten())


def test_layers_of_the_hypernetwork() -> None:
    phi = Bed("pfedhn", n_hidden=2, hidden=5).method.init()["phi"]
    assert [n for n in phi if n.startswith("mlp.") and n.endswith("weight")] == [
        "mlp.0.weight",
        "mlp.1.weight",
        "mlp.2.weight",
    ]
    linear = Bed("pfedhn", n_hidden=0).method.init()["phi"]
    assert not any(n.startswith("mlp.") for n in linear)
    assert linear["head.stages.1.conv.bias.weight"].shape == (6, 2)


def test_what_a_client_is_asked_to_do() -> None:
    seen: list[Job] = []

    def watch(jobs: Sequence[Job]) -> Sequence[Answer]:
        seen.extend(jobs)
        return moving(1.0)(jobs)

    for steps in (50, 0):
        bed = Bed("pfedhn", steps=steps)
        bed.method.run_round(bed.method.init(), bed.clients[:1], watch)
    first, second = (job.recipes[0] for job in seen)
    assert (first.steps, first.epochs, first.clip) == (50, 50, 50.0)
    assert (second.steps, second.epochs, second.clip) == (None, None, 50.0)


def test_a_personal_classifier_stays_with_its_client() -> None:
    bed = Bed("pfedhn", personal_classifier=True)
    names = {"exits.1.classifier.weight", "exits.1.classifier.bias"}
    state = bed.method.init()
    assert not any("classifier" in name for name in state["phi"])
    before = bed.method.personalize(state, bed.clients)
    after, _ = bed.method.run_round(state, bed.clients[1:2], moving(1.0))
    again, _ = bed.method.run_round(after, bed.clients[1:2], moving(1.0))
    served = bed.method.personalize(again, bed.clients)
    for name in names:
        torch.testing.assert_close(served[1][name], before[1][name] + 2)  # twice by 1
        assert torch.equal(served[0][name], before[0][name])  # another's is another's
    assert set(again["classifiers"]) == {"1"} and set(again["classifiers"]["1"]) == names


def test_it_learns() -> None:
    bed, losses = Bed("pfedhn", lr=0.2, steps=8), list[float]()
    state = bed.method.init()

    def watched(number: int) -> Train:
        def train(jobs: Sequence[Job]) -> Sequence[Answer]:
            answers = bed.train(number)(jobs)
            losses.append(sum(a.metrics["loss"] for a in answers) / len(answers))
            return answers

        return train

    for number in range(1, 6):
        state, _ = bed.method.run_round(state, bed.clients, watched(number))
    assert losses[0] > 2.0 and losses[-1] < 0.85 * losses[0]


def test_refusals() -> None:
    for options, says in (
        ({"hidden": 0}, "hidden must be at least 1"),
        ({"steps": -1}, "steps must be at least 0, got -1"),
        ({"momentum": 1.0}, "momentum must be at least 0 and below 1"),
    ):
        with pytest.raises(ConfigError, match=says):
            RunConfig(method="pfedhn", options=options)
    with pytest.raises(ConfigError, match="pfedhn needs one model"):
        method_for(RunConfig(dataset="synthetic", method="pfedhn", large="lenet5"))
