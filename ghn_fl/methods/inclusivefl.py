"""InclusiveFL: a model of its own depth for every group of devices, with shared bottom layers.

"No One Left Behind: Inclusive Federated Learning over Heterogeneous Devices", Algorithm 1. The
server knows one model a group, the small ones being the first layers of the large. A client
receives its group's model, trains it and sends it back; a strong one may train the smallest model
as well and then also counts among the weak. Each group is averaged for itself, a small model's top
layer also learns from the larger model's momentum, and all layers below the top are averaged over
groups. Top layer and head stay a group's own.

Differences from the paper: the server's step is FedAvg unless `server` says FedAdam, and clients
count by their samples unless `weights` says otherwise, as for the other baselines in RecipFL's
comparison. Layers of other shapes (ResNet, LeNet) are left out of the momentum, tensor by tensor;
a tensor for which nothing fits is not mixed. A layer of which no group was sampled stays as it is
(the authors' code divides 0 by 0). Mind the depth: with a small model of one block only the stem
lies below a top layer, and LeNet-5 has none; then all that groups give each other is momentum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor

from ghn_fl import which_models
from ghn_fl.aggregate import count_mean, weighted_mean
from ghn_fl.errors import ConfigError
from ghn_fl.methods.registry import METHODS
from ghn_fl.optim import AdamState, ServerConfig, server_step
from ghn_fl.types import (
    Answer,
    Client,
    Job,
    Method,
    MethodEntry,
    Report,
    Setting,
    State,
    Train,
    Weights,
)
from zoo import ModelSpec
from zoo.nesting import Nested, fitting, nested


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of InclusiveFL.

    Attributes:
        beta: weight of the larger model's momentum in a top layer's update (paper: 0.2 on GLUE,
            0.5 on NER).
        momentum: False: without momentum distillation, as beta 0 (the paper's "w/o MD").
        hetero_aggregation: False: no averaging over groups (the paper's InclusiveFL*).
        weights: what a client counts: `samples` (authors' code, default) or 1 each, `clients`
            (paper).
        momentum_source: a model's momentum is taken from its update `after_injection` of the
            next larger one's (paper, default) or `before_injection` (authors' code).
        drop_groups: models whose groups take no part, separated by commas (the paper's Fig. 5).
        server: `fedavg` adds a group's mean update, `fedadam` (paper) adapts the step.
        adam: the settings of fedadam, but for its `weighted`, which is `weights` here.
    """

    beta: float = 0.2
    momentum: bool = True
    hetero_aggregation: bool = True
    weights: Literal["samples", "clients"] = "samples"
    momentum_source: Literal["after_injection", "before_injection"] = "after_injection"
    drop_groups: str = ""
    server: Literal["fedavg", "fedadam"] = "fedavg"
    adam: ServerConfig = field(default_factory=ServerConfig)

    def __post_init__(self) -> None:
        for name, known in (
            ("weights", ("samples", "clients")),
            ("momentum_source", ("after_injection", "before_injection")),
            ("server", ("fedavg", "fedadam")),
        ):
            if getattr(self, name) not in known:
                raise ConfigError(
                    f"{name} must be {' or '.join(known)}, got {getattr(self, name)!r}"
                )
        if not 0 <= self.beta <= 1:
            raise ConfigError(f"beta must be from 0 to 1, got {self.beta}")
        if self.adam.weighted:
            raise ConfigError(
                "adam.weighted is for methods without groups; here weights=samples or "
                "weights=clients says how clients count"
            )
        self.dropped()  # raises if there is something else than models in it

    def dropped(self) -> tuple[ModelSpec, ...]:
        """The models that `drop_groups` names."""
        return tuple(ModelSpec.parse(t.strip()) for t in self.drop_groups.split(",") if t.strip())


