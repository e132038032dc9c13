"""Models of which the small ones are the first layers of the largest: who has which layer.

small, large = nested(["lenet5-d1", "lenet5"])
small.levels["stages.1.conv.weight"]      # 1: the first block; 0 is the stem
fitting(small, large)                     # what in the deeper layers is shaped like its top
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from zoo.build import build
from zoo.layers import Part, layers
from zoo.spec import ModelSpec, SpecLike, as_spec


@dataclass(frozen=True)
class Nested:
    """One of several models that begin alike.

    Attributes:
        spec: the model.
        depth: its number of blocks.
        shapes: of all its trainable tensors.
        levels: number of the block that a tensor belongs to, 0 for the stem (embeddings). The
            head is left out, and so is what the largest model has not, or in another shape.
    """

    spec: ModelSpec
    depth: int
    shapes: Mapping[str, tuple[int, ...]]
    levels: Mapping[str, int]

    @property
    def name(self) -> str:
        return str(self.spec)

    @property
    def below_top(self) -> tuple[str, ...]:
        """The tensors of its stem and of all blocks but the last."""
        return tuple(name for name, level in self.levels.items() if level < self.depth)


def nested(specs: Sequence[SpecLike], **task: int) -> tuple[Nested, ...]:
    """The models from shallow to deep, with their tensors' places in the last, the largest.

    >>> [(n.name, n.depth, len(n.levels)) for n in nested(["lenet5", "lenet5-d1"])]
    [('lenet5-d1', 1, 4), ('lenet5', 2, 8)]
    """
    with torch.device("meta"):
        models = {as_spec(spec): build(spec, **task) for spec in specs}
    shapes, blocks, places = {}, {}, {}
    for spec, model in models.items():
        shapes[spec] = {n: tuple(p.shape) for n, p in model.named_parameters() if p.requires_grad}
        found = layers(model)
        blocks[spec] = max((la.block for la in found if la.part is Part.BLOCK), default=0)
        places[spec] = {
            (name, shape): layer.block
            for layer in found
            if layer.part is not Part.HEAD
            for name, shape in layer.parameters.items()
        }
    size = {s: sum(torch.Size(shape).numel() for shape in shapes[s].values()) for s in shapes}
    order = sorted(models, key=lambda spec: (blocks[spec], size[spec], str(spec)))
    # by the largest model's layers, for all: of others' models it knows best what is a block
    largest = order[-1]
    place = places[largest]
    levels = {s: {n: place[n, w] for n, w in shapes[s].items() if (n, w) in place} for s in order}
    depth = {s: max(blocks[s], *levels[s].values(), 0) for s in order}
    order.sort(key=lambda spec: (spec == largest, depth[spec], size[spec], str(spec)))
    return tuple(Nested(spec, depth[spec], shapes[spec], levels[spec]) for spec in order)


def fitting(small: Nested, large: Nested) -> dict[str, tuple[str, ...]]:
    """For each tensor of the small model's top block those of the large one that fit it.

    They are in that block or deeper, have the same name behind the block's number, and the shape.

    >>> fits = fitting(*nested(["lenet5", "lenet5-d1"]))  # its second convolution is larger
    >>> fits["stages.1.conv.weight"]
    ('stages.1.conv.weight',)
    """
    return {
        top: tuple(
            name
            for name, level in large.levels.items()
            if level >= small.depth
            and _suffix(name) == _suffix(top)
            and large.shapes[name] == small.shapes[top]
        )
        for top, level in small.levels.items()
        if level == small.depth
    }


def _suffix(name: str) -> str:
    return re.split(r"\.\d+\.", name, maxsplit=1)[-1]
