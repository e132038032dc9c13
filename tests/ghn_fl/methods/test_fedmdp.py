"""FedMDP's own rules: who is slow, how much work is feasible, and what FedMD is left of."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ghn_fl.errors import ConfigError
from ghn_fl.methods import fedmdp
from ghn_fl.simulation.config import RunConfig
from ghn_fl.tree import equal
from ghn_fl.types import Weights
from tests.ghn_fl.methods.agents import LARGE, Agents, client, setting
from tests.ghn_fl.methods.bed import Bed

TEN = tuple(client(i, "strong", LARGE) if i < 2 else client(i) for i in range(10))
SCORES = {i: (float(i), -1.0) for i in range(10)}
QUICK: dict[str, Any] = {"pretrain_epochs": 0, "private_init_epochs": 0}


def revisits(config: fedmdp.Config, rounds: int = 1) -> list[dict[int, Any]]:
    """The recipes of Revisit, by client, of every round."""
    method = fedmdp.build(config, setting(TEN))
    state, found = method.init(), []
    for _ in range(rounds):
        train = Agents(SCORES)
        state, _ = method.run_round(state, TEN, train)
        found.append({j.client.id: j.recipes[0] for j in train.calls[-1]})
    return found


@pytest.mark.parametrize(("fraction", "epochs"), [(0.30, 30), (0.48, 48), (1.0, 100), (0.29, 29)])
def test_a_part_of_a_hundred_epochs(fraction: float, epochs: int) -> None:
    assert fedmdp.feasible(fraction, 100) == epochs
    config = fedmdp.Config(stragglers=1.0, work_fraction=fraction, **QUICK)
    assert {r.epochs for r in revisits(config)[0].values()} == {epochs}


def test_parts_are_rounded_down_but_to_one_epoch_at_least() -> None:
    # 0.99 of 5 is 4.95; 0.1 of 5 is half an epoch; nothing is nothing
    assert [fedmdp.feasible(f, 5) for f in (0.99, 0.1, 0.0)] == [4, 1, 0]


@pytest.mark.parametrize(("share", "count"), [(0.0, 0), (0.1, 1), (0.2, 2), (0.5, 5), (0.9, 9)])
def test_exactly_so_many_stragglers(share: float, count: int) -> None:
    assert len(fedmdp.stragglers(fedmdp.Config(stragglers=share), setting(TEN))) == count


def test_stragglers_stay_the_same_and_their_work_changes() -> None:
    rounds = revisits(fedmdp.Config(stragglers=0.9, **QUICK), rounds=2)
    slow = fedmdp.stragglers(fedmdp.Config(stragglers=0.9), setting(TEN))
    (fast,) = set(range(10)) - slow
    for recipes in rounds:
        assert recipes[fast].epochs == 100
        assert all(1 <= recipes[i].epochs < 100 for i in slow)
    assert [r.epochs for r in rounds[0].values()] != [r.epochs for r in rounds[1].values()]
    assert len({rounds[0][i].epochs for i in slow}) > 1


def test_stragglers_of_the_weak_tier() -> None:
    config = fedmdp.Config(stragglers=0.5, among="weak")
    slow = fedmdp.stragglers(config, setting(TEN))
    assert len(slow) == 4 and not slow & {0, 1}
    assert fedmdp.stragglers(
        fedmdp.Config(stragglers=1.0, among="weak"), setting(TEN)
    ) == frozenset(range(2, 10))
    with pytest.raises(ConfigError, match="needs a tier of that name, got strong"):
        fedmdp.build(config, setting(TEN[:2]))


def test_no_work_is_no_step_on_own_data() -> None:
    config = fedmdp.Config(stragglers=1.0, work_fraction=0.0, **QUICK)
    assert {r.epochs for r in revisits(config)[0].values()} == {0}
    bed = Bed("fedmdp", **QUICK, stragglers=1.0, work_fraction=0.0, digest_epochs=0)
    state, _ = bed.method.run_round(bed.method.init(), bed.clients, bed.train(1))
    before = bed.method.personalize(bed.method.init(), bed.clients)
    for old, new in zip(before, bed.method.personalize(state, bed.clients), strict=True):
        assert equal(dict(old), dict(new))


def test_dropped_stragglers_take_no_part() -> None:
    config = fedmdp.Config(stragglers=0.9, work="drop", **QUICK)
    method, train = fedmdp.build(config, setting(TEN)), Agents(SCORES)
    slow = fedmdp.stragglers(config, setting(TEN))
    state, _ = method.run_round(method.init(), TEN, train)
    assert all(j.client.id not in slow for jobs in train.calls for j in jobs)
    assert len(state["own"]) == 1
    unchanged, report = method.run_round(state, [c for c in TEN if c.id in slow], train)
    assert equal(unchanged, state) and report == {}


def test_scores_count_by_work() -> None:
    # two agents, one straggler with a fraction of 1/3: weights 1/3 and 1, so 1/4 and 3/4
    pair = TEN[4:6]  # scores (4, -1) and (5, -1)
    base: dict[str, Any] = {**QUICK, "stragglers": 0.5, "work_fraction": 1 / 3}
    for weights, wanted in (("uniform", (4.5, 4.5)), ("work", (4.75, 4.25))):
        config = fedmdp.Config(**base, weights=weights)
        method, train = fedmdp.build(config, setting(pair)), Agents(SCORES)
        method.run_round(method.init(), pair, train)
        digest = train.calls[-1][0].recipes[0].digest
        assert digest is not None
        slow = fedmdp.stragglers(config, setting(pair))
        assert digest["targets"][0].tolist() == pytest.approx([wanted[4 not in slow], -1.0])


def test_all_work_and_no_pull_is_fedmd_bit_for_bit() -> None:
    states = []
    quick: dict[str, Any] = {"pretrain_epochs": 1, "private_init_epochs": 1, "align": 50}
    whole: dict[str, Any] = {"stragglers": 1.0, "work_fraction": 1.0, "beta": 0.0}
    for bed in (Bed("fedmd", **quick), Bed("fedmdp", **quick | whole)):
        state = bed.method.init()
        for number in (1, 2):
            state, _ = bed.method.run_round(state, bed.clients, bed.train(number))
        states.append(state)
    assert equal(*states)


def test_beta_pulls_to_the_weights_at_the_rounds_start() -> None:
    assert {r.prox for r in revisits(fedmdp.Config(beta=0.3, **QUICK))[0].values()} == {0.3}

    def moved(beta: float) -> float:
        bed = Bed("fedmdp", **QUICK | {"align": 50, "beta": beta})
        state, _ = bed.method.run_round(bed.method.init(), bed.clients[:1], bed.train(1))
        (old,), (new,) = (
            bed.method.personalize(s, bed.clients[:1]) for s in (bed.method.init(), state)
        )
        return float(sum((new[n] - w).square().sum() for n, w in old.items()))

    assert moved(5.0) < moved(0.0)


def test_inexactness_of_a_quadratic() -> None:
    # F = (w - c)^2 / 2, w_i = 0: the slope is -c at first; a step of eta gives w = eta c, where it
    # is (eta (1 + beta) - 1) c: a ratio of 1 - eta (1 + beta)
    c = torch.tensor([2.0, -3.0])

    def gradient(w: Weights) -> Weights:
        return {"w": w["w"] - c}

    start = {"w": torch.zeros(2)}
    for eta, beta, ratio in ((0.25, 0.0, 0.75), (1.0, 0.0, 0.0), (0.25, 1.0, 0.5), (0.0, 9.0, 1.0)):
        found = fedmdp.inexactness(gradient, start, {"w": eta * c}, beta)
        assert found == pytest.approx(ratio)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"beta": -0.1}, "beta must be at least 0 and finite, got -0.1"),
        ({"stragglers": 1.5}, "stragglers must be from 0 to 1, got 1.5"),
        ({"work_fraction": "2"}, "work_fraction must be from 0 to 1, got 2.0"),
        ({"among": "strong"}, "among must be all or weak, got 'strong'"),
        ({"work": "none"}, "work must be partial or drop, got 'none'"),
        ({"weights": "samples"}, "weights must be uniform or work, got 'samples'"),
        ({"align": 0}, "align must be at least 2, got 0"),
    ],
)
def test_bad_settings(options: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        RunConfig(method="fedmdp", options=options)
