"""RecipFL with residuals: a graph hypernetwork generates weights, a mean adds what it misses.

"How Few Davids Improve One Goliath: Federated Learning in Resource-Skew Edge Computing
Environments", Algorithm 1, with a residual for every architecture (`docs/decisions/0009`). The
server knows each client's architecture, its label histogram, and for every architecture the
residual and the mean of the weights that came back last. A client receives weights for its models,
trains them as any model, and sends them back; a strong one trains its large model, then the small
one with knowledge transfer from the large (Eq. 9).

    theta~_m = GHN(G_m, a_m; phi) + R_G                          what client m is given
    phi <- Adam along sum_m (d theta~_m / d phi)^T (theta~_m - theta_m)              Eq. (4)
    R_G <- R_G + sum_m n_m (theta_m - theta~_m) / sum n_m        over architecture G's answers

The hypernetwork carries what clients learn from one to the other, whatever their architecture; the
residual keeps, as FedAvg would, what it cannot say. An architecture that nobody has trained has no
residual: it is served its generation alone (`GHN.generate`).

Differences from the paper: the residual, and q_v, which is the mean over the architecture's clients
instead of what each of them last sent, so that nothing is kept by client. See `GHNConfig` and
`UpdateConfig` for the rest; `recipfl_paper` is the method as published.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from ghn_fl import which_models
from ghn_fl.aggregate import weighted_mean
from ghn_fl.errors import ConfigError
from ghn_fl.hypernet import GHN, Change, GHNConfig, Request, UpdateConfig, update
from ghn_fl.hypernet.served import descriptor, design_for, fresh, from_state, to_state
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
    """Settings of RecipFL with residuals.

    Attributes:
        ghn: the hypernetwork's design; its number of classes is the task's.
        update: how the hypernetwork learns.
        transfer: knowledge transfer on devices that train more than one model (Eq. 9).
        residual: how much of the clients' mean change goes into the residual; 0: none.
    """

    ghn: GHNConfig = field(default_factory=GHNConfig)
    update: UpdateConfig = field(default_factory=UpdateConfig)
    transfer: bool = True
    residual: float = 1.0

    def __post_init__(self) -> None:
        if not self.residual >= 0:
            raise ConfigError(f"residual must be at least 0, got {self.residual}")


def build(config: Config, setting: Setting) -> Method:
    design = design_for(config.ghn, setting)
    # Eq. (9): what a strong device trains after its large model learns from that one, too
    recipes = (Recipe(), Recipe(teacher=0 if config.transfer else None))

    def init() -> State:
        initial = {str(spec): dict(weights) for spec, weights in setting.initial.items()}
        nothing = {
            spec: {name: torch.zeros_like(w) for name, w in weights.items()}
            for spec, weights in initial.items()
        }
        start = to_state(fresh(design, setting.seed), AdamState())
        return start | {"current": initial, "residual": nothing}

    def run_round(state: State, sampled: Sequence[Client], train: Train) -> tuple[State, Report]:
        ghn, adam = from_state(design, state)
        asked = [(client, spec) for client in sampled for spec in client.models]
        given = serve(ghn, state, asked)  # theta~_m = GHN(G_m, a_m; phi) + R_G
        ready = iter(given)
        jobs = [
            Job(
                client=client,
                models=tuple((spec, next(ready)) for spec in client.models),
                recipes=recipes[: len(client.models)],
            )
            for client in sampled
        ]
        answers = train(jobs)  # theta_m = ClientUpdate(m, theta~_m)
        came = [w for job, a in zip(jobs, answers, strict=True) for w in _each(job, a.weights)]
        exchanged = [
            (client, spec, sent, trained)
            for (client, spec), sent, trained in zip(asked, given, came, strict=True)
            if trained is not None
        ]
        changes = [
            Change(
                request=request(state, client, spec), sent=sent, trained=trained, share=client.share
            )
            for client, spec, sent, trained in exchanged
        ]
        ghn, adam, norm = update(ghn, changes, adam, config.update)  # Eq. (4)
        current, residual = dict(state["current"]), dict(state["residual"])
        for spec in dict.fromkeys(spec for _, spec, *_ in exchanged):
            own = [(c.samples, sent, trained) for c, s, sent, trained in exchanged if s == spec]
            samples = [n for n, *_ in own]
            current[str(spec)] = weighted_mean([trained for *_, trained in own], samples)
            before = weighted_mean([sent for _, sent, _ in own], samples)
            residual[str(spec)] = {  # R_G <- R_G + the clients' mean change
                name: r + config.residual * (current[str(spec)][name] - before[name])
                for name, r in residual[str(spec)].items()
            }
        new = to_state(ghn, adam) | {"current": current, "residual": residual}
        return new, {"gradient_norm": norm}

    def personalize(state: State, clients: Sequence[Client]) -> list[Weights]:
        ghn, served = hypernetwork(state), list[Weights]()
        for start in range(0, len(clients), config.update.chunk):
            part = clients[start : start + config.update.chunk]
            served += serve(ghn, state, [(client, client.models[0]) for client in part])
        return served

    def serve(
        ghn: GHN, state: State, asked: Sequence[tuple[Client, ModelSpec]]
    ) -> list[dict[str, torch.Tensor]]:
        made = ghn.generate_many([request(state, client, spec) for client, spec in asked])
        return [
            {name: w + state["residual"][str(spec)][name] for name, w in weights.items()}
            for (_, spec), weights in zip(asked, made, strict=True)
        ]

    def request(state: State, client: Client, spec: ModelSpec) -> Request:
        """Graph, descriptor, and the architecture's weights as they came back last."""
        return Request(
            graph=setting.graphs[spec],
            client=descriptor(design, client),
            current=state["current"][str(spec)],
        )

    def hypernetwork(state: State) -> GHN:
        return from_state(design, state)[0].eval()

    return Method(init, run_round, personalize, hypernetwork)


def _each(job: Job, weights: Sequence[Weights]) -> Sequence[Weights | None]:
    """The weights of every model of a job; None for each if nothing usable came."""
    return weights or (None,) * len(job.models)


METHODS.register(
    "recipfl",
    MethodEntry(
        summary="a graph hypernetwork generates personal weights for any architecture",
        config=Config,
        build=build,
        models=which_models.own_and_smallest,
    ),
)
