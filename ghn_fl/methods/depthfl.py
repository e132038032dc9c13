"""DepthFL: models of several depths with an exit after every block, which teach each other.

"DepthFL: Depthwise Federated Learning for Heterogeneous Clients" (ICLR 2023). The server knows one
network with all blocks and exits. A client of depth d receives blocks 1 to d and exits 1 to d,
trains all exits at once, each also learning from the others' answers, and sends them back. Every
tensor becomes the plain mean over the clients that have it. A device infers with the mean of its
exits' logits.

Differences from the paper: FedDyn is off unless `feddyn` says otherwise, for the other baselines
in RecipFL's comparison go without it; exits are those of the zoo's families, not the authors'
stack of separable convolutions; BatchNorm statistics never travel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from ghn_fl import which_models
from ghn_fl.aggregate import count_mean
from ghn_fl.errors import ConfigError
from ghn_fl.methods.registry import METHODS
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
from zoo.family import find


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of DepthFL.

    Attributes:
        inference: what a device is served: the `ensemble` of its exits (paper, default), or the
            model of its `last` exit alone.
        distill: exits learn from each other; False: from the labels only.
        ramp: rounds until they do so with full weight (authors' code: 300).
        extended: False: only the deepest exit is there and trained, nothing is distilled; this is
            how the paper emulates InclusiveFL.
        feddyn: alpha of FedDyn (authors' code: 0.1); 0: off.
        own_and_smallest: a strong device also trains the fleet's smallest model, one contribution
            more to what it shares, as RecipFL has all baselines do (paper: no).
        weighting: `count`, all who have a tensor count the same (paper), or by `samples`.
    """

    inference: Literal["ensemble", "last"] = "ensemble"
    distill: bool = True
    ramp: int = 300
    extended: bool = True
    feddyn: float = 0.0
    own_and_smallest: bool = False
    weighting: Literal["count", "samples"] = "count"

    def __post_init__(self) -> None:
        if self.inference not in ("ensemble", "last"):
            raise ConfigError(f"inference must be ensemble or last, got {self.inference!r}")
        if self.weighting not in ("count", "samples"):
            raise ConfigError(f"weighting must be count or samples, got {self.weighting!r}")
        if self.ramp < 1 or not 0 <= self.feddyn < math.inf:
            raise ConfigError(
                f"ramp must be at least 1 and feddyn at least 0, got {self.ramp} and {self.feddyn}"
            )


def models(config: Config, model: ModelSpec, fleet: Sequence[ModelSpec]) -> tuple[ModelSpec, ...]:
    """A device's model with its exits, behind the one that it is served if that has just one."""
    if config.extended and not find(model).exits:
        raise ConfigError(
            f"depthfl needs an exit after every block, and {model.family} has none; "
            "use a family such as lenet5, resnet18 or bert_tiny, or extended=false"
        )
    policy = which_models.own_and_smallest if config.own_and_smallest else which_models.own
    trained = tuple(replace(m, exits=config.extended) for m in policy(config, model, fleet))
    served = (replace(model, exits=False),) if config.inference == "last" else ()
    return tuple(dict.fromkeys((*served, *trained)))


def omega(t: int, ramp: int) -> float:
    """Weight of what exits learn from each other after t rounds.

    >>> [round(omega(t, 300), 6) for t in (0, 100, 200, 300, 1000)]
    [0.006738, 0.108368, 0.573753, 1.0, 1.0]
    """
    return math.exp(-5 * (1 - min(t, ramp) / ramp) ** 2)


