"""The clients and their data, as an engine is given them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from ghn_fl.data import ClientShare, Dataset
from ghn_fl.local import LocalConfig


@dataclass(frozen=True)
class Public:
    """Public data: images as uint8, with labels that the run's models can answer.

    Attributes:
        others: how many classes it adds to those of the run's own set; they come after them.
    """

    x: Tensor
    y: Tensor
    others: int = 0


@dataclass(frozen=True, kw_only=True)
class World:
    """The data of all clients, in memory that processes share, and how they train.

    Attributes:
        dataset: images as uint8; clients hold index lists into it.
        shares: each client's indices.
        config: local training.
        seed: of the run; everything random here depends on it, the round and the client only.
        task: what models are built for: num_classes, in_channels, image_size.
        validation: the shares' test samples are held-out training samples.
        public: what everybody has; None if there is nothing.
    """

    dataset: Dataset
    shares: tuple[ClientShare, ...]
    config: LocalConfig
    seed: int
    task: dict[str, int]
    validation: bool = False
    public: Public | None = None


class Engine(Protocol):
    """Where clients run."""

    def run(self, tasks: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """The result of every task, in their order; {"failure": why} where there is none."""
        ...

    def __enter__(self) -> Engine: ...

    def __exit__(self, *error: object) -> None: ...
