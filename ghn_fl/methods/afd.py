"""AFD: everybody trains a part of one model, and parts that learn are kept.

"Adaptive Federated Dropout: Improving Communication Efficiency and Generalization for Federated
Learning" (Bouacida et al., 2021), without its compression of messages. The server knows one model,
a mask of its units and a score of each. A client receives the units of the mask, trains them as a
small model and sends them back with its training loss. While the loss falls, the mask stays and
its units gain score; when it doesn't, a new mask is drawn by score. Clients use the whole model.

Differences from the paper: where the sub-model's family rounds widths down, a group keeps as many
units as the sub-model has, not N - int(kN); at k = 1/2 these differ for odd N only. A client's loss
is the mean over its last epoch, while it still learns.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from ghn_fl import masks
from ghn_fl.aggregate import count_mean
from ghn_fl.errors import ConfigError
from ghn_fl.methods.registry import METHODS
from ghn_fl.random import torch_stream
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
from zoo import ModelSpec, SpecError, scale_width, slicing


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of AFD.

    Attributes:
        drop: k, part of every layer's units that clients don't train: 0.5 where Hasaas compares
            itself with it (default), 0.25 in its own paper; 0 is FedAvg.
        mode: `single`, one mask and one map of scores (default); `multi`, one of each a client,
            which looks at that client's loss; `federated_dropout`, a fresh mask every round, all
            units alike.
    """

    drop: float = 0.5
    mode: Literal["single", "multi", "federated_dropout"] = "single"

    def __post_init__(self) -> None:
        if not 0 <= self.drop < 1:
            raise ConfigError(
                f"drop must be from 0 to below 1 (1 would mask every unit), got {self.drop:g}"
            )
        if self.mode not in ("single", "multi", "federated_dropout"):
            raise ConfigError(
                f"mode must be single or multi or federated_dropout, got {self.mode!r}"
            )


def models(config: Config, own: ModelSpec, fleet: Sequence[ModelSpec]) -> tuple[ModelSpec, ...]:
    """The whole model, which a device uses, and the sub-model that it trains."""
    if config.drop == 0:
        return (own,)
    try:
        # rounded: 1 - 0.9 is 0.09999999999999998
        return own, scale_width(own, round(1 - config.drop, 9))
    except SpecError as err:
        raise ConfigError(
            f"afd with drop {config.drop:g} trains a part of {own}: {err}; "
            "choose another model, or a smaller drop"
        ) from err


def build(config: Config, setting: Setting) -> Method:
    large, small = _one_model(setting.clients)
    counts = masks.unit_counts(large, small, setting.task)
    whole = masks.skeleton(large, setting.task)
    units = slicing.groups(whole)

    def init() -> State:
        return {"round": 0, "global": dict(setting.initial[large]), "maps": {}}

    def run_round(state: State, sampled: Sequence[Client], train: Train) -> tuple[State, Report]:
        t = state["round"] + 1
        maps = {k: map_of(state, t, k) for k in dict.fromkeys(key(c) for c in sampled)}
        places = {k: masks.where(whole, m["masks"]) for k, m in maps.items()}
        jobs = [
            Job(client=c, models=((small, slicing.take(state["global"], places[key(c)])),))
            for c in sampled
        ]
        answers = [a for a in train(jobs) if not a.failure]
        if not answers:
            return state, {}
        new = {**state, "round": t}
        new["global"] = count_mean(  # what the masks dropped keeps its value
            state["global"],
            [a.weights[0] for a in answers],
            [places[key(a.client)] for a in answers],
            [a.samples for a in answers],
        )
        new["maps"] = dict(state["maps"])
        for k, old in maps.items():
            heard = [a for a in answers if key(a.client) == k]
            if heard and config.mode != "federated_dropout":  # after the mean: it is of old masks
                new["maps"][k] = adapt(old, mean_loss(heard), counts, stream(t, k))
        return new, {"loss": mean_loss(answers)}

    def personalize(state: State, clients: Sequence[Client]) -> list[Weights]:
        return [state["global"] for _ in clients]

    def key(client: Client) -> str:
        return str(client.id) if config.mode == "multi" else "all"

    def map_of(state: State, t: int, k: str) -> State:
        """Scores, masks and last loss behind what is served; at first all units are alike."""
        alike = {group: torch.ones(n) for group, n in units.items()}
        begin = t if config.mode == "federated_dropout" else 0
        first = {
            "scores": alike,
            "masks": masks.drawn(alike, counts, stream(begin, k)),
            "loss": None,
        }
        found: State = state["maps"].get(k, first)
        return found

    def stream(t: int, k: str) -> torch.Generator:
        return torch_stream(setting.seed, "afd masks", t, *([] if k == "all" else [int(k)]))

    return Method(init, run_round, personalize)


def adapt(old: State, loss: float, counts: Mapping[str, int], generator: torch.Generator) -> State:
    """The map after a round of this loss: kept units gain score if it fell, else a new mask."""
    before, scores, kept = old["loss"], old["scores"], old["masks"]
    if before is not None and loss < before:
        gain = 1 - loss / before  # (l_prev - l) / l_prev
        scores = {group: score + gain * kept[group] for group, score in scores.items()}
    elif before is not None:
        kept = masks.drawn(scores, counts, generator)
    return {"scores": scores, "masks": kept, "loss": loss}


def mean_loss(answers: Sequence[Answer]) -> float:
    """The clients' training losses, weighted by samples; their order shows in no digit."""
    total = sum(a.samples for a in answers)
    return math.fsum(a.samples * a.metrics["loss"] for a in answers) / total


def _one_model(clients: Sequence[Client]) -> tuple[ModelSpec, ModelSpec]:
    """The model of all clients and the part that they train."""
    found = sorted({str(client.models[0]) for client in clients})
    if len(found) > 1:
        raise ConfigError(
            f"afd needs one model for all devices, got {' and '.join(found)}; give them the same, "
            "or take hasaas and models of unequal width"
        )
    return clients[0].models[0], clients[0].models[-1]


METHODS.register(
    "afd",
    MethodEntry(
        summary="everybody trains a part of one model; parts that learn are kept",
        config=Config,
        build=build,
        models=models,
        scaling="one",
    ),
)
