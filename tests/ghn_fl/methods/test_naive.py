"""AllSmall, AllLarge and ExclusiveFL: who trains what, and with whom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from ghn_fl.engines.work import Bench
from ghn_fl.errors import ConfigError
from ghn_fl.simulation.config import RunConfig
from ghn_fl.tree import equal
from ghn_fl.types import Answer, Job, State
from tests.ghn_fl.methods.bed import Bed
from tests.ghn_fl.methods.stubs import at, counted, only

SMALL, LARGE = "lenet5-d1", "lenet5"


def trained(bed: Bed, rounds: int = 2) -> State:
    state = bed.method.init()
    for number in range(1, rounds + 1):
        state, _ = bed.method.run_round(state, bed.clients, bed.train(number))
    return state


@pytest.mark.parametrize(("method", "model"), [("allsmall", SMALL), ("alllarge", LARGE)])
def test_everybody_trains_one_model(method: str, model: str) -> None:
    bed = Bed(method)
    assert {str(spec) for client in bed.clients for spec in client.models} == {model}
    values = {0: (0.0, 1), 2: (4.0, 3)}  # the strong one and a weak one: 0 * 1/4 + 4 * 3/4
    state, _ = bed.method.run_round(
        bed.method.init(), [bed.clients[0], bed.clients[2]], counted(values)
    )
    assert only(state["models"][model]) == 3.0


def test_allsmall_is_fedavg_bit_for_bit_where_all_have_one_model() -> None:
    # FedAvg's usual model is the small one; initial weights depend on seed and model alone
    assert equal(trained(Bed("allsmall")), trained(Bed("fedavg")))


@pytest.mark.parametrize("method", ["allsmall", "alllarge", "exclusivefl"])
def test_with_fedadam_as_in_inclusivefl(method: str) -> None:
    bed = Bed(method, **{"server": "fedadam", "adam.tau": 1e-3})
    state = at(bed.method.init(), 1.0)
    values = {0: (1.5, 1), 1: (0.5, 3)}
    after, _ = bed.method.run_round(state, bed.clients[:2], counted(values))
    served = bed.method.personalize(after, bed.clients[:2])
    if method == "exclusivefl":  # each in its group: 0.1 * 0.05 / 0.051 up and down
        assert [only(w) for w in served] == pytest.approx([1.0980392, 0.9019608], abs=1e-6)
    else:  # a plain mean of +0.5 and -0.5 goes nowhere
        assert [only(w) for w in served] == [1.0, 1.0]


def test_allsmall_with_fedadam_is_fedadam_where_all_have_one_model() -> None:
    allsmall, fedadam = Bed("allsmall", server="fedadam"), Bed("fedadam")
    assert equal(trained(allsmall), trained(fedadam))


def test_groups_do_not_mix() -> None:
    bed = Bed("exclusivefl")
    values = {0: (7.0, 100), 1: (0.0, 1), 2: (4.0, 3)}
    state, _ = bed.method.run_round(bed.method.init(), bed.clients[:3], counted(values))
    assert only(state["models"][LARGE]) == 7.0  # alone in its group
    assert only(state["models"][SMALL]) == 3.0  # 0 * 1/4 + 4 * 3/4
    kept, _ = bed.method.run_round(state, bed.clients[1:2], counted({1: (-1.0, 2)}))
    assert only(kept["models"][LARGE]) == 7.0 and only(kept["models"][SMALL]) == -1.0


@pytest.mark.parametrize("mode", ["per_group", "drop_weak"])
def test_one_strong_client_is_trained_as_if_alone(mode: str) -> None:
    bed = Bed("exclusivefl", mode=mode)
    strong = bed.clients[0]
    weights: Any = bed.method.init()["models"][LARGE]
    for number in (1, 2):  # pure local SGD
        job = Job(client=strong, models=((strong.models[0], weights),))
        weights = bed.answer(number, job).weights[0]
    state = trained(bed)
    assert all(w.allclose(weights[n], atol=1e-6) for n, w in state["models"][LARGE].items())


def test_dropped_clients_change_nothing_and_are_served_what_they_began_with() -> None:
    bed = Bed("exclusivefl", mode="drop_weak")
    start, asked = bed.method.init(), list[int]()

    def watch(jobs: Sequence[Job]) -> list[Answer]:
        asked.extend(job.client.id for job in jobs)
        return [bed.answer(1, job) for job in jobs]

    state, _ = bed.method.run_round(start, bed.clients, watch)
    assert asked == [0]
    for weights in bed.method.personalize(state, bed.clients[1:]):
        assert equal(dict(weights), start["models"][SMALL])
    silent, _ = bed.method.run_round(state, bed.clients[1:], bed.train(2))
    assert equal(silent, state)


def test_data_of_dropped_clients_do_not_matter() -> None:
    def relabelled(mode: str) -> tuple[State, State]:
        bed = Bed("exclusivefl", mode=mode)
        plain, data = trained(bed, 1), bed.world.dataset
        labels = data.y_train.clone()
        for share in bed.world.shares[1:]:
            labels[share.train] = 0
        bed.bench = Bench(replace(bed.world, dataset=replace(data, y_train=labels)))
        return plain, trained(bed, 1)

    assert equal(*relabelled("drop_weak"))
    plain, other = relabelled("per_group")
    assert equal(plain["models"][LARGE], other["models"][LARGE])
    assert not equal(plain["models"][SMALL], other["models"][SMALL])


def test_bad_settings() -> None:
    with pytest.raises(ConfigError, match="mode must be per_group or drop_weak, got 'both'"):
        RunConfig(method="exclusivefl", options={"mode": "both"})
    for method in ("allsmall", "alllarge", "exclusivefl"):
        with pytest.raises(ConfigError, match="server must be fedavg or fedadam, got 'sgd'"):
            RunConfig(method=method, options={"server": "sgd"})
