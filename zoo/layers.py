"""The ordered layers of a model: what FlexiFed compares and InclusiveFL averages by depth."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch import nn

from zoo.staged import StagedNet


class Part(enum.StrEnum):
    """Where in a model a layer stands."""

    STEM = "stem"
    BLOCK = "block"
    HEAD = "head"


@dataclass(frozen=True)
class Layer:
    """One operator with parameters.

    Attributes:
        name: module path.
        operator: class of the module, for example Conv2d.
        parameters: parameter name -> shape.
        part: stem (embeddings), block, or head.
        block: number of the block or of the exit's stage, counted from 1; 0 in the stem.
    """

    name: str
    operator: str
    parameters: Mapping[str, tuple[int, ...]]
    part: Part
    block: int

    @property
    def descriptor(self) -> tuple[str, tuple[tuple[int, ...], ...]]:
        """Operator and shapes: what two layers must share to be averaged."""
        return self.operator, tuple(self.parameters.values())


def layers(model: nn.Module) -> tuple[Layer, ...]:
    """The layers of a model in the order in which it registers them, input first.

    >>> import zoo
    >>> [(layer.name, layer.part.value) for layer in layers(zoo.build("lenet5-d1"))][1:3]
    [('stages.1.bn', 'block'), ('exits.1.body.block.conv', 'head')]
    """
    place = _staged_place if isinstance(model, StagedNet) else _block_finder(model)
    found = []
    for path, module in model.named_modules():
        shapes = {
            f"{path}.{name}" if path else name: tuple(p.shape)
            for name, p in module.named_parameters(recurse=False)
        }
        if shapes:
            part, block = place(path)
            found.append(Layer(path, type(module).__name__, shapes, part, block))
    return tuple(found)


def _staged_place(path: str) -> tuple[Part, int]:
    room, _, rest = path.partition(".")
    if room == "stem":
        return Part.STEM, 0
    return (Part.BLOCK if room == "stages" else Part.HEAD), int(rest.split(".")[0])


def _block_finder(model: nn.Module) -> Callable[[str], tuple[Part, int]]:
    """For a model of another library: its blocks are its longest list of modules of one class."""
    lists = [
        (path, module)
        for path, module in model.named_modules()
        if isinstance(module, nn.ModuleList | nn.Sequential)
        and len(module) > 1
        and len({type(m) for m in module}) == 1
        and next(module[0].parameters(), None) is not None
    ]
    blocks_path, blocks = max(lists, key=lambda item: len(item[1]), default=("", ()))
    seen_block = False

    def place(path: str) -> tuple[Part, int]:
        nonlocal seen_block
        if blocks and path.startswith(f"{blocks_path}."):
            seen_block = True
            return Part.BLOCK, 1 + int(path[len(blocks_path) + 1 :].split(".")[0])
        return (Part.HEAD, len(blocks)) if seen_block else (Part.STEM, 0)

    return place
