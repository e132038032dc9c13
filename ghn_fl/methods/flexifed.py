"""FlexiFed: layers that clients' models have in common are averaged, the rest stays personal.

"FlexiFed: Personalized Federated Learning for Edge Clients with Heterogeneous Model
Architectures". The server knows the layers of every client's models. A client trains its own
models and sends them; it receives them back with every layer replaced by the mean over the clients
that it shares that layer with, which of them is the variant's choice (see `groups_of`).

Differences from the paper, where all clients take part in every round: here the server keeps one
model of each architecture with the latest means, and a client's own layers beside it. So whoever
was not sampled, or never has been, is served the current means as well; where its architecture has
none yet it has the initial weights, and a layer of its own only until a newer mean of that layer
exists. A model of a strong device beside its own is one more contributor, with personal layers of
its own (RecipFL's protocol). Layers are compared by operator, shapes and name, not by name alone
(official code), and architectures by all their layers, not by their number of tensors (a
reimplementation).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch

import zoo
from ghn_fl import which_models
from ghn_fl.aggregate import count_mean
from ghn_fl.errors import ConfigError
from ghn_fl.methods.registry import METHODS
from ghn_fl.types import Client, Job, Method, MethodEntry, Report, Setting, State, Train, Weights
from zoo import Layer, ModelSpec


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of FlexiFed.

    Attributes:
        variant: `basic` averages the layers that all sampled models have in common, from the input
            on; `clustered` (default: what RecipFL compares with) then averages the others among
            equal architectures; `max` averages every layer over all models that are the same up to
            and with it.
        allow_nonprefix_match: equal layers are common also after a layer that differs, such as
            heads of one shape on different bodies; paper: no.
        compare_names: equal layers must have the same name, too (official code). Without it,
            layers of models that name theirs differently can match.
        weighting: `count`, all who share a layer count the same (paper), or by `samples`.
    """

    variant: Literal["basic", "clustered", "max"] = "clustered"
    allow_nonprefix_match: bool = False
    compare_names: bool = True
    weighting: Literal["count", "samples"] = "count"

    def __post_init__(self) -> None:
        if self.variant not in ("basic", "clustered", "max"):
            raise ConfigError(f"variant must be basic, clustered or max, got {self.variant!r}")
        if self.weighting not in ("count", "samples"):
            raise ConfigError(f"weighting must be count or samples, got {self.weighting!r}")


def layer_keys(descriptors: Sequence[Hashable], nonprefix: bool) -> tuple[Hashable, ...]:
    """A key for every layer of a model: two models have a layer in common if both have its key.

    The key is all layers up to and with it; with `nonprefix` the layer alone, n-th of its kind.

    >>> layer_keys("xyx", nonprefix=False)
    (('x',), ('x', 'y'), ('x', 'y', 'x'))
    >>> layer_keys("xyx", nonprefix=True)
    (('x', 1), ('y', 1), ('x', 2))
    """
    if not nonprefix:
        return tuple(tuple(descriptors[: k + 1]) for k in range(len(descriptors)))
    before = [descriptors[:k] for k in range(len(descriptors))]
    return tuple((d, 1 + b.count(d)) for d, b in zip(descriptors, before, strict=True))


def common_layers(models: Sequence[Sequence[Hashable]]) -> set[Hashable]:
    """The keys that all of the models have.

    >>> common_layers([layer_keys(s, False) for s in ("xyz", "xyw", "xq")])
    {('x',)}
    """
    return set.intersection(*map(set, models))


def groups_of(
    model: Sequence[Hashable], sampled: Sequence[Sequence[Hashable]], variant: str
) -> tuple[Hashable | None, ...]:
    """For every layer of a model the group that it is averaged in; None: it stays personal.

    >>> a, b, c = (layer_keys(s, False) for s in ("xyz", "xyw", "xq"))
    >>> groups_of(a, [a, b, c], "basic")
    (('x',), None, None)
    >>> groups_of(a, [a, b, c], "max") == a
    True
    """
    if variant == "max":  # over all who have the layer
        return tuple(model)
    common = common_layers(sampled)
    if variant == "basic":
        return tuple(key if key in common else None for key in model)
    # Clustered-Common: Basic-Common, then the rest within the complete architecture
    return tuple(key if key in common else (tuple(model), key) for key in model)


