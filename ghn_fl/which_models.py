"""Which models a device trains under a method: what `MethodEntry.models` is made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import zoo
from ghn_fl.errors import ConfigError
from ghn_fl.types import Setting
from zoo import ModelSpec, SpecError
from zoo.scaling import scale_depth, scale_width


def own(_: Any, model: ModelSpec, fleet: Sequence[ModelSpec]) -> tuple[ModelSpec, ...]:
    """Its own."""
    return (model,)


def smallest(_: Any, model: ModelSpec, fleet: Sequence[ModelSpec]) -> tuple[ModelSpec, ...]:
    """The smallest of the fleet, whatever it could train."""
    return (min(fleet, key=zoo.num_parameters),)


def largest(_: Any, model: ModelSpec, fleet: Sequence[ModelSpec]) -> tuple[ModelSpec, ...]:
    """The largest of the fleet, whatever it can train."""
    return (max(fleet, key=zoo.num_parameters),)


def own_and_smallest(_: Any, model: ModelSpec, fleet: Sequence[ModelSpec]) -> tuple[ModelSpec, ...]:
    """Its own, and the smallest of the fleet if that is another."""
    return tuple(dict.fromkeys((model, *smallest(_, model, fleet))))


def the_only(setting: Setting, method: str) -> ModelSpec:
    """The one model that all clients have; a fleet with several is refused in `method`'s name."""
    specs = sorted({client.models[0] for client in setting.clients}, key=str)
    if len(specs) > 1:
        listed = ", ".join(map(str, specs))
        raise ConfigError(
            f"{method} needs one model for all, this fleet has {len(specs)}: {listed}; "
            "give all devices the same one, or take allsmall (all train the smallest), exclusivefl "
            "(every tier for itself) or heterofl (small models are cut out of the large one)"
        )
    return specs[0]


def advice(spec: ModelSpec, scaled: Literal["depth", "width"]) -> str:
    """A pair of models that would do: a model and a smaller one of it, or else LeNets.

    >>> advice(ModelSpec.parse("resnet18-w0.5"), "depth")
    'resnet18-w0.5 and resnet18-d1-w0.5'
    >>> advice(ModelSpec.parse("fedmdp_mnist_6"), "width")
    'lenet5 and lenet5-w0.5'
    """
    try:
        smaller = scale_depth(spec, 1) if scaled == "depth" else scale_width(spec, 0.5)
    except SpecError:
        smaller = spec
    if smaller == spec:
        return advice(ModelSpec.parse("lenet5"), scaled)
    return f"{spec} and {smaller}"
