"""HeteroFL: every model is a narrower cut of one global model; FedRolex rolls the cut.

"HeteroFL: Computation and Communication Efficient Federated Learning for Heterogeneous Clients",
and "FedRolex: Model-Heterogeneous Federated Learning with Rolling Sub-Model Extraction". The
server knows the fleet's largest model, and which classes each client has. A client receives for
each of its models the part of the global tensors that this model has; it trains them and sends
them back, and every element becomes the mean over those who hold it.

Differences from the paper: how widths are rounded is the model family's affair (`heterofl_cnn`
rounds up as the paper does, RecipFL's families down). A fleet may also differ in depth: a tensor
that the largest model lacks is kept under its name in the shape of the largest model that has it.
So lenet5-d1, RecipFL's small LeNet, shares its first block with lenet5 and has an exit of its own;
in RecipFL's comparison its dense layer is a cut of the large model's layer of the same name, though
the two stand at different places. A strong device's small model is one more contributor (RecipFL's
protocol). Local momentum, weight decay and step size are the run's settings. Of the norms in the
authors' code, instance, layer, group and none are choices of a model, not offered here. FedRolex:
round t, from 1, takes the window from unit t mod K on; the Adam-like server step of its authors'
code is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

import zoo
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
from zoo import ModelSpec, SpecError
from zoo.slicing import IndexMap, first_units, groups, index_map, rolling_units, take

_CHOICES = {
    "variant": ("heterofl", "fedrolex"),
    "norm": ("static", "shared"),
    "index_mode": ("segment", "topleft"),
    "weighting": ("count", "samples"),
}


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of HeteroFL.

    Attributes:
        variant: `heterofl` keeps the first units of every layer, `fedrolex` a window that moves on
            by one unit a round.
        label_split: a client changes only the classifier's rows of classes that it has (paper).
        scaler: in training, outputs of hidden layers are divided by the model's width over the
            largest model's (paper).
        masked_loss: in training, logits of classes that a client lacks are taken as 0 (paper).
        norm: `static` collects BatchNorm statistics anew for evaluation (paper's sBN; on the
            client's own training data, its authors' code on everybody's), `shared` takes those of
            the fine-tune epoch, as for any other method.
        clip: largest norm of a step's gradient; authors' code 1, our default 0: the run's, like the
            other methods of a comparison.
        index_mode: how concatenated channels (DenseNet) are cut: every `segment` for itself, so
            that units fit, or `topleft`, the first of the whole, as the authors' code would.
        weighting: `count`, all who hold an element count the same (paper), or by `samples`.
    """

    variant: Literal["heterofl", "fedrolex"] = "heterofl"
    label_split: bool = True
    scaler: bool = True
    masked_loss: bool = True
    norm: Literal["static", "shared"] = "static"
    clip: float = 0.0
    index_mode: Literal["segment", "topleft"] = "segment"
    weighting: Literal["count", "samples"] = "count"

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise ConfigError(
                    f"{name} must be {' or '.join(choices)}, got {getattr(self, name)!r}"
                )
        if not self.clip >= 0:
            raise ConfigError(f"clip must be at least 0 (0: no limit), got {self.clip}")
        if self.variant == "fedrolex" and self.index_mode == "topleft":
            raise ConfigError(
                "a window that rolls is not at the top left; fedrolex needs index_mode=segment"
            )


def build(config: Config, setting: Setting) -> Method:
    with torch.device("meta"):
        models = {spec: zoo.build(spec, **setting.task) for spec in _by_size(setting)}
    largest = next(iter(models))
    homes = _homes(setting)
    _check(config, setting, models, homes)
    fixed = _places(config, setting, models, homes, t=0)

    def places(t: int) -> Mapping[ModelSpec, IndexMap]:
        if config.variant == "heterofl":
            return fixed
        return _places(config, setting, models, homes, t)

    def recipe(spec: ModelSpec) -> Recipe:
        return Recipe(
            rate=spec.width / largest.width if config.scaler else 1.0,
            own_classes=config.masked_loss,
            clip=config.clip,
        )

    def init() -> State:
        # t is the number of the coming round
        return {"t": 1, "global": {n: setting.initial[spec][n] for n, spec in homes.items()}}

    def run_round(state: State, sampled: Sequence[Client], train: Train) -> tuple[State, Report]:
        where = places(state["t"])
        asked = {spec for client in sampled for spec in client.models}
        sent = {spec: take(state["global"], where[spec]) for spec in asked}  # W[I_out, I_in]
        jobs = [
            Job(
                client=client,
                models=tuple((spec, sent[spec]) for spec in client.models),
                recipes=tuple(recipe(spec) for spec in client.models),
            )
            for client in sampled
        ]
        answers = [answer for answer in train(jobs) if not answer.failure]
        if not answers:
            return state, {}
        parts, shares = [], []
        for answer in answers:
            for spec, trained in zip(answer.client.models, answer.weights, strict=True):
                part = trained, where[spec]
                if config.label_split:
                    part = _own_rows(models[spec], answer.client, *part)
                parts.append(part)
                shares.append(answer.samples if config.weighting == "samples" else 1)
        # acc[I_out, I_in] += W_m; cnt[I_out, I_in] += 1; W[cnt > 0] = acc / cnt
        new = count_mean(state["global"], [w for w, _ in parts], [i for _, i in parts], shares)
        return {"t": state["t"] + 1, "global": new}, {}

    def personalize(state: State, clients: Sequence[Client]) -> list[Weights]:
        where = places(state["t"])
        firsts = {client.models[0] for client in clients}
        served = {spec: take(state["global"], where[spec]) for spec in firsts}
        return [served[client.models[0]] for client in clients]

    return Method(init, run_round, personalize, static_norm=config.norm == "static")


