"""DepthFL's own rules; losses of its exits are in test_losses.py."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from ghn_fl.aggregate import weighted_mean
from ghn_fl.engines import LocalEngine
from ghn_fl.errors import ConfigError
from ghn_fl.methods.depthfl import Config, models, omega
from ghn_fl.report.read import read_run
from ghn_fl.simulation.config import RunConfig
from ghn_fl.simulation.run import run
from ghn_fl.tree import equal
from ghn_fl.types import Answer, Client, Job, Train, Weights
from tests.ghn_fl.methods.bed import Bed
from tests.ghn_fl.methods.stubs import answering
from zoo import ModelSpec

BLOCK1, BLOCK2 = "stages.1.conv.weight", "stages.2.conv.weight"
EXIT1, EXIT2 = "exits.1.classifier.weight", "exits.2.classifier.weight"


def constant(value: Callable[[Client, ModelSpec], float], jobs: list[Job] | None = None) -> Train:
    """Clients whose tensors are all one number; what they were asked goes to `jobs`."""
    return answering(lambda job, spec, *_: value(job.client, spec), seen=jobs)


def is_all(tensor: Tensor, value: float) -> bool:
    return torch.allclose(tensor, torch.tensor(value), atol=1e-5)


def test_weight_of_distillation_over_rounds() -> None:
    # exp(-5 (1 - t/300)^2) after t rounds
    expected = {0: 0.0067379, 100: 0.108368, 200: 0.573753, 300: 1.0, 301: 1.0, 10_000: 1.0}
    for t, value in expected.items():
        assert omega(t, 300) == pytest.approx(value, abs=1e-6)
    assert omega(1, 2) == pytest.approx(0.2865048)  # exp(-5/4)


def test_a_device_owns_all_exits_up_to_its_depth() -> None:
    bed, jobs = Bed("depthfl"), list[Job]()
    state = bed.method.init()
    state, report = bed.method.run_round(state, bed.clients, constant(lambda *_: 0.0, jobs))
    strong, weak = jobs[0], jobs[1]
    assert [str(spec) for spec, _ in strong.models] == ["lenet5-exits"]
    assert [str(spec) for spec, _ in weak.models] == ["lenet5-d1-exits"]
    assert {BLOCK1, BLOCK2, EXIT1, EXIT2} <= strong.models[0][1].keys()
    assert {BLOCK1, EXIT1} <= weak.models[0][1].keys()
    assert not {BLOCK2, EXIT2} & weak.models[0][1].keys()
    assert equal({n: strong.models[0][1][n] for n in weak.models[0][1]}, dict(weak.models[0][1]))
    assert [r.exits for r in strong.recipes] == [pytest.approx(0.0067379, abs=1e-6)]
    assert report == {"omega": pytest.approx(0.0067379, abs=1e-6)}
    jobs.clear()
    bed.method.run_round(state, bed.clients, constant(lambda *_: 0.0, jobs))
    assert jobs[0].recipes[0].exits == pytest.approx(omega(1, 300))


def test_a_tensor_is_the_plain_mean_over_its_owners() -> None:
    # three clients answer 7 (deep, 1000 samples), -3 and 2 (1 sample each): block 1 and exit 1 are
    # (7 - 3 + 2) / 3 = 2, block 2 and exit 2 are the deep one's 7
    bed = Bed("depthfl")
    who = [replace(c, samples=1000 if c.id == 0 else 1) for c in bed.clients[:3]]
    train = constant(lambda client, _: (7.0, -3.0, 2.0)[client.id])
    state, _ = bed.method.run_round(bed.method.init(), who, train)
    weights = state["weights"]
    assert is_all(weights[BLOCK1], 2.0) and is_all(weights[EXIT1], 2.0)
    assert is_all(weights[BLOCK2], 7.0) and is_all(weights[EXIT2], 7.0)
    # without a deep one, what only it has stays
    after, _ = bed.method.run_round(state, who[1:], train)
    assert is_all(after["weights"][BLOCK1], -0.5) and torch.equal(
        after["weights"][BLOCK2], weights[BLOCK2]
    )
    assert after["t"] == 2


def test_weighting_by_samples() -> None:
    # 4 (deep, 1 sample) and -2 (3 samples): what both have is (1 * 4 + 3 * -2) / 4 = -0.5
    bed = Bed("depthfl", weighting="samples")
    who = [replace(c, samples=3 if c.id else 1) for c in bed.clients[:2]]
    train = constant(lambda client, _: (4.0, -2.0)[client.id])
    state, _ = bed.method.run_round(bed.method.init(), who, train)
    assert is_all(state["weights"][BLOCK1], -0.5) and is_all(state["weights"][EXIT1], -0.5)
    assert is_all(state["weights"][BLOCK2], 4.0) and is_all(state["weights"][EXIT2], 4.0)


def test_equal_depths_without_distillation_are_fedavg_of_equal_weights() -> None:
    bed, sent = Bed("depthfl", distill=False), list[Weights]()
    jobs: list[Job] = []

    def train(asked: Sequence[Job]) -> list[Answer]:
        jobs.extend(asked)
        answers = list(bed.train(1)(asked))
        sent.extend(a.weights[0] for a in answers)
        return answers

    weak = bed.clients[1:]
    state, report = bed.method.run_round(bed.method.init(), weak, train)
    mean = weighted_mean(sent, [1] * len(sent))
    assert report == {"omega": 0.0}
    assert [job.recipes[0].exits for job in jobs] == [0.0] * len(weak)
    for name, w in mean.items():
        assert torch.allclose(state["weights"][name], w, atol=1e-6)


def test_distillation_changes_what_a_deep_client_learns() -> None:
    def trained(**options: Any) -> Weights:
        bed = Bed("depthfl", ramp=1, **options)
        state, _ = bed.method.run_round(bed.method.init(), bed.clients, bed.train(1))
        state, _ = bed.method.run_round(state, bed.clients[:1], bed.train(2))  # omega is 1 now
        weights: Weights = state["weights"]
        return weights

    with_it, without = trained(), trained(distill=False)
    assert not torch.allclose(with_it[EXIT1], without[EXIT1], atol=1e-6)
    assert not torch.allclose(with_it[EXIT2], without[EXIT2], atol=1e-6)


def test_served_are_all_exits_or_the_last() -> None:
    ensemble, last = Bed("depthfl"), Bed("depthfl", inference="last")
    assert [str(m) for m in ensemble.clients[0].models] == ["lenet5-exits"]
    assert [str(m) for m in last.clients[0].models] == ["lenet5", "lenet5-exits"]
    assert [str(m) for m in last.clients[1].models] == ["lenet5-d1", "lenet5-d1-exits"]
    jobs: list[Job] = []
    train = constant(lambda *_: 0.5, jobs)
    state, _ = last.method.run_round(last.method.init(), last.clients, train)
    assert [str(spec) for spec, _ in jobs[0].models] == ["lenet5-exits"]  # trains the second only
    (weights,) = last.method.personalize(state, last.clients[:1])
    assert EXIT1 not in weights and {BLOCK1, BLOCK2, EXIT2} <= weights.keys()
    assert all(torch.equal(w, state["weights"][n]) for n, w in weights.items())
    # training is the same, whatever is served
    other, _ = ensemble.method.run_round(ensemble.method.init(), ensemble.clients, train)
    assert equal(state["weights"], other["weights"])


def test_not_extended_has_the_deepest_exit_alone() -> None:
    bed, jobs = Bed("depthfl", extended=False), list[Job]()
    train = constant(lambda client, _: float(client.id), jobs)
    state, report = bed.method.run_round(bed.method.init(), bed.clients, train)
    assert [str(job.models[0][0]) for job in jobs[:2]] == ["lenet5", "lenet5-d1"]
    assert {job.recipes[0].exits for job in jobs} == {None} and report == {"omega": 0.0}
    # clients 0 (deep), 1, 2, 3: block 1 is everybody's, exit 1 of the shallow, exit 2 of the deep
    assert is_all(state["weights"][BLOCK1], 1.5) and is_all(state["weights"][EXIT1], 2.0)
    assert is_all(state["weights"][EXIT2], 0.0)


def test_a_strong_device_may_also_train_the_smallest_model() -> None:
    # the strong client's deep model says 6, its small one 3, the weak client 0: (6 + 3 + 0) / 3
    bed, jobs = Bed("depthfl", own_and_smallest=True, feddyn=0.1), list[Job]()
    values = {"lenet5-exits": 6.0, "lenet5-d1-exits": 3.0}
    train = constant(lambda client, spec: values[str(spec)] if client.id == 0 else 0.0, jobs)
    plain = Bed("depthfl", own_and_smallest=True)
    state, _ = plain.method.run_round(plain.method.init(), plain.clients[:2], train)
    assert [str(spec) for spec, _ in jobs[0].models] == ["lenet5-exits", "lenet5-d1-exits"]
    assert is_all(state["weights"][BLOCK1], 3.0) and is_all(state["weights"][BLOCK2], 6.0)
    state, _ = bed.method.run_round(bed.method.init(), bed.clients[:1], bed.train(1))
    assert state["clients"].keys() == {"0 lenet5-exits", "0 lenet5-d1-exits"}


def test_feddyn_by_hand() -> None:
    # alpha = 0.5, M = 4 clients of which 0 (deep), 1 and 2 answer 1, 2 and -6 to what was 0:
    # block 1: c = 3, mean -1: h = 0 - 0.5 (3/4) (-1) = 0.375, w = -1 - 0.375/0.5 = -1.75
    # block 2: c = 1, mean 1: h = -0.5 (1/4) 1 = -0.125, w = 1 + 0.25 = 1.25
    bed, jobs = Bed("depthfl", feddyn=0.5), list[Job]()
    start = bed.method.init()
    start["weights"] = {n: torch.zeros_like(w) for n, w in start["weights"].items()}
    train = constant(lambda client, _: (1.0, 2.0, -6.0)[client.id], jobs)
    state, _ = bed.method.run_round(start, bed.clients[:3], train)
    assert all(job.recipes[0].prox == 0.5 and job.recipes[0].linear is None for job in jobs)
    assert is_all(state["h"][BLOCK1], 0.375) and is_all(state["weights"][BLOCK1], -1.75)
    assert is_all(state["h"][BLOCK2], -0.125) and is_all(state["weights"][BLOCK2], 1.25)
    # h_m = 0 - 0.5 (w_m - 0)
    keys = ["0 lenet5-exits", "1 lenet5-d1-exits", "2 lenet5-d1-exits"]
    assert sorted(state["clients"]) == keys
    for key, value in zip(keys, (-0.5, -1.0, 3.0), strict=True):
        assert is_all(state["clients"][key][BLOCK1], value)
    # round 2, client 2 alone answers -6 to -1.75: h_m = 3 - 0.5 (-6 + 1.75) = 5.125
    # block 1: h = 0.375 - 0.5 (1/4) (-4.25) = 0.90625, w = -6 - 1.8125
    jobs.clear()
    after, _ = bed.method.run_round(state, bed.clients[2:3], train)
    given = jobs[0].recipes[0].linear
    assert given is not None and is_all(given[BLOCK1], 3.0)
    assert is_all(after["clients"][keys[2]][BLOCK1], 5.125)
    assert equal(after["clients"][keys[0]], state["clients"][keys[0]])
    assert is_all(after["h"][BLOCK1], 0.90625) and is_all(after["weights"][BLOCK1], -7.8125)
    assert torch.equal(after["h"][BLOCK2], state["h"][BLOCK2])  # nobody had it
    assert torch.equal(after["weights"][BLOCK2], state["weights"][BLOCK2])


def test_feddyn_trains_for_real_and_can_be_stored() -> None:
    from ghn_fl.engines.message import decode, encode

    bed = Bed("depthfl", feddyn=0.1)
    state, _ = bed.method.run_round(bed.method.init(), bed.clients, bed.train(1))
    one, _ = bed.method.run_round(state, bed.clients, bed.train(2))
    two, _ = bed.method.run_round(decode(encode(state)), bed.clients, bed.train(2))
    assert equal(one, two)
    assert not equal(one["clients"], state["clients"])  # h_m went in and came out anew


def test_the_scores_of_all_exits_are_in_the_records(tmp_path: Path) -> None:
    config = RunConfig(
        dataset="synthetic", method="depthfl", skew="1:2", rounds=1, epochs=1, lr=0.05
    )
    out = tmp_path / "run"
    run(config, lambda world: LocalEngine(world, workers=1), out=out)
    (line,) = (out / "rounds.jsonl").read_text().splitlines()
    strong, *weak = json.loads(line)["clients"]
    assert len(strong["accuracy_exits"]) == 2
    assert all(0 <= a <= 1 for a in strong["accuracy_exits"])
    assert all("accuracy_exits" not in client for client in weak)  # one exit: nothing to add
    assert read_run(out).rounds[0].clients[0].accuracy == strong["accuracy"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"inference": "first"}, "inference must be ensemble or last, got 'first'"),
        ({"weighting": "size"}, "weighting must be count or samples, got 'size'"),
        ({"ramp": 0}, "ramp must be at least 1 and feddyn at least 0, got 0"),
        ({"feddyn": -0.1}, "ramp must be at least 1 and feddyn at least 0, got 300 and -0.1"),
    ],
)
def test_bad_settings(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Config(**options)


def test_fleets_that_it_refuses() -> None:
    cnn = ModelSpec.parse("femnist_cnn")
    with pytest.raises(ConfigError, match="an exit after every block, and femnist_cnn has none"):
        models(Config(), cnn, [cnn])
    assert models(Config(extended=False), cnn, [cnn]) == (cnn,)
    for small in ("lenet5-w0.5", "resnet18-d1"):
        config = RunConfig(dataset="synthetic", method="depthfl", skew="1:1", small=small)
        with pytest.raises(ConfigError, match=r"differ in depth only, got .* has another shape"):
            run(config, lambda world: LocalEngine(world, workers=1))
