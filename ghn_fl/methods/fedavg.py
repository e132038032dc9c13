"""FedAvg: one model for all, averaged by samples.

"Communication-Efficient Learning of Deep Networks from Decentralized Data" (McMahan et al.). The
server knows one model and each client's number of samples. A client receives the model, trains it
by SGD and sends it back.

Differences from the paper: none but for `aggregation=clt`, which is Hasaas'. Local epochs, batch
and step size are the run's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ghn_fl import which_models
from ghn_fl.errors import ConfigError
from ghn_fl.grouped import check_aggregation, grouped_fedavg
from ghn_fl.methods.registry import METHODS
from ghn_fl.types import WEAK, Method, MethodEntry, Setting


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of FedAvg.

    Attributes:
        slow: what weak clients do when sampled: `train` like all (default), or `drop`: they are
            not waited for, so they do not train, but are served the model (as in the comparisons
            of FedProx and Hasaas).
        aggregation: the clients' `mean`, or weights drawn around it, `clt` (Hasaas' ablation).
    """

    slow: Literal["train", "drop"] = "train"
    aggregation: Literal["mean", "clt"] = "mean"

    def __post_init__(self) -> None:
        if self.slow not in ("train", "drop"):
            raise ConfigError(f"slow must be train or drop, got {self.slow!r}")
        check_aggregation(self.aggregation)


def build(config: Config, setting: Setting) -> Method:
    which_models.the_only(setting, "fedavg")
    clt = config.aggregation == "clt"
    if config.slow == "train":
        return grouped_fedavg(setting, clt=clt)
    if all(client.tier == WEAK for client in setting.clients):
        raise ConfigError(
            "slow=drop leaves nobody to train: all devices are weak; use slow=train, or a skew "
            "with strong devices"
        )
    return grouped_fedavg(setting, takes_part=lambda client: client.tier != WEAK, clt=clt)


METHODS.register(
    "fedavg",
    MethodEntry(
        summary="one model for all, averaged by samples",
        config=Config,
        build=build,
        models=which_models.own,
        scaling="one",
    ),
)
