"""AllLarge: everybody trains the largest model of the fleet, even those who could not.

What federated learning could reach if no device were weak: InclusiveFL's upper bound, there with
FedAdam. The server knows one model. Every client, strong or weak, receives it, trains it and sends
it back, and is evaluated with it.

Differences from the paper: none.
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


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of AllLarge.

    Attributes:
        server: `fedavg` (default, as RecipFL's baselines) or `fedadam` (InclusiveFL).
        adam: the settings of fedadam.
    """

    server: Literal["fedavg", "fedadam"] = "fedavg"
    adam: ServerConfig = field(default_factory=ServerConfig)

    def __post_init__(self) -> None:
        if self.server not in ("fedavg", "fedadam"):
            raise ConfigError(f"server must be fedavg or fedadam, got {self.server!r}")


def build(config: Config, setting: Setting) -> Method:
    # the fleet has one model only, so there is one group, until a device changes to one that is
    # larger still
    return grouped_fedavg(setting, server=config.adam if config.server == "fedadam" else None)


METHODS.register(
    "alllarge",
    MethodEntry(
        summary="everybody trains the largest model, even the weak: an upper bound",
        config=Config,
        build=build,
        models=which_models.largest,
        elastic=True,
    ),
)
