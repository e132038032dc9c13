"""FedAvg among the clients that share a model: what FedAvg and the naive baselines are made of."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from torch import Tensor

from ghn_fl.aggregate import clt_mean, weighted_mean
from ghn_fl.errors import ConfigError
from ghn_fl.optim import AdamState, ServerConfig, server_step
from ghn_fl.random import torch_stream
from ghn_fl.types import Answer, Client, Job, Method, Recipe, Report, Setting, State, Train, Weights


def grouped_fedavg(
    setting: Setting,
    *,
    takes_part: Callable[[Client], bool] = lambda client: True,
    recipe: Callable[[int, Client], Recipe] = lambda number, client: Recipe(),
    server: ServerConfig | None = None,
    clt: bool = False,
) -> Method:
    """One global model for every distinct first model of the clients.

    A group of which nobody answered keeps its model. A group that comes later begins from its
    initial weights.

    Args:
        setting: the fleet and its initial weights.
        takes_part: who trains when sampled; others are only served their group's model.
        recipe: how a client trains in a round, counted from 1.
        server: how a group's model goes along its clients' mean update; None: it becomes the
            clients' mean, weighted by samples (FedAvg).
        clt: without `server`, a group's model is drawn around that mean, as in Hasaas.
    """

    def init() -> State:
        firsts = sorted({client.models[0] for client in setting.clients}, key=str)
        models = {str(spec): dict(setting.initial[spec]) for spec in firsts}
        return {"round": 0, "models": models, "moments": {}}

    def run_round(state: State, sampled: Sequence[Client], train: Train) -> tuple[State, Report]:
        number = state["round"] + 1
        jobs = [
            Job(
                client=client,
                models=((client.models[0], state["models"][str(client.models[0])]),),
                recipes=(recipe(number, client),),
            )
            for client in sampled
            if takes_part(client)
        ]
        answers = [a for a in train(jobs) if not a.failure]
        if not answers:
            return state, {}
        models, moments = dict(state["models"]), dict(state["moments"])
        for spec, old in state["models"].items():
            group = [a for a in answers if str(a.client.models[0]) == spec]
            sent, samples = [a.weights[0] for a in group], [a.samples for a in group]
            if group and server is None and clt:  # w ~ Normal(mu, (sigma / sqrt(t))^2)
                noise = torch_stream(setting.seed, f"clt of {spec}", number)
                divisor = math.sqrt(number)
                models[spec] = clt_mean(old, sent, shares=samples, generator=noise, divisor=divisor)
            elif group and server is None:  # w <- sum_m (n_m / sum n) w_m
                models[spec] = weighted_mean(sent, samples)
            elif group and server is not None:
                update = mean_update(old, group, weighted=server.weighted)
                before = AdamState(**moments.get(spec, {}))
                models[spec], after = server_step(old, update, before, server)
                moments[spec] = dict(vars(after))
        return {"round": number, "models": models, "moments": moments}, {}

    def personalize(state: State, clients: Sequence[Client]) -> list[Weights]:
        return [state["models"][str(c.models[0])] for c in clients]

    def join(state: State) -> State:
        return state | {"models": init()["models"] | state["models"]}

    return Method(init, run_round, personalize, join=join)


def mean_update(sent: Weights, answers: Sequence[Answer], *, weighted: bool) -> dict[str, Tensor]:
    """The mean over clients of Delta_m = w_m - w, `weighted` by samples or plain."""
    updates = [{n: w - sent[n] for n, w in answer.weights[0].items()} for answer in answers]
    return weighted_mean(updates, [a.samples if weighted else 1 for a in answers])


def check_aggregation(name: str) -> None:
    """Refuse what FedAvg and FedProx cannot do with the weights that came."""
    if name not in ("mean", "clt"):
        raise ConfigError(f"aggregation must be mean or clt, got {name!r}")
