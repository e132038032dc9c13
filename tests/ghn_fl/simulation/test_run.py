"""The loop on a small made-up set: determinism, workers, resuming, and clients that misbehave."""

from __future__ import annotations

import fcntl
import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import zoo
from ghn_fl import GHN, Lessons, RunConfig, local, run
from ghn_fl.data import load, normalise
from ghn_fl.engines.local import DIED, LocalEngine
from ghn_fl.engines.work import Bench, perform
from ghn_fl.errors import ConfigError, DataError, RunError
from ghn_fl.methods import METHODS
from ghn_fl.report.read import read_run
from ghn_fl.simulation import checkpoint
from ghn_fl.simulation.build import build_world, setting_of
from ghn_fl.simulation.fleet import tiers_of
from ghn_fl.simulation.run import _train
from ghn_fl.tree import equal
from ghn_fl.types import Job

SMALL = {"ghn.width": 16, "ghn.decoder_width": 16}
TINY = {**SMALL, "lessons": 20}


def config(**changes: Any) -> RunConfig:
    settings = {
        "dataset": "synthetic",
        "skew": "1:5",
        "rounds": 4,
        "sample": 3,
        "epochs": 1,
        "lr": 0.05,
        "batch_size": 32,
        "eval_every": 2,
        "options": TINY,
    }
    return RunConfig(**settings | changes)


def timeless(records: Any) -> list[dict[str, Any]]:
    return [{k: v for k, v in record.items() if k != "seconds"} for record in records]


def test_a_run_leaves_what_it_should(tmp_path: Path) -> None:
    result = run(config(), out=tmp_path / "run", workers=1)
    folder = tmp_path / "run"
    lines = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    assert [line["round"] for line in lines] == [1, 2, 3, 4]
    assert [bool(line["clients"]) for line in lines] == [False, True, False, True]
    assert lines[3]["strong_accuracy_full"] is not None
    summary = json.loads((folder / "summary.json").read_text())
    wanted = (
        "method dataset skew rounds seed strong_accuracy weak_accuracy strong_accuracy_full "
        "weak_accuracy_full strong_std weak_std fairness_loss_std bytes_down bytes_up seconds "
        "peak_rss_mb"
    )
    assert set(wanted.split()) <= set(summary)
    assert (
        summary["strong_accuracy"]
        == lines[3]["strong_accuracy"]
        == result.rounds[3]["strong_accuracy"]
    )
    assert set(lines[0]["seconds"]) == {"generate", "train", "update", "evaluate", "record"}
    fleet = json.loads((folder / "config.json").read_text())["fleet"]
    assert [c["tier"] for c in fleet] == ["strong"] + ["weak"] * 5
    assert fleet[0]["models"] == ["lenet5", "lenet5-d1"]
    assert (folder / "ghn.safetensors").exists()
    lessons = Lessons.load(folder)
    assert (lessons.images.shape, lessons.answers.shape) == ((20, 1, 16, 16), (20, 10))
    # what travelled: every sampled client got its models' float32 weights, and sent as many back
    sizes = {"lenet5": 0, "lenet5-d1": 0}
    for name in sizes:
        import zoo

        sizes[name] = 4 * zoo.num_parameters(name, in_channels=1, image_size=16)
    down = sum(sizes[m] for i in lines[0]["sampled"] for m in fleet[i]["models"])
    assert lines[0]["bytes_down"] == lines[0]["bytes_up"] == down


def test_any_number_of_workers_gives_the_same_numbers(tmp_path: Path) -> None:
    alone, together = run(config(), workers=1), run(config(), workers=2)
    assert timeless(alone.rounds) == timeless(together.rounds)
    assert equal(alone.state, together.state)


def test_the_seed_decides(tmp_path: Path) -> None:
    a, b = run(config(rounds=1), workers=1), run(config(rounds=1, seed=1), workers=1)
    assert timeless(a.rounds) != timeless(b.rounds)


def test_other_models_answer_on_strong_devices_alone() -> None:
    alone, both, thrice = (
        run(config(rounds=1, options={**TINY, **parts}), workers=1)
        for parts in ({"second": 0}, {"second": 0.4, "untuned": 0}, {"second": 0.4})
    )
    # nothing that is kept depends on it
    assert equal(alone.state, both.state) and equal(alone.state, thrice.state)
    strong, *weak = alone.rounds[-1]["clients"]
    losses = {strong["loss"]}
    for result in (both, thrice):
        helped, *others = result.rounds[-1]["clients"]
        assert others == weak
        losses.add(helped["loss"])
    assert len(losses) == 3


