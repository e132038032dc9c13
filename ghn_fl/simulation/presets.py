"""Named settings: the experiments of the RecipFL paper, its Table 2.

| preset | strong | weak | strong share | large | small | rounds |
|---|---|---|---|---|---|---|
| recipfl-mnist | 2 | 100 | 50 % | LeNet-5 | LeNet-5, depth and width | 100 |
| recipfl-cifar10-depth | 1 | 5 | 50 % | ResNet-18 | its first stage | 50 |
| recipfl-cifar10-width | 1 | 5 | 50 % | ResNet-18 | a fifth of its width | 50 |
| recipfl-cifar100-depth | 1 | 50 | 50 % | DenseNet-121 | its first block | 500 |
| recipfl-cifar100-width | 1 | 50 | 50 % | DenseNet-121 | half of its width | 500 |

Dirichlet 0.5, min(M, 10) clients a round; what the paper leaves out is its authors' code's: 5 local
epochs of SGD, always 0.01, with batches of 128, and data-share weighting on CIFAR-10.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ghn_fl.errors import ConfigError
from zoo import Registry

PRESETS: Registry[Callable[[], dict[str, Any]]] = Registry("preset", ConfigError)


LOCAL = {"epochs": 5, "lr": 0.01, "lr_decay": 1.0, "batch_size": 128}


def recipfl_mnist() -> dict[str, Any]:
    return LOCAL | {
        "dataset": "mnist",
        "skew": "2:100",
        "large": "lenet5",
        "small": "lenet5-d1",
        "rounds": 100,
    }


def _cifar10(small: str) -> dict[str, Any]:
    return LOCAL | {
        "dataset": "cifar10",
        "skew": "1:5",
        "large": "resnet18",
        "small": small,
        "rounds": 50,
        "options": {"update.weighting": "share"},
    }


def _cifar100(small: str) -> dict[str, Any]:
    return LOCAL | {
        "dataset": "cifar100",
        "skew": "1:50",
        "large": "densenet121",
        "small": small,
        "rounds": 500,
    }


PRESETS.register("recipfl-mnist", recipfl_mnist)
PRESETS.register("recipfl-cifar10-depth", lambda: _cifar10("resnet18-d1"))
PRESETS.register("recipfl-cifar10-width", lambda: _cifar10("resnet18-w0.2"))
PRESETS.register("recipfl-cifar100-depth", lambda: _cifar100("densenet121-d1"))
PRESETS.register("recipfl-cifar100-width", lambda: _cifar100("densenet121-w0.5"))
