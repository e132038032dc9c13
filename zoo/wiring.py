"""Which units every layer of a model reads and writes: what slicing needs to know.

A *group* is a set of units (channels, neurons, LSTM cells, features of a head) that live and die
together: drop unit 3 of a group, and row 3 of every layer that writes the group and column 3 of
every layer that reads it go with it. An *axis* of a weight is one or more segments one after
another (DenseNet concatenates), each a group laid out as

    copies x units x block        index = (copy * units + unit) * block + position

`block` is what one unit takes up after a flatten (h*w positions, channel first); `copies` is how
often the group repeats (4 gates of an LSTM, the heads of attention). A segment without a group is
never cut: input channels, classes, vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from torch import nn

from zoo.errors import SpecError


@dataclass(frozen=True)
class Segment:
    """One group's part of an axis."""

    group: str | None
    units: int
    block: int = 1
    copies: int = 1

    @property
    def size(self) -> int:
        return self.units * self.block * self.copies


Axis: TypeAlias = tuple[Segment, ...]


@dataclass(frozen=True)
class Wire:
    """What a layer reads (`inp`) and writes (`out`); a norm layer has `inp` empty."""

    inp: Axis
    out: Axis


def fixed(size: int) -> Axis:
    """An axis that is never cut."""
    return (Segment(None, size),)


def group(name: str, units: int, block: int = 1, copies: int = 1) -> Axis:
    return (Segment(name, units, block, copies),)


def flattened(axis: Axis, positions: int) -> Axis:
    """The axis after a flatten of `positions` spatial places per channel, channel first."""
    return tuple(Segment(s.group, s.units, s.block * positions, s.copies) for s in axis)


def norm(axis: Axis) -> Wire:
    return Wire((), axis)


def size(axis: Axis) -> int:
    return sum(segment.size for segment in axis)


class Layers:
    """Makes layers from the axes that they read and write, and remembers the wiring.

    >>> layers = Layers()
    >>> layers.linear("fc", fixed(4), group("fc", 3))
    Linear(in_features=4, out_features=3, bias=True)
    >>> layers.wiring["fc"].out
    (Segment(group='fc', units=3, block=1, copies=1),)
    """

    def __init__(self) -> None:
        self.wiring: dict[str, Wire] = {}

    def conv(self, path: str, inp: Axis, out: Axis, kernel: int, **options: Any) -> nn.Conv2d:
        self.wiring[path] = Wire(inp, out)
        return nn.Conv2d(size(inp), size(out), kernel, **options)

    def batch_norm(self, path: str, axis: Axis) -> nn.BatchNorm2d:
        self.wiring[path] = norm(axis)
        return nn.BatchNorm2d(size(axis))

    def layer_norm(self, path: str, axis: Axis, eps: float) -> nn.LayerNorm:
        self.wiring[path] = norm(axis)
        return nn.LayerNorm(size(axis), eps=eps)

    def linear(self, path: str, inp: Axis, out: Axis, bias: bool = True) -> nn.Linear:
        self.wiring[path] = Wire(inp, out)
        return nn.Linear(size(inp), size(out), bias=bias)

    def embedding(self, path: str, rows: int, out: Axis) -> nn.Embedding:
        self.wiring[path] = Wire(fixed(rows), out)
        return nn.Embedding(rows, size(out))


def parameter_axes(model: nn.Module, wiring: dict[str, Wire]) -> dict[str, tuple[Axis, ...]]:
    """For every parameter (and every buffer with units) of `model` the axes of its dimensions."""
    axes: dict[str, tuple[Axis, ...]] = {}
    for path, module in model.named_modules():
        tensors = dict(module.named_parameters(recurse=False)) | dict(
            module.named_buffers(recurse=False)
        )
        for name, tensor in tensors.items():
            if path not in wiring:
                raise SpecError(f"no wiring for the layer {path!r}: it cannot be sliced")
            dims = _dimensions(module, name, wiring[path])[: tensor.ndim]
            kernel = tuple(fixed(n) for n in tensor.shape[len(dims) :])
            axes[f"{path}.{name}" if path else name] = (*dims, *kernel)
    return axes


def _dimensions(module: nn.Module, name: str, wire: Wire) -> tuple[Axis, ...]:
    """The axes of the leading dimensions of one parameter; kernel dimensions follow them."""
    if isinstance(module, nn.Embedding):
        return (wire.inp, wire.out)  # rows are looked up, not multiplied
    if isinstance(module, nn.LSTM):
        gates = tuple(Segment(s.group, s.units, s.block, 4) for s in wire.out)
        inner = wire.out if "_hh_" in name or not name.endswith("_l0") else wire.inp
        return (gates, inner)
    return (wire.out, wire.inp) if wire.inp else (wire.out,)
