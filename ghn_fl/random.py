"""Random streams: one seed, and a generator for each purpose that depends on nothing else."""

from __future__ import annotations

import zlib

import numpy as np
import torch


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
