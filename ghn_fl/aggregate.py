"""Means over clients' weights."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ghn_fl.types import Weights


def weighted_mean(weights: Sequence[Weights], shares: Sequence[float]) -> dict[str, Tensor]:
    """sum_m (n_m / sum n) w_m, tensor by tensor; all must have the same names.

    >>> a, b = {"w": torch.tensor(0.0)}, {"w": torch.tensor(4.0)}
    >>> weighted_mean([a, b], [1, 3])
    {'w': tensor(3.)}
    """
    total = sum(shares)
    if not weights or total <= 0:
        raise ValueError(f"a mean needs weights above 0, got {len(weights)} of sum {total}")
    return {
        name: torch.stack(
            [w[name] * (s / total) for w, s in zip(weights, shares, strict=True)]
        ).sum(0)
        for name in weights[0]
    }
