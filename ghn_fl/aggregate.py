"""Means over clients' weights."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from ghn_fl.types import Weights
from zoo.slicing import IndexMap, grid

# of every client 1 where it has a value and 0 elsewhere; None in place of 1 everywhere
Covered: TypeAlias = Sequence[Weights | None]


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


def covered_mean(
    weights: Sequence[Weights], shares: Sequence[float], previous: Weights, covered: Covered
) -> dict[str, Tensor]:
    """The weighted mean of every element over the clients that have it.

    An element that nobody has keeps its value in `previous`; what `weights` holds there counts for
    nothing.

    >>> a, b = {"w": torch.tensor([0.0, 8.0, 8.0])}, {"w": torch.tensor([4.0, 5.0, 8.0])}
    >>> only_first, first_two = {"w": torch.tensor([1, 0, 0])}, {"w": torch.tensor([1, 1, 0])}
    >>> covered_mean([a, b], [1, 3], {"w": torch.tensor([7.0, 7.0, 7.0])}, [only_first, first_two])
    {'w': tensor([3., 5., 7.])}
    """
    result = {}
    for name, old in previous.items():
        values, parts = _elements(name, weights, shares, covered)
        total, mean = _mean(values, parts)
        result[name] = torch.where(total > 0, mean, old.double()).to(old.dtype)
    return result


def clt_mean(
    weights: Sequence[Weights],
    shares: Sequence[float],
    previous: Weights,
    generator: torch.Generator,
    *,
    divisor: float,
    covered: Covered | None = None,
    unbiased: bool = True,
) -> dict[str, Tensor]:
    """Hasaas: every element drawn from Normal(mu, (sigma / divisor)^2).

    mu is the `covered_mean`, sigma^2 = sum n_c (W_c - mu)^2 / (sum n_c - 1) over the clients that
    have the element. With one such client, or clients that agree, sigma is 0.

    Args:
        weights: what clients sent, in the shapes of `previous`.
        shares: n_c, their numbers of samples.
        previous: kept where nobody has a value.
        generator: of the noise.
        divisor: sqrt(t) in the paper, t the round.
        covered: see `covered_mean`; left out: everybody has everything.
        unbiased: divide by sum n_c - 1 (paper) or by sum n_c (authors' code).
    """
    result = {}
    for name in sorted(previous):  # the noise doesn't depend on how the names are ordered
        old = previous[name]
        values, parts = _elements(name, weights, shares, covered or [None] * len(weights))
        total, mean = _mean(values, parts)
        squares = _sum(p * (v - mean).square() for v, p in zip(values, parts, strict=True))
        # sum n_c = 1 is one client with one sample: its sigma is 0, not 0 / 0
        sigma = (squares / (total - int(unbiased)).clamp(min=1)).sqrt()
        noise = torch.randn(old.shape, generator=generator, dtype=torch.double)
        draw = mean + sigma / divisor * noise
        result[name] = torch.where(total > 0, draw, old.double()).to(old.dtype)
    return result


def _elements(
    name: str, weights: Sequence[Weights], shares: Sequence[float], covered: Covered
) -> tuple[list[Tensor], list[Tensor]]:
    """A tensor of every client, and what it counts for, element by element; in double precision.

    So the order of clients shows in no digit, and clients that agree have a spread of exactly 0.
    """
    if not weights:
        raise ValueError("a mean needs the weights of one client or more, got none")
    parts = [
        torch.tensor(float(n), dtype=torch.double) if c is None else n * c[name].double()
        for n, c in zip(shares, covered, strict=True)
    ]
    return [w[name].double() for w in weights], parts


def _mean(values: Sequence[Tensor], parts: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """The sum of n_c over the clients that have an element, and their mean (nan of none)."""
    total = _sum(parts)
    return total, _sum(p * v for v, p in zip(values, parts, strict=True)) / total


def _sum(tensors: Iterable[Tensor]) -> Tensor:
    return sum(tensors, torch.zeros((), dtype=torch.double))