def build(config: Config, setting: Setting) -> Method:
    groups = _groups(setting)
    kept = _kept(config, groups)
    beta = config.beta if config.momentum else 0.0
    # momentum goes from every group to the next smaller: top tensor -> what it is the mean of
    steps = [(small, large, fitting(small, large)) for small, large in pairwise(kept) if beta]
    larger = {small.name: large.name for small, large, _ in steps}
    sources = {large.name: fits for _, large, fits in steps}
    taking_part = {group.spec for group in kept}

    def init() -> State:
        largest = setting.initial[groups[-1].spec]
        state: State = {}
        for group in groups:  # Alg. 1, lines 1-3: bottom layers are the largest model's, m = 0
            own = setting.initial[group.spec]
            start = {n: (largest if n in group.levels else own)[n].clone() for n in own}
            still = {n: torch.zeros_like(w) for n, w in own.items()}
            momentum = distil(still, sources.get(group.name, {}))
            state[group.name] = {
                "weights": start,
                "momentum": momentum,
                "adam": dict(vars(AdamState())),
            }
        return state

    def run_round(state: State, sampled: Sequence[Client], train: Train) -> tuple[State, Report]:
        asked = [(c, [spec for spec in c.models if spec in taking_part]) for c in sampled]
        jobs = [
            Job(client=c, models=tuple((spec, state[str(spec)]["weights"]) for spec in specs))
            for c, specs in asked
            if specs
        ]
        answers = list(zip(jobs, train(jobs), strict=True))
        new, sizes = dict(state), dict[str, float]()
        for group in kept:
            changes, counts = _changes(group.spec, answers, config)
            if not changes:
                continue
            sizes[group.name] = sum(counts)
            g = weighted_mean(changes, counts)  # line 14
            mixed = dict(g)
            if group.name in larger:
                for name, m in state[larger[group.name]]["momentum"].items():  # line 17
                    mixed[name] = beta * m + (1 - beta) * g[name]
            weights, adam = step(state[group.name], mixed)  # line 19
            source = mixed if config.momentum_source == "after_injection" else g
            momentum = distil(source, sources.get(group.name, {}))  # line 22, for the next round
            new[group.name] = {"weights": weights, "momentum": momentum, "adam": adam}
        if config.hetero_aggregation and sizes:
            new = _aggregated(groups, new, sizes)
        return new, _report(steps)

    def step(old: State, update: Weights) -> tuple[Weights, State]:
        if config.server == "fedavg":
            return {n: w + update[n] for n, w in old["weights"].items()}, old["adam"]
        before = AdamState(**old["adam"])
        weights, after = server_step(old["weights"], update, before, config.adam)
        return weights, dict(vars(after))

    def personalize(state: State, clients: Sequence[Client]) -> list[Weights]:
        return [state[str(c.models[0])]["weights"] for c in clients]

    return Method(init, run_round, personalize)


def distil(update: Weights, sources: Mapping[str, Sequence[str]]) -> dict[str, Tensor]:
    """Line 22: the sum of g^l over l = L- .. L, divided by how many fit: L - L- + 1 if all do."""
    return {
        name: torch.stack([update[source] for source in found]).mean(0)
        for name, found in sources.items()
        if found
    }


def _changes(
    spec: ModelSpec, answers: Sequence[tuple[Job, Answer]], config: Config
) -> tuple[list[dict[str, Tensor]], list[int]]:
    """Line 12: what every client changed in the model, and how much it counts."""
    changes, counts = [], []
    for job, answer in answers:
        trained = () if answer.failure else zip(job.models, answer.weights, strict=True)
        for (model, sent), weights in trained:
            if model == spec:
                changes.append({n: w - sent[n] for n, w in weights.items()})
                counts.append(answer.samples if config.weights == "samples" else 1)
    return changes, counts


def _aggregated(groups: Sequence[Nested], state: State, sizes: Mapping[str, float]) -> State:
    """Lines 25-29: the layers below the top, averaged over the groups that were sampled."""
    below = {g.name: {n: state[g.name]["weights"][n] for n in g.below_top} for g in groups}
    sampled = [name for name in below if name in sizes]
    old = state[groups[-1].name]["weights"]
    mean = count_mean(old, [below[n] for n in sampled], shares=[sizes[n] for n in sampled])
    known = {name for group in sampled for name in below[group]}
    new = {}
    for group, own in below.items():
        weights = state[group]["weights"] | {n: mean[n].clone() for n in own if n in known}
        new[group] = state[group] | {"weights": weights}
    return new


def _report(steps: Sequence[tuple[Nested, Nested, Mapping[str, Sequence[str]]]]) -> Report:
    """How many top tensors get no momentum, and how many deeper ones are in nobody's."""
    skipped = left_out = 0
    for small, large, fits in steps:
        skipped += sum(not found for found in fits.values())
        deep = {n for n, level in large.levels.items() if level >= small.depth}
        left_out += len(deep - {n for found in fits.values() for n in found})
    return {"momentum_skipped": skipped, "momentum_left_out": left_out}


def _groups(setting: Setting) -> tuple[Nested, ...]:
    """One for every distinct model of the fleet, from shallow to deep."""
    specs = {spec for client in setting.clients for spec in client.models}
    groups = nested(sorted(specs, key=str), **setting.task)
    largest = groups[-1].spec
    for group in groups:
        if not group.levels:
            raise ConfigError(
                f"inclusivefl needs models that share layers, and {group.spec} has none of "
                f"{largest}'s; choose models that differ in depth only, such as "
                f"{which_models.advice(largest, 'depth')}, or use recipfl"
            )
    return groups


def _kept(config: Config, groups: Sequence[Nested]) -> tuple[Nested, ...]:
    """The groups that take part."""
    dropped, known = config.dropped(), ", ".join(group.name for group in groups)
    for spec in dropped:
        if spec not in {group.spec for group in groups}:
            raise ConfigError(f"drop_groups names {spec}, the fleet has {known}")
    kept = tuple(group for group in groups if group.spec not in dropped)
    if not kept:
        raise ConfigError(f"drop_groups leaves no group of {known}; name fewer")
    return kept


METHODS.register(
    "inclusivefl",
    MethodEntry(
        summary="models of several depths share their bottom layers and distil momentum",
        config=Config,
        build=build,
        models=which_models.own_and_smallest,
    ),
)
