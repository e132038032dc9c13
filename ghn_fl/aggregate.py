"""Means over clients' weights."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ghn_fl.types import Weights
from zoo.slicing import IndexMap, grid


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


def count_mean(
    old: Weights,
    weights: Sequence[Weights],
    where: Sequence[IndexMap] | None = None,
    shares: Sequence[float] | None = None,
) -> dict[str, Tensor]:
    """Every element's mean over exactly those contributors that have it; else as it was.

    Sums are taken in double precision: contributors that all have one value give that value back,
    bit for bit.

    Args:
        old: all tensors, of which a contributor may have some, whole or in part.
        weights: of each contributor.
        where: for each contributor the places in `old` (see `zoo.slicing.index_map`) of tensors
            that it has a part of; what is not named there is whole.
        shares: how much each contributor counts; left out: all the same.

    >>> old = {"w": torch.zeros(2), "v": torch.tensor(7.0), "u": torch.tensor(9.0)}
    >>> a, b = {"w": torch.tensor([1.0, 5.0]), "v": torch.tensor(-1.0)}, {"w": torch.tensor([3.0])}
    >>> count_mean(old, [a, b], [{}, {"w": (torch.tensor([0]),)}])
    {'w': tensor([2., 5.]), 'v': tensor(-1.), 'u': tensor(9.)}
    """
    where = [{}] * len(weights) if where is None else where
    shares = [1.0] * len(weights) if shares is None else shares
    strange = sorted({name for w in weights for name in w if name not in old})
    if strange:
        raise ValueError(f"contributors have tensors that nobody keeps: {strange[:3]}")
    parts: dict[str, list[tuple[Tensor, tuple[Tensor, ...] | None, float]]] = {n: [] for n in old}
    for w, index, share in zip(weights, where, shares, strict=True):
        for name, tensor in w.items():
            parts[name].append((tensor, index.get(name), share))
    return {name: _count_mean(old[name], parts[name]) for name in old}


def _count_mean(
    old: Tensor, parts: Sequence[tuple[Tensor, tuple[Tensor, ...] | None, float]]
) -> Tensor:
    if not parts:
        return old
    total = torch.zeros_like(old, dtype=torch.float64)
    count = torch.zeros_like(total)
    for tensor, index, share in parts:
        held = tuple(old.shape) if index is None else tuple(len(i) for i in index)
        if tensor.shape != held:
            raise ValueError(f"a part must have shape {held}, got {tuple(tensor.shape)}")
        place = ... if index is None else grid(index)
        total[place] += share * tensor.double()
        count[place] += share
    return torch.where(count > 0, total / count, old.double()).to(old.dtype)
