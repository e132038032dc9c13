"""Hasaas: slow clients train the units of the global model that matter most.

"Learning Fast and Slow: Towards Inclusive Federated Learning", Algorithm 1. The server knows one
large model and a mask of its units for every smaller one. A fast client receives the large model, a
slow one the units of its mask; both train it as any model and send back weights and the mean
activation of each hidden dense unit. Every weight is then drawn from a normal distribution around
the mean over the clients that have it, and every r rounds the masks go to the dense units of
largest activation and the convolution filters of largest l1 norm.

Differences from the paper: a weight that slow clients don't have is averaged over the fast ones
(as in the authors' code; the printed formula would pull it towards 0), and stays as it is where no
fast client answered. Activations are averaged over all samples since the last update (the paper
weighs clients evenly, the code halves its memory each time). Units that nobody measured since then
cannot be ranked, so that a dense layer's mask stays until a fast client has taken part; LSTM cells
(as in the code) and attention heads keep their random mask. There may be several smaller models:
each has its own mask, ranked by the same figures, so that the smaller lies within the larger.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args, get_origin, get_type_hints

import torch
from torch import Tensor, nn

import zoo
from ghn_fl import masks
from ghn_fl.aggregate import clt_mean, count_mean
from ghn_fl.errors import ConfigError
from ghn_fl.local import dense_groups
from ghn_fl.methods.registry import METHODS
from ghn_fl.random import torch_stream
from ghn_fl.types import (
    Answer,
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
from zoo import ModelSpec, slicing

DIVISORS = {"sqrt_t": math.sqrt, "none": lambda t: 1.0, "t": float}


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of Hasaas. How much slow clients drop (MDR, 50 % in the paper) is their model's.

    Attributes:
        mask: `activation` (paper); or for comparison `random_each_round`, or `random_fixed`.
        every: r, rounds between updates of the masks; 10 in the paper.
        persist: the masks change once only, after round r.
        aggregation: `clt` draws weights (paper), `mean` takes their mean.
        sigma: the variance is divided by sum n - 1 (`paper`) or sum n (`code`).
        sigma_norm: sigma is divided by the root of the round's number (`sqrt_t`, paper), by that
            number (`t`), or not at all (`none`).
        serving: `dms`, everybody trains a model of his own size (paper), or `hms`, everybody the
            smallest. Under hms nobody measures dropped dense units, so only filters change.
        evaluate: slow clients use their sub-model (`submodel`) or the whole model (`global`).
        serve: clients use the weights as `drawn`, or their `mean`, which is without noise; they
            train from the drawn ones either way.
    """

    mask: Literal["activation", "random_each_round", "random_fixed"] = "activation"
    every: int = 10
    persist: bool = False
    aggregation: Literal["clt", "mean"] = "clt"
    sigma: Literal["paper", "code"] = "paper"
    sigma_norm: Literal["sqrt_t", "none", "t"] = "sqrt_t"
    serving: Literal["dms", "hms"] = "dms"
    evaluate: Literal["submodel", "global"] = "submodel"
    serve: Literal["drawn", "mean"] = "drawn"

    def __post_init__(self) -> None:
        for name, hint in get_type_hints(Config).items():
            value = getattr(self, name)
            if get_origin(hint) is Literal and value not in get_args(hint):
                raise ConfigError(f"{name} must be {' or '.join(get_args(hint))}, got {value!r}")
        if self.every < 1:
            raise ConfigError(f"every must be 1 round or more, got {self.every}")


def models(config: Config, own: ModelSpec, fleet: Sequence[ModelSpec]) -> tuple[ModelSpec, ...]:
    """What a device uses, then what it trains; a device trains the smallest of what it has."""
    large, small = max(fleet, key=zoo.num_parameters), min(fleet, key=zoo.num_parameters)
    trained = small if config.serving == "hms" else own
    used = large if config.evaluate == "global" else trained
    return tuple(dict.fromkeys((used, trained, *([own] if own == large else []))))


