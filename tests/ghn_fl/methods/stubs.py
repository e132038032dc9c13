"""Fleets without data, and clients that answer by hand instead of training; for the tests here."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

import zoo
from ghn_fl.data import load
from ghn_fl.local import dense_groups
from ghn_fl.methods import METHODS
from ghn_fl.simulation.build import build_world
from ghn_fl.simulation.build import setting_of as setting_of_run
from ghn_fl.simulation.config import RunConfig
from ghn_fl.simulation.fleet import tiers_of
from ghn_fl.types import Answer, Client, Job, Method, Setting, State, Train, Weights
from zoo import ModelSpec

IMAGES = {"num_classes": 10, "in_channels": 1, "image_size": 16}
EVEN = (0.1,) * 10
Value: TypeAlias = Callable[[Job, ModelSpec, str, Tensor], Any]


class Fleet(NamedTuple):
    """A method on a fleet, its clients, and every model's initial weights."""

    method: Method
    clients: tuple[Client, ...]
    initial: Mapping[ModelSpec, Weights]


def setting_of(clients: Sequence[Client], task: Mapping[str, int] = IMAGES) -> Setting:
    """What a method knows of these clients, whose data nobody has."""
    initial = {}
    for spec in sorted({spec for c in clients for spec in c.models}, key=str):
        torch.manual_seed(zlib.crc32(str(spec).encode()))
        model = zoo.build(spec, **task)
        initial[spec] = {n: p.detach() for n, p in model.named_parameters()}
    return Setting(
        clients=tuple(clients),
        num_classes=task["num_classes"],
        initial=initial,
        graphs={},
        task=task,
        seed=0,
        epochs=1,
    )


def fleet(
    name: str,
    *models: str,
    mixes: Mapping[int, Any] | None = None,
    task: Mapping[str, int] = IMAGES,
    step: int = 1,
    **options: Any,
) -> Fleet:
    """A method and one client for each text, which names the models that it trains.

    They have 1, 1 + step, 1 + 2 step, ... samples, and all classes if `mixes` says nothing.
    """
    clients = tuple(
        Client(
            id=i,
            tier=text,
            models=tuple(map(ModelSpec.parse, text.split())),
            samples=1 + step * i,
            share=1 / len(models),
            mix=(mixes or {}).get(i, EVEN),
        )
        for i, text in enumerate(models)
    )
    entry, setting = METHODS[name], setting_of(clients, task)
    return Fleet(entry.build(entry.config(**options), setting), clients, setting.initial)


def fleet_of(
    name: str, *specs: str, task: Mapping[str, int] = IMAGES, **options: Any
) -> tuple[Method, tuple[Client, ...]]:
    """The same for devices of these models, by the method's own rule of what they then train.

    They have 1, 3, 5, ... samples.
    """
    entry, owned = METHODS[name], [ModelSpec.parse(text) for text in specs]
    config = entry.config(**options)
    texts = [" ".join(map(str, entry.models(config, spec, owned))) for spec in owned]
    made = fleet(name, *texts, task=task, step=2, **options)
    return made.method, made.clients


def answering(
    value: Value,
    *,
    extras: Callable[[Job], Mapping[str, Tensor]] = lambda job: {},
    loss: Callable[[Job], float] = lambda job: 1.0,
    samples: Callable[[Job], int] = lambda job: job.client.samples,
    seen: list[Job] | None = None,
) -> Train:
    """A `train` in which every tensor becomes value(job, model, name, given).

    Args:
        value: a number for the whole tensor, or a tensor.
        extras: what else a client sends.
        loss: that it reports.
        samples: on how many it says that it trained.
        seen: what was asked is noted there.
    """

    def answer(job: Job) -> Answer:
        weights = tuple(
            {
                name: torch.as_tensor(value(job, spec, name, w)).expand_as(w) + 0.0
                for name, w in given.items()
            }
            for spec, given in job.models
        )
        return Answer(
            client=job.client,
            weights=weights,
            samples=samples(job),
            metrics={"loss": loss(job)},
            extras=extras(job),
        )

    def train(jobs: Sequence[Job]) -> list[Answer]:
        if seen is not None:
            seen.extend(jobs)
        return [answer(job) for job in jobs]

    return train


def unmoved(job: Job, spec: ModelSpec, name: str, given: Tensor) -> Tensor:
    """The weights as the client received them: it learned nothing."""
    return given


def nudged(job: Job, spec: ModelSpec, name: str, given: Tensor) -> Tensor:
    """The weights moved at random, by client."""
    rng = torch.Generator().manual_seed(job.client.id + zlib.crc32(name.encode()))
    return given + torch.randn(given.shape, generator=rng)


def all_are(value: Callable[[Job], float]) -> Value:
    """Every weight of a client is one number."""
    return lambda job, *_: float(value(job))


def sending(*values: float) -> Train:
    """A `train` in which client i sends values[i] everywhere."""
    return answering(all_are(lambda job: values[job.client.id]))


def counted(values: Mapping[int, tuple[float, int]], seen: list[Job] | None = None) -> Train:
    """Client m answers weights that are all x, trained on n samples: values[m] = (x, n)."""
    return answering(
        all_are(lambda job: values[job.client.id][0]),
        samples=lambda job: values[job.client.id][1],
        seen=seen,
    )


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


def at(state: State, value: float) -> State:
    """A state of grouped averaging with all weights at one value."""
    models = {
        spec: {name: torch.full_like(w, value) for name, w in weights.items()}
        for spec, weights in state["models"].items()
    }
    return state | {"models": models}


def only(weights: Mapping[str, Tensor]) -> float:
    """The one value that all weights have."""
    flat = torch.cat([w.flatten() for w in weights.values()])
    assert (flat == flat[0]).all()
    return float(flat[0])


def method_for(config: RunConfig) -> Method:
    """The method of a run, or the reason why it refuses the fleet."""
    dataset = load(config.dataset, None)
    world, clients = build_world(config, dataset, tiers_of(config, dataset.in_channels))
    setting = setting_of_run(config, world, clients)
    return METHODS[config.method].build(config.method_config(), setting)