def build(config: Config, setting: Setting) -> Method:
    trains = {c.id: [m for m in c.models if m.exits == config.extended] for c in setting.clients}
    contributors = sum(len(specs) for specs in trains.values())  # M
    initial = _union(setting, {spec for specs in trains.values() for spec in specs})

    def init() -> State:
        h = {n: torch.zeros_like(w) for n, w in initial.items()} if config.feddyn else {}
        return {"t": 0, "weights": initial, "h": h, "clients": {}}

    def run_round(state: State, sampled: Sequence[Client], train: Train) -> tuple[State, Report]:
        weight = omega(state["t"], config.ramp) if config.extended and config.distill else 0.0
        jobs = [
            Job(
                client=client,
                models=tuple((spec, served(state, spec)) for spec in trains[client.id]),
                recipes=tuple(recipe(state, client, spec, weight) for spec in trains[client.id]),
            )
            for client in sampled
        ]
        found: list[Weights] = []
        shares: list[int] = []
        memory = dict(state["clients"])
        for job, answer in zip(jobs, train(jobs), strict=True):
            pairs = () if answer.failure else zip(job.models, answer.weights, strict=True)
            for (spec, sent), trained in pairs:
                found.append(trained)
                shares.append(answer.samples if config.weighting == "samples" else 1)
                if config.feddyn:  # h_m <- h_m - alpha (w_m - w_t)
                    key = _key(job.client, spec)
                    memory[key] = {
                        n: memory.get(key, {}).get(n, 0.0) - config.feddyn * (w - sent[n])
                        for n, w in trained.items()
                    }
        if not found:
            return state, {"omega": weight}
        new = state | {"t": state["t"] + 1, "clients": memory}
        new["weights"] = count_mean(state["weights"], found, shares=shares)
        if config.feddyn:
            new["weights"], new["h"] = feddyn(
                state, new["weights"], found, config.feddyn, contributors
            )
        return new, {"omega": weight}

    def served(state: State, spec: ModelSpec) -> dict[str, Tensor]:
        # copies: two models of one client may have the same tensors
        return {name: state["weights"][name].clone() for name in setting.initial[spec]}

    def recipe(state: State, client: Client, spec: ModelSpec, weight: float) -> Recipe:
        return Recipe(
            exits=weight if config.extended else None,
            prox=config.feddyn,
            linear=state["clients"].get(_key(client, spec)),  # at first 0
        )

    def personalize(state: State, clients: Sequence[Client]) -> list[Weights]:
        return [served(state, client.models[0]) for client in clients]

    return Method(init, run_round, personalize)


def feddyn(
    state: State, mean: Weights, found: Sequence[Weights], alpha: float, contributors: int
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """FedDyn's correction of the mean, where c > 0 of the M contributors have the tensor.

    h <- h - alpha (c / M) (mean - old),   w <- mean - h / alpha
    """
    weights, h = dict(mean), dict(state["h"])
    for name, old in state["weights"].items():
        owners = sum(name in w for w in found)
        if owners:
            h[name] = h[name] - alpha * (owners / contributors) * (mean[name] - old)
            weights[name] = mean[name] - h[name] / alpha
    return weights, h


def _union(setting: Setting, specs: set[ModelSpec]) -> dict[str, Tensor]:
    """All tensors of these models; what they share begins as in the largest."""

    def size(spec: ModelSpec) -> tuple[int, str]:
        return sum(w.numel() for w in setting.initial[spec].values()), str(spec)

    largest, *others = sorted(specs, key=size, reverse=True)
    whole = dict(setting.initial[largest])
    for spec in others:
        own = setting.initial[spec]
        shared = [name for name in own if name in whole]
        differ = [name for name in shared if own[name].shape != whole[name].shape]
        if differ or not shared:
            what = f"{differ[0]} has another shape" if differ else "they share no layer"
            raise ConfigError(
                f"depthfl needs models that differ in depth only, got {spec} and {largest}: "
                f"{what}; choose models such as "
                f"{which_models.advice(replace(largest, exits=False), 'depth')}, or use recipfl"
            )
        whole |= {name: w for name, w in own.items() if name not in whole}
    return whole


def _key(client: Client, spec: ModelSpec) -> str:
    return f"{client.id} {spec}"


METHODS.register(
    "depthfl",
    MethodEntry(
        summary="models of several depths with an exit after every block, which teach each other",
        config=Config,
        build=build,
        models=models,
    ),
)