def test_devices_may_be_evaluated_with_what_they_are_served() -> None:
    settings = config(method="allsmall", options={}, rounds=1, finetune=0)
    result = run(settings, workers=1)
    dataset = load("synthetic")
    world, clients = build_world(settings, dataset, tiers_of(settings, 1))
    method = METHODS["allsmall"].build(
        settings.method_config(), setting_of(settings, world, clients)
    )
    for client, weights, row in zip(
        clients,
        method.personalize(result.state, clients),
        result.rounds[-1]["clients"],
        strict=True,
    ):
        model = local.load(zoo.build(client.models[0], **world.task), weights)
        share = world.shares[client.id]
        own = local.Samples(normalise(dataset.x_train[share.train], dataset), torch.empty(0))
        local.static_norm(model, own)
        tests = normalise(dataset.x_test[share.test], dataset), dataset.y_test[share.test]
        assert row["accuracy"] == local.evaluate(model, *tests, 10).accuracy
    tuned = run(config(method="allsmall", options={}, rounds=1), workers=1)
    assert equal(tuned.state, result.state)  # nothing that is kept depends on it
    assert tuned.rounds[-1]["clients"] != result.rounds[-1]["clients"]


def test_one_run_a_folder(tmp_path: Path) -> None:
    other = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(other, fcntl.LOCK_EX)
    with pytest.raises(RunError, match="in use by another run"):
        run(config(rounds=1), out=tmp_path, workers=1)
    assert not list(tmp_path.iterdir())
    os.close(other)
    run(config(method="local", options={}, rounds=1), out=tmp_path, workers=1)


def test_a_model_that_goes_astray_leaves_a_result(tmp_path: Path) -> None:
    result = run(config(method="allsmall", options={}, rounds=1, lr=1e30), out=tmp_path / "r")
    assert result.summary["fairness_loss_std"] is None
    for name in ("rounds.jsonl", "summary.json"):
        text = (tmp_path / "r" / name).read_text()
        assert "NaN" not in text and "Infinity" not in text
    assert read_run(tmp_path / "r").rounds[-1].tiers["weak"].loss is None


@pytest.mark.parametrize(
    ("every", "evaluated"),
    # the last fifth of six rounds is two
    [(4, [4, 5, 6]), (2, [2, 4, 5, 6]), (9, [5, 6]), (0, [6])],
)
def test_which_rounds_are_evaluated(every: int, evaluated: list[int]) -> None:
    settings = config(method="local", options={}, rounds=6, epochs=1, eval_every=every)
    result = run(settings, workers=1)
    assert [r["round"] for r in result.rounds if r["clients"]] == evaluated
    scores = [r["weak_accuracy"] for r in result.rounds[-2:] if r["clients"]]
    assert result.summary["weak_accuracy"] == pytest.approx(sum(scores) / len(scores))
    assert result.summary["weak_accuracy_full"] == result.rounds[-1]["weak_accuracy_full"]


def test_the_step_size_falls_from_round_to_round() -> None:
    def prior(**settings: float) -> dict[str, Any]:
        plain = config(method="allsmall", options={}, eval_every=9, **settings)
        return run(plain, workers=1).state

    falling, constant = prior(rounds=2, lr_decay=0.1), prior(rounds=2, lr_decay=1.0)
    assert not equal(falling, constant)
    # the first round's is lr in any case, and what a single round has
    assert equal(prior(rounds=1, lr_decay=0.1), prior(rounds=1, lr_decay=1.0))


@pytest.mark.parametrize("method", ["recipfl", "allsmall", "exclusivefl"])
def test_it_learns(method: str) -> None:
    options = TINY if method == "recipfl" else {}
    settings = {"rounds": 12, "epochs": 3, "eval_every": 12, "lr": 0.1, "sample": 6}
    result = run(config(method=method, options=options, **settings), workers=1)
    assert result.summary["weak_accuracy"] > 0.6
    assert result.summary["strong_accuracy"] > 0.6


@pytest.mark.parametrize("method", ["recipfl", "recipfl-paper"])
def test_a_fleet_tells_the_hypernetwork_its_shapes(tmp_path: Path, method: str) -> None:
    options = {**SMALL, "ghn.tiling": "full"}
    run(config(method=method, rounds=1, options=options), out=tmp_path / "run", workers=1)
    design = GHN.load(tmp_path / "run").config
    assert dict(design.full_shapes)["conv"] == (16, 6, 5, 5)  # LeNet-5's second, the larger one


