"""The server's step: teach the hypernetwork what its clients made of the weights it gave them.

    delta_m = sent_m - trained_m                    descent direction; Eq. (4) prints the other sign
    gradient of phi = sum_m (d sent_m / d phi)^T delta_m

which is the gradient of 1/2 |sent(phi) - trained|^2 at the weights that were sent. The generation
is computed again, a few clients at a time, instead of keeping every client's autograd graph from
the start of the round: memory doesn't grow with the number of clients.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ghn_fl.errors import GHNError
from ghn_fl.hypernet.ghn import GHN, Request
from ghn_fl.optim import AdamState, adam, clip_norm, sgd


@dataclass(frozen=True, kw_only=True)
class Change:
    """One client's answer.

    Attributes:
        request: what its weights were generated from.
        sent: the weights that it was given.
        trained: the same after its local training.
        share: its weight among the clients; used with `weighting="share"`.
    """

    request: Request
    sent: Mapping[str, Tensor]
    trained: Mapping[str, Tensor]
    share: float = 1.0


@dataclass(frozen=True, kw_only=True)
class UpdateConfig:
    """How the server learns.

    Attributes:
        optimizer: `adam` (authors' code, default) or `sgd` (the paper's plain step).
        lr: step size eta_s (authors: 1e-3).
        clip: largest norm of the gradient (authors: 50; the paper doesn't clip).
        weighting: `sum` over clients (paper; authors' code but for CIFAR-10), or `share`: the
            mean weighted by the clients' shares of the data, for every parameter of the
            hypernetwork over those clients that use it (authors' code for CIFAR-10).
        chunk: clients whose generation is held in memory at once.
    """

    optimizer: Literal["adam", "sgd"] = "adam"
    lr: float = 1e-3
    clip: float = 50.0
    weighting: Literal["sum", "share"] = "sum"
    chunk: int = 10

    def __post_init__(self) -> None:
        if self.optimizer not in ("adam", "sgd"):
            raise GHNError(f"optimizer must be 'adam' or 'sgd', got {self.optimizer!r}")
        if self.weighting not in ("sum", "share"):
            raise GHNError(f"weighting must be 'sum' or 'share', got {self.weighting!r}")
        if self.lr <= 0 or self.clip <= 0 or self.chunk < 1:
            raise GHNError(
                "lr and clip must be above 0 and chunk at least 1, "
                f"got {self.lr}, {self.clip} and {self.chunk}"
            )


def update(
    ghn: GHN,
    changes: Sequence[Change],
    state: AdamState | None = None,
    config: UpdateConfig | None = None,
) -> tuple[GHN, AdamState, float]:
    """The hypernetwork after one step, its optimizer's state, and the gradient's norm.

    The arguments stay as they are. Without answers, nothing changes.
    """
    config, state = config or UpdateConfig(), state or AdamState()
    if not changes:
        return ghn, state, 0.0
    gradients, norm = clip_norm(gradient(ghn, changes, config), config.clip)
    parameters = {name: p.detach() for name, p in ghn.named_parameters()}
    if config.optimizer == "adam":
        parameters, state = adam(parameters, gradients, state, lr=config.lr)
    else:
        parameters = sgd(parameters, gradients, lr=config.lr)
    return ghn.with_parameters(parameters), state, norm


def imitate(
    ghn: GHN,
    targets: Sequence[tuple[Request, Mapping[str, Tensor]]],
    steps: int,
    config: UpdateConfig | None = None,
) -> GHN:
    """The hypernetwork after some steps towards making given weights itself."""
    state = AdamState()
    for _ in range(steps):
        made = ghn.generate_many([request for request, _ in targets])
        changes = [
            Change(request=request, sent=now, trained=wanted)
            for (request, wanted), now in zip(targets, made, strict=True)
        ]
        ghn, state, _ = update(ghn, changes, state, config)
    return ghn


def gradient(ghn: GHN, changes: Sequence[Change], config: UpdateConfig) -> dict[str, Tensor]:
    """The gradient of the hypernetwork's parameters, for those that any of the clients uses."""
    weighted = config.weighting == "share"
    summed: dict[str, Tensor] = {}
    shares: dict[str, float] = {}
    # Whose tensors a client uses is known client by client only, so a weighted mean goes that way.
    step = 1 if weighted else config.chunk
    for start in range(0, len(changes), step):
        part = changes[start : start + step]
        for name, g in _pull_back(ghn, part).items():
            factor = part[0].share if weighted else 1.0
            summed[name] = summed[name] + factor * g if name in summed else factor * g
            shares[name] = shares.get(name, 0.0) + factor
    if weighted:
        return {name: g / shares[name] for name, g in summed.items()}
    return summed


def _pull_back(ghn: GHN, changes: Sequence[Change]) -> dict[str, Tensor]:
    """Sum over clients of (d sent / d phi)^T delta, for the parameters that have one."""
    outputs, deltas = [], []
    for change, weights in zip(
        changes, ghn.generate_many([c.request for c in changes], grad=True), strict=True
    ):
        _check(change, weights)
        for name, weight in weights.items():
            if weight.requires_grad:
                outputs.append(weight)
                deltas.append(change.sent[name].detach() - change.trained[name].detach())
    names, parameters = zip(*ghn.named_parameters(), strict=True)
    found = torch.autograd.grad(outputs, parameters, deltas, allow_unused=True)
    return {name: g for name, g in zip(names, found, strict=True) if g is not None}


def _check(change: Change, weights: Mapping[str, Tensor]) -> None:
    for what, given in (("sent", change.sent), ("trained", change.trained)):
        if given.keys() != weights.keys():
            odd = sorted(given.keys() ^ weights.keys())[:3]
            raise GHNError(f"the {what} weights must have the graph's names; {odd} differ")
        for name, weight in weights.items():
            if given[name].shape != weight.shape:
                raise GHNError(
                    f"{what} {name!r} must have shape {tuple(weight.shape)}, "
                    f"got {tuple(given[name].shape)}"
                )
            if not torch.isfinite(given[name]).all():
                raise GHNError(f"{what} {name!r} holds values that are not finite")
