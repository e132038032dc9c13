"""A client's local training and evaluation: plain PyTorch on an ordinary model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

import zoo
from ghn_fl.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class LocalConfig:
    """How clients train.

    Attributes:
        epochs: E, passes over the client's data in a round.
        lr: eta_c, step size of plain SGD.
        batch_size: B.
        momentum: of SGD.
        weight_decay: of SGD.
        kl: direction of the feature term of Eq. (9): `small_large` as in the paper,
            D(p_S || p_L), or `large_small` as in its authors' code.
    """

    epochs: int = 5
    lr: float = 0.01
    batch_size: int = 128
    momentum: float = 0.0
    weight_decay: float = 0.0
    kl: str = "small_large"

    def __post_init__(self) -> None:
        if self.epochs < 1 or self.batch_size < 1:
            raise ConfigError(
                f"epochs and batch_size must be at least 1, got {self.epochs} and {self.batch_size}"
            )
        if not self.lr > 0 or self.momentum < 0 or self.weight_decay < 0:
            raise ConfigError(
                "lr must be above 0, momentum and weight_decay at least 0, "
                f"got {self.lr}, {self.momentum} and {self.weight_decay}"
            )
        if self.kl not in ("small_large", "large_small"):
            raise ConfigError(f"kl must be small_large or large_small, got {self.kl!r}")


@dataclass(frozen=True)
class Samples:
    """A client's images as the model reads them, and its labels."""

    x: Tensor
    y: Tensor
    augment: Callable[[Tensor, torch.Generator], Tensor] | None = None


def train(
    model: nn.Module,
    data: Samples,
    config: LocalConfig,
    generator: torch.Generator,
    *,
    epochs: int | None = None,
    teacher: nn.Module | None = None,
) -> float:
    """Train `model` in place by SGD; returns the mean loss of the last epoch.

    Args:
        model: in the state from which it starts.
        data: the client's training samples.
        config: step size, batch size and so on.
        generator: for the order of the samples and their augmentation.
        epochs: instead of the config's.
        teacher: a trained model to learn from as well (Eq. 9).
    """
    model.train()
    optimizer = torch.optim.SGD(
        model.parameters(),
        lr=config.lr,
        momentum=config.momentum,
        weight_decay=config.weight_decay,
    )
    mean = 0.0
    for _ in range(epochs if epochs is not None else config.epochs):
        losses = []
        for batch in torch.randperm(len(data.y), generator=generator).split(config.batch_size):
            if len(batch) < 2 and len(data.y) > 1:
                continue  # a last batch of one: BatchNorm has nothing to average over
            x, y = data.x[batch], data.y[batch]
            if data.augment is not None:
                x = data.augment(x, generator)
            optimizer.zero_grad()
            loss = loss_of(model, x, y, teacher, config)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach() * len(batch))
        mean = float(torch.stack(losses).sum()) / len(data.y)
    return mean


def loss_of(
    model: nn.Module, x: Tensor, y: Tensor, teacher: nn.Module | None, config: LocalConfig
) -> Tensor:
    if teacher is None:
        logits = model(x)
        return F.cross_entropy(logits if isinstance(logits, Tensor) else logits.logits, y)
    small = zoo.run(model, x)
    with torch.no_grad():
        large = zoo.run(teacher, x)
    return transfer_loss(small, large, y, config.kl)


def transfer_loss(small: zoo.Output, large: zoo.Output, y: Tensor, kl: str) -> Tensor:
    """Eq. (9): labels, the large model's answers, and its features where both have as many."""
    loss = F.cross_entropy(small.logits, y)
    loss = loss + F.cross_entropy(small.logits, large.logits.softmax(1))
    if small.features.shape == large.features.shape:
        log_small, log_large = small.features.log_softmax(1), large.features.log_softmax(1)
        first, second = (log_small, log_large) if kl == "small_large" else (log_large, log_small)
        # kl_div(input, target) is D(target || input)
        loss = loss + F.kl_div(second, first, reduction="batchmean", log_target=True)
    return loss


def load(model: nn.Module, weights: Mapping[str, Tensor]) -> nn.Module:
    """Put weights into a model that is ours to change, and forget its BatchNorm statistics.

    Statistics of other weights mislead; from here on they are the mean over all batches seen.
    """
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                parameter.copy_(weights[name])
    for module in model.modules():
        if isinstance(module, _BatchNorm):
            module.reset_running_stats()
            module.momentum = None  # cumulative average
    return model


def unload(model: nn.Module) -> dict[str, Tensor]:
    """A copy of the model's trainable parameters."""
    return {n: p.detach().clone() for n, p in model.named_parameters() if p.requires_grad}


@dataclass(frozen=True)
class Score:
    """Accuracy and mean loss on a test set, and accuracy by class (nan where there is none)."""

    accuracy: float
    loss: float
    by_class: tuple[float, ...]


def evaluate(model: nn.Module, x: Tensor, y: Tensor, num_classes: int) -> Score:
    """How well the model does on a test set."""
    model.eval()
    hits, loss = [], 0.0
    with torch.no_grad():
        for part_x, part_y in zip(x.split(1000), y.split(1000), strict=True):
            logits = model(part_x)
            logits = logits if isinstance(logits, Tensor) else logits.logits
            loss += float(F.cross_entropy(logits, part_y, reduction="sum"))
            hits.append(logits.argmax(1) == part_y)
    hit = torch.cat(hits).double()
    count = torch.bincount(y, minlength=num_classes)
    right = torch.zeros(num_classes, dtype=torch.double).index_add(0, y, hit)
    return Score(float(hit.mean()), loss / len(y), tuple((right / count).tolist()))
