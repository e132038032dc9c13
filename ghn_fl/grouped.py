"""FedAvg among the clients that share a model: what several naive baselines are made of."""

from __future__ import annotations

from collections.abc import Sequence

from ghn_fl.aggregate import weighted_mean
from ghn_fl.types import Client, Job, Method, Report, Setting, State, Train, Weights


def grouped_fedavg(setting: Setting) -> Method:
    """One global model for every distinct first model of the clients, averaged by samples.

    A group of which nobody answered keeps its model.
    """

    def init() -> State:
        firsts = {client.models[0] for client in setting.clients}
        return {str(spec): dict(setting.initial[spec]) for spec in sorted(firsts, key=str)}

    def run_round(state: State, sampled: Sequence[Client], train: Train) -> tuple[State, Report]:
        jobs = [Job(client=c, models=((c.models[0], state[str(c.models[0])]),)) for c in sampled]
        answers = [a for a in train(jobs) if not a.failure]
        new = dict(state)
        for spec in state:
            group = [a for a in answers if str(a.client.models[0]) == spec]
            if group:  # w <- sum_m (n_m / sum n) w_m
                new[spec] = weighted_mean([a.weights[0] for a in group], [a.samples for a in group])
        return new, {}

    def personalize(state: State, clients: Sequence[Client]) -> list[Weights]:
        return [state[str(c.models[0])] for c in clients]

    return Method(init, run_round, personalize)
