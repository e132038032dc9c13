"""Random streams: one seed, and a generator for each purpose that depends on nothing else."""

from __future__ import annotations

import zlib

import numpy as np
import torch
from torch import Tensor


def numpy_stream(seed: int, purpose: str, *numbers: int) -> np.random.Generator:
    """A generator for one purpose, such as ("batches", round, client).

    >>> a, b = numpy_stream(0, "sample", 1), numpy_stream(0, "sample", 2)
    >>> bool(a.random() == b.random()), bool(numpy_stream(0, "sample", 1).random() == a.random())
    (False, False)
    """
    return np.random.default_rng([seed, zlib.crc32(purpose.encode()), *numbers])


def torch_stream(seed: int, purpose: str, *numbers: int) -> torch.Generator:
    """The same as a torch generator."""
    drawn = numpy_stream(seed, purpose, *numbers).integers(2**63 - 1)
    return torch.Generator().manual_seed(int(drawn))


def stratified(labels: Tensor, count: int, stream: torch.Generator) -> Tensor:
    """Indices of `count` samples at random, ascending; every class in proportion to its size.

    >>> chosen = stratified(torch.tensor([0] * 6 + [1] * 3), 3, torch_stream(0, "example"))
    >>> torch.tensor([0] * 6 + [1] * 3)[chosen]
    tensor([0, 0, 1])
    """
    order = torch.randperm(len(labels), generator=stream)
    place = torch.zeros(len(labels), dtype=torch.double)  # of a sample within its class, 0 to 1
    for label in labels.unique():
        own = labels[order] == label
        place[own] = (torch.arange(int(own.sum())).double() + 0.5) / own.sum()
    return order[place.argsort(stable=True)[:count]].sort().values
