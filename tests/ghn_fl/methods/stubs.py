"""Clients that answer by hand instead of training; for the tests here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from ghn_fl.data import load
from ghn_fl.methods import METHODS
from ghn_fl.simulation.config import RunConfig
from ghn_fl.simulation.fleet import tiers_of
from ghn_fl.simulation.run import build_world, setting_of
from ghn_fl.types import Answer, Job, Method, State, Train


def answering(values: Mapping[int, tuple[float, int]], jobs: list[Job] | None = None) -> Train:
    """Client m answers weights that are all x, trained on n samples: values[m] = (x, n)."""

    def train(asked: Sequence[Job]) -> list[Answer]:
        if jobs is not None:
            jobs.extend(asked)
        answers = []
        for job in asked:
            x, n = values[job.client.id]
            weights = tuple(
                {k: torch.full_like(w, x) for k, w in ws.items()} for _, ws in job.models
            )
            answers.append(Answer(client=job.client, weights=weights, samples=n))
        return answers

    return train


def at(state: State, value: float) -> State:
    """A state of grouped averaging with all weights at one value."""
    models = {
        spec: {name: torch.full_like(w, value) for name, w in weights.items()}
        for spec, weights in state["models"].items()
    }
    return state | {"models": models}


def only(weights: Mapping[str, torch.Tensor]) -> float:
    """The one value that all weights have."""
    flat = torch.cat([w.flatten() for w in weights.values()])
    assert (flat == flat[0]).all()
    return float(flat[0])


def method_for(config: RunConfig) -> Method:
    """The method of a run, or the reason why it refuses the fleet."""
    dataset = load(config.dataset, None)
    world, clients = build_world(config, dataset, tiers_of(config, dataset.in_channels))
    return METHODS[config.method].build(config.method_config(), setting_of(config, world, clients))
