"""FedAvg's own rules, beyond the contract of all methods."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

import zoo
from ghn_fl import local
from ghn_fl.data import normalise
from ghn_fl.engines.work import Bench
from ghn_fl.errors import ConfigError
from ghn_fl.simulation.config import RunConfig
from ghn_fl.tree import equal
from ghn_fl.types import Job
from tests.ghn_fl.methods.bed import Bed
from tests.ghn_fl.methods.stubs import counted, method_for, only


def test_the_mean_is_weighted_by_samples() -> None:
    bed = Bed("fedavg")

    def mean(**values: tuple[float, int]) -> float:
        answers = counted({int(k[1:]): v for k, v in values.items()})
        sampled = [c for c in bed.clients if f"c{c.id}" in values]
        state, _ = bed.method.run_round(bed.method.init(), sampled, answers)
        return only(state["models"]["lenet5-d1"])

    assert mean(c0=(0.0, 1), c1=(4.0, 3)) == 3.0  # 0 * 1/4 + 4 * 3/4
    assert mean(c0=(-8.0, 1), c2=(4.0, 3)) == 1.0  # -8 * 1/4 + 4 * 3/4
    assert mean(c1=(-2.5, 7), c2=(-2.5, 1), c3=(-2.5, 8)) == -2.5  # all the same


@pytest.mark.parametrize("name", ["fedavg", "fedprox"])
def test_clt_draws_around_the_mean(name: str) -> None:
    # answers 0 of 1 sample and 4 of 3: mu = 3, sigma^2 = (1 * 9 + 3 * 1) / (1 + 3 - 1) = 4
    bed = Bed(name, aggregation="clt")
    state, answers = bed.method.init(), counted({0: (0.0, 1), 1: (4.0, 3)})
    for number in (1, 2, 3, 4):
        state, _ = bed.method.run_round(state, bed.clients[:2], answers)
        drawn = torch.cat([w.flatten() for w in state["models"]["lenet5-d1"].values()])
        few = 3 / len(drawn) ** 0.5
        assert drawn.mean() == pytest.approx(3, abs=2 * few)
        assert drawn.std() == pytest.approx(2 / number**0.5, abs=2 * few)
    one, _ = bed.method.run_round(state, bed.clients[:1], counted({0: (-2.0, 9)}))
    assert only(one["models"]["lenet5-d1"]) == -2.0  # nobody to differ from


def test_one_client_with_one_batch_takes_one_step_of_gradient_descent() -> None:
    bed = Bed("fedavg")
    bed.bench = Bench(replace(bed.world, config=replace(bed.world.config, batch_size=10_000)))
    state = bed.method.init()
    after, _ = bed.method.run_round(state, bed.clients[:1], bed.train(1))
    model = local.load(zoo.build("lenet5-d1", **bed.world.task), state["models"]["lenet5-d1"])
    data, index = bed.world.dataset, bed.world.shares[0].train
    loss = F.cross_entropy(model(normalise(data.x_train[index], data)), data.y_train[index])
    loss.backward()
    for name, p in model.named_parameters():
        assert p.grad is not None
        expected = p.detach() - 0.05 * p.grad
        torch.testing.assert_close(
            after["models"]["lenet5-d1"][name], expected, rtol=1e-4, atol=1e-5
        )


def test_slow_clients_are_dropped_and_served_all_the_same() -> None:
    bed, jobs = Bed("fedavg", slow="drop"), list[Job]()
    answers = counted({0: (2.0, 5)}, jobs)  # client 0 is the strong one
    state, _ = bed.method.run_round(bed.method.init(), bed.clients, answers)
    assert [job.client.id for job in jobs] == [0]
    assert {only(w) for w in bed.method.personalize(state, bed.clients)} == {2.0}
    unmoved, _ = bed.method.run_round(state, bed.clients[1:], answers)
    assert equal(unmoved, state)


def test_a_fleet_with_two_models_is_refused() -> None:
    config = RunConfig(dataset="synthetic", method="fedavg", large="lenet5", small="lenet5-d1")
    says = r"fedavg needs one model.*lenet5, lenet5-d1;.*allsmall.*exclusivefl.*heterofl"
    with pytest.raises(ConfigError, match=says):
        method_for(config)


def test_nobody_left_to_train_is_refused() -> None:
    config = RunConfig(dataset="synthetic", method="fedavg", skew="0:3", options={"slow": "drop"})
    with pytest.raises(ConfigError, match=r"leaves nobody to train.*slow=train"):
        method_for(config)
    method_for(replace(config, skew="3:0"))
    method_for(replace(config, options={}))


def test_bad_settings() -> None:
    with pytest.raises(ConfigError, match="aggregation must be mean or clt, got 'median'"):
        Bed("fedavg", aggregation="median")
    with pytest.raises(ConfigError, match="slow must be train or drop, got 'wait'"):
        RunConfig(method="fedavg", options={"slow": "wait"})
