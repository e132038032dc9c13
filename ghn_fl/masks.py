"""Sub-models that masks cut out of one model: what Hasaas and AFD share.

A mask is a boolean a unit of a group (see `zoo.wiring`): true stays. How many units of a group stay
is what the sub-model's spec says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import torch
from torch import Tensor, nn

import zoo
from ghn_fl.errors import ConfigError
from ghn_fl.which_models import advice
from zoo import ModelSpec, SpecError, slicing

Masks: TypeAlias = Mapping[str, Tensor]  # group -> a boolean a unit


def skeleton(spec: ModelSpec, task: Mapping[str, int]) -> nn.Module:
    """The model of a spec without values: enough to know its units."""
    with torch.device("meta"):
        return zoo.build(spec, **task)


def unit_counts(parent: ModelSpec, child: ModelSpec, task: Mapping[str, int]) -> dict[str, int]:
    """How many units of every group of `parent` stay in `child`, which must be a slice of it.

    >>> task = {"num_classes": 10, "in_channels": 1, "image_size": 28}
    >>> unit_counts(ModelSpec.parse("lenet5"), ModelSpec.parse("lenet5-w0.5"), task)
    {'conv1': 3, 'conv2': 8, 'fc': 60, 'fc1': 42}
    """
    whole, part = skeleton(parent, task), skeleton(child, task)
    try:
        full, counts = slicing.groups(whole), slicing.groups(part)
    except SpecError as err:
        raise ConfigError(
            f"{child} is no sub-model of {parent} that masks could cut: {err}"
        ) from err
    fits = counts.keys() == full.keys() and all(counts[g] <= n for g, n in full.items())
    if fits:
        cut = where(whole, {g: torch.arange(n) < counts[g] for g, n in full.items()})
        shapes = {name: tuple(len(i) for i in index) for name, index in cut.items()}
        fits = shapes == {name: tuple(p.shape) for name, p in part.named_parameters()}
    if not fits:
        raise ConfigError(
            f"a mask's sub-model must be {parent} scaled in width, got {child}; choose models such "
            f"as {advice(parent, 'width')}, or a method for other models, as recipfl"
        )
    return counts


def where(model: nn.Module, masks: Masks) -> dict[str, tuple[Tensor, ...]]:
    """The indices of a mask's sub-model in every parameter of `model`; see `zoo.slicing`."""
    found = slicing.index_map(model, slicing.masked_units(model, masks))
    return {name: found[name] for name, _ in model.named_parameters()}


def largest(scores: Mapping[str, Tensor], counts: Mapping[str, int]) -> dict[str, Tensor]:
    """Masks of the `counts` units of largest score; of equal ones the first.

    >>> largest({"fc": torch.tensor([3.0, 1.0, 2.0, 0.0])}, {"fc": 2})
    {'fc': tensor([ True, False,  True, False])}
    """
    return {
        group: _mask(len(score), score.argsort(descending=True, stable=True)[: counts[group]])
        for group, score in scores.items()
    }


def drawn(
    scores: Mapping[str, Tensor], counts: Mapping[str, int], generator: torch.Generator
) -> dict[str, Tensor]:
    """Masks of `counts` units, drawn without replacement with probabilities as their scores."""
    return {
        group: _mask(
            len(scores[group]),
            torch.multinomial(scores[group], counts[group], generator=generator),
        )
        for group in sorted(scores)
    }


def _mask(units: int, kept: Tensor) -> Tensor:
    mask = torch.zeros(units, dtype=torch.bool)
    mask[kept] = True
    return mask
