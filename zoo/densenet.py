"""DenseNet-121 variant for 32x32 images as in RecipFL: growth 12, reduction 1/2, 3x3 stem.

A dense layer puts its new channels in front of the old ones, so the channels that later layers
read are segments of several groups; slicing cuts every segment for itself.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zoo.family import FAMILIES, Family, images, scaled
from zoo.spec import ModelSpec
from zoo.staged import Exit, StagedNet, named, owned_exits
from zoo.wiring import Axis, Layers, fixed, group, size

_GROWTH = 12
_BLOCKS = (6, 12, 24, 16)
_EXIT_FEATURES = 32  # the last block's channels as a multiple of the growth rate: 384 / 12


def densenet121(
    spec: ModelSpec, *, num_classes: int, in_channels: int, image_size: int
) -> nn.Module:
    growth = scaled(_GROWTH, spec.width, math.floor)
    depth = spec.depth or len(_BLOCKS)
    layers = Layers()
    axis = group("stem", 2 * growth)
    stem = layers.conv("stem", fixed(in_channels), axis, 3, padding=1, bias=False)
    stages: dict[int, nn.Module] = {}
    axes: dict[int, Axis] = {}
    for d in range(1, depth + 1):
        stages[d], axis = _stage(layers, d, axis, growth)
        axes[d] = axis
    exits = {d: _exit(layers, d, axes[d], growth, num_classes) for d in owned_exits(spec, depth)}
    return StagedNet(stem, stages, exits, layers.wiring)


def _stage(layers: Layers, d: int, axis: Axis, growth: int) -> tuple[nn.Module, Axis]:
    """Dense block d with the transition after it (the last block has none), and what it writes."""
    block = nn.Sequential()
    for i in range(_BLOCKS[d - 1]):
        path = f"stages.{d}.block.{i}"
        new = group(f"{path}.new", growth)
        block.append(DenseLayer(layers, path, axis, new, 4 * growth))
        axis = new + axis
    if d == len(_BLOCKS):
        return named(block=block), axis
    out = group(f"transition{d}", size(axis) // 2)
    transition = named(
        bn=layers.batch_norm(f"stages.{d}.transition.bn", axis),
        relu=nn.ReLU(),
        conv=layers.conv(f"stages.{d}.transition.conv", axis, out, 1, bias=False),
        pool=nn.AvgPool2d(2),
    )
    return named(block=block, transition=transition), out


def _exit(layers: Layers, d: int, axis: Axis, growth: int, num_classes: int) -> Exit:
    path, body = f"exits.{d}", named()
    if d < len(_BLOCKS):
        inp, axis = axis, group(f"adapter{d}", _EXIT_FEATURES * growth)
        stride = 2 if d == 1 else 1  # later blocks have halved the image often enough
        body.add_module(
            "conv",
            layers.conv(f"{path}.body.conv", inp, axis, 3, stride=stride, padding=1, bias=False),
        )
    body.add_module("bn", layers.batch_norm(f"{path}.body.bn", axis))
    body.add_module("relu", nn.ReLU())
    body.add_module("pool", nn.AdaptiveAvgPool2d(1))
    body.add_module("flatten", nn.Flatten())
    return Exit(body, layers.linear(f"{path}.classifier", axis, fixed(num_classes)))


class DenseLayer(nn.Module):
    """[conv3x3(relu(bn(conv1x1(relu(bn(x)))))), x]: new channels first."""

    def __init__(self, layers: Layers, path: str, inp: Axis, new: Axis, bottleneck: int) -> None:
        super().__init__()
        middle = group(f"{path}.middle", bottleneck)
        self.bn1 = layers.batch_norm(f"{path}.bn1", inp)
        self.conv1 = layers.conv(f"{path}.conv1", inp, middle, 1, bias=False)
        self.bn2 = layers.batch_norm(f"{path}.bn2", middle)
        self.conv2 = layers.conv(f"{path}.conv2", middle, new, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        new = self.conv1(F.relu(self.bn1(x)))
        new = self.conv2(F.relu(self.bn2(new)))
        return torch.cat([new, x], dim=1)


FAMILIES.register(
    "densenet121",
    Family(
        summary="DenseNet-121 with growth 12 for 32x32 images (RecipFL, CIFAR-100)",
        make=densenet121,
        example=images,
        task={"num_classes": 100, "in_channels": 3, "image_size": 32},
        depth=4,
        width=True,
        exits=True,
        variants=("densenet121-d1", "densenet121-w0.5"),
    ),
)
