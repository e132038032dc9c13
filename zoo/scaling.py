"""Depth, width and architecture scaling: pure functions from a spec to a smaller spec."""

from __future__ import annotations

from dataclasses import replace

import torch

from zoo.build import build
from zoo.errors import SpecError
from zoo.family import find
from zoo.spec import ModelSpec, SpecLike, as_spec


def scale_depth(spec: SpecLike, depth: int) -> ModelSpec:
    """The spec with its first `depth` blocks.

    >>> str(scale_depth("resnet18", 1))
    'resnet18-d1'
    """
    spec = as_spec(spec)
    if spec.depth is not None and depth > spec.depth:
        raise SpecError(f"{spec} has {spec.depth} blocks; it cannot be scaled to {depth}")
    return _checked(replace(spec, depth=depth))


def scale_width(spec: SpecLike, ratio: float) -> ModelSpec:
    """The spec with `ratio` of the width that it has.

    >>> str(scale_width("resnet18-w0.5", 0.5))
    'resnet18-w0.25'
    """
    spec = as_spec(spec)
    if not 0 < ratio <= 1:
        raise SpecError(f"the width ratio must be above 0 and at most 1, got {ratio:g} for {spec}")
    return _checked(replace(spec, width=spec.width * ratio))


def scale_architecture(spec: SpecLike, smaller: SpecLike) -> ModelSpec:
    """`smaller`, another architecture, once it is sure that it has fewer parameters.

    >>> str(scale_architecture("resnet18", "timm:mobilenetv3_small_050"))
    'timm:mobilenetv3_small_050'
    """
    spec, smaller = as_spec(spec), as_spec(smaller)
    before, after = num_parameters(spec), num_parameters(smaller)
    if after >= before:
        raise SpecError(f"{smaller} has {after:,} parameters, no fewer than {spec}'s {before:,}")
    return smaller


def num_parameters(spec: SpecLike, **task: int | None) -> int:
    """Trainable parameters of a spec, counted without allocating them."""
    with torch.device("meta"):
        model = build(spec, **task)
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


def _checked(spec: ModelSpec) -> ModelSpec:
    find(spec)
    return spec
