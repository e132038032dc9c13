"""FedProx's own rules, beyond the contract of all methods."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from ghn_fl.errors import ConfigError
from ghn_fl.losses import proximal
from ghn_fl.methods.fedprox import partial_epochs
from ghn_fl.simulation.config import RunConfig
from ghn_fl.tree import equal
from ghn_fl.types import Job
from tests.ghn_fl.methods.bed import Bed
from tests.ghn_fl.methods.stubs import counted, method_for, only


def test_without_mu_it_is_fedavg_bit_for_bit() -> None:
    states = []
    for bed in (Bed("fedavg"), Bed("fedprox", mu=0.0)):
        state = bed.method.init()
        for number in (1, 2):
            state, _ = bed.method.run_round(state, bed.clients, bed.train(number))
        states.append(state)
    assert equal(*states)


def test_a_large_mu_keeps_clients_near_the_model_they_were_given() -> None:
    def moved(mu: float) -> float:
        bed = Bed("fedprox", mu=mu)
        state = bed.method.init()
        after, _ = bed.method.run_round(state, bed.clients, bed.train(1))
        before, now = state["models"]["lenet5-d1"], after["models"]["lenet5-d1"]
        return sum(float((now[n] - w).square().sum()) for n, w in before.items())

    assert moved(5.0) < 0.9 * moved(0.0)


@pytest.mark.parametrize(
    ("mu", "anchor", "minimiser"),
    [(1.0, 0.0, 1.0), (3.0, 0.0, 0.5), (1.0, -4.0, -1.0)],  # (a c + mu w_t) / (a + mu)
)
def test_closed_form_on_a_quadratic(mu: float, anchor: float, minimiser: float) -> None:
    # F = a/2 (w - c)^2 with a = 1, c = 2
    start = {"w": torch.tensor(anchor)}
    w = torch.tensor(anchor, requires_grad=True)
    for step in range(200):
        pull = proximal({"w": w}, start, mu, None)
        (slope,) = torch.autograd.grad(0.5 * (w - 2) ** 2 + pull, w)
        if step == 0:
            assert float(slope) == anchor - 2  # at the first step the term pulls nowhere
        w = (w - 0.1 * slope).detach().requires_grad_()
    assert float(w.detach()) == pytest.approx(minimiser, abs=1e-5)


def test_the_recipe_has_mu_and_the_mean_is_fedavgs() -> None:
    bed, jobs = Bed("fedprox", mu=0.5), list[Job]()
    state, _ = bed.method.run_round(
        bed.method.init(), bed.clients[:2], counted({0: (0.0, 1), 1: (4.0, 3)}, jobs)
    )
    assert only(state["models"]["lenet5-d1"]) == 3.0
    assert [job.recipes[0].prox for job in jobs] == [0.5, 0.5]
    assert [job.recipes[0].epochs for job in jobs] == [None, None]


def test_only_weak_clients_do_part_of_the_work() -> None:
    config = {"dataset": "synthetic", "method": "fedprox", "skew": "1:3", "epochs": 5}
    method = method_for(RunConfig(**config, options={"partial": True}))  # type: ignore[arg-type]
    clients, state = Bed("fedprox").clients, method.init()
    drawn: list[list[int | None]] = []
    for _ in range(2):
        jobs: list[Job] = []
        state, _ = method.run_round(
            state, clients[::-1], counted({i: (1.0, 1) for i in range(4)}, jobs)
        )
        drawn.append([job.recipes[0].epochs for job in sorted(jobs, key=lambda j: j.client.id)])
    assert drawn[0][0] is None and drawn[1][0] is None
    assert all(n in (1, 2, 3, 4) for row in drawn for n in row[1:])
    assert drawn[0] != drawn[1]  # every round anew


def test_partial_epochs_are_uniform_below_all() -> None:
    counts = Counter(partial_epochs(0, t, m, 5) for t in range(1, 101) for m in range(40))
    assert set(counts) == {1, 2, 3, 4}
    assert all(900 < n < 1100 for n in counts.values())  # 1000 each; deviation about 27
    assert {partial_epochs(0, t, 0, 1) for t in range(20)} == {1}  # {1..0} is empty: 1
    assert {partial_epochs(0, t, 0, 2) for t in range(20)} == {1}
    assert partial_epochs(0, 3, 7, 50) == partial_epochs(0, 3, 7, 50)


def test_refusals() -> None:
    with pytest.raises(ConfigError, match=r"mu must be at least 0, got -1"):
        RunConfig(method="fedprox", options={"mu": -1.0})
    with pytest.raises(ConfigError, match="fedprox needs one model"):
        method_for(RunConfig(dataset="synthetic", method="fedprox", large="lenet5"))
