"""Optimizers as pure functions on dicts of tensors: parameters and state in, new ones out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from ghn_fl.errors import ConfigError


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


def momentum_sgd(
    parameters: Mapping[str, Tensor],
    gradients: Mapping[str, Tensor],
    velocity: Mapping[str, Tensor],
    *,
    lr: float,
    momentum: float,
    weight_decay: float = 0.0,
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """One step of gradient descent with momentum and its velocity, the numbers of torch.optim.SGD.

    At first the velocity is empty. A parameter without a gradient stays as it is.
    """
    new, moved = dict(parameters), dict(velocity)
    for name, g in gradients.items():
        full = g + weight_decay * parameters[name] if weight_decay else g
        moved[name] = momentum * velocity[name] + full if name in velocity else full
        new[name] = parameters[name] - lr * moved[name]
    return new, moved


def server_adam(
    weights: Mapping[str, Tensor],
    update: Mapping[str, Tensor],
    state: AdamState,
    *,
    lr: float,
    betas: tuple[float, float] = (0.9, 0.99),
    tau: float = 1e-3,
    bias_correction: bool = False,
    v0: float = 0.0,
    yogi: bool = False,
) -> tuple[dict[str, Tensor], AdamState]:
    """FedAdam: one step of the server along `update`, the mean of trained - sent over clients.

        m <- beta1 m + (1 - beta1) g        v <- beta2 v + (1 - beta2) g^2
        w <- w + lr m / (sqrt(v) + tau)     PLUS: g is an update, not a gradient

    Args:
        weights: w.
        update: g; a weight without one stays as it is, and so do its moments.
        state: how far it has come; `AdamState()` at first.
        lr: eta.
        betas: of both moments.
        tau: how far small updates are kept small.
        bias_correction: as torch.optim.Adam with eps = tau.
        v0: what v starts from.
        yogi: FedYogi's v <- v - (1 - beta2) g^2 sign(v - g^2) instead.

    >>> w, g = {"w": torch.tensor(0.0)}, {"w": torch.tensor(0.5)}
    >>> round(float(server_adam(w, g, AdamState(), lr=0.1)[0]["w"]), 7)
    0.0980392
    """
    beta1, beta2 = betas
    step = state.step + 1
    unbias1, unbias2 = (1 - beta1**step, 1 - beta2**step) if bias_correction else (1.0, 1.0)
    new, first, second = dict(weights), dict(state.first), dict(state.second)
    for name, g in update.items():
        m = beta1 * state.first.get(name, torch.zeros_like(g)) + (1 - beta1) * g
        v, square = state.second.get(name, torch.full_like(g, v0)), g.square()
        if yogi:
            v = v - (1 - beta2) * square * (v - square).sign()
        else:
            v = beta2 * v + (1 - beta2) * square
        denominator = (v / unbias2).sqrt() + tau
        moved = torch.where(denominator > 0, m / denominator, 0.0)  # with tau 0, 0/0 stays
        new[name] = weights[name] + (lr / unbias1) * moved
        first[name], second[name] = m, v
    return new, AdamState(step, first, second)


@dataclass(frozen=True, kw_only=True)
class ServerConfig:
    """How the server goes along the clients' mean update ("Adaptive Federated Optimization").

    Attributes:
        optimizer: `adam` (FedAdam), `yogi` (FedYogi) or `avgm` (FedAvgM: momentum beta1 alone).
        lr: eta; 0.1 as in Flower. With avgm, 0.1 and beta1 = 0.9 add up to whole updates, and
            1.0 with beta1 = 0 is FedAvg.
        beta1: of the first moment.
        beta2: of the second moment; the paper's 0.99, where Adam's usual 0.999 would make the
            first steps without bias correction three times as long.
        tau: added to the root of the second moment, 1e-3 as in the paper.
        bias_correction: as in torch's Adam; off as in the paper and InclusiveFL. Flower's is on
            and divides tau by the correction, too.
        v0: the second moment at first: `zero` (InclusiveFL, default) or `tau2`, tau^2 (paper).
        weighted: mean update by numbers of samples; off as in InclusiveFL.
    """

    optimizer: Literal["adam", "avgm", "yogi"] = "adam"
    lr: float = 0.1
    beta1: float = 0.9
    beta2: float = 0.99
    tau: float = 1e-3
    bias_correction: bool = False
    v0: Literal["zero", "tau2"] = "zero"
    weighted: bool = False

    def __post_init__(self) -> None:
        if self.optimizer not in ("adam", "avgm", "yogi"):
            raise ConfigError(f"optimizer must be adam, avgm or yogi, got {self.optimizer!r}")
        if self.v0 not in ("zero", "tau2"):
            raise ConfigError(f"v0 must be zero or tau2, got {self.v0!r}")
        if not self.lr > 0 or not self.tau >= 0:
            raise ConfigError(
                f"lr must be above 0 and tau at least 0, got {self.lr:g} and {self.tau:g}"
            )
        if not (0 <= self.beta1 < 1 and 0 <= self.beta2 < 1):
            raise ConfigError(
                "beta1 and beta2 must be at least 0 and below 1, "
                f"got {self.beta1:g} and {self.beta2:g}"
            )


def server_step(
    weights: Mapping[str, Tensor],
    update: Mapping[str, Tensor],
    state: AdamState,
    config: ServerConfig,
) -> tuple[dict[str, Tensor], AdamState]:
    """One step of the server along `update`, the mean of trained - sent, as the config says."""
    if config.optimizer == "avgm":  # v <- beta1 v + g, w <- w + lr v
        gradients = {name: -g for name, g in update.items()}
        new, velocity = momentum_sgd(
            weights, gradients, state.first, lr=config.lr, momentum=config.beta1
        )
        return new, AdamState(state.step + 1, velocity)
    return server_adam(
        weights,
        update,
        state,
        lr=config.lr,
        betas=(config.beta1, config.beta2),
        tau=config.tau,
        bias_correction=config.bias_correction,
        v0=config.tau**2 if config.v0 == "tau2" else 0.0,
        yogi=config.optimizer == "yogi",
    )


def clip_norm(gradients: Mapping[str, Tensor], limit: float) -> tuple[dict[str, Tensor], float]:
    """The gradients scaled down to a joint norm of at most `limit`, and the norm they had."""
    norm = float(torch.stack([g.square().sum() for g in gradients.values()]).sum().sqrt())
    scale = min(1.0, limit / (norm + 1e-6))
    return {name: g * scale for name, g in gradients.items()}, norm
