"""RecipFL with priors: its own rules, beyond the contract of all methods."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch

import zoo
from ghn_fl.aggregate import weighted_mean
from ghn_fl.errors import ConfigError
from ghn_fl.hypernet import Request
from ghn_fl.hypernet.served import design_for, from_state
from ghn_fl.lessons import Lessons, Teacher, ask
from ghn_fl.methods import recipfl
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


def shift(after: State, before: State, spec: str, key: str = "prior") -> float:
    """By how much all weights of a prior have moved; they must agree."""
    (by,) = {
        round(float(d), 4)
        for n, w in after[key][spec].items()
        for d in (w - before[key][spec][n]).flatten()
    }
    return by


def test_a_prior_moves_by_the_clients_mean_weighted_by_samples() -> None:
    bed = Bed("recipfl", step=0.0, stretch=False)
    strong, one, other, _ = bed.clients
    state = bed.method.init()
    after, _ = bed.method.run_round(state, [strong, one, other], moved({0: 0.5, 1: -1, 2: 2}))
    n = [c.samples for c in bed.clients]
    expected = (0.5 * n[0] - 1 * n[1] + 2 * n[2]) / (n[0] + n[1] + n[2])
    assert shift(after, state, SMALLEST) == pytest.approx(expected, abs=2e-4)
    assert shift(after, state, "lenet5") == 0.5  # the strong one alone has it


def test_an_architecture_without_answers_keeps_its_prior() -> None:
    bed = Bed("recipfl")
    state = bed.method.init()
    after, _ = bed.method.run_round(state, bed.clients, moved({1: 1.0}))
    assert equal(after["prior"]["lenet5"], state["prior"]["lenet5"])
    assert after["steps"] == {"lenet5": 0, SMALLEST: 1}


def test_how_much_longer_a_step_is_where_clients_go_apart() -> None:
    # 1 and 3 samples, p = 1/4 and 3/4; at most 1 / (2 (1/16 + 9/16)) = 4/5, and at least 1
    def stretch(moves: Sequence[Sequence[float]], samples: Sequence[int]) -> float:
        own = [{"v": torch.tensor(move[:1]), "w": torch.tensor([move[1:]])} for move in moves]
        return recipfl._stretch(own, samples, weighted_mean(own, samples))

    assert stretch([(3, 0), (0, -1)], [1, 3]) == 1
    # four alike, at right angles in pairs: mean (1/2, -1), lengths 1, 1, 4, 4:
    #   2.5 / (2 * 1.25) = 1; one that turns back: mean (0, -1), 2.5 / (2 * 1) = 1.25
    assert stretch([(1, 0), (1, 0), (0, -2), (0, -2)], [5] * 4) == 1
    assert stretch([(1, 0), (-1, 0), (0, -2), (0, -2)], [5] * 4) == pytest.approx(1.25)
    # three that end where they began, in the mean: 1 / (2 / 3), as if at right angles
    apart = [(2.0, 0.0), (-1.0, 1.0), (-1.0, -1.0)]
    assert stretch(apart, [2, 2, 2]) == pytest.approx(1.5)
    assert stretch([(0, 0), (0, 0), (0, 0)], [1, 1, 1]) == 1


def test_a_prior_goes_further_where_its_clients_go_apart() -> None:
    # 4 and -2 and 1, by n samples: the mean, and by how much it is longer
    bed, plain = (Bed("recipfl", step=0.0, stretch=stretch) for stretch in (True, False))
    state, train = bed.method.init(), moved({1: 4.0, 2: -2.0, 3: 1.0})
    after, _ = bed.method.run_round(state, bed.clients[1:], train)
    short, _ = plain.method.run_round(state, bed.clients[1:], train)
    parts = [c.samples / sum(d.samples for d in bed.clients[1:]) for c in bed.clients[1:]]
    by = (4.0, -2.0, 1.0)
    mean = sum(p * b for p, b in zip(parts, by, strict=True))
    ratio = sum(p * b * b for p, b in zip(parts, by, strict=True)) / (2 * mean * mean)
    longer = max(1.0, min(ratio, 0.5 / sum(p * p for p in parts)))
    assert longer > 1.2
    assert shift(short, state, SMALLEST) == pytest.approx(mean, abs=1e-3)
    assert shift(after, state, SMALLEST) == pytest.approx(longer * mean, abs=1e-3)


def test_momentum_begins_after_the_rounds_of_settling() -> None:
    # moves of 1, 1, 1 with beta 0.5 from the third round on: 1, 1, then 0.5 * 1 + 1
    bed = Bed("recipfl", step=0.0, momentum=0.5, settle=2)
    state, shifts = bed.method.init(), []
    for _ in range(4):
        after, _ = bed.method.run_round(state, bed.clients[1:2], moved({1: 1.0}))
        shifts.append(shift(after, state, SMALLEST))
        state = after
    assert shifts == pytest.approx([1, 1, 1.5, 1.75], abs=1e-3)


def test_what_is_served_for_use_is_a_mean_over_the_last_steps() -> None:
    # window 0.75, moves of 1: the mean is over max(1, 0.75 n) values: 1, 1.5, 2.25
    #   step 1: 1; step 2: 1 + (2 - 1) / 1.5 = 5/3; step 3: 5/3 + (3 - 5/3) / 2.25 = 2.2593
    bed = Bed("recipfl", step=0.0, window=0.75)
    start = state = bed.method.init()
    for expected in (1, 5 / 3, 2.2593):
        state, _ = bed.method.run_round(state, bed.clients[1:2], moved({1: 1.0}))
        assert shift(state, start, SMALLEST, "mean") == pytest.approx(expected, abs=1e-3)


def test_without_a_descriptor_everybody_is_served_the_prior() -> None:
    bed = Bed("recipfl", **{"ghn.descriptor": "none"})
    state, _ = bed.method.run_round(bed.method.init(), bed.clients, bed.train(1))
    for client, weights in zip(
        bed.clients, bed.method.personalize(state, bed.clients), strict=True
    ):
        prior = state["prior"][str(client.models[0])]
        assert all(torch.allclose(w, prior[n], atol=1e-6) for n, w in weights.items())


def test_without_the_hypernetworks_step_it_is_fedavg_by_architecture() -> None:
    # weak devices only, for the strong one's small model would join them
    options: dict[str, Any] = {
        "ghn.descriptor": "none",
        "step": 0.0,
        "window": 0.0,
        "stretch": False,
    }
    bed, sent = Bed("recipfl", **options), list[Job]()
    clients = bed.clients[1:]
    state = bed.method.init()

    def watch(jobs: Sequence[Job]) -> list[Answer]:
        sent.extend(jobs)
        return [bed.answer(1, job) for job in jobs]

    state, _ = bed.method.run_round(state, clients, watch)
    answers = [bed.answer(1, job) for job in sent]
    mean = weighted_mean([a.weights[0] for a in answers], [a.samples for a in answers])
    for served in bed.method.personalize(state, clients):
        assert all(torch.allclose(w, mean[n], atol=1e-5) for n, w in served.items())


def test_a_prior_goes_along_the_hypernetworks_own_step() -> None:
    # clients that come back as they went: FedAvg's step is 0; the hypernetwork rests, too
    bed = Bed("recipfl", step=1.0)
    state = bed.method.init()
    after, _ = bed.method.run_round(state, bed.clients[1:], moved({1: 0.0, 2: 0.0, 3: 0.0}))
    assert shift(after, state, SMALLEST) == 0
    # clients that go up by 1: a prior goes up by 1, and on by what the hypernetwork learnt, times s
    priors = []
    for step in (0.0, 0.5, 1.0):
        bed = Bed("recipfl", step=step)
        new, _ = bed.method.run_round(state, bed.clients[1:], moved({1: 1.0, 2: 1.0, 3: 1.0}))
        priors.append(new["prior"][SMALLEST])
    for name in priors[0]:
        plain, half, whole = (p[name] for p in priors)
        torch.testing.assert_close(half - plain, 0.5 * (whole - plain), atol=1e-5, rtol=0)
    # Eq. (4): towards what came back, and no tensor away from it
    ahead = [float((priors[2][n] - priors[0][n]).sum()) for n in priors[0]]
    assert sum(ahead) > 0 and min(ahead) >= -1e-4


def test_a_prior_goes_along_that_step_as_far_as_its_clients_agree() -> None:
    # moves of 1 everywhere: what is added to FedAvg's step is the hop times its cosine with ones
    options: dict[str, Any] = {"ghn.descriptor": "none"}
    beds = [Bed("recipfl", step=step, **options) for step in (0.0, 1.0)]
    state = beds[0].method.init()
    train = moved({1: 1.0, 2: 1.0, 3: 1.0})
    plain, whole = (bed.method.run_round(state, bed.clients[1:], train)[0] for bed in beds)
    spec = beds[0].clients[1].models[0]
    request = Request(
        graph=beds[0].setting.graphs[spec], client=None, current=state["prior"][SMALLEST]
    )
    design = design_for(beds[0].config.method_config().ghn, beds[0].setting)
    before, after = (
        from_state(design, s)[0].eval().generate_many([request])[0] for s in (state, whole)
    )
    for name, start in before.items():
        hop = after[name] - start
        cosine = max(0.0, float(hop.sum() / (hop.norm() * hop.numel() ** 0.5 + 1e-12)))
        glide = whole["prior"][SMALLEST][name] - plain["prior"][SMALLEST][name]
        torch.testing.assert_close(glide, cosine * hop, atol=2e-5, rtol=1e-3)


def test_how_far_two_steps_agree() -> None:
    # (3, 4) and (1, 0): 3 / 5; (3, -4) and (0, 2): apart; no step agrees with none
    hop = torch.tensor([[3.0], [4.0]])
    assert recipfl._agreement(hop, torch.tensor([[1.0], [0.0]])) == pytest.approx(0.6)
    assert (
        recipfl._agreement(hop * torch.tensor([[1.0], [-1.0]]), torch.tensor([[0.0], [2.0]])) == 0
    )
    assert recipfl._agreement(hop, torch.zeros(2, 1)) == 0


def test_a_device_with_two_models_asks_the_small_one_too() -> None:
    # the strong one's n samples of N: its small model has a quarter of (N - n) / N of the answer
    bed = Bed("recipfl", second=0.25, untuned=0.3)
    samples = [client.samples for client in bed.clients]
    unseen = sum(samples[1:]) / sum(samples)
    assert 0.1 < unseen < 0.9
    state, _ = bed.method.run_round(bed.method.init(), bed.clients, bed.train(1))
    assert bed.method.second is not None
    strong, *weak = bed.method.second(state, bed.clients)
    assert strong is not None and weak == [None] * len(weak)
    assert strong.spec == bed.clients[0].models[1]
    assert strong.part == pytest.approx(0.25 * unseen) and strong.untuned == 0.3
    as_weak = dataclasses.replace(bed.clients[0], models=(strong.spec,))
    (served,) = bed.method.personalize(state, [as_weak])
    assert equal(dict(strong.weights), dict(served))
    assert bed.method.second(state, bed.clients[1:]) == weak
    assert Bed("recipfl", second=0.0).method.second is None


def test_class_odds_by_hand() -> None:
    # 8 samples, (6, 2) of two classes, and one more of each: (7, 3) of 10; the mean has (1/2, 1/2)
    client = dataclasses.replace(Bed("recipfl").clients[0], samples=8, mix=(0.75, 0.25))
    odds = recipfl._log_odds(client, torch.tensor([0.5, 0.5]))
    torch.testing.assert_close(odds, torch.tensor([1.4, 0.6]).log())
    odds = recipfl._log_odds(
        dataclasses.replace(client, mix=(0.0, 1.0)), torch.tensor([0.25, 0.75])
    )
    torch.testing.assert_close(odds, torch.tensor([0.1 / 0.25, 0.9 / 0.75]).log())


def test_class_odds_are_in_the_class_biases_alone() -> None:
    plain, half, whole = (Bed("recipfl", odds=odds) for odds in (0.0, 0.5, 1.0))
    state = plain.method.init()
    for client, *served in zip(
        plain.clients[1:],
        *(bed.method.personalize(state, bed.clients[1:]) for bed in (plain, half, whole)),
        strict=True,
    ):
        (bias,) = (n for n in served[0] if n.endswith("classifier.bias"))
        assert all(torch.equal(served[0][n], served[2][n]) for n in served[0] if n != bias)
        shift = served[2][bias] - served[0][bias]
        torch.testing.assert_close(served[1][bias] - served[0][bias], shift / 2)
        often = torch.tensor(client.mix).argmax()
        assert shift[often] == shift.max() and shift.min() < 0
    hidden = Bed("recipfl", odds=1.0, **{"ghn.descriptor": "none"})
    one, other = hidden.method.personalize(hidden.method.init(), hidden.clients[1:3])
    assert equal(dict(one), dict(other))  # no label mix is told, none is used


def test_class_odds_do_not_go_into_the_prior() -> None:
    # clients that come back as they went leave it where it was, whatever odds they were served
    bed = Bed("recipfl", odds=1.0)
    state = bed.method.init()
    after, _ = bed.method.run_round(state, bed.clients[1:], moved({1: 0.0, 2: 0.0, 3: 0.0}))
    assert shift(after, state, SMALLEST) == 0


def test_clients_differ_from_the_prior_by_what_sets_them_apart() -> None:
    bed = Bed("recipfl", odds=0.0)
    state, _ = bed.method.run_round(bed.method.init(), bed.clients, bed.train(1))
    one, other = bed.method.personalize(state, bed.clients[1:3])
    assert not equal(dict(one), dict(other))
    # by samples, the differences of all who train an architecture sum to about nothing
    prior = state["mean"][SMALLEST]
    apart = [(w[n] - prior[n]).norm() for w in (one, other) for n in w]
    assert max(apart) < 0.5 * max(w.norm() for w in prior.values())


def test_a_prior_begins_as_the_initial_weights_of_its_architecture() -> None:
    bed = Bed("recipfl")
    state = bed.method.init()
    for spec, weights in bed.setting.initial.items():
        assert equal(state["prior"][str(spec)], dict(weights))


def test_the_hypernetwork_that_is_kept_makes_the_priors_by_itself() -> None:
    def error(steps: int) -> float:
        bed = Bed("recipfl", imitate=steps)
        state = bed.method.init()
        ghn = bed.method.hypernetwork(state)  # type: ignore[misc]
        graph = bed.setting.graphs[bed.clients[1].models[0]]
        made = ghn.generate(graph=graph)  # type: ignore[attr-defined]
        prior = state["prior"][SMALLEST]
        return sum(float((made[n] - w).square().sum()) for n, w in prior.items())

    assert error(60) < 0.5 * error(0)


def test_lessons_are_the_priors_answers_or_none() -> None:
    bed = Bed("recipfl", lessons=6)
    state = bed.method.init()
    lessons = bed.method.lessons(state)  # type: ignore[misc]
    assert isinstance(lessons, Lessons)
    assert (lessons.images.shape, lessons.answers.shape) == ((6, 1, 16, 16), (6, 10))
    teachers = [
        Teacher(zoo.build(spec, **bed.setting.task), state["mean"][str(spec)], share)
        for spec in bed.setting.graphs
        for share in (sum(c.samples for c in bed.clients if spec in c.models),)
    ]
    torch.testing.assert_close(lessons.answers, ask(teachers, lessons.images).detach())
    assert Bed("recipfl", lessons=0).method.lessons is None


def test_settings_that_cannot_be() -> None:
    for options, says in (
        ({"momentum": 1.0}, "momentum and window must be"),
        ({"settle": -1}, "step, settle, imitate and lessons must be at least 0"),
        ({"step": -0.5}, "step, settle, imitate and lessons must be at least 0"),
        ({"odds": float("nan")}, "odds, step, settle, imitate and lessons must be at least 0"),
        ({"second": 1.0}, "second, untuned, momentum and window must be from 0 to below 1"),
        ({"untuned": -0.1}, "must be from 0 to below 1, got 0.6, -0.1"),
        ({"ghn.descriptor": "id"}, "take the method recipfl-paper"),
    ):
        with pytest.raises(ConfigError, match=says):
            RunConfig(method="recipfl", options=SMALL | options)
