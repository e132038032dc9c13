"""Agents whose model is one number, for tests of distillation that can be done by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from ghn_fl.types import Answer, Client, Job, Setting
from zoo import ModelSpec

LARGE, SMALL = ModelSpec(family="lenet5"), ModelSpec(family="lenet5", depth=1)
LABELS = torch.arange(6) % 2


def client(number: int, tier: str = "weak", spec: ModelSpec = SMALL) -> Client:
    return Client(id=number, tier=tier, models=(spec,), samples=1, share=0.1, mix=(0.5, 0.5))


def setting(
    clients: Sequence[Client], *, epochs: int = 100, labels: Tensor | None = LABELS
) -> Setting:
    return Setting(
        clients=tuple(clients),
        num_classes=2,
        initial={spec: {"w": torch.tensor(0.0)} for spec in (LARGE, SMALL)},
        graphs={},
        task={},
        seed=0,
        epochs=epochs,
        public_labels=labels,
    )


class Agents:
    """A `train`: pretraining adds 100 to the weight, an epoch on own data 1, a digest 0.5.

    Attributes:
        scores: what a client answers on every public sample.
        silent: who never answers.
        calls: the jobs of every call.
    """

    def __init__(
        self, scores: Mapping[int, Sequence[float]], silent: Sequence[int] = (), deaf: bool = False
    ) -> None:
        self.scores, self.silent, self.deaf = scores, silent, deaf
        self.calls: list[list[Job]] = []

    def __call__(self, jobs: Sequence[Job]) -> list[Answer]:
        self.calls.append(list(jobs))
        return [self.answer(job) for job in jobs]

    def answer(self, job: Job) -> Answer:
        (recipe,), number = job.recipes, job.client.id
        if number in self.silent or (self.deaf and recipe.digest is not None):
            return Answer(client=job.client, failure="dropped out")
        assert job.stays and recipe.epochs is not None
        digested = 0.5 if recipe.digest is not None else 0.0
        more = 100.0 * bool(recipe.pretrain) + recipe.epochs + digested
        extras = {}
        if recipe.scores is not None:
            extras["scores"] = torch.tensor(self.scores[number]).repeat(len(recipe.scores), 1)
        weights = ({"w": job.models[0][1]["w"] + more},)
        return Answer(client=job.client, weights=weights, samples=1, extras=extras)
