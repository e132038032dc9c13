"""What a worker does to a model beside training it."""

import pytest
import torch
from torch import nn

import zoo
from ghn_fl.data import load
from ghn_fl.engines.work import Bench
from ghn_fl.local import LocalConfig, unload
from ghn_fl.simulation.world import World


@pytest.mark.parametrize(
    ("spec", "channels", "last"),
    [
        ("resnet18-w0.125", 3, True),  # 8, 16, 32 and 64 channels
        ("resnet18-w0.05", 3, False),  # 3, 6, 12 and 25
        ("lenet5", 1, False),
    ],
)
def test_channels_lie_last_only_where_torch_can_train_them(
    spec: str, channels: int, last: bool
) -> None:
    task = {"num_classes": 10, "in_channels": channels, "image_size": 28}
    data = load("synthetic", None)
    world = World(dataset=data, shares=(), config=LocalConfig(), seed=0, task=task)
    model = Bench(world).model(spec, unload(zoo.build(spec, **task)))
    kernels = [
        m.weight
        for m in model.modules()  # a kernel of one pixel or channel lies both ways
        if isinstance(m, nn.Conv2d) and m.in_channels > 1 and m.kernel_size != (1, 1)
    ]
    assert kernels
    assert all(k.is_contiguous(memory_format=torch.channels_last) == last for k in kernels)
    # with channels last, three steps of an uneven model end the process on some processors
    for _ in range(3):
        model(torch.randn(32, channels, 28, 28)).sum().backward()
