"""RecipFL as published: a graph hypernetwork on the server generates every client's weights.

"How Few Davids Improve One Goliath: Federated Learning in Resource-Skew Edge Computing
Environments", Algorithm 1. The server knows each client's architecture, its label histogram and
the weights that it last sent. A client receives weights for its models, trains them as any model,
and sends them back; a strong one trains its large model, then the small one with knowledge
transfer from the large (Eq. 9).

Differences from the paper: see `GHNConfig` and `UpdateConfig`, which name what the paper says,
what its authors' code does, and our default for every choice; the sign of Eq. (4) is the authors'
code's (as printed, it would ascend).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from ghn_fl import which_models
from ghn_fl.errors import ConfigError
from ghn_fl.hypernet import GHN, Change, GHNConfig, Request, UpdateConfig, update
from ghn_fl.hypernet.served import descriptor, design_for, dropout, fresh, from_state, to_state
from ghn_fl.methods.registry import METHODS
from ghn_fl.optim import AdamState
from ghn_fl.types import (
    Client,
    Job,
    Method,
    MethodEntry,
    Recipe,
    Report,
    Setting,
    State,
    Train,
    Weights,
)
from zoo import ModelSpec


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of RecipFL as published.

    Attributes:
        ghn: the hypernetwork's design; its number of classes is the task's.
        update: how the server learns.
        q_source: the parameters q_v that a client's nodes are encoded with: `client_last`, what
            it last sent (authors' code, default), or `generated_last`, what it was last given.
            The paper says "the parameters at the current round".
        transfer: knowledge transfer on devices that train more than one model (Eq. 9).
    """

    ghn: GHNConfig = field(default_factory=GHNConfig)
    update: UpdateConfig = field(default_factory=UpdateConfig)
    q_source: Literal["client_last", "generated_last"] = "client_last"
    transfer: bool = True

    def __post_init__(self) -> None:
        if self.q_source not in ("client_last", "generated_last"):
            raise ConfigError(
                f"q_source must be client_last or generated_last, got {self.q_source!r}"
            )


def build(config: Config, setting: Setting) -> Method:
    design = design_for(config.ghn, setting)
    # Eq. (9): what a strong device trains after its large model learns from that one, too
    recipes = (Recipe(), Recipe(teacher=0 if config.transfer else None))

    def init() -> State:
        return to_state(fresh(design, setting.seed), AdamState()) | {"current": {}}

    def run_round(state: State, sampled: Sequence[Client], train: Train) -> tuple[State, Report]:
        ghn, adam = from_state(design, state)
        sampled = sorted(sampled, key=lambda client: client.id)  # as dropout meets them
        asked = [(client, spec) for client in sampled for spec in client.models]
        requests = [request(state, client, spec) for client, spec in asked]
        with dropout(setting.seed, adam.step, 0):
            sent = iter(ghn.generate_many(requests))  # theta~_m = GHN(G_m, a_m; phi)
        jobs = [
            Job(
                client=client,
                models=tuple((spec, next(sent)) for spec in client.models),
                recipes=recipes[: len(client.models)],
            )
            for client in sampled
        ]
        answers = train(jobs)  # theta_m = ClientUpdate(m, theta~_m)
        changes, current = [], dict(state["current"])
        for job, answer in zip(jobs, answers, strict=True):
            if answer.failure:
                continue
            for (spec, given), trained in zip(job.models, answer.weights, strict=True):
                changes.append(
                    Change(
                        request=request(state, job.client, spec),
                        sent=given,
                        trained=trained,
                        share=job.client.share,
                    )
                )
                last = trained if config.q_source == "client_last" else given
                current[_key(job.client, spec)] = dict(last)
        with dropout(setting.seed, adam.step, 1):
            ghn, adam, norm = update(ghn, changes, adam, config.update)  # Eq. (4)
        return to_state(ghn, adam) | {"current": current}, {"gradient_norm": norm}

    def personalize(state: State, clients: Sequence[Client]) -> list[Weights]:
        ghn = hypernetwork(state)
        found: list[Weights] = []
        for start in range(0, len(clients), config.update.chunk):
            part = clients[start : start + config.update.chunk]
            found += ghn.generate_many([request(state, c, c.models[0]) for c in part])
        return found

    def request(state: State, client: Client, spec: ModelSpec) -> Request:
        """Graph, descriptor, and the weights that the client last sent (at first the initial)."""
        current = state["current"].get(_key(client, spec), setting.initial[spec])
        return Request(
            graph=setting.graphs[spec], client=descriptor(design, client), current=current
        )

    def hypernetwork(state: State) -> GHN:
        return from_state(design, state)[0].eval()

    # what is new is generated, from its initial weights as all were at first
    return Method(init, run_round, personalize, hypernetwork, join=lambda state: state)


def _key(client: Client, spec: ModelSpec) -> str:
    return f"{client.id} {spec}"


METHODS.register(
    "recipfl-paper",
    MethodEntry(
        summary="RecipFL as published: generated weights alone",
        config=Config,
        build=build,
        models=which_models.own_and_smallest,
        elastic=True,
    ),
)
