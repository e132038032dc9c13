"""ResNet-18 for 32x32 images as in RecipFL: 3x3 stem, four stages of two basic blocks.

Depth d keeps the first d stages. A stage before the last gets an adapter (3x3 convolution to the
last stage's width, so that every exit classifies features of one size) before its classifier.
"""

from __future__ import annotations

import math

import torch.nn.functional as F
from torch import Tensor, nn

from zoo.family import FAMILIES, Family, images, scaled
from zoo.spec import ModelSpec
from zoo.staged import Exit, StagedNet, named, owned_exits
from zoo.wiring import Axis, Layers, fixed, group

_WIDTHS = (64, 128, 256, 512)
_BLOCKS = 2


def resnet18(spec: ModelSpec, *, num_classes: int, in_channels: int, image_size: int) -> nn.Module:
    stage_axes = {
        d: group(f"stage{d}", scaled(w, spec.width, math.floor)) for d, w in enumerate(_WIDTHS, 1)
    }
    depth = spec.depth or len(_WIDTHS)
    layers = Layers()
    # Stage 1 adds its input to its output, so the stem writes the units of stage 1.
    stem = named(
        conv=layers.conv("stem.conv", fixed(in_channels), stage_axes[1], 3, padding=1, bias=False),
        bn=layers.batch_norm("stem.bn", stage_axes[1]),
        relu=nn.ReLU(),
    )
    stages = {
        d: _stage(
            layers, f"stages.{d}", stage_axes[max(1, d - 1)], stage_axes[d], 1 if d == 1 else 2
        )
        for d in range(1, depth + 1)
    }
    exits = {d: _exit(layers, d, stage_axes, num_classes) for d in owned_exits(spec, depth)}
    return StagedNet(stem, stages, exits, layers.wiring)


def _stage(layers: Layers, path: str, inp: Axis, out: Axis, stride: int) -> nn.Sequential:
    first = BasicBlock(layers, f"{path}.0", inp, out, stride)
    rest = (BasicBlock(layers, f"{path}.{i}", out, out, 1) for i in range(1, _BLOCKS))
    return nn.Sequential(first, *rest)


def _exit(layers: Layers, depth: int, stage_axes: dict[int, Axis], num_classes: int) -> Exit:
    path, last = f"exits.{depth}", len(_WIDTHS)
    body, features = named(), stage_axes[depth]
    if depth < last:
        inp, features = features, group(f"adapter{depth}", stage_axes[last][0].units)
        stride = 2 ** (last - depth)
        body = named(
            conv=layers.conv(
                f"{path}.body.conv", inp, features, 3, stride=stride, padding=1, bias=False
            ),
            bn=layers.batch_norm(f"{path}.body.bn", features),
            relu=nn.ReLU(),
        )
    body.add_module("pool", nn.AdaptiveAvgPool2d(1))
    body.add_module("flatten", nn.Flatten())
    return Exit(body, layers.linear(f"{path}.classifier", features, fixed(num_classes)))


class BasicBlock(nn.Module):
    """relu(bn(conv(relu(bn(conv(x))))) + shortcut(x)); 1x1 shortcut where the shape changes."""

    def __init__(self, layers: Layers, path: str, inp: Axis, out: Axis, stride: int) -> None:
        super().__init__()
        middle = group(f"{path}.middle", out[0].units)
        self.conv1 = layers.conv(
            f"{path}.conv1", inp, middle, 3, stride=stride, padding=1, bias=False
        )
        self.bn1 = layers.batch_norm(f"{path}.bn1", middle)
        self.conv2 = layers.conv(f"{path}.conv2", middle, out, 3, padding=1, bias=False)
        self.bn2 = layers.batch_norm(f"{path}.bn2", out)
        self.shortcut = nn.Sequential()
        if inp != out:
            self.shortcut = named(
                conv=layers.conv(f"{path}.shortcut.conv", inp, out, 1, stride=stride, bias=False),
                bn=layers.batch_norm(f"{path}.shortcut.bn", out),
            )

    def forward(self, x: Tensor) -> Tensor:
        h = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(h)) + self.shortcut(x))


FAMILIES.register(
    "resnet18",
    Family(
        summary="ResNet-18 for 32x32 images (RecipFL, CIFAR-10)",
        make=resnet18,
        example=images,
        task={"num_classes": 10, "in_channels": 3, "image_size": 32},
        depth=4,
        width=True,
        exits=True,
        variants=("resnet18-d1", "resnet18-w0.2"),
    ),
)
