"""Fleets without data and clients that answer what a test says; for Hasaas and AFD."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

import zoo
from ghn_fl.engines.work import Bench
from ghn_fl.local import dense_groups
from ghn_fl.methods import METHODS
from ghn_fl.types import Answer, Client, Job, Method, Setting, Train, Weights
from tests.ghn_fl.methods.bed import Bed
from zoo import ModelSpec

IMAGES = {"num_classes": 10, "in_channels": 1, "image_size": 16}


def fleet(
    name: str, *specs: str, task: Mapping[str, int] = IMAGES, **options: Any
) -> tuple[Method, list[Client]]:
    """A method and one client a spec; client i has 1 + 2 i samples, and so 1, 3, 5, ..."""
    entry, owned = METHODS[name], [ModelSpec.parse(text) for text in specs]
    config = entry.config(**options)
    clients = [
        Client(
            id=i,
            tier="",
            models=entry.models(config, spec, owned),
            samples=1 + 2 * i,
            share=1 / len(specs),
            mix=(),
        )
        for i, spec in enumerate(owned)
    ]
    torch.manual_seed(0)
    initial = {
        spec: {n: p.detach() for n, p in zoo.build(spec, **task).named_parameters()}
        for spec in sorted({s for c in clients for s in c.models}, key=str)
    }
    setting = Setting(
        clients=tuple(clients),
        num_classes=task["num_classes"],
        initial=initial,
        graphs={},
        task=task,
        seed=0,
    )
    return entry.build(config, setting), clients


def answering(
    weights: Callable[[Job], Weights],
    extras: Callable[[Job], Mapping[str, Tensor]] = lambda job: {},
    loss: Callable[[Job], float] = lambda job: 1.0,
    seen: list[Job] | None = None,
) -> Train:
    """A `train` in which every client answers what these functions say of its job."""

    def train(jobs: Sequence[Job]) -> list[Answer]:
        if seen is not None:
            seen.extend(jobs)
        return [
            Answer(
                client=job.client,
                weights=(weights(job),),
                samples=job.client.samples,
                metrics={"loss": loss(job)},
                extras=extras(job),
            )
            for job in jobs
        ]

    return train


def given(job: Job) -> Weights:
    """The weights as the client received them: it learned nothing."""
    return {name: w.clone() for name, w in job.models[0][1].items()}


def all_are(value: Callable[[Job], float]) -> Callable[[Job], Weights]:
    """Every weight of a client is one number."""
    return lambda job: {n: torch.full_like(w, value(job)) for n, w in job.models[0][1].items()}


def nudged(job: Job) -> Weights:
    """The weights moved at random, by client."""
    rng = torch.Generator().manual_seed(job.client.id)
    return {n: w + torch.randn(w.shape, generator=rng) for n, w in job.models[0][1].items()}


def active(value: Callable[[Job], float]) -> Callable[[Job], dict[str, Tensor]]:
    """Every hidden dense unit of a client has one activation."""

    def extras(job: Job) -> dict[str, Tensor]:
        model = zoo.build(job.models[0][0], **IMAGES)
        sizes = zoo.slicing.groups(model)
        return {
            f"activation/{group}": torch.full((sizes[group],), value(job))
            for group in dense_groups(model).values()
        }

    return extras


def learn_faster(bed: Bed) -> None:
    """Larger steps in smaller batches, for tests that want to see a loss fall."""
    config = replace(bed.world.config, lr=0.2, batch_size=32)
    bed.bench = Bench(replace(bed.world, config=config))
