"""Put generated weights into an ordinary model, and do right by its BatchNorm statistics."""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ghn_fl.errors import GHNError

log = logging.getLogger("ghn_fl")


def initialize(
    model: nn.Module, weights: Mapping[str, Tensor], data: Iterable[Any] | None = None
) -> nn.Module:
    """A copy of `model` with `weights` as its trainable parameters; names and shapes must match.

    Running statistics of BatchNorm layers belonged to the old weights. They are reset to mean 0
    and variance 1, or, with `data`, recomputed: one pass over its batches of inputs in training
    mode, without gradients, every batch counting the same. Which of both was done is logged.

    Args:
        model: stays as it is.
        weights: exactly the model's trainable parameters.
        data: batches of inputs: a tensor, a tuple of arguments or a dict each.

    >>> import zoo
    >>> model = zoo.build("lenet5")
    >>> fresh = initialize(model, {n: p * 0 for n, p in model.named_parameters()})
    >>> float(sum(p.abs().sum() for p in fresh.parameters()))
    0.0
    """
    trainable = {name: p for name, p in model.named_parameters() if p.requires_grad}
    missing, extra = (
        sorted(trainable.keys() - weights.keys()),
        sorted(weights.keys() - trainable.keys()),
    )
    if missing or extra:
        raise GHNError(
            f"the weights do not fit the model: missing {missing[:3]}, unexpected {extra[:3]}"
        )
    for name, p in trainable.items():
        if weights[name].shape != p.shape:
            raise GHNError(
                f"{name} must have shape {tuple(p.shape)}, got {tuple(weights[name].shape)}"
            )
    result = copy.deepcopy(model)
    with torch.no_grad():
        for name in trainable:
            result.get_parameter(name).copy_(weights[name])
    norms = [m for m in result.modules() if isinstance(m, _BatchNorm) and m.track_running_stats]
    for norm in norms:
        norm.reset_running_stats()
    if norms and data is not None:
        count = _recompute(result, norms, data)
        log.info(
            "recomputed the statistics of %d BatchNorm layers on %d batches", len(norms), count
        )
    elif norms:
        log.info("reset the statistics of %d BatchNorm layers to mean 0, variance 1", len(norms))
    return result


def _recompute(model: nn.Module, norms: list[_BatchNorm], data: Iterable[Any]) -> int:
    modes = {module: module.training for module in model.modules()}
    momenta = [norm.momentum for norm in norms]
    count = 0
    model.eval()  # dropout and its like stay out of it
    for norm in norms:
        norm.train()
        norm.momentum = None  # cumulative average
    with torch.no_grad():
        for batch in data:
            count += 1
            if isinstance(batch, Mapping):
                model(**batch)
            else:
                model(*batch) if isinstance(batch, tuple | list) else model(batch)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    for module, mode in modes.items():
        module.training = mode
    if not count:
        raise GHNError("no batch to recompute the BatchNorm statistics from: `data` is empty")
    return count
