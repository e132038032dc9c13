"""Weights for a network that the hypernetwork has never seen.

Run `make demo` first, then `.venv/bin/python examples/unseen_architecture.py`.

The demo's fleet trains LeNet-5 and a smaller one. Here a device joins with another network. It
gets weights at once, learns the lessons that the server kept (images that it made up, and what the
fleet answers to them), and tunes its weights for one epoch on 200 digits of its own.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ghn_fl
from ghn_fl.data import load, normalise

digits = load("mnist5k", None)
own = torch.randperm(len(digits.y_train), generator=torch.Generator().manual_seed(0))[:200]
x, y = normalise(digits.x_train[own], digits), digits.y_train[own]
x_test, y_test = normalise(digits.x_test, digits), digits.y_test


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 8, 5), nn.BatchNorm2d(8), nn.ReLU(), nn.AvgPool2d(2),
        nn.Conv2d(8, 10, 5), nn.BatchNorm2d(10), nn.ReLU(), nn.AvgPool2d(2),
        nn.Flatten(), nn.Linear(160, 100), nn.ReLU(), nn.Linear(100, 10),
    )  # fmt: skip


def accuracy(model: nn.Module) -> float:
    with torch.no_grad():
        return 100 * float((model.eval()(x_test).argmax(1) == y_test).double().mean())


def tuned(model: nn.Module, batches: tuple[Tensor, ...]) -> nn.Module:
    optimizer = torch.optim.SGD(model.train().parameters(), lr=0.05)
    for part in torch.arange(len(x)).split(20):
        optimizer.zero_grad()
        F.cross_entropy(model(x[part]), y[part]).backward()
        optimizer.step()
    return ghn_fl.initialize(model, dict(model.named_parameters()), batches)


ghn = ghn_fl.GHN.load("runs/demo")
mix = torch.bincount(y, minlength=10) / len(y)
batches = x.split(50)
made = ghn.generate(network(), x[:1], client=mix)
for name, weights in (
    ("random start", dict(network().named_parameters())),
    ("generated", made),
    ("with lessons", ghn_fl.study(network(), made, ghn_fl.Lessons.load("runs/demo"))),
):
    model = ghn_fl.initialize(network(), weights, batches)
    print(f"{name:14} {accuracy(model):5.1f} % at once", end="")
    print(f", {accuracy(tuned(model, batches)):5.1f} % after one epoch on 200 digits")
