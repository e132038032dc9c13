"""Family: what the zoo knows of a model family, and the registry of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from zoo.errors import SpecError
from zoo.registry import Registry
from zoo.spec import ModelSpec

Inputs: TypeAlias = Tensor | dict[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class Family:
    """One model family.

    Attributes:
        summary: one line for people.
        make: builds the model of a spec; called with the spec and every field of `task`.
        example: an input of a given batch size; called with the batch size and every task field.
        task: what the model is built for, with its default: num_classes, and in_channels and
            image_size, or vocab_size.
        depth: how many blocks the full model has; 0 where depth cannot be scaled.
        width: whether the width can be scaled.
        exits: whether there can be an exit after every block.
        variants: scaled specs worth showing, those of the papers.
    """

    summary: str
    make: Callable[..., nn.Module]
    example: Callable[..., Inputs]
    task: Mapping[str, int]
    depth: int = 0
    width: bool = False
    exits: bool = False
    variants: tuple[str, ...] = field(default=())


FAMILIES: Registry[Family] = Registry("model")
OPEN_FAMILIES: Registry[Callable[[str], Family]] = Registry("model library")


def find(spec: ModelSpec) -> Family:
    """The family of `spec`, once it is sure that the family can be scaled that way."""
    if ":" in spec.family:
        library, name = spec.family.split(":", 1)
        family = OPEN_FAMILIES[library](name)
    else:
        family = FAMILIES[spec.family]
    if spec.depth is not None and not family.depth:
        raise SpecError(f"{spec.family} cannot be scaled in depth, got depth {spec.depth}")
    if spec.depth is not None and spec.depth > family.depth:
        raise SpecError(f"{spec.family} has depths 1 to {family.depth}, got {spec.depth}")
    if spec.width != 1 and not family.width:
        raise SpecError(f"{spec.family} cannot be scaled in width, got width {spec.width:g}")
    if spec.exits and not family.exits:
        raise SpecError(f"{spec.family} has no exits after its blocks; leave out -exits")
    return family


def fill(spec: ModelSpec, family: Family, given: Mapping[str, int | None]) -> dict[str, int]:
    """The family's task with what the caller gave; refuses what the family doesn't know."""
    wanted = {name: value for name, value in given.items() if value is not None}
    for name, value in wanted.items():
        if name not in family.task:
            raise SpecError(f"{spec.family} takes {', '.join(family.task)}; got {name}={value}")
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise SpecError(f"{name} must be a whole number from 1, got {value!r} for {spec}")
    return dict(family.task) | wanted


def images(batch_size: int, *, in_channels: int, image_size: int, **_: int) -> Tensor:
    """An example batch of images (any values: only shapes matter)."""
    return torch.zeros(batch_size, in_channels, image_size, image_size)


def tokens(batch_size: int, *, sequence_length: int, **_: int) -> dict[str, Tensor]:
    """An example batch of token ids with its mask."""
    shape = (batch_size, sequence_length)
    return {
        "input_ids": torch.ones(shape, dtype=torch.long),
        "attention_mask": torch.ones(shape, dtype=torch.long),
    }


def scaled(units: int, width: float, rounding: Callable[[float], Any]) -> int:
    """`units` times `width`, rounded, at least 1."""
    return max(1, int(rounding(round(units * width, 9))))
