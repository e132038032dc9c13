"""Which models a device trains under a method: what `MethodEntry.models` is made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import zoo
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
