"""Plain convolutional networks of the field: HeteroFL's, LEAF's for FEMNIST, FedMDP's twenty."""

from __future__ import annotations

import math
from functools import partial

from torch import nn

from zoo.errors import SpecError
from zoo.family import FAMILIES, Family, images, scaled
from zoo.spec import ModelSpec
from zoo.staged import Exit, StagedNet, named, owned_exits
from zoo.wiring import Axis, Layers, fixed, flattened, group

_HETEROFL_WIDTHS = (64, 128, 256, 512)

# Filters of each convolution and the dropout rate, in the order of the paper's rows.
_FEDMDP_MNIST = (
    ((128, 256), 0.2),
    ((128, 384), 0.2),
    ((128, 512), 0.2),
    ((256, 256), 0.3),
    ((256, 512), 0.4),
    ((64, 128, 256), 0.2),
    ((64, 128, 192), 0.2),
    ((128, 192, 256), 0.2),
    ((128, 128, 128), 0.3),
    ((128, 128, 192), 0.3),
)
_FEDMDP_CIFAR = (
    ((128, 256), 0.2),
    ((128, 128, 192), 0.2),
    ((64, 64, 64), 0.2),
    ((128, 64, 64), 0.3),
    ((64, 64, 128), 0.4),
    ((64, 128, 256), 0.2),
    ((64, 128, 192), 0.2),
    ((128, 192, 256), 0.2),
    ((128, 128, 128), 0.3),
    ((64, 64, 64, 64), 0.2),
)


def heterofl_cnn(
    spec: ModelSpec, *, num_classes: int, in_channels: int, image_size: int
) -> nn.Module:
    """HeteroFL's CNN: 3x3 convolutions with BatchNorm; widths are rounded up, as its authors do."""
    depth = spec.depth or len(_HETEROFL_WIDTHS)
    if image_size < 2 ** (len(_HETEROFL_WIDTHS) - 1):
        raise SpecError(f"heterofl_cnn needs images of 8 pixels or more, got {image_size}")
    layers, stages = Layers(), dict[int, nn.Module]()
    axes = {0: fixed(in_channels)}
    for d, width in enumerate(_HETEROFL_WIDTHS[:depth], 1):
        axes[d] = group(f"conv{d}", scaled(width, spec.width, math.ceil))
        stages[d] = named(
            pool=nn.MaxPool2d(2) if d > 1 else nn.Identity(),
            conv=layers.conv(f"stages.{d}.conv", axes[d - 1], axes[d], 3, padding=1),
            bn=layers.batch_norm(f"stages.{d}.bn", axes[d]),
            relu=nn.ReLU(),
        )
    exits = {
        d: Exit(
            named(pool=nn.AdaptiveAvgPool2d(1), flatten=nn.Flatten()),
            layers.linear(f"exits.{d}.classifier", axes[d], fixed(num_classes)),
        )
        for d in owned_exits(spec, depth)
    }
    return StagedNet(nn.Identity(), stages, exits, layers.wiring)


def femnist_cnn(
    spec: ModelSpec, *, num_classes: int, in_channels: int, image_size: int
) -> nn.Module:
    """LEAF's CNN for FEMNIST, which Hasaas and AFD mask: two 5x5 convolutions and a dense layer."""

    def units(name: str, full: int) -> Axis:
        return group(name, scaled(full, spec.width, math.floor))

    if image_size < 4:
        raise SpecError(f"femnist_cnn needs images of 4 pixels or more, got {image_size}")
    conv1, conv2, fc = units("conv1", 32), units("conv2", 64), units("fc", 2048)
    layers, side = Layers(), image_size // 4

    def block(path: str, inp: Axis, out: Axis) -> nn.Sequential:
        conv = layers.conv(f"{path}.conv", inp, out, 5, padding=2)
        return named(conv=conv, relu=nn.ReLU(), pool=nn.MaxPool2d(2))

    stages = {
        1: block("stages.1", fixed(in_channels), conv1),
        2: block("stages.2", conv1, conv2),
    }
    body = named(
        flatten=nn.Flatten(),
        fc=layers.linear("exits.2.body.fc", flattened(conv2, side * side), fc),
        relu=nn.ReLU(),
    )
    exits = {2: Exit(body, layers.linear("exits.2.classifier", fc, fixed(num_classes)))}
    return StagedNet(nn.Identity(), stages, exits, layers.wiring)


