"""FedAdam: one model for all; the server goes along the clients' mean update with Adam.

"Adaptive Federated Optimization" (Reddi et al.), Algorithm 2, in the form in which InclusiveFL
uses it; FedYogi of the same paper and FedAvgM ("Measuring the Effects of Non-Identical Data
Distribution", Hsu et al.) are its `optimizer`. The server knows one model and the moments of its
updates. A client receives the model, trains it by SGD and sends it back.

Differences from the paper: the second moment starts from 0 and not from tau^2, unless `v0` says so.
"""

from __future__ import annotations

from ghn_fl import which_models
from ghn_fl.grouped import grouped_fedavg
from ghn_fl.methods.registry import METHODS
from ghn_fl.optim import ServerConfig
from ghn_fl.types import Method, MethodEntry, Setting

Config = ServerConfig  # the server's optimizer is all there is to set


def build(config: Config, setting: Setting) -> Method:
    which_models.the_only(setting, "fedadam")
    return grouped_fedavg(setting, server=config)


METHODS.register(
    "fedadam",
    MethodEntry(
        summary="one model for all, moved by a server optimizer: Adam, Yogi or momentum",
        config=Config,
        build=build,
        models=which_models.own,
        scaling="one",
    ),
)
