"""FedMD: every agent has a model of its own, and all learn from the mean of their scores.

"FedMD: Heterogenous Federated Learning via Model Distillation" (arXiv:1910.03581). The server
knows public data and nothing of the models. A client sends its logits on an alignment set, a part
of the public data; it receives the mean of all agents' logits on it. First it trains on the public
data and on its own; in a round it digests the consensus (mean absolute error, Adam at 1e-3), then
revisits its own data (cross entropy).

Differences from the paper: pretraining, and the first training on its own data, take a given
number of epochs instead of stopping early. Agents with one architecture pretrain once for all, in
the first round in which one of them is sampled; until then they are served initial weights. Private
data is learnt with the run's local SGD, as in all methods (authors' code: Adam). Adam starts anew
in each digest (authors' code: it goes on). BatchNorm's statistics for scores are those of the
alignment set.
"""

from __future__ import annotations

from dataclasses import dataclass

from ghn_fl import which_models
from ghn_fl.distillation import Duty, Plan, distillation
from ghn_fl.methods.registry import METHODS
from ghn_fl.types import Method, MethodEntry, Setting


@dataclass(frozen=True, kw_only=True)
class Config(Plan):
    """Settings of FedMD: those of `distillation.Plan`."""


def build(config: Config, setting: Setting) -> Method:
    # everybody does the whole work, and all scores count alike: f~ = (1/m) sum_p f_p
    duty = Duty(epochs=config.revisit_epochs or setting.epochs)
    return distillation(config, setting, lambda t, client: duty)


METHODS.register(
    "fedmd",
    MethodEntry(
        summary="own models of any architecture learn from all agents' scores on public data",
        config=Config,
        build=build,
        models=which_models.own,
        public=True,
    ),
)
