"""Public data in the harness: what is held out, what other sets bring, and what travels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ghn_fl import RunConfig, run
from ghn_fl.data import Dataset, load
from ghn_fl.engines.work import Bench, perform
from ghn_fl.errors import ConfigError, DataError
from ghn_fl.simulation.build import build_world, setting_of
from ghn_fl.simulation.fleet import Tier, tiers_of
from ghn_fl.simulation.public import public_data
from ghn_fl.simulation.run import _answer, describe
from ghn_fl.simulation.sample import missing
from ghn_fl.simulation.world import World
from ghn_fl.tree import equal
from ghn_fl.types import Job, Recipe

QUICK = {"pretrain_epochs": 1, "private_init_epochs": 1, "align": 50}


def world_of(found: Dataset | None = None, data_dir: Path | None = None, **changes: Any) -> World:
    config = RunConfig(**{"dataset": "synthetic", "skew": "1:3", "method": "fedmd"} | changes)
    found = found or load(config.dataset)
    return build_world(config, found, tiers_of(config, found.in_channels), data_dir)[0]


def owned(world: World) -> set[int]:
    return {i for share in world.shares for i in share.train.tolist()}


def test_a_tenth_of_every_class_is_held_out_before_the_partition() -> None:
    dataset = load("synthetic")  # 200 of each class
    world = world_of(dataset)
    assert world.public is not None and torch.bincount(world.public.y).tolist() == [20] * 10
    public = {image.tobytes() for image in world.public.x.numpy()}
    private = {dataset.x_train[i].numpy().tobytes() for i in owned(world)}
    assert len(owned(world)) == 1800 and not public & private
    assert sum(len(share.train) for share in world.shares) == 1800
    quarter = world_of(dataset, public="heldout:0.25").public
    assert quarter is not None and len(quarter.y) == 500


def test_the_same_public_data_leaves_the_same_private_data_to_every_method() -> None:
    shares = [
        world_of(method=method, public="heldout:0.1").shares
        for method in ("fedmd", "fedmdp", "allsmall", "recipfl")
    ]
    for other in (*shares[1:], world_of().shares):  # heldout:0.1 is what FedMD has by default
        for a, b in zip(shares[0], other, strict=True):
            assert torch.equal(a.train, b.train) and torch.equal(a.test, b.test)


def test_others_hold_everything_if_nobody_asks() -> None:
    world = world_of(method="allsmall")
    assert world.public is None and len(owned(world)) == 2000


@pytest.mark.parametrize("text", ["heldout:1.5", "heldout:0", "heldout:", "heldout:a", "heldout:1"])
def test_impossible_parts(text: str) -> None:
    with pytest.raises(ConfigError, match=r"heldout:PART with a part above 0 and below 1, got"):
        RunConfig(public=text)


def test_too_little_to_hold_out() -> None:
    with pytest.raises(DataError, match="of 2000 samples is 0; 2 or more are needed"):
        world_of(public="heldout:0.0001")


# --- other sets ---------------------------------------------------------------------------------


def write(path: Path, x_train: np.ndarray[Any, Any]) -> None:
    rng = np.random.default_rng(1)
    np.savez(
        path,
        x_train=x_train,
        y_train=np.arange(len(x_train), dtype=np.uint8) % 10,
        x_test=rng.integers(0, 256, (10, 28, 28), dtype=np.uint8),
        y_test=np.arange(10, dtype=np.uint8),
    )


@pytest.fixture
def digits() -> Dataset:
    return load("mnist5k")


def noise(count: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).integers(0, 256, (count, 28, 28), dtype=np.uint8)


def test_another_set_with_the_same_classes(tmp_path: Path, digits: Dataset) -> None:
    write(tmp_path / "mnist.npz", noise(30))
    world = world_of(digits, tmp_path, dataset="mnist5k", public="mnist")
    assert world.public is not None and len(owned(world)) == 4000
    assert world.public.y.tolist() == [i % 10 for i in range(30)]
    assert world.task["num_classes"] == 10


def test_another_set_with_classes_of_its_own(tmp_path: Path, digits: Dataset) -> None:
    write(tmp_path / "fashion_mnist.npz", noise(30))
    world = world_of(digits, tmp_path, dataset="mnist5k", public="fashion_mnist")
    assert world.public is not None
    assert world.public.y.tolist() == [10 + i % 10 for i in range(30)]
    assert world.task["num_classes"] == 20  # ten of the run's own, then ten of the public set
    plain = world_of(digits, tmp_path, dataset="mnist5k", public="fashion_mnist", method="allsmall")
    assert plain.task["num_classes"] == 10


def test_images_that_clients_have_are_not_public(tmp_path: Path, digits: Dataset) -> None:
    own = [digits.x_train[:2, 0].numpy(), digits.x_test[:3, 0].numpy()]
    write(tmp_path / "mnist.npz", np.concatenate([*own, noise(30)]))
    public, pool = public_data("mnist", digits, 0, tmp_path)
    assert public is not None and len(public.y) == 30 and len(pool) == 4000
    assert public.y[0] == 5  # the labels went with the images
    write(tmp_path / "mnist.npz", own[0])
    for name in ("mnist", "mnist5k"):
        with pytest.raises(DataError, match="are those of mnist5k; choose another set, or heldout"):
            public_data(name, digits, 0, tmp_path)


def test_images_of_another_shape(digits: Dataset) -> None:
    says = "has images of 16x16 with 1 channel, mnist5k of 28x28 with 1 channel"
    with pytest.raises(DataError, match=says):
        public_data("synthetic", digits, 0, None)


def test_sets_that_are_not_there(tmp_path: Path, digits: Dataset) -> None:
    with pytest.raises(DataError, match="femnist is not in the data folder"):
        public_data("femnist", digits, 0, tmp_path)
    with pytest.raises(DataError, match="unknown data set 'heldot'"):
        public_data("heldot", digits, 0, tmp_path)


# --- runs ---------------------------------------------------------------------------------------


def config(**changes: Any) -> RunConfig:
    settings = {
        "dataset": "synthetic",
        "method": "fedmd",
        "skew": "1:3",
        "rounds": 2,
        "sample": 3,
        "epochs": 1,
        "lr": 0.05,
        "eval_every": 1,
        "options": QUICK,
    }
    return RunConfig(**settings | changes)


def test_only_scores_and_targets_travel() -> None:
    result = run(config(), workers=1)
    for record in result.rounds:  # three clients, 50 samples, 10 classes, 4 bytes
        assert record["bytes_down"] == record["bytes_up"] == 3 * 50 * 10 * 4
        assert record["metrics"]["digest_loss"] > 0


def test_any_number_of_workers_gives_the_same_numbers() -> None:
    alone, pair = (run(config(rounds=1), workers=workers) for workers in (1, 2))
    assert equal(alone.state, pair.state)


@pytest.mark.parametrize("method", ["fedmd", "fedmdp"])
def test_nobody_answers_and_the_state_stays(method: str) -> None:
    result = run(config(method=method, dropout=1.0), workers=1)
    assert result.state == {"t": 0, "pretrained": {}, "own": {}}
    for record in result.rounds:
        rejected = [r["client"] for r in record["rejected"]]
        assert sorted(rejected) == record["sampled"]  # each of them once


def test_it_learns() -> None:
    settings = config(
        rounds=4, sample=4, epochs=3, lr=0.1, eval_every=4, options={**QUICK, "pretrain_epochs": 5}
    )
    result = run(settings, workers=1)
    assert result.summary["strong_accuracy"] > 0.6 and result.summary["weak_accuracy"] > 0.6


def job_with(world: World, settings: RunConfig, recipe: Recipe) -> Job:
    dataset = load("synthetic")
    _, clients = build_world(settings, dataset, tiers_of(settings, 1))
    spec = clients[1].models[0]
    weights = setting_of(settings, world, clients).initial[spec]
    return Job(client=clients[1], models=((spec, weights),), recipes=(recipe,), stays=True)


def test_scores_that_are_not_finite_are_rejected() -> None:
    world = world_of()
    job = job_with(world, config(), Recipe(epochs=0, scores=torch.tensor([3, 5])))
    task = {"kind": "train", "round": 1, "client": 1, "lr": 0.05, **describe(job)}
    result = perform(Bench(world), task)
    assert _answer(job, result).extras["scores"].shape == (2, 10)
    assert equal(dict(result["weights"][0]), dict(job.models[0][1]))
    result["extras"]["scores"] *= float("nan")
    assert _answer(job, result).failure == "its scores are not finite"


def test_a_digest_takes_time() -> None:
    # 5 epochs of the client's samples and 2 of 100 public ones, at 100 samples a second
    settings = config(client_deadline=1.0, epochs=5)
    digest = {"indices": torch.arange(100), "epochs": 2}
    job = job_with(world_of(), settings, Recipe(digest=digest))
    tier = Tier(name="weak", count=1, model=job.models[0][0], share=1.0, speed=100.0)
    seconds = (5 * job.client.samples + 200) / 100
    assert f"needs {seconds:.1f} s" in missing(job, tier, settings, 1)
