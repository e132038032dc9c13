"""Local: every client trains its own model on its own data, and nothing is shared.

A baseline of InclusiveFL's cross-silo table. The server knows nothing, a client sends nothing and
receives nothing: its weights stay with it. It trains in the rounds in which it is sampled, so that
it does as much work as under any other method.

Differences from the paper: none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ghn_fl import which_models
from ghn_fl.methods.registry import METHODS
from ghn_fl.types import Client, Job, Method, MethodEntry, Report, Setting, State, Train, Weights


@dataclass(frozen=True, kw_only=True)
class Config:
    """Local has no settings."""


def build(config: Config, setting: Setting) -> Method:
    def init() -> State:
        return {"clients": {}}  # the weights of those who have trained already

    def run_round(state: State, sampled: Sequence[Client], train: Train) -> tuple[State, Report]:
        jobs = [
            Job(client=client, models=((client.models[0], weights),), stays=True)
            for client, weights in zip(sampled, personalize(state, sampled), strict=True)
        ]
        trained = {str(a.client.id): dict(a.weights[0]) for a in train(jobs) if not a.failure}
        clients = state["clients"] | trained
        return {"clients": {key: clients[key] for key in sorted(clients, key=int)}}, {}

    def personalize(state: State, clients: Sequence[Client]) -> list[Weights]:
        return [state["clients"].get(str(c.id), setting.initial[c.models[0]]) for c in clients]

    def join(state: State) -> State:
        """Who has another model now begins from its initial weights."""
        own = {str(c.id): _shapes(setting.initial[c.models[0]]) for c in setting.clients}
        kept = {key: w for key, w in state["clients"].items() if _shapes(w) == own[key]}
        return {"clients": kept}

    return Method(init, run_round, personalize, join=join)


def _shapes(weights: Weights) -> dict[str, Any]:
    return {name: w.shape for name, w in weights.items()}


METHODS.register(
    "local",
    MethodEntry(
        summary="every device trains alone; nothing is shared",
        config=Config,
        build=build,
        models=which_models.own,
        elastic=True,
    ),
)
