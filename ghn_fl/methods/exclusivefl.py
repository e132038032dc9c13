"""ExclusiveFL: capacity decides with whom a client learns, or whether it does at all.

Two papers use the name. In RecipFL (`per_group`) clients with one model run FedAvg among
themselves; with one strong device that is centralized training on it. In InclusiveFL (`drop_weak`)
only clients that can train the largest model do, and the others are left out. The server knows one
model a capacity. A client that takes part receives the model of its capacity, trains it, and sends
it back.

Differences from the paper: InclusiveFL's clients that are left out have no model to run; ours are
served the untrained initial weights of their own model, and so are evaluated after their epoch of
fine-tuning alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from ghn_fl import which_models
from ghn_fl.errors import ConfigError
from ghn_fl.grouped import grouped_fedavg
from ghn_fl.methods.registry import METHODS
from ghn_fl.optim import ServerConfig
from ghn_fl.types import Method, MethodEntry, Setting
from zoo import ModelSpec


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of ExclusiveFL.

    Attributes:
        mode: `per_group` (RecipFL, default) or `drop_weak` (InclusiveFL).
        server: `fedavg` (RecipFL, default) or `fedadam` (InclusiveFL).
        adam: the settings of fedadam.
    """

    mode: Literal["per_group", "drop_weak"] = "per_group"
    server: Literal["fedavg", "fedadam"] = "fedavg"
    adam: ServerConfig = field(default_factory=ServerConfig)

    def __post_init__(self) -> None:
        if self.mode not in ("per_group", "drop_weak"):
            raise ConfigError(f"mode must be per_group or drop_weak, got {self.mode!r}")
        if self.server not in ("fedavg", "fedadam"):
            raise ConfigError(f"server must be fedavg or fedadam, got {self.server!r}")


def build(config: Config, setting: Setting) -> Method:
    server = config.adam if config.server == "fedadam" else None
    if config.mode == "per_group":
        return grouped_fedavg(setting, server=server)
    largest = _largest(setting)
    return grouped_fedavg(setting, takes_part=lambda c: c.models[0] == largest, server=server)


def _largest(setting: Setting) -> ModelSpec:
    sizes = {spec: sum(w.numel() for w in own.values()) for spec, own in setting.initial.items()}
    return max(sorted(sizes, key=str), key=sizes.__getitem__)


METHODS.register(
    "exclusivefl",
    MethodEntry(
        summary="every tier runs FedAvg among its own, or the strongest alone",
        config=Config,
        build=build,
        models=which_models.own,
        elastic=True,
    ),
)
