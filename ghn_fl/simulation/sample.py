"""Who takes part in a round, and who fails to answer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ghn_fl.random import numpy_stream
from ghn_fl.simulation.config import RunConfig
from ghn_fl.simulation.fleet import Tier
from ghn_fl.types import Client, Job, Recipe


def sample(clients: Sequence[Client], config: RunConfig, number: int) -> list[Client]:
    """The clients of round `number`: uniform, without replacement, in the order of their ids."""
    stream = numpy_stream(config.seed, "sample", number)
    count = min(config.sample, len(clients))
    if config.stratified:
        return _stratified(clients, count, stream)
    return [clients[i] for i in sorted(stream.choice(len(clients), count, replace=False))]


def _stratified(clients: Sequence[Client], count: int, stream: np.random.Generator) -> list[Client]:
    """`count` clients, from every tier in proportion to its size.

    Places left over go to the tiers that lost most in rounding down.
    """
    tiers: dict[str, list[Client]] = {}
    for client in clients:
        tiers.setdefault(client.tier, []).append(client)
    exact = {name: count * len(own) / len(clients) for name, own in tiers.items()}
    places = {name: int(part) for name, part in exact.items()}
    losers = sorted(tiers, key=lambda name: places[name] - exact[name])
    for name in losers[: count - sum(places.values())]:
        places[name] += 1
    found = [
        own[i]
        for name, own in tiers.items()
        for i in stream.choice(len(own), places[name], replace=False)
    ]
    return sorted(found, key=lambda client: client.id)


def missing(job: Job, tier: Tier, config: RunConfig, number: int) -> str:
    """Why a client doesn't answer in this round; empty if it does."""
    stream = numpy_stream(config.seed, "missing", number, job.client.id)
    if stream.random() >= tier.availability:
        return "not available"
    if stream.random() < config.dropout:
        return "dropped out"
    if config.client_deadline and tier.speed:
        work = sum(
            _samples_seen(r, job.client.samples, config)
            for r in job.recipes or (Recipe(),) * len(job.models)
        )
        needed = work / tier.speed
        if needed > config.client_deadline:
            return f"needs {needed:.1f} s, the deadline is {config.client_deadline:g} s"
    return ""


def _samples_seen(recipe: Recipe, samples: int, config: RunConfig) -> int:
    """How many samples a client with `samples` of them goes through for one model."""
    passed = samples * (config.epochs if recipe.epochs is None else recipe.epochs)
    if recipe.steps is not None:
        passed = min(passed, recipe.steps * config.batch_size)
    digest = recipe.digest
    return passed + (len(digest["indices"]) * digest["epochs"] if digest is not None else 0)