def build(config: Config, setting: Setting) -> Method:
    size = {spec: sum(w.numel() for w in ws.values()) for spec, ws in setting.initial.items()}
    large = max(size, key=lambda spec: size[spec])
    counts = {
        str(spec): masks.unit_counts(large, spec, setting.task) for spec in size if spec != large
    }
    whole = masks.skeleton(large, setting.task)
    units = slicing.groups(whole) if counts else {}  # nothing is cut in a fleet of one model
    dense_units = {g: units[g] for g in dense_groups(whole).values() if g in units}
    recipe = Recipe(activations=bool(counts) and config.mask == "activation")

    def init() -> State:
        weights = setting.initial[large]
        return {
            "round": 0,
            "global": {name: w.clone() for name, w in weights.items()},
            "mean": {name: w.clone() for name, w in weights.items()},
            "masks": random_masks(1),
            "activations": {group: _no_activations(n) for group, n in dense_units.items()},
        }

    def run_round(state: State, sampled: Sequence[Client], train: Train) -> tuple[State, Report]:
        t = state["round"] + 1
        places = {spec: masks.where(whole, mask) for spec, mask in state["masks"].items()}
        jobs = []
        for client in sampled:
            spec = trained(client)
            weights = cut(state["global"], places, spec)
            jobs.append(Job(client=client, models=((spec, weights),), recipes=(recipe,)))
        answers = [a for a in train(jobs) if not a.failure]
        if not answers:
            return state, {}
        new = {**state, "round": t, **aggregate(state, t, answers, places)}
        if recipe.activations:
            new["activations"] = _add(state, answers, [str(trained(a.client)) for a in answers])
        if config.mask == "random_each_round":
            new["masks"] = random_masks(t + 1)
        elif config.mask == "activation" and due(t):
            new |= update_masks(new)
        return new, {"changed_units": _changed(state["masks"], new["masks"])}

    def due(t: int) -> bool:
        return t % config.every == 0 and not (config.persist and t > config.every)

    def aggregate(
        state: State, t: int, answers: Sequence[Answer], places: Mapping[str, slicing.IndexMap]
    ) -> State:
        """The next global weights, and the same without noise."""
        sent, samples = [a.weights[0] for a in answers], [a.samples for a in answers]
        where = [places.get(str(trained(a.client)), {}) for a in answers]  # {}: all of it
        mean = count_mean(state["mean"], sent, where, samples)  # mu
        if config.aggregation == "mean":
            drawn = count_mean(state["global"], sent, where, samples)
        else:  # W ~ Normal(mu, (sigma / sqrt(t))^2)
            drawn = clt_mean(
                state["global"],
                sent,
                where,
                samples,
                generator=torch_stream(setting.seed, "hasaas noise", t),
                divisor=DIVISORS[config.sigma_norm](t),
                unbiased=config.sigma == "paper",
            )
        return {"global": drawn, "mean": mean}

    def update_masks(state: State) -> State:
        """New masks by filters' norms and units' activations; what was used is forgotten."""
        activations = state["activations"]
        measured = {g: a for g, a in activations.items() if bool((a["samples"] > 0).all())}
        scores = filter_norms(whole, state["global"])
        scores |= {group: a["sum"] / a["samples"] for group, a in measured.items()}
        fresh = {group: _no_activations(dense_units[group]) for group in measured}
        return {
            "masks": {s: m | masks.largest(scores, counts[s]) for s, m in state["masks"].items()},
            "activations": activations | fresh,
        }

    def random_masks(t: int) -> dict[str, dict[str, Tensor]]:
        """The masks with which round t begins, where they are random."""
        stream = torch_stream(setting.seed, "hasaas masks", t)
        scores = {group: torch.rand(n, generator=stream) for group, n in units.items()}
        return {spec: masks.largest(scores, count) for spec, count in counts.items()}

    def personalize(state: State, clients: Sequence[Client]) -> list[Weights]:
        places = {spec: masks.where(whole, mask) for spec, mask in state["masks"].items()}
        weights = state["mean" if config.serve == "mean" else "global"]
        return [cut(weights, places, client.models[0]) for client in clients]

    def cut(weights: Weights, places: Mapping[str, slicing.IndexMap], spec: ModelSpec) -> Weights:
        return weights if spec == large else slicing.take(weights, places[str(spec)])

    def trained(client: Client) -> ModelSpec:
        return min(client.models, key=lambda spec: size[spec])

    return Method(init, run_round, personalize)


def filter_norms(model: nn.Module, weights: Weights) -> dict[str, Tensor]:
    """The l1 norm of the filters that write each unit; of several layers their sum."""
    norms: dict[str, Tensor] = {}
    for path, module in model.named_modules():
        if isinstance(module, nn.Conv2d):
            (segment,) = model.wiring[path].out  # type: ignore[union-attr,index]
            norm = weights[f"{path}.weight"].abs().sum((1, 2, 3), dtype=torch.double)
            norms[segment.group] = norms[segment.group] + norm if segment.group in norms else norm
    return norms


def _no_activations(units: int) -> dict[str, Tensor]:
    return {name: torch.zeros(units, dtype=torch.double) for name in ("sum", "samples")}


def _add(state: State, answers: Sequence[Answer], specs: Sequence[str]) -> dict[str, State]:
    """Sums of activations and of samples of every unit, with what came in this round."""
    result = {}
    for group, seen in state["activations"].items():
        total, samples = seen["sum"].clone(), seen["samples"].clone()
        for answer, spec in zip(answers, specs, strict=True):
            kept = state["masks"][spec][group] if spec in state["masks"] else slice(None)
            total[kept] += answer.samples * answer.extras[f"activation/{group}"].double()
            samples[kept] += answer.samples
        result[group] = {"sum": total, "samples": samples}
    return result


def _changed(before: Mapping[str, masks.Masks], after: Mapping[str, masks.Masks]) -> int:
    """How many units entered a mask."""
    return sum(int((m & ~before[s][g]).sum()) for s, ms in after.items() for g, m in ms.items())


METHODS.register(
    "hasaas",
    MethodEntry(
        summary="slow clients train the most active units of the global model; weights are drawn",
        config=Config,
        build=build,
        models=models,
        scaling="width",
    ),
)