def build(config: Config, setting: Setting) -> Method:
    layers = {str(spec): _layers(spec, setting) for spec in setting.initial}
    keys = _numbered_keys(config, layers)
    _check(config, keys)

    def init() -> State:
        models = {str(spec): dict(weights) for spec, weights in setting.initial.items()}
        return {"models": models, "personal": {}}

    def run_round(state: State, sampled: Sequence[Client], train: Train) -> tuple[State, Report]:
        jobs = [
            Job(client=c, models=tuple((spec, served(state, c, spec)) for spec in c.models))
            for c in sampled
        ]
        answers = [answer for answer in train(jobs) if not answer.failure]
        if not answers:
            return state, {"common_layers": 0}
        sent = [
            (answer, str(spec), trained)
            for answer in answers
            for spec, trained in zip(answer.client.models, answer.weights, strict=True)
        ]
        taking_part = [keys[spec] for spec in {spec for _, spec, _ in sent}]
        groups = tensor_groups(taking_part)
        means = _means(
            [(trained, groups[spec]) for _, spec, trained in sent],
            [a.samples if config.weighting == "samples" else 1 for a, _, _ in sent],
        )
        models = {  # copies: tensors that share memory can be neither stored nor sent
            spec: {
                n: means[g].clone() if (g := groups[spec].get(n, "")) in means else w
                for n, w in old.items()
            }
            for spec, old in state["models"].items()
        }
        personal = {key: dict(own) for key, own in state["personal"].items()}
        for answer, spec, trained in sent:
            personal.setdefault(_key(answer.client, spec), {}).update(trained)
        personal = {
            key: {n: w for n, w in own.items() if groups[_spec(key)].get(n, "") not in means}
            for key, own in personal.items()
        }
        new = {"models": models, "personal": {key: own for key, own in personal.items() if own}}
        return new, {"common_layers": len(common_layers(taking_part))}

    def tensor_groups(sampled: Sequence[Sequence[int]]) -> dict[str, dict[str, str]]:
        """For every model the group of each tensor that does not stay personal."""
        return {
            spec: {
                name: f"{group} {i}"
                for group, layer in zip(
                    groups_of(keys[spec], sampled, config.variant), layers[spec], strict=True
                )
                for i, name in enumerate(layer.parameters)
                if group is not None
            }
            for spec in layers
        }

    def served(state: State, client: Client, spec: ModelSpec) -> Weights:
        model: Weights = state["models"][str(spec)]
        own: Weights = state["personal"].get(_key(client, str(spec)), {})
        return {**model, **own}

    def personalize(state: State, clients: Sequence[Client]) -> list[Weights]:
        return [served(state, client, client.models[0]) for client in clients]

    return Method(init, run_round, personalize)


def _layers(spec: ModelSpec, setting: Setting) -> tuple[Layer, ...]:
    """The model's layers in order, with the parameters that are trained."""
    with torch.device("meta"):
        model = zoo.build(spec, **setting.task)
    weights = setting.initial[spec]
    found = [
        replace(layer, parameters={n: s for n, s in layer.parameters.items() if n in weights})
        for layer in zoo.layers(model)
    ]
    return tuple(layer for layer in found if layer.parameters)


def _numbered_keys(
    config: Config, layers: Mapping[str, Sequence[Layer]]
) -> dict[str, tuple[int, ...]]:
    """The keys of every model's layers, as numbers: a key of a deep model is long."""
    number: dict[Hashable, int] = {}
    found = {}
    for spec, own in layers.items():
        descriptors = [
            (*layer.descriptor, layer.name if config.compare_names else "") for layer in own
        ]
        found[spec] = tuple(
            number.setdefault(key, len(number))
            for key in layer_keys(descriptors, config.allow_nonprefix_match)
        )
    return found


def _means(sent: Sequence[tuple[Weights, Mapping[str, str]]], shares: Sequence[float]) -> Weights:
    """The mean of every group of tensors that somebody sent."""
    parts = [{groups[n]: w for n, w in weights.items() if n in groups} for weights, groups in sent]
    return count_mean({g: w for part in parts for g, w in part.items()}, parts, shares=shares)


def _key(client: Client, spec: str) -> str:
    return f"{client.id} {spec}"


def _spec(key: str) -> str:
    return key.partition(" ")[2]


def _check(config: Config, keys: Mapping[str, tuple[int, ...]]) -> None:
    """Refuse a fleet in which a model has no layer in common with any other."""
    for spec, own in keys.items():
        others = [other for name, other in keys.items() if name != spec]
        if others and not any(common_layers([own, other]) for other in others):
            anywhere = config.allow_nonprefix_match
            raise ConfigError(
                f"{spec} has no layer{'' if anywhere else ', counted from the input,'} in common "
                f"with another model of the fleet ({', '.join(sorted(keys))}); take models that "
                "differ in depth, such as "
                f"{which_models.advice(ModelSpec.parse(spec), 'depth')}; for models that differ in "
                "width there is heterofl"
            )


METHODS.register(
    "flexifed",
    MethodEntry(
        summary="the layers that models have in common are averaged, the rest stays personal",
        config=Config,
        build=build,
        models=which_models.own_and_smallest,
    ),
)
