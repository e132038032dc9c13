"""Which models a device trains under a method: what `MethodEntry.models` is made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import zoo
from ghn_fl.errors import ConfigError
from ghn_fl.types import Setting
from zoo import ModelSpec


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
