"""Optimizers as pure functions on dicts of tensors: parameters and state in, new ones out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass(frozen=True)
class AdamState:
    """How far Adam has come: steps taken, and both moments of every parameter seen so far."""

    step: int = 0
    first: Mapping[str, Tensor] = field(default_factory=dict)
    second: Mapping[str, Tensor] = field(default_factory=dict)


def adam(
    parameters: Mapping[str, Tensor],
    gradients: Mapping[str, Tensor],
    state: AdamState,
    *,
    lr: float,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
) -> tuple[dict[str, Tensor], AdamState]:
    """One step of Adam with bias correction, the numbers of torch.optim.Adam.

    A parameter without a gradient stays as it is, and so do its moments.
    """
    beta1, beta2 = betas
    step = state.step + 1
    new, first, second = dict(parameters), dict(state.first), dict(state.second)
    for name, g in gradients.items():
        m = torch.lerp(state.first.get(name, torch.zeros_like(g)), g, 1 - beta1)
        v = (beta2 * state.second.get(name, torch.zeros_like(g))).addcmul_(g, g, value=1 - beta2)
        denominator = (v / (1 - beta2**step)).sqrt_().add_(eps)
        new[name] = parameters[name].addcdiv(m, denominator, value=-lr / (1 - beta1**step))
        first[name], second[name] = m, v
    return new, AdamState(step, first, second)


def sgd(
    parameters: Mapping[str, Tensor], gradients: Mapping[str, Tensor], *, lr: float
) -> dict[str, Tensor]:
    """One step of plain gradient descent."""
    return {n: p - lr * gradients[n] if n in gradients else p for n, p in parameters.items()}


def clip_norm(gradients: Mapping[str, Tensor], limit: float) -> tuple[dict[str, Tensor], float]:
    """The gradients scaled down to a joint norm of at most `limit`, and the norm they had."""
    norm = float(torch.stack([g.square().sum() for g in gradients.values()]).sum().sqrt())
    scale = min(1.0, limit / (norm + 1e-6))
    return {name: g * scale for name, g in gradients.items()}, norm
