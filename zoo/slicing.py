"""Take a sub-model's weights out of its parent, and put them back.

`keep` says which units of every group stay (see `zoo.wiring`); `index_map` turns that into index
vectors for every dimension of every tensor. HeteroFL keeps the first units, FedRolex a window that
rolls from round to round, Hasaas and AFD any units that a mask names: only `keep` differs.

    keep = first_units(parent, child)
    where = index_map(parent, keep)
    small = take(weights, where)             # exactly the child's weights
    weights = put(weights, small, where)     # the parent's, with the child's written in
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import torch
from torch import Tensor, nn

from zoo.errors import SpecError
from zoo.staged import StagedNet
from zoo.wiring import Axis, parameter_axes

Keep: TypeAlias = Mapping[str, Tensor]
IndexMap: TypeAlias = Mapping[str, tuple[Tensor, ...]]


def groups(model: nn.Module) -> dict[str, int]:
    """The groups of units that can be cut, with their sizes.

    >>> import zoo
    >>> groups(zoo.build("femnist_cnn"))
    {'conv1': 32, 'conv2': 64, 'fc': 2048}
    """
    return {
        segment.group: segment.units
        for wire in _staged(model).wiring.values()
        for segment in (*wire.inp, *wire.out)
        if segment.group is not None
    }


def first_units(parent: nn.Module, child: nn.Module) -> dict[str, Tensor]:
    """The first units of every group, as many as the child has (HeteroFL)."""
    return {name: torch.arange(units) for name, units in _child_groups(parent, child).items()}


def rolling_units(parent: nn.Module, child: nn.Module, offset: int) -> dict[str, Tensor]:
    """A cyclic window of every group, starting at `offset` (FedRolex: the round's number)."""
    full = groups(parent)
    return {
        name: (torch.arange(units) + offset) % full[name]
        for name, units in _child_groups(parent, child).items()
    }


def masked_units(model: nn.Module, masks: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The units whose mask is true; groups without a mask stay whole (Hasaas, AFD)."""
    full = groups(model)
    for name, mask in masks.items():
        if name not in full:
            raise SpecError(f"there is no group {name!r} to mask; groups: {', '.join(full)}")
        if mask.dtype != torch.bool or mask.shape != (full[name],):
            raise SpecError(
                f"the mask of {name!r} must be {full[name]} booleans, "
                f"got {mask.dtype} of shape {tuple(mask.shape)}"
            )
        if not mask.any():
            raise SpecError(f"the mask of {name!r} keeps no unit; keep at least one")
    kept = {name: mask.nonzero().flatten() for name, mask in masks.items()}
    return {name: torch.arange(units) for name, units in full.items()} | kept


def index_map(
    parent: nn.Module, keep: Keep, child: nn.Module | None = None, *, concat: str = "segment"
) -> dict[str, tuple[Tensor, ...]]:
    """For every tensor of the sub-model the indices, dimension by dimension, in the parent.

    Args:
        parent: the model that is cut.
        keep: unit indices of every group.
        child: a model with fewer layers too; tensors that it lacks are left out.
        concat: how axes of several groups (DenseNet) are cut: every `segment` for itself, or
            `topleft`, the first entries of the whole axis, as HeteroFL's own code would.
    """
    if concat not in ("segment", "topleft"):
        raise SpecError(f"concat must be 'segment' or 'topleft', got {concat!r}")
    axes = parameter_axes(parent, _staged(parent).wiring)
    if child is not None:
        owned = {name for name, _ in (*child.named_parameters(), *child.named_buffers())}
        axes = {name: dims for name, dims in axes.items() if name in owned}
    where = {name: tuple(_indices(axis, keep) for axis in dims) for name, dims in axes.items()}
    if concat == "topleft":
        where = {
            name: tuple(
                torch.arange(len(index)) if len(axis) > 1 else index
                for index, axis in zip(where[name], axes[name], strict=True)
            )
            for name in where
        }
    return where


def take(weights: Mapping[str, Tensor], where: IndexMap) -> dict[str, Tensor]:
    """The sub-model's tensors, copied out of the parent's."""
    return {name: _of(weights, name)[grid(index)] for name, index in where.items()}


def put(
    weights: Mapping[str, Tensor], part: Mapping[str, Tensor], where: IndexMap
) -> dict[str, Tensor]:
    """The parent's tensors with the sub-model's written in; the arguments stay as they are."""
    if part.keys() != where.keys():
        raise SpecError(_difference("the sub-model's tensors", part.keys(), where.keys()))
    result = dict(weights)
    for name, index in where.items():
        shape = tuple(len(i) for i in index)
        if tuple(part[name].shape) != shape:
            raise SpecError(f"{name} must have shape {shape}, got {tuple(part[name].shape)}")
        whole = _of(weights, name).clone()
        whole[grid(index)] = part[name]
        result[name] = whole
    return result


def grid(index: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Index vectors shaped so that together they address the block where they cross.

    >>> torch.arange(9).reshape(3, 3)[grid((torch.tensor([0, 2]), torch.tensor([1, 2])))]
    tensor([[1, 2],
            [7, 8]])
    """
    n = len(index)
    return tuple(i.reshape([-1 if k == d else 1 for k in range(n)]) for d, i in enumerate(index))


def _indices(axis: Axis, keep: Keep) -> Tensor:
    parts, start = [], 0
    for segment in axis:
        units = torch.arange(segment.units)
        if segment.group is not None and segment.group in keep:
            units = keep[segment.group]
            if len(units) and int(units.max()) >= segment.units:
                raise SpecError(
                    f"group {segment.group!r} has {segment.units} units, "
                    f"got index {int(units.max())}"
                )
        layout = torch.arange(segment.size).reshape(segment.copies, segment.units, segment.block)
        parts.append(start + layout[:, units].flatten())
        start += segment.size
    return torch.cat(parts)


def _child_groups(parent: nn.Module, child: nn.Module) -> dict[str, int]:
    full, small = groups(parent), groups(child)
    for name, units in small.items():
        if name in full and units > full[name]:
            raise SpecError(f"the sub-model has {units} units in {name!r}, its parent {full[name]}")
    return {name: units for name, units in small.items() if name in full}


def _staged(model: nn.Module) -> StagedNet:
    if not isinstance(model, StagedNet):
        raise SpecError(
            f"{type(model).__name__} does not say which units belong together, so it cannot be "
            "sliced; the zoo's own families can"
        )
    return model


def _of(weights: Mapping[str, Tensor], name: str) -> Tensor:
    if name not in weights:
        raise SpecError(f"the parent's weights lack {name!r}")
    return weights[name]


def _difference(what: str, got: object, expected: object) -> str:
    got_set, expected_set = set(got), set(expected)  # type: ignore[call-overload]
    missing, extra = sorted(expected_set - got_set)[:3], sorted(got_set - expected_set)[:3]
    return f"{what} do not fit: missing {missing}, unexpected {extra}"
