"""FedMD's own rules: pretraining once, the two phases of a round, and the consensus."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from ghn_fl.distillation import consensus
from ghn_fl.errors import ConfigError
from ghn_fl.methods import fedmd
from ghn_fl.simulation.config import RunConfig
from ghn_fl.tree import equal
from ghn_fl.types import Answer, Job
from tests.ghn_fl.methods.agents import LARGE, SMALL, Agents, client, setting
from tests.ghn_fl.methods.bed import Bed

STRONG = client(0, "strong", LARGE)
FLEET = (STRONG, client(1), client(2), client(3))
SCORES = {0: (1.0, 3.0), 1: (3.0, 1.0), 2: (-2.0, 6.0), 3: (0.0, 0.0)}


def test_the_consensus_is_the_mean_of_logits() -> None:
    a, b = torch.tensor([[1.0, 3.0]]), torch.tensor([[3.0, 1.0]])
    assert consensus([a, b], [1, 1], "logits").tolist() == [[2.0, 2.0]]
    # weights 1 and 3 of (1, 3) and (-3, 1): (0.25 - 2.25, 0.75 + 0.75)
    uneven = consensus([a, torch.tensor([[-3.0, 1.0]])], [1, 3], "logits")
    assert uneven.tolist() == [[-2.0, 1.5]]
    # nobody counts more than another where no weight is above 0
    assert consensus([a, b], [0, 0], "logits").tolist() == [[2.0, 2.0]]


def test_or_of_probabilities() -> None:
    # (0, 0) is (1/2, 1/2); (ln 3, 0) is (3/4, 1/4); the mean is (5/8, 3/8)
    found = consensus(
        [torch.tensor([0.0, 0.0]), torch.tensor([3.0, 1.0]).log()], [1, 1], "probabilities"
    )
    assert found.tolist() == pytest.approx([0.625, 0.375])


def test_a_round_by_hand() -> None:
    config = fedmd.Config(pretrain_epochs=7, private_init_epochs=3, align=4, digest_epochs=2,
                          digest_batch=5)  # fmt: skip
    method, train = fedmd.build(config, setting(FLEET, epochs=10)), Agents(SCORES)
    state, report = method.run_round(method.init(), [FLEET[2], STRONG, FLEET[1]], train)
    pretraining, communicating, revisiting = train.calls
    # one agent for each architecture, the first by id
    assert sorted((j.client.id, j.recipes[0].pretrain) for j in pretraining) == [(0, 7), (1, 7)]
    # its own data, then scores on four public samples, two of each class
    assert [j.client.id for j in communicating] == [0, 1, 2]
    assert {float(j.models[0][1]["w"]) for j in communicating} == {100.0}
    indices = communicating[0].recipes[0].scores
    assert indices is not None and (indices % 2).tolist().count(0) == 2 and len(indices) == 4
    assert all(j.recipes[0].epochs == 3 for j in communicating)
    # (1, 3), (3, 1) and (-2, 6): the mean is (2/3, 10/3)
    for job in revisiting:
        (recipe,) = job.recipes
        assert recipe.epochs == 10 and recipe.prox == 0 and recipe.digest is not None
        assert torch.equal(recipe.digest["indices"], indices)
        assert recipe.digest["targets"][0].tolist() == pytest.approx([2 / 3, 10 / 3])
        assert (recipe.digest["epochs"], recipe.digest["batch"]) == (2, 5)
    # 100 of pretraining, 3 + 10 epochs, a digest; who was not sampled is served pretrained weights
    served = method.personalize(state, FLEET)
    assert [float(w["w"]) for w in served] == [113.5, 113.5, 113.5, 100.0]
    assert report["revisit_epochs"] == 10

    again = Agents(SCORES)
    second, _ = method.run_round(state, [FLEET[1], FLEET[3]], again)
    communicating, revisiting = again.calls  # nobody pretrains any more
    assert [j.recipes[0].epochs for j in communicating] == [0, 3]  # the new one knows no own data
    served = method.personalize(second, FLEET)
    assert [float(w["w"]) for w in served] == [113.5, 124.0, 113.5, 113.5]
    assert second["t"] == 2


def test_an_architecture_of_which_nobody_was_sampled_waits() -> None:
    method = fedmd.build(fedmd.Config(), setting(FLEET))
    state, _ = method.run_round(method.init(), FLEET[1:2], Agents(SCORES))
    assert list(state["pretrained"]) == [str(SMALL)]
    assert float(method.personalize(state, [STRONG])[0]["w"]) == 0.0


def test_if_the_first_does_not_answer_the_next_one_pretrains() -> None:
    method, train = fedmd.build(fedmd.Config(), setting(FLEET)), Agents(SCORES, silent=[1])
    state, _ = method.run_round(method.init(), FLEET[1:], train)
    asked = [[j.client.id for j in jobs] for jobs in train.calls]
    assert asked == [[1], [2], [2, 3], [2, 3]]  # who failed is not asked again
    absent, _ = method.run_round(method.init(), FLEET[2:], Agents(SCORES))
    assert equal(state, absent)


def test_without_pretraining_and_with_its_own_number_of_epochs() -> None:
    config = fedmd.Config(pretrain_epochs=0, private_init_epochs=0, revisit_epochs=4)
    method, train = fedmd.build(config, setting(FLEET)), Agents(SCORES)
    state, _ = method.run_round(method.init(), FLEET[:2], train)
    assert len(train.calls) == 2
    assert [float(w["w"]) for w in method.personalize(state, FLEET)] == [4.5, 4.5, 0.0, 0.0]


def test_alignment_sets_change_from_round_to_round() -> None:
    method = fedmd.build(fedmd.Config(align=2), setting(FLEET, labels=torch.arange(100) % 2))
    state, sets = method.init(), []
    for _ in range(3):
        train = Agents(SCORES)
        state, _ = method.run_round(state, FLEET, train)
        sets.append(tuple(train.calls[-1][0].recipes[0].digest["indices"].tolist()))  # type: ignore[index]
    assert len(set(sets)) == 3


def test_scores_came_but_nobody_finished() -> None:
    method = fedmd.build(fedmd.Config(pretrain_epochs=0), setting(FLEET))
    state = method.init()
    after, report = method.run_round(state, FLEET, Agents(SCORES, deaf=True))
    assert equal(state, after) and report == {}


def test_identical_agents_agree_with_themselves() -> None:
    # three weak agents start from the same pretrained weights: the consensus is each one's logits
    bed, calls, answers = Bed("fedmd", private_init_epochs=0), list[Job](), list[Answer]()

    def watch(jobs: Sequence[Job]) -> list[Answer]:
        calls.extend(jobs)
        found = bed.train(1)(jobs)
        answers.extend(found)
        return found

    bed.method.run_round(bed.method.init(), bed.clients[1:], watch)
    targets = next(j.recipes[0].digest["targets"] for j in calls if j.recipes[0].digest)
    scores = [a.extras["scores"] for a in answers if "scores" in a.extras]
    assert len(scores) == 3 and targets.shape == (50, 10)
    assert all(torch.allclose(s, targets, atol=1e-5) for s in scores)
    # so there is next to nothing to digest; BatchNorm has other batches than when they answered
    digested = [a.metrics["digest"] for a in answers if "digest" in a.metrics]
    assert len(digested) == 3 and max(digested) < 0.01


def test_any_architectures() -> None:
    bed = Bed("fedmd")
    state, report = bed.method.run_round(bed.method.init(), bed.clients, bed.train(1))
    assert len({str(c.models[0]) for c in bed.clients}) == 2 and report["digest_loss"] > 0
    served = bed.method.personalize(state, bed.clients)
    assert not equal(dict(served[1]), dict(served[2]))  # one architecture, but each its own weights


def test_no_public_data() -> None:
    with pytest.raises(ConfigError, match="needs public data; give --public"):
        fedmd.build(fedmd.Config(), setting(FLEET, labels=None))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"pretrain_epochs": -1}, "pretrain_epochs must be at least 0, got -1"),
        ({"align": 1}, "align must be at least 2, got 1"),
        ({"digest_batch": 0}, "digest_batch must be at least 2, got 0"),
        ({"average": "votes"}, "average must be logits or probabilities, got 'votes'"),
        ({"aling": 5}, "unknown option of fedmd 'aling'; did you mean 'align'"),
    ],
)
def test_bad_settings(options: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        RunConfig(method="fedmd", options=options)
