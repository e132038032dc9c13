"""Means over clients' weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

from ghn_fl.types import Weights
from zoo.slicing import IndexMap, grid

# what a contributor has of a tensor, its places there (None: all), and how much it counts
Part: TypeAlias = tuple[Tensor, tuple[Tensor, ...] | None, float]


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
    parts = _parts(old, weights, where, shares)
    result = dict(old)
    for name, own in parts.items():
        if own:
            mean, count = _mean(old[name], own)
            result[name] = torch.where(count > 0, mean, old[name].double()).to(old[name].dtype)
    return result


def clt_mean(
    old: Weights,
    weights: Sequence[Weights],
    where: Sequence[IndexMap] | None = None,
    shares: Sequence[float] | None = None,
    *,
    generator: torch.Generator,
    divisor: float,
    unbiased: bool = True,
) -> dict[str, Tensor]:
    """Hasaas: every element drawn from Normal(mu, (sigma / divisor)^2), mu its `count_mean`.

    sigma^2 = sum n_c (W_c - mu)^2 / (sum n_c - 1) over the clients that have the element. With one
    such client, or clients that agree, sigma is 0.

    Args:
        old: as in `count_mean`, and so are the next three.
        weights: what clients sent.
        where: the places of what they have.
        shares: n_c, their numbers of samples.
        generator: of the noise.
        divisor: sqrt(t) in the paper, t the round.
        unbiased: divide by sum n_c - 1 (paper) or by sum n_c (authors' code).
    """
    parts = _parts(old, weights, where, shares)
    result = {}
    for name in sorted(old):  # the noise doesn't depend on how the names are ordered
        mean, count = _mean(old[name], parts[name])
        squares, _ = _mean(
            old[name],
            [((w.double() - mean[_place(at)]).square(), at, n) for w, at, n in parts[name]],
        )
        # sum n_c = 1 is one client with one sample: its sigma is 0, not 0 / 0
        sigma = (squares * count / (count - int(unbiased)).clamp(min=1)).sqrt()
        noise = torch.randn(old[name].shape, generator=generator, dtype=torch.double)
        drawn = torch.where(count > 0, mean + sigma / divisor * noise, old[name].double())
        result[name] = drawn.to(old[name].dtype)
    return result


def _parts(
    old: Weights,
    weights: Sequence[Weights],
    where: Sequence[IndexMap] | None,
    shares: Sequence[float] | None,
) -> dict[str, list[Part]]:
    """For every tensor what the contributors have of it; what doesn't fit is refused."""
    strange = sorted({name for w in weights for name in w if name not in old})
    if strange:
        raise ValueError(f"contributors have tensors that nobody keeps: {strange[:3]}")
    parts: dict[str, list[Part]] = {name: [] for name in old}
    for i, own in enumerate(weights):
        for name, tensor in own.items():
            at = None if where is None else where[i].get(name)
            held = tuple(old[name].shape) if at is None else tuple(len(index) for index in at)
            if tensor.shape != held:
                raise ValueError(f"a part must have shape {held}, got {tuple(tensor.shape)}")
            parts[name].append((tensor, at, 1.0 if shares is None else shares[i]))
    return parts


def _mean(old: Tensor, parts: Sequence[Part]) -> tuple[Tensor, Tensor]:
    """An element's mean over those who have it (nan of none), and how much they count together.

    In double precision, so that the order of clients shows in no digit.
    """
    total = torch.zeros_like(old, dtype=torch.float64)
    count = torch.zeros_like(total)
    for tensor, at, share in parts:
        total[_place(at)] += share * tensor.double()
        count[_place(at)] += share
    return total / count, count


def _place(at: tuple[Tensor, ...] | None) -> Any:
    return ... if at is None else grid(at)
