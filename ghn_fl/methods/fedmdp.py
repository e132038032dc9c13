"""FedMDP: FedMD in which slow agents do a part of the work, with a proximal term.

"FedMDP: A Federated Learning Framework to Handle System and Model Heterogeneity in
Resource-Constrained Environments", Algorithm 1. The server knows public data, and which part of
the work every agent can do. A client sends its logits on an alignment set and receives the
consensus, as in FedMD; it digests that, and revisits its own data for as many epochs as it can,
pulled to its weights at the round's start.

Differences from the paper: those of FedMD, whose rounds these are. The paper has one letter for two
things: `inexactness` is that of its Definition 2, `work_fraction` the part of the epochs that an
agent does. Who is a straggler is drawn once, what it can do in every round. The paper leaves open
how a fraction becomes epochs, beta and E; see `Config`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch

from ghn_fl import which_models
from ghn_fl.distillation import Duty, Plan, distillation
from ghn_fl.errors import ConfigError
from ghn_fl.methods.registry import METHODS
from ghn_fl.random import torch_stream
from ghn_fl.types import WEAK, Client, Method, MethodEntry, Setting, Weights


@dataclass(frozen=True, kw_only=True)
class Config(Plan):
    """Settings of FedMDP: those of `distillation.Plan`, and its own.

    Attributes:
        beta: of the proximal term (the paper gives no number; ours 0.01).
        stragglers: the part of the agents that cannot do all the work, rounded to whole agents
            (paper: 0, 0.1, 0.2, 0.5, 0.9; ours 0, as no other method has stragglers).
        among: who can be one: `all` clients, or those of the tier `weak`.
        work_fraction: the part of E that a straggler does; drawn evenly from 0 to 1 for each of
            them in every round if left out (paper's example: 0.30 and 0.48). It is rounded down
            to whole epochs, but to 1 at least; 0 is no work at all.
        work: `partial`, stragglers do their part, or `drop`, they are left out of every round.
        weights: of the scores in the consensus: `uniform` (Algorithm 1), or `work`, in proportion
            to the part of the work that an agent does (the paper's second remark).
    """

    beta: float = 0.01
    stragglers: float = 0.0
    among: Literal["all", "weak"] = "all"
    work_fraction: float | None = None
    work: Literal["partial", "drop"] = "partial"
    weights: Literal["uniform", "work"] = "uniform"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.beta < math.inf:
            raise ConfigError(f"beta must be at least 0 and finite, got {self.beta}")
        for name, value in (("stragglers", self.stragglers), ("work_fraction", self.work_fraction)):
            if value is not None and not 0 <= value <= 1:
                raise ConfigError(f"{name} must be from 0 to 1, got {value}")
        for name, choices in (
            ("among", ("all", "weak")),
            ("work", ("partial", "drop")),
            ("weights", ("uniform", "work")),
        ):
            if getattr(self, name) not in choices:
                raise ConfigError(
                    f"{name} must be {' or '.join(choices)}, got {getattr(self, name)!r}"
                )


def build(config: Config, setting: Setting) -> Method:
    slow = stragglers(config, setting)

    def duty(t: int, client: Client) -> Duty | None:
        if client.id in slow and config.work == "drop":
            return None
        fraction = 1.0
        if client.id in slow:
            given = config.work_fraction
            fraction = _drawn(setting, t, client) if given is None else given
        return Duty(
            epochs=feasible(fraction, config.revisit_epochs or setting.epochs),  # E_par
            prox=config.beta,
            weight=fraction if config.weights == "work" else 1.0,
        )

    return distillation(config, setting, duty)


def stragglers(config: Config, setting: Setting) -> frozenset[int]:
    """The ids of the agents that cannot do all the work, the same in all rounds."""
    able = [c.id for c in setting.clients if config.among == "all" or c.tier == WEAK]
    if config.stragglers and not able:
        tiers = ", ".join(dict.fromkeys(c.tier for c in setting.clients))
        raise ConfigError(f"among=weak needs a tier of that name, got {tiers}; or give among=all")
    order = torch.randperm(len(able), generator=torch_stream(setting.seed, "stragglers"))
    return frozenset(able[i] for i in order[: round(config.stragglers * len(able))].tolist())


def feasible(work_fraction: float, epochs: int) -> int:
    """E_par: the part of the epochs, rounded down, but 1 at least where there is any work.

    >>> [feasible(fraction, 100) for fraction in (0.30, 0.48, 1.0, 0.001, 0.0)]
    [30, 48, 100, 1, 0]
    """
    if work_fraction == 0:
        return 0
    return max(1, math.floor(work_fraction * epochs + 1e-9))  # 0.29 * 100 is a bit below 29


def inexactness(
    gradient: Callable[[Weights], Weights], start: Weights, end: Weights, beta: float
) -> float:
    """|grad G(w*; w_i)| / |grad G(w_i; w_i)|, phi of Definition 2; 0: solved, 1: no work done.

    Args:
        gradient: of the agent's own loss F.
        start: w_i, its weights at the round's start.
        end: w*, those at its end.
        beta: of the proximal term: grad G(w; w_i) = grad F(w) + beta (w - w_i).
    """

    def norm(w: Weights) -> float:
        slopes = gradient(w)
        parts = [(g + beta * (w[n] - start[n])).square().sum() for n, g in slopes.items()]
        return float(torch.stack(parts).sum().sqrt())

    return norm(end) / norm(start)


def _drawn(setting: Setting, t: int, client: Client) -> float:
    return float(torch.rand((), generator=torch_stream(setting.seed, "work", t, client.id)))


METHODS.register(
    "fedmdp",
    MethodEntry(
        summary="FedMD with partial work of slow agents and a proximal term",
        config=Config,
        build=build,
        models=which_models.own,
        public=True,
    ),
)