def fedmdp_cnn(
    spec: ModelSpec,
    *,
    filters: tuple[int, ...],
    dropout: float,
    num_classes: int,
    in_channels: int,
    image_size: int,
) -> nn.Module:
    """A CNN of FedMDP's tables: 3x3, then 2x2 with stride 2, then 3x3; a classifier without bias.

    The paper gives filters and dropout only; kernels, strides and pooling are those of FedMD,
    whose models these are.
    """
    shapes = (  # kernel, stride, padding, pooling (window, stride) of the first to fourth layer
        (3, 1, 1, (2, 1)),
        (2, 2, 0, (2, 2) if len(filters) > 2 else None),
        (3, 2, 0, None),
        (3, 1, 1, None),
    )
    layers, stages = Layers(), dict[int, nn.Module]()
    axis, side = fixed(in_channels), image_size
    for d, (width, (kernel, stride, padding, pool)) in enumerate(
        zip(filters, shapes[: len(filters)], strict=True), 1
    ):
        inp, axis = axis, group(f"conv{d}", width)
        side = (side + 2 * padding - kernel) // stride + 1
        conv = layers.conv(f"stages.{d}.conv", inp, axis, kernel, stride=stride, padding=padding)
        stages[d] = named(
            conv=conv,
            bn=layers.batch_norm(f"stages.{d}.bn", axis),
            relu=nn.ReLU(),
            dropout=nn.Dropout(dropout),
            pool=nn.AvgPool2d(*pool) if pool else nn.Identity(),
        )
        side = (side - pool[0]) // pool[1] + 1 if pool else side
    if side < 1:
        raise SpecError(f"{spec} needs larger images, got {image_size} pixels")
    classifier = layers.linear(
        f"exits.{len(filters)}.classifier",
        flattened(axis, side * side),
        fixed(num_classes),
        bias=False,
    )
    exits = {len(filters): Exit(nn.Flatten(), classifier)}
    return StagedNet(nn.Identity(), stages, exits, layers.wiring)


FAMILIES.register(
    "heterofl_cnn",
    Family(
        summary="four 3x3 convolutions with BatchNorm (HeteroFL, MNIST; levels a to e)",
        make=heterofl_cnn,
        example=images,
        task={"num_classes": 10, "in_channels": 1, "image_size": 28},
        depth=len(_HETEROFL_WIDTHS),
        width=True,
        exits=True,
        variants=tuple(f"heterofl_cnn-w{w}" for w in (0.5, 0.25, 0.125, 0.0625)),
    ),
)
FAMILIES.register(
    "femnist_cnn",
    Family(
        summary="LEAF's CNN for 62 handwritten characters (Hasaas, AFD)",
        make=femnist_cnn,
        example=images,
        task={"num_classes": 62, "in_channels": 1, "image_size": 28},
        width=True,
        variants=("femnist_cnn-w0.5",),
    ),
)
for _set, _table, _task in (
    ("mnist", _FEDMDP_MNIST, {"num_classes": 10, "in_channels": 1, "image_size": 28}),
    ("cifar", _FEDMDP_CIFAR, {"num_classes": 10, "in_channels": 3, "image_size": 32}),
):
    for _row, (_filters, _dropout) in enumerate(_table, 1):
        FAMILIES.register(
            f"fedmdp_{_set}_{_row}",
            Family(
                summary=f"CNN {'-'.join(map(str, _filters))}, dropout {_dropout} (FedMDP, {_set})",
                make=partial(fedmdp_cnn, filters=_filters, dropout=_dropout),
                example=images,
                task=_task,
            ),
        )
