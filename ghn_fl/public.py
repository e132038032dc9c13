"""What a client does with public data: it pretrains on it, digests a consensus, and scores it.

FedMD's steps, with Adam at 1e-3 as in its authors' code; the optimizer starts anew each time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ghn_fl import local
from ghn_fl.local import Samples

LR = 1e-3


def pretrain(
    model: nn.Module, public: Samples, epochs: int, batch_size: int, generator: torch.Generator
) -> float:
    """Cross entropy with the public labels; the mean loss of the first epoch."""
    everything = torch.arange(len(public.y))

    def loss_of(logits: Tensor, batch: Tensor) -> Tensor:
        return F.cross_entropy(logits, public.y[batch])

    return _fit(model, public, everything, loss_of, epochs, batch_size, generator)


def digest(
    model: nn.Module, public: Samples, task: Mapping[str, Any], generator: torch.Generator
) -> float:
    """Brings the model's answers closer to the targets: the mean absolute error of the first epoch.

    Args:
        model: changed in place.
        public: the public data.
        task: a recipe's `digest`.
        generator: for the order of the samples.
    """
    indices: Tensor = task["indices"]
    targets: Tensor = task["targets"]

    def loss_of(logits: Tensor, batch: Tensor) -> Tensor:
        answers = logits.softmax(1) if task["probabilities"] else logits
        return (answers - targets[batch]).abs().mean()

    return _fit(model, public, indices, loss_of, task["epochs"], task["batch"], generator)


def scores(model: nn.Module, public: Samples, indices: Tensor) -> Tensor:
    """The model's logits on some public samples.

    BatchNorm is in evaluation mode, with statistics of these same samples: in the digest it sees
    public data as well, so that a model that agrees with the consensus has nothing to change.
    """
    x = public.x[indices]
    local.static_norm(model, Samples(x, public.y[indices], prepare=public.prepare))
    model.eval()
    with torch.no_grad():
        return torch.cat([local.logits_of(model(_prepared(part, public))) for part in x.split(500)])


def _fit(
    model: nn.Module,
    public: Samples,
    indices: Tensor,
    loss_of: Callable[[Tensor, Tensor], Tensor],
    epochs: int,
    batch_size: int,
    generator: torch.Generator,
) -> float:
    """Adam on `loss_of(logits, places in indices)`; the mean loss of the first epoch."""
    model.train()
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=LR)
    first = 0.0
    for epoch in range(epochs):
        for batch in torch.randperm(len(indices), generator=generator).split(batch_size):
            if len(batch) < 2 and len(indices) > 1:
                continue  # BatchNorm has nothing to average over
            optimizer.zero_grad()
            x = _prepared(public.x[indices[batch]], public)
            loss = loss_of(local.logits_of(model(x)), batch)
            loss.backward()
            optimizer.step()
            if epoch == 0:
                first += float(loss.detach()) * len(batch) / len(indices)
    return first


def _prepared(x: Tensor, public: Samples) -> Tensor:
    return x if public.prepare is None else public.prepare(x)
