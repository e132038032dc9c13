"""ExclusiveFL: clients of one capacity run FedAvg among themselves (RecipFL's meaning).

The server knows one model a tier. A client receives its tier's model, trains it, and sends it
back. With one strong device this is centralized training on it.

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
    """ExclusiveFL has no settings."""


def build(config: Config, setting: Setting) -> Method:
    return grouped_fedavg(setting)


METHODS.register(
    "exclusivefl",
    MethodEntry(
        summary="every tier runs FedAvg among its own",
        config=Config,
        build=build,
        models=which_models.own,
    ),
)