def test_a_fleet_tells_the_hypernetwork_its_clients(tmp_path: Path) -> None:
    options = {**SMALL, "ghn.descriptor": "id"}
    settings = config(method="recipfl-paper", rounds=1, options=options)
    run(settings, out=tmp_path / "run", workers=1)
    assert GHN.load(tmp_path / "run").config.num_clients == 6


def start(folder: Path, *words: str) -> subprocess.Popen[str]:
    """What `config(rounds=6, eval_every=1)` says, as a command: its options are texts."""
    command = [sys.executable, "-c", "from ghn_fl.cli import main; main()", "train"]
    settings = "--dataset synthetic --skew 1:5 --rounds 6 --sample 3 --epochs 1 --eval-every 1"
    settings += " --lr 0.05 --batch-size 32"
    tiny = [w for key, value in TINY.items() for w in ("--set", f"{key}={value}")]
    line = [*command, *settings.split(), *tiny, "--workers", "1", "--out", str(folder), *words]
    env = {**os.environ, "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(
        line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env
    )


def test_a_killed_run_goes_on_bit_for_bit(tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    settings = config(rounds=6, eval_every=1)
    run(settings, out=whole, workers=1)
    chance = random.Random(0)
    for resume in ((), ("--resume",)):
        process = start(killed, *resume)
        assert process.stdout is not None
        for _ in range(chance.randint(1, 2)):  # wait for so many rounds, then kill at once
            line = process.stdout.readline()
            assert line.startswith("round"), line + process.stdout.read()
        process.send_signal(signal.SIGKILL)
        process.communicate()
    # as a kill in the middle of a line would leave it
    with (killed / "rounds.jsonl").open("a") as file:
        file.write('{"round": 5, "samp')
    run(settings, out=killed, workers=1, resume=True)

    def rounds(folder: Path) -> list[dict[str, Any]]:
        return timeless(json.loads(x) for x in (folder / "rounds.jsonl").read_text().splitlines())

    assert rounds(killed) == rounds(whole)
    assert equal(checkpoint.load(killed), checkpoint.load(whole))
    one, other = GHN.load(killed), GHN.load(whole)
    assert one.config == other.config
    assert equal(dict(one.state_dict()), dict(other.state_dict()))


def test_folders_of_other_runs_are_not_touched(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    run(config(rounds=1), out=folder, workers=1)
    before = {f: f.read_bytes() for f in folder.rglob("*") if f.is_file()}
    with pytest.raises(ConfigError, match="holds a run already; --resume goes on with it"):
        run(config(rounds=1), out=folder, workers=1)
    says = r"started with other settings: rounds \(1 there, 2 now\), seed \(0 there, 1 now\);"
    with pytest.raises(ConfigError, match=says):
        run(config(rounds=2, seed=1), out=folder, workers=1, resume=True)
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.txt").write_text("years of work")
    for resume in (False, True):
        with pytest.raises(ConfigError, match="other is"):
            run(config(), out=other, workers=1, resume=resume)
    assert {f: f.read_bytes() for f in folder.rglob("*") if f.is_file()} == before
    (folder / "checkpoint" / "state.safetensors").write_bytes(b"cut")
    with pytest.raises(RunError, match="is damaged"):
        run(config(rounds=1), out=folder, workers=1, resume=True)


def test_a_run_that_is_older_than_a_setting_goes_on(tmp_path: Path) -> None:
    settings = config(rounds=1, lr_decay=1.0)
    run(settings, out=tmp_path, workers=1)
    file = tmp_path / "config.json"
    stored = json.loads(file.read_text())
    del stored["config"]["elastic"], stored["config"]["lr_decay"]
    file.write_text(json.dumps(stored))
    assert len(run(settings, out=tmp_path, workers=1, resume=True).rounds) == 1
    with pytest.raises(ConfigError, match=r"lr_decay \(1.0 there, 0.1 now\)"):  # it was constant
        run(config(rounds=1), out=tmp_path, workers=1, resume=True)


def test_more_clients_than_samples() -> None:
    with pytest.raises(DataError):
        run(config(skew="1:5000"), workers=1)


def test_clients_drop_out_and_the_round_goes_on() -> None:
    result = run(config(dropout=0.5, rounds=4), workers=1)
    rejected = [r for record in result.rounds for r in record["rejected"]]
    assert 0 < len(rejected) < 12
    assert {r["reason"] for r in rejected} == {"dropped out"}
    assert result.summary["rejected"] == len(rejected)
    for record in result.rounds:
        fallen = {r["client"] for r in record["rejected"]}
        assert fallen <= set(record["sampled"])


@pytest.mark.parametrize("method", ["recipfl", "allsmall", "exclusivefl"])
def test_a_round_without_an_answer_leaves_the_state_as_it_was(method: str) -> None:
    options = TINY if method == "recipfl" else {}
    result = run(config(method=method, options=options, dropout=1.0, rounds=1), workers=1)
    fresh = run(config(method=method, options=options, dropout=1.0, rounds=2), workers=1)
    assert equal(result.state, fresh.state)
    assert len(result.rounds[0]["rejected"]) == 3
    assert result.rounds[0]["bytes_up"] == 0


def test_a_simulated_deadline(tmp_path: Path) -> None:
    fleet = tmp_path / "fleet.toml"
    fleet.write_text(
        "[[tier]]\nname='strong'\ncount=1\nmodel='lenet5'\nshare=0.5\nspeed=100.0\n"
        "[[tier]]\nname='weak'\ncount=5\nmodel='lenet5-d1'\nshare=0.5\nalpha=0.5\nspeed=100.0\n"
    )
    # the strong client trains 1000 samples of two models at 100 a second: 20 s; a weak one 2 s
    result = run(config(fleet=str(fleet), client_deadline=10.0, sample=6, rounds=1), workers=1)
    (only,) = result.rounds[0]["rejected"]
    assert only == {"client": 0, "reason": "needs 20.0 s, the deadline is 10 s"}


def jobs_and_world(count: int) -> tuple[Any, list[Job]]:
    settings = config(method="allsmall", options={})
    dataset = load("synthetic", None)
    tiers = tiers_of(settings, dataset.in_channels)
    world, clients = build_world(settings, dataset, tiers)
    import zoo

    model = zoo.build("lenet5-d1", **world.task)
    weights = {n: p.detach() for n, p in model.named_parameters()}
    return world, [Job(client=c, models=((c.models[0], weights),)) for c in clients[:count]]


class Engine:
    """Answers every task with what a function makes of the true answer."""

    def __init__(self, world: Any, spoil: Any) -> None:
        self.bench, self.spoil = Bench(world), spoil

    def run(self, tasks: Any) -> Any:
        return [self.spoil(task["client"], perform(self.bench, task)) for task in tasks]


def test_unusable_answers_are_rejected_with_a_reason() -> None:
    world, jobs = jobs_and_world(5)

    def spoil(client: int, answer: dict[str, Any]) -> dict[str, Any]:
        weights = answer["weights"][0]
        name = next(iter(weights))
        if client == 1:
            weights[name] = weights[name] * float("nan")
        elif client == 2:
            weights[name] = weights[name][:1]
        elif client == 3:
            del weights[name]
        elif client == 4:
            answer["weights"] = []
        return answer

    settings = config(method="allsmall", options={})
    tiers = {t.name: t for t in tiers_of(settings, 1)}
    answers = _train(1, jobs, Engine(world, spoil), settings, tiers)  # type: ignore[arg-type]
    assert [a.client.id for a in answers] == [0, 1, 2, 3, 4]
    assert answers[0].failure == "" and answers[0].samples == 1000
    assert answers[1].failure.endswith("is not finite")
    assert "has shape" in answers[2].failure
    assert "other names" in answers[3].failure
    assert answers[4].failure == "sent 0 models instead of 1"


def test_a_worker_that_dies_costs_its_client_only() -> None:
    world, jobs = jobs_and_world(4)
    settings = config(method="allsmall", options={})
    tiers = {t.name: t for t in tiers_of(settings, 1)}
    with LocalEngine(world, 2) as engine:
        for pid in engine.process_ids:
            os.kill(pid, signal.SIGKILL)
        answers = _train(1, jobs, engine, settings, tiers)
        assert sorted(a.failure for a in answers) == ["", "", DIED, DIED]
        again = _train(1, jobs, engine, settings, tiers)
        assert [a.failure for a in again] == [""] * 4


def test_a_broken_server_state_stops_the_run(tmp_path: Path) -> None:
    settings = config(rounds=3, options={**TINY, "update.optimizer": "sgd", "update.lr": 1e38})
    with pytest.raises(RunError, match=r"round \d: the .* finite"):
        run(settings, out=tmp_path / "run", workers=1)
    saved = checkpoint.load(tmp_path / "run")
    kept = tmp_path / "run" / "rounds.jsonl"
    lines = kept.read_text().splitlines() if kept.exists() else []
    assert len(lines) == (saved[0] if saved else 0)


def test_threads_are_given_back() -> None:
    before = torch.get_num_threads()
    run(config(rounds=1), workers=1)
    assert torch.get_num_threads() == before
