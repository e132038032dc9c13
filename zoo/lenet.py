"""LeNet-5 for 28x28 digits as in RecipFL, with BatchNorm after the convolutions.

The small model of the paper keeps the first block and scales the rest in width. Here that is
depth 1: block 1, then an exit of its own with a 3-channel convolution and one dense layer.
"""

from __future__ import annotations

import math

from torch import nn

from zoo.errors import SpecError
from zoo.family import FAMILIES, Family, images, scaled
from zoo.spec import ModelSpec
from zoo.staged import Exit, StagedNet, named, owned_exits
from zoo.wiring import Axis, Layers, fixed, flattened, group


def lenet5(spec: ModelSpec, *, num_classes: int, in_channels: int, image_size: int) -> nn.Module:
    def units(name: str, full: int) -> Axis:
        return group(name, scaled(full, spec.width, math.floor))

    depth = spec.depth or 2
    side = ((image_size - 4) // 2 - 4) // 2  # after two 5x5 convolutions, each halved
    if side < 1:
        raise SpecError(f"lenet5 needs images of 16 pixels or more, got {image_size}")
    classes = fixed(num_classes)
    layers = Layers()

    conv1 = units("conv1", 6)
    stages = {1: _block(layers, "stages.1", fixed(in_channels), conv1)}
    exits: dict[int, Exit] = {}
    if 1 in owned_exits(spec, depth):
        conv, fc = units("exit1.conv", 3), units("exit1.fc", 84)
        body = named(
            block=_block(layers, "exits.1.body.block", conv1, conv),
            flatten=nn.Flatten(),
            fc=layers.linear("exits.1.body.fc", flattened(conv, side * side), fc),
            relu=nn.ReLU(),
        )
        exits[1] = Exit(body, layers.linear("exits.1.classifier", fc, classes))
    if depth == 2:
        conv2, fc, fc1 = units("conv2", 16), units("fc", 120), units("fc1", 84)
        stages[2] = _block(layers, "stages.2", conv1, conv2)
        body = named(
            flatten=nn.Flatten(),
            fc=layers.linear("exits.2.body.fc", flattened(conv2, side * side), fc),
            relu=nn.ReLU(),
            fc1=layers.linear("exits.2.body.fc1", fc, fc1),
            relu1=nn.ReLU(),
        )
        exits[2] = Exit(body, layers.linear("exits.2.classifier", fc1, classes))
    return StagedNet(nn.Identity(), stages, exits, layers.wiring)


def _block(layers: Layers, path: str, inp: Axis, out: Axis) -> nn.Sequential:
    return named(
        conv=layers.conv(f"{path}.conv", inp, out, 5),
        bn=layers.batch_norm(f"{path}.bn", out),
        relu=nn.ReLU(),
        pool=nn.AvgPool2d(2),
    )


FAMILIES.register(
    "lenet5",
    Family(
        summary="LeNet-5 with BatchNorm for digits (RecipFL, MNIST)",
        make=lenet5,
        example=images,
        task={"num_classes": 10, "in_channels": 1, "image_size": 28},
        depth=2,
        width=True,
        exits=True,
        variants=("lenet5-d1",),
    ),
)
