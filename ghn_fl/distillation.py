"""Federated distillation: agents of any architecture agree on scores of public samples.

What FedMD and FedMDP share. Every agent keeps a model of its own, which never travels: what does
are logits on an alignment set, a part of the public data that is drawn anew in every round.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from ghn_fl.errors import ConfigError
from ghn_fl.random import stratified, torch_stream
from ghn_fl.types import (
    Answer,
    Client,
    Job,
    Method,
    Recipe,
    Report,
    Setting,
    State,
    Train,
    Weights,
)

Average: TypeAlias = Literal["logits", "probabilities"]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How agents learn from public data and from each other.

    Attributes:
        pretrain_epochs: passes over the public data with its labels, before an agent's first
            round. Paper: to convergence; authors' code: 20 at most; ours: exactly so many.
        private_init_epochs: passes over its own data after that. Paper: to convergence; authors'
            code: 25 at most; ours: 5, the usual local epochs, so that it costs one more round.
        align: N_align, size of the alignment set; all public samples if there are fewer.
        digest_epochs: N_digest, passes over the alignment set (authors' code: 1).
        digest_batch: batch size in them (authors' code: 256, and 128 for CIFAR).
        revisit_epochs: N_revisit, passes over its own data; 0: the run's local epochs. Authors'
            code: 2 to 10.
        average: what the consensus is the mean of, and what an agent fits to it: `logits`, or the
            `probabilities` that they stand for.
    """

    pretrain_epochs: int = 20
    private_init_epochs: int = 5
    align: int = 5000
    digest_epochs: int = 1
    digest_batch: int = 256
    revisit_epochs: int = 0
    average: Average = "logits"

    def __post_init__(self) -> None:
        for name in ("pretrain_epochs", "private_init_epochs", "digest_epochs", "revisit_epochs"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} must be at least 0, got {getattr(self, name)}")
        for name in ("align", "digest_batch"):
            if getattr(self, name) < 2:
                raise ConfigError(f"{name} must be at least 2, got {getattr(self, name)}")
        if self.average not in ("logits", "probabilities"):
            raise ConfigError(f"average must be logits or probabilities, got {self.average!r}")


@dataclass(frozen=True, kw_only=True)
class Duty:
    """What an agent does in a round.

    Attributes:
        epochs: of Revisit.
        prox: beta of a proximal term in Revisit; it pulls to its weights at the round's start.
        weight: of its scores in the consensus.
    """

    epochs: int
    prox: float = 0.0
    weight: float = 1.0


Duties: TypeAlias = Callable[[int, Client], Duty | None]  # round, agent -> None: it is dropped


def distillation(plan: Plan, setting: Setting, duties: Duties) -> Method:
    """The method in which every agent does its duty.

    The public labels are used for pretraining and for drawing alignment sets with all classes.
    """
    labels = setting.public_labels
    if labels is None:
        raise ConfigError("federated distillation needs public data; give --public, say heldout")

    def init() -> State:
        return {"t": 0, "pretrained": {}, "own": {}}

    def run_round(state: State, sampled: Sequence[Client], train: Train) -> tuple[State, Report]:
        t = state["t"] + 1
        asked = {c.id: duty for c in sampled if (duty := duties(t, c)) is not None}
        agents = sorted((c for c in sampled if c.id in asked), key=lambda c: c.id)
        new, agents = _pretrained(plan, state, agents, train, setting)
        stream = torch_stream(setting.seed, "alignment set", t)
        indices = stratified(labels, min(plan.align, len(labels)), stream)
        # Communicate: logits on the alignment set; an agent's first time, after its own data
        jobs = []
        for c in agents:
            first = plan.private_init_epochs if str(c.id) not in state["own"] else 0
            jobs.append(_job(c, _own(new, c, setting), Recipe(epochs=first, scores=indices)))
        scored = [a for a in train(jobs) if not a.failure] if jobs else []
        if not scored:
            return new, {}
        # Aggregate
        targets = consensus(
            [a.extras["scores"] for a in scored],
            [asked[a.client.id].weight for a in scored],
            plan.average,
        )
        # Distribute, Digest and Revisit
        digest = {
            "indices": indices,
            "targets": targets,
            "epochs": plan.digest_epochs,
            "batch": plan.digest_batch,
            "probabilities": plan.average == "probabilities",
        }
        jobs = []
        for a in scored:
            duty = asked[a.client.id]
            recipe = Recipe(epochs=duty.epochs, prox=duty.prox, digest=digest)
            jobs.append(_job(a.client, a.weights[0], recipe))
        answers = [a for a in train(jobs) if not a.failure]
        if not answers:
            return new, {}
        trained = {str(a.client.id): dict(a.weights[0]) for a in answers}
        return {**new, "t": t, "own": {**state["own"], **trained}}, _report(answers, asked)

    def personalize(state: State, clients: Sequence[Client]) -> list[Weights]:
        return [_own(state, c, setting) for c in clients]

    return Method(init, run_round, personalize)


def consensus(scores: Sequence[Tensor], weights: Sequence[float], average: Average) -> Tensor:
    """f~ = sum_p (weight_p / sum weight) f_p; equal weights where all of them are 0.

    >>> consensus([torch.tensor([1.0, 3.0]), torch.tensor([3.0, 1.0])], [1, 1], "logits")
    tensor([2., 2.])
    """
    total = sum(weights)
    parts = [w / total for w in weights] if total > 0 else [1 / len(weights)] * len(weights)
    if average == "probabilities":
        scores = [s.softmax(-1) for s in scores]
    return torch.stack([s * part for s, part in zip(scores, parts, strict=True)]).sum(0)


def _pretrained(
    plan: Plan, state: State, agents: Sequence[Client], train: Train, setting: Setting
) -> tuple[State, list[Client]]:
    """The state with pretrained weights of all these agents' models, and the agents still there.

    Agents with one architecture start alike and have the same public data, so one of them, the
    first that answers, does it for all: in life each would do the same.
    """
    found, left = dict(state["pretrained"]), list(agents)
    while plan.pretrain_epochs and (todo := [c for c in left if str(c.models[0]) not in found]):
        firsts = list({c.models[0]: c for c in reversed(todo)}.values())
        recipe = Recipe(epochs=0, pretrain=plan.pretrain_epochs)
        for a in train([_job(c, setting.initial[c.models[0]], recipe) for c in firsts]):
            if a.failure:
                left.remove(a.client)
            else:
                found[str(a.client.models[0])] = dict(a.weights[0])
    return {**state, "pretrained": found}, left


def _own(state: State, client: Client, setting: Setting) -> Weights:
    """An agent's own model: its own weights, else pretrained ones, else the initial ones."""
    spec = client.models[0]
    start = state["pretrained"].get(str(spec), setting.initial[spec])
    weights: Weights = state["own"].get(str(client.id), start)
    return weights


def _job(client: Client, weights: Weights, recipe: Recipe) -> Job:
    spec = client.models[0]
    return Job(client=client, models=((spec, weights),), recipes=(recipe,), stays=True)


def _report(answers: Sequence[Answer], asked: dict[int, Duty]) -> Report:
    return {
        "digest_loss": fmean(a.metrics.get("digest", 0.0) for a in answers),
        "revisit_epochs": fmean(asked[a.client.id].epochs for a in answers),
    }
