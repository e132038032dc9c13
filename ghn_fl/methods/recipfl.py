"""RecipFL with a prior: a graph hypernetwork tells clients apart, a mean keeps what they share.

"How Few Davids Improve One Goliath: Federated Learning in Resource-Skew Edge Computing
Environments", Algorithm 1, with what `docs/decisions/0009` adds. The server knows each client's
architecture, its label histogram, and for every architecture a prior: the mean weights of its
clients. A client receives weights for its models, trains them as any model, and sends them back;
a strong one trains its large model, then the small one with knowledge transfer (Eq. 9).

    theta~_m = prior_G + GHN(G, a_m) - GHN(G, mean a)        what client m is given
    speed_G <- beta_t speed_G + sum_m n_m (theta_m - theta~_m) / sum n_m
    prior_G <- prior_G + speed_G                             over the answers for architecture G
    phi     <- Adam on 1/2 |GHN(G, a_m; phi) - theta_m|^2    Eq. (4), towards what came back

So the hypernetwork learns to make whole weights, for any architecture; where a prior is known, it
says only how a client differs from the mean client. An architecture that nobody has trained is
served its generation alone (`GHN.generate`).

Differences from the paper: the prior, its momentum, and the mean over its last values that is
served for use. `recipfl_paper` is the method as published.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

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
    """Settings of RecipFL with a prior.

    Attributes:
        ghn: the hypernetwork's design; its number of classes is the task's.
        update: how the hypernetwork learns.
        transfer: knowledge transfer on devices that train more than one model (Eq. 9).
        momentum: beta of the priors' steps; 0: the mean of FedAvg.
        settle: rounds before the momentum begins: the first steps are large enough.
        window: what is served for use is the mean of the prior over this last part of its steps;
            0: the prior itself.
    """

    ghn: GHNConfig = field(default_factory=GHNConfig)
    update: UpdateConfig = field(default_factory=UpdateConfig)
    transfer: bool = True
    momentum: float = 0.7
    settle: int = 20
    window: float = 0.15

    def __post_init__(self) -> None:
        if not 0 <= self.momentum < 1 or not 0 <= self.window < 1 or self.settle < 0:
            raise ConfigError(
                "momentum and window must be from 0 to below 1 and settle at least 0, "
                f"got {self.momentum}, {self.window} and {self.settle}"
            )
        if self.ghn.descriptor == "id":
            raise ConfigError(
                "the prior needs the mean of the clients' descriptors, and numbers have none; "
                "ghn.descriptor must be histogram or none, or take the method recipfl-paper"
            )


def build(config: Config, setting: Setting) -> Method:
    design = design_for(config.ghn, setting)
    mean = _mean_clients(design, setting)
    # Eq. (9): what a strong device trains after its large model learns from that one, too
    recipes = (Recipe(), Recipe(teacher=0 if config.transfer else None))

    def init() -> State:
        priors = {str(spec): dict(setting.initial[spec]) for spec in sorted(mean, key=str)}
        still = {spec: {n: torch.zeros_like(w) for n, w in p.items()} for spec, p in priors.items()}
        return to_state(fresh(design, setting.seed), AdamState()) | {
            "t": 0,
            "prior": priors,
            "speed": still,
            "mean": priors,
            "steps": dict.fromkeys(priors, 0),
        }

    def run_round(state: State, sampled: Sequence[Client], train: Train) -> tuple[State, Report]:
        ghn, adam = from_state(design, state)
        asked = [(client, spec) for client in sampled for spec in client.models]
        requests = [request(state, client, spec) for client, spec in asked]
        made = ghn.generate_many(requests)  # GHN(G_m, a_m; phi)
        sent = iter(around(state["prior"], ghn, state, asked, made))
        jobs = [
            Job(
                client=client,
                models=tuple((spec, next(sent)) for spec in client.models),
                recipes=recipes[: len(client.models)],
            )
            for client in sampled
        ]
        came = [w for answer in train(jobs) for w in _each(answer.weights, answer.client)]
        given = [weights for job in jobs for _, weights in job.models]
        answers = list(zip(asked, requests, made, given, came, strict=True))
        changes = [
            Change(request=r, sent=m, trained=w, share=c.share)
            for (c, _), r, m, _, w in answers
            if w is not None
        ]
        if not changes:
            return state, {}
        ghn, adam, norm = update(ghn, changes, adam, config.update)  # Eq. (4)
        new = to_state(ghn, adam) | {"t": state["t"] + 1}
        new |= {key: dict(state[key]) for key in ("prior", "speed", "mean", "steps")}
        for spec in dict.fromkeys(str(s) for (_, s), *_, w in answers if w is not None):
            moves = [
                ({n: w[n] - g[n] for n in g}, c.samples)
                for (c, s), _, _, g, w in answers
                if str(s) == spec and w is not None
            ]
            _step(new, spec, weighted_mean(*zip(*moves, strict=True)), config)
        return new, {"gradient_norm": norm}

    def personalize(state: State, clients: Sequence[Client]) -> list[Weights]:
        ghn, served = hypernetwork(state), list[Weights]()
        for start in range(0, len(clients), config.update.chunk):
            part = [(c, c.models[0]) for c in clients[start : start + config.update.chunk]]
            made = ghn.generate_many([request(state, client, spec) for client, spec in part])
            served += around(state["mean"], ghn, state, part, made)
        return served

    def request(state: State, client: Client, spec: ModelSpec) -> Request:
        """Graph, descriptor, and the prior as the parameters q_v at the current round."""
        return Request(
            graph=setting.graphs[spec],
            client=descriptor(design, client),
            current=state["prior"][str(spec)],
        )

    def around(
        priors: Mapping[str, Weights],
        ghn: GHN,
        state: State,
        asked: Sequence[tuple[Client, ModelSpec]],
        made: Sequence[Weights],
    ) -> list[Weights]:
        """prior_G + GHN(G, a_m) - GHN(G, mean a), for every client and model asked for."""
        specs = list(dict.fromkeys(spec for _, spec in asked))
        middles = ghn.generate_many(
            [
                Request(graph=setting.graphs[s], client=mean[s], current=state["prior"][str(s)])
                for s in specs
            ]
        )
        middle = dict(zip(specs, middles, strict=True))
        return [
            {n: priors[str(spec)][n] + (w - middle[spec][n]) for n, w in weights.items()}
            for (_, spec), weights in zip(asked, made, strict=True)
        ]

    def hypernetwork(state: State) -> GHN:
        return from_state(design, state)[0].eval()

    return Method(init, run_round, personalize, hypernetwork)


def _step(state: State, spec: str, move: Mapping[str, Tensor], config: Config) -> None:
    """Move one architecture's prior, in a state that is ours to change."""
    beta = config.momentum if state["t"] > config.settle else 0.0
    speed = {n: beta * v + move[n] for n, v in state["speed"][spec].items()}
    prior = {n: p + speed[n] for n, p in state["prior"][spec].items()}
    steps = state["steps"][spec] + 1
    last = max(1.0, config.window * steps)  # how many values the mean is over
    state["mean"][spec] = {n: m + (prior[n] - m) / last for n, m in state["mean"][spec].items()}
    state["prior"][spec], state["speed"][spec], state["steps"][spec] = prior, speed, steps


def _mean_clients(design: GHNConfig, setting: Setting) -> dict[ModelSpec, Tensor | None]:
    """For every architecture the mean descriptor of those who train it, by samples."""
    found: dict[ModelSpec, Tensor | None] = {}
    for spec in dict.fromkeys(spec for client in setting.clients for spec in client.models):
        own = [client for client in setting.clients if spec in client.models]
        found[spec] = None
        if design.descriptor == "histogram":
            mixes = [{"mix": torch.tensor(client.mix)} for client in own]
            found[spec] = weighted_mean(mixes, [client.samples for client in own])["mix"]
    return found


def _each(weights: Sequence[Weights], client: Client) -> Sequence[Weights | None]:
    """The weights of every model of a client; None for each if nothing usable came."""
    return weights or (None,) * len(client.models)


METHODS.register(
    "recipfl",
    MethodEntry(
        summary="a graph hypernetwork generates personal weights for any architecture",
        config=Config,
        build=build,
        models=which_models.own_and_smallest,
    ),
)
