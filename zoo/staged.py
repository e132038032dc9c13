"""The common shape of our own families: a stem, stages in order, and an exit after a stage.

    x -> stem -> stage 1 -> stage 2 -> ... -> stage d -> exit d -> logits
                    |          |
                  exit 1     exit 2          (these only with exits=True, for DepthFL)

A plain model of depth d owns the exit of stage d only. An exit is named after its stage, so two
models of different depths share parameter names exactly where they share layers: the stem and the
first stages. Their heads, exits.1 and exits.4 say, can't be mixed up.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from zoo.spec import ModelSpec
from zoo.wiring import Wire


class Exit(nn.Module):
    """What turns a stage's output into logits: `classifier(body(h))`."""

    def __init__(self, body: nn.Module, classifier: nn.Linear) -> None:
        super().__init__()
        self.body = body
        self.classifier = classifier

    def forward(self, h: Any) -> Tensor:
        logits: Tensor = self.classifier(self.body(h))
        return logits


class StagedNet(nn.Module):
    """Stem, stages and exits run in order.

    `forward` gives the logits of the model's exit; of a model with several exits their mean, the
    ensemble that DepthFL infers with.

    Attributes:
        wiring: which units every layer reads and writes (for slicing); see `zoo.wiring`.
        classifier_name: path of the module that turns the features into logits.
    """

    def __init__(
        self,
        stem: nn.Module,
        stages: Mapping[int, nn.Module],
        exits: Mapping[int, Exit],
        wiring: Mapping[str, Wire],
    ) -> None:
        super().__init__()
        self.stem = stem
        self.stages = nn.ModuleDict({str(d): stage for d, stage in stages.items()})
        self.exits = nn.ModuleDict({str(d): exit_ for d, exit_ in exits.items()})
        self.wiring = dict(wiring)
        self.classifier_name = f"exits.{len(self.stages)}.classifier"

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        h, logits = self.stem(*args, **kwargs), []
        for depth, stage in self.stages.items():
            h = stage(h)
            if depth in self.exits:
                logits.append(self.exits[depth](h))
        return logits[0] if len(logits) == 1 else torch.stack(logits).mean(0)


def named(**modules: nn.Module) -> nn.Sequential:
    """A Sequential whose parts have names."""
    return nn.Sequential(OrderedDict(modules))


def owned_exits(spec: ModelSpec, depth: int) -> Iterable[int]:
    """The stages after which a model of this depth has an exit."""
    return range(1, depth + 1) if spec.exits else (depth,)
