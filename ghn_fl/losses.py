"""What clients minimise, beyond plain cross entropy: one pure function a term of a paper."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

import zoo


def transfer_loss(small: zoo.Output, large: zoo.Output, y: Tensor, kl: str) -> Tensor:
    """RecipFL's Eq. (9): labels, the teacher's answers, and its features where sizes agree."""
    loss = F.cross_entropy(small.logits, y)
    loss = loss + F.cross_entropy(small.logits, large.logits.softmax(1))
    if small.features.shape == large.features.shape:
        log_small, log_large = small.features.log_softmax(1), large.features.log_softmax(1)
        first, second = (log_small, log_large) if kl == "small_large" else (log_large, log_small)
        # kl_div(input, target) is D(target || input)
        loss = loss + F.kl_div(second, first, reduction="batchmean", log_target=True)
    return loss


def masked(logits: Tensor, present: Tensor) -> Tensor:
    """HeteroFL: the logits of absent classes become 0 (not -inf); `present` is a boolean a class.

    >>> loss = F.cross_entropy(masked(torch.tensor([[2.0, 5.0, 1.0]]),
    ...     torch.tensor([True, False, True])), torch.tensor([0]))
    >>> round(float(loss), 4)
    0.4076
    """
    return logits.masked_fill(~present, 0.0)


def exits_loss(exits: tuple[Tensor, ...], y: Tensor, omega: float) -> Tensor:
    """DepthFL: cross entropy of every exit, and each learns from the mean of the others.

    sum_i CE(z_i, y) + omega sum_i sum_{j != i} D(stopgrad(p_j) || p_i) / (d - 1)
    """
    loss = torch.stack([F.cross_entropy(z, y) for z in exits]).sum()
    if omega == 0 or len(exits) == 1:
        return loss
    logs = [z.log_softmax(1) for z in exits]
    divergences = [
        F.kl_div(logs[i], logs[j].detach(), reduction="batchmean", log_target=True)
        for i in range(len(exits))
        for j in range(len(exits))
        if i != j
    ]
    return loss + omega * torch.stack(divergences).sum() / (len(exits) - 1)


def proximal(
    parameters: Mapping[str, Tensor],
    anchor: Mapping[str, Tensor],
    mu: float,
    linear: Mapping[str, Tensor] | None,
) -> Tensor:
    """mu/2 |w - w_t|^2 - <h, w>: FedProx without `linear`, FedDyn with it as h."""
    terms = [0.5 * mu * (p - anchor[name]).square().sum() for name, p in parameters.items()]
    if linear is not None:
        terms += [-(h * parameters[name]).sum() for name, h in linear.items()]
    return torch.stack(terms).sum()
