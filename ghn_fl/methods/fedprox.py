"""FedProx: FedAvg whose clients stay near the model that they were given, and may do part of it.

"Federated Optimization in Heterogeneous Networks" (Li et al.), Algorithm 2. The server knows what
FedAvg's does. A client receives the model w_t, minimises F_m(w) + mu/2 |w - w_t|^2 by SGD, a slow
one for as many epochs as it manages, and sends the result back.

Differences from the paper: the server's mean is weighted by samples and clients are sampled
uniformly, where the paper samples by share of the data and averages plainly; its authors' code
does as we do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ghn_fl import which_models
from ghn_fl.errors import ConfigError
from ghn_fl.grouped import check_aggregation, grouped_fedavg
from ghn_fl.methods.registry import METHODS
from ghn_fl.random import numpy_stream
from ghn_fl.types import WEAK, Client, Method, MethodEntry, Recipe, Setting


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of FedProx.

    Attributes:
        mu: weight of the proximal term. The paper searches {0.001, 0.01, 0.1, 1} and finds 1 best
            for MNIST, FEMNIST and synthetic data, 0.01 for Sent140, 0.001 for Shakespeare; Hasaas
            has 1 throughout; 0.01 is a mild default. 0 is FedAvg.
        partial: weak clients are slow: each runs a random number of epochs, uniform in
            {1..E-1} (Hasaas' code) or 1 if E is 1. Off by default, as FedAvg's `slow` is.
        aggregation: the clients' `mean`, or weights drawn around it, `clt` (Hasaas' ablation).
    """

    mu: float = 0.01
    partial: bool = False
    aggregation: Literal["mean", "clt"] = "mean"

    def __post_init__(self) -> None:
        if not self.mu >= 0:
            raise ConfigError(f"mu must be at least 0, got {self.mu:g}; 0.001 to 1 are usual")
        check_aggregation(self.aggregation)


def build(config: Config, setting: Setting) -> Method:
    which_models.the_only(setting, "fedprox")

    def recipe(number: int, client: Client) -> Recipe:
        epochs = None
        if config.partial and client.tier == WEAK:
            epochs = partial_epochs(setting.seed, number, client.id, setting.epochs)
        return Recipe(prox=config.mu, epochs=epochs)

    return grouped_fedavg(setting, recipe=recipe, clt=config.aggregation == "clt")


def partial_epochs(seed: int, number: int, client: int, epochs: int) -> int:
    """How many of `epochs` a slow client manages in a round: uniform in {1..max(1, E-1)}."""
    stream = numpy_stream(seed, "partial work", number, client)
    return int(stream.integers(1, max(2, epochs)))  # the upper end is excluded


METHODS.register(
    "fedprox",
    MethodEntry(
        summary="FedAvg with a pull to the model given, and partial work of slow devices",
        config=Config,
        build=build,
        models=which_models.own,
        scaling="one",
    ),
)