def _by_size(setting: Setting) -> list[ModelSpec]:
    """The fleet's models, the largest first."""
    size = {spec: sum(w.numel() for w in ws.values()) for spec, ws in setting.initial.items()}
    return sorted(size, key=lambda spec: (-size[spec], str(spec)))


def _homes(setting: Setting) -> dict[str, ModelSpec]:
    """For every tensor of the fleet the largest model that has it: the one that it is cut from."""
    homes: dict[str, ModelSpec] = {}
    for spec in _by_size(setting):
        for name in setting.initial[spec]:
            homes.setdefault(name, spec)
    return homes


def _places(
    config: Config,
    setting: Setting,
    models: Mapping[ModelSpec, nn.Module],
    homes: Mapping[str, ModelSpec],
    t: int,
) -> dict[ModelSpec, dict[str, tuple[Tensor, ...]]]:
    """Where every model's tensors are in the global ones in round t."""
    found: dict[ModelSpec, dict[str, tuple[Tensor, ...]]] = {}
    for spec, model in models.items():
        found[spec] = {}
        for parent in dict.fromkeys(homes[name] for name in setting.initial[spec]):
            keep = first_units(models[parent], model)
            if config.variant == "fedrolex":
                window = rolling_units(models[parent], model, t)
                # in ascending order, so that a whole group stays as it is
                keep = {name: units.sort().values for name, units in window.items()}
            index = index_map(models[parent], keep, model, concat=config.index_mode)
            found[spec] |= {n: index[n] for n in setting.initial[spec] if homes[n] == parent}
    return found


def _own_rows(
    model: nn.Module, client: Client, trained: Weights, where: IndexMap
) -> tuple[Weights, IndexMap]:
    """The weights and their places without the classifier's rows of classes the client lacks."""
    rows = torch.tensor(client.mix).gt(0).nonzero().flatten()
    names = [f"{model.classifier_name}.{kind}" for kind in ("weight", "bias")]
    cut = {name: trained[name][rows] for name in names if name in trained}
    return {**trained, **cut}, {**where, **{n: (where[n][0][rows], *where[n][1:]) for n in cut}}


def _check(
    config: Config,
    setting: Setting,
    models: Mapping[ModelSpec, nn.Module],
    homes: Mapping[str, ModelSpec],
) -> None:
    """Refuse a fleet whose models are not cuts of one another."""
    largest, *others = models
    try:
        places = _places(config, setting, models, homes, t=0)
    except SpecError as err:
        names = ", ".join(map(str, models))
        raise ConfigError(f"heterofl cannot cut this fleet's models ({names}): {err}") from err
    for spec in others:
        if largest not in (homes[name] for name in setting.initial[spec]):
            raise ConfigError(
                f"{spec} has no tensor in common with {largest}, the fleet's largest model; "
                "heterofl needs models of one family, such as "
                f"{which_models.advice(largest, 'width')}"
            )
        for name, index in places[spec].items():
            shape = tuple(len(i) for i in index)
            if shape != setting.initial[spec][name].shape:
                raise ConfigError(
                    f"{name} of {spec} has shape {tuple(setting.initial[spec][name].shape)}, what "
                    f"can be cut from {homes[name]} has {shape}; heterofl needs nested models"
                )
    for spec in {*homes.values()} - {largest} if config.variant == "fedrolex" else ():
        full, own = groups(models[largest]), groups(models[spec])
        if any(units != full[name] for name, units in own.items() if name in full):
            raise ConfigError(
                f"{spec} is narrower than {largest} and has tensors of its own, which would read "
                "other units every round; fedrolex needs such a model as wide as the largest"
            )


METHODS.register(
    "heterofl",
    MethodEntry(
        summary="narrower models are cut out of one global model (also FedRolex)",
        config=Config,
        build=build,
        models=which_models.own_and_smallest,
        scaling="width",
    ),
)
