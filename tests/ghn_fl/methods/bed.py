"""A small fleet and a method on it, with a `train` that really trains; for the tests here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ghn_fl.data import load
from ghn_fl.engines.message import decode, encode
from ghn_fl.engines.work import Bench, perform
from ghn_fl.methods import METHODS
from ghn_fl.simulation.build import build_world, setting_of
from ghn_fl.simulation.config import RunConfig
from ghn_fl.simulation.fleet import tiers_of
from ghn_fl.simulation.run import describe
from ghn_fl.types import Answer, Job, Method, Train

SMALL = {"ghn.width": 16, "ghn.decoder_width": 16}
OPTIONS: dict[str, dict[str, Any]] = {
    "recipfl": SMALL,
    "recipfl-paper": SMALL,
    "pfedhn": {"hidden": 16, "steps": 3},
    "fedmd": {"pretrain_epochs": 1, "private_init_epochs": 1, "align": 50},
    "fedmdp": {"pretrain_epochs": 1, "private_init_epochs": 1, "align": 50, "stragglers": 0.5},
}


class Bed:
    """A small fleet, its method, and a `train` that really trains."""

    def __init__(
        self, name: str, *, skew: str = "1:3", large: str = "", small: str = "", **options: Any
    ) -> None:
        self.config = RunConfig(
            dataset="synthetic",
            method=name,
            skew=skew,
            large=large,
            small=small,
            epochs=1,
            lr=0.05,
            options=OPTIONS.get(name, {}) | options,
        )
        dataset = load("synthetic", None)
        tiers = tiers_of(self.config, dataset.in_channels)
        self.world, self.clients = build_world(self.config, dataset, tiers)
        self.setting = setting_of(self.config, self.world, self.clients)
        self.method: Method = METHODS[name].build(self.config.method_config(), self.setting)
        self.bench = Bench(self.world)

    def train(self, number: int) -> Train:
        def train(jobs: Sequence[Job]) -> list[Answer]:
            return [self.answer(number, job) for job in jobs]

        return train

    def answer(self, number: int, job: Job) -> Answer:
        task = {"kind": "train", "round": number, "client": job.client.id, **describe(job)}
        task["lr"] = self.bench.world.config.lr
        result = perform(self.bench, decode(encode(task)))
        return Answer(
            client=job.client,
            weights=tuple(result["weights"]),
            samples=result["samples"],
            metrics=result["metrics"],
            extras=result["extras"],
        )

    def learn_faster(self) -> None:
        """Larger steps in smaller batches, for tests that want to see a loss fall."""
        config = replace(self.world.config, lr=0.2, batch_size=32)
        self.bench = Bench(replace(self.world, config=config))
