"""AllSmall: everybody trains the smallest model of the fleet, with FedAvg.

The server knows one model. Every client, strong or weak, receives it, trains it and sends it back,
and is evaluated with it.

Differences from the paper: none.
"""

from __future__ import annotations

from dataclasses import dataclass

from ghn_fl import which_models
from ghn_fl.grouped import grouped_fedavg
from ghn_fl.methods.registry import METHODS
from ghn_fl.types import Method, MethodEntry, Setting


@dataclass(frozen=True, kw_only=True)
class Config:
    """AllSmall has no settings."""


def build(config: Config, setting: Setting) -> Method:
    return grouped_fedavg(setting)  # the fleet has one model only, so there is one group


METHODS.register(
    "allsmall",
    MethodEntry(
        summary="everybody trains the smallest model with FedAvg",
        config=Config,
        build=build,
        models=which_models.smallest,
    ),
)
