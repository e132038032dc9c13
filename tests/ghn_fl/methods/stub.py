"""Fleets of any models, and clients that answer by hand instead of training."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

import zoo
from ghn_fl.data import load
from ghn_fl.methods import METHODS
from ghn_fl.simulation.config import RunConfig
from ghn_fl.simulation.fleet import tiers_of
from ghn_fl.simulation.run import build_world, setting_of
from ghn_fl.types import Answer, Client, Job, Method, Train, Weights
from zoo import ModelSpec

EVEN = (0.1,) * 10


@dataclasses.dataclass(frozen=True)
class Fleet:
    """A method on a fleet, its clients, and every model's initial weights."""

    method: Method
    clients: tuple[Client, ...]
    initial: Mapping[ModelSpec, Weights]


def fleet(name: str, *models: str, mixes: Mapping[int, Any] | None = None, **options: Any) -> Fleet:
    """A method and one client for each text, which names the models that it trains.

    Client 0 has 1 sample, client 1 has 2, and so on; all have all classes if `mixes` says nothing.
    """
    config = RunConfig(dataset="synthetic", method=name, skew="1:1", options=options)
    dataset = load("synthetic", None)
    world, _ = build_world(config, dataset, tiers_of(config, dataset.in_channels))
    clients = tuple(
        Client(
            id=i,
            tier=text,
            models=tuple(map(ModelSpec.parse, text.split())),
            samples=i + 1,
            share=(i + 1) / sum(range(len(models) + 1)),
            mix=(mixes or {}).get(i, EVEN),
        )
        for i, text in enumerate(models)
    )
    initial = {
        spec: {n: p.detach() for n, p in zoo.build(spec, **world.task).named_parameters()}
        for spec in sorted({spec for c in clients for spec in c.models}, key=str)
    }
    plain = setting_of(config, world, [])
    setting = dataclasses.replace(plain, clients=clients, initial=initial)
    return Fleet(METHODS[name].build(config.method_config(), setting), clients, initial)


def answering(value: Callable[[Client, ModelSpec, str, Tensor], Any]) -> Train:
    """A `train` that sends value(client, model, name, given) in every tensor."""

    def answer(job: Job) -> Answer:
        weights = tuple(
            {
                n: torch.as_tensor(value(job.client, spec, n, w)).expand_as(w) + 0.0
                for n, w in ws.items()
            }
            for spec, ws in job.models
        )
        return Answer(client=job.client, weights=weights, samples=job.client.samples)

    return lambda jobs: [answer(job) for job in jobs]


def sending(*values: float) -> Train:
    """A `train` in which client i sends values[i] everywhere."""
    return answering(lambda client, *_: values[client.id])


unmoved = answering(lambda client, spec, name, given: given)


def seeing(jobs: list[Job], train: Train) -> Train:
    """The same, and what was asked is noted."""

    def watch(asked: Sequence[Job]) -> Sequence[Answer]:
        jobs.extend(asked)
        return train(asked)

    return watch
