"""Who takes part in a round, and who fails to answer."""

from __future__ import annotations

from collections.abc import Sequence

from ghn_fl.random import numpy_stream
from ghn_fl.simulation.config import RunConfig
from ghn_fl.simulation.fleet import Tier
from ghn_fl.types import Client, Job


def sample(clients: Sequence[Client], config: RunConfig, number: int) -> list[Client]:
    """The clients of round `number`: uniform, without replacement, in the order of their ids."""
    stream = numpy_stream(config.seed, "sample", number)
    count = min(config.sample, len(clients))
    return [clients[i] for i in sorted(stream.choice(len(clients), count, replace=False))]


def missing(job: Job, tier: Tier, config: RunConfig, number: int) -> str:
    """Why a client doesn't answer in this round; empty if it does."""
    stream = numpy_stream(config.seed, "missing", number, job.client.id)
    if stream.random() >= tier.availability:
        return "not available"
    if stream.random() < config.dropout:
        return "dropped out"
    if config.client_deadline and tier.speed:
        needed = job.client.samples * config.epochs * len(job.models) / tier.speed
        if needed > config.client_deadline:
            return f"needs {needed:.1f} s, the deadline is {config.client_deadline:g} s"
    return ""
