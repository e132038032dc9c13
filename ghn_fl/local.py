"""A client's local training and evaluation: plain PyTorch on an ordinary model."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

import zoo
from ghn_fl import losses
from ghn_fl.errors import ConfigError
from ghn_fl.types import Recipe
from zoo.staged import StagedNet


@dataclass(frozen=True, kw_only=True)
class LocalConfig:
    """How clients train.

    Attributes:
        epochs: E, passes over the client's data in a round.
        lr: eta_c, step size of plain SGD.
        batch_size: B.
        momentum: of SGD.
        weight_decay: of SGD.
        clip: largest norm of a step's gradient; 0: no limit. With one, large steps are safe.
        kl: direction of the feature term of Eq. (9): `small_large` as in the paper,
            D(p_S || p_L), or `large_small` as in its authors' code.
    """

    epochs: int = 5
    lr: float = 0.1
    batch_size: int = 128
    momentum: float = 0.0
    weight_decay: float = 0.0
    clip: float = 0.0
    kl: str = "small_large"

    def __post_init__(self) -> None:
        if self.epochs < 1 or self.batch_size < 2:  # BatchNorm cannot average over one sample
            raise ConfigError(
                "epochs must be at least 1 and batch_size at least 2, "
                f"got {self.epochs} and {self.batch_size}"
            )
        if not 0 < self.lr < math.inf or not 0 <= self.weight_decay < math.inf:
            raise ConfigError(
                "lr must be above 0 and weight_decay at least 0, "
                f"got {self.lr} and {self.weight_decay}"
            )
        if not 0 <= self.clip < math.inf:
            raise ConfigError(f"clip must be at least 0 (0: no limit), got {self.clip}")
        if not 0 <= self.momentum < 1:
            raise ConfigError(f"momentum must be from 0 to below 1, got {self.momentum}")
        if self.kl not in ("small_large", "large_small"):
            raise ConfigError(f"kl must be small_large or large_small, got {self.kl!r}")


@dataclass(frozen=True)
class Samples:
    """A client's images and labels.

    Attributes:
        x: as the model reads them, unless the next two say otherwise.
        y: the labels.
        augment: from a batch of `x` to what the model trains on, at random.
        prepare: from a batch of `x` to what the model reads, where they are augmented.
    """

    x: Tensor
    y: Tensor
    augment: Callable[[Tensor, torch.Generator], Tensor] | None = None
    prepare: Callable[[Tensor], Tensor] | None = None


@dataclass
class Progress:
    """What came of a training: the mean loss of its last epoch, and what was asked for besides."""

    loss: float = 0.0
    extras: dict[str, Tensor] = field(default_factory=dict)


def train(
    model: nn.Module,
    data: Samples,
    config: LocalConfig,
    generator: torch.Generator,
    recipe: Recipe | None = None,
    *,
    teacher: nn.Module | None = None,
    anchor: Mapping[str, Tensor] | None = None,
) -> Progress:
    """Train `model` in place by SGD.

    Args:
        model: in the state from which it starts.
        data: the client's training samples.
        config: step size, batch size and so on.
        generator: for the order of the samples and their augmentation.
        recipe: what a method wants done otherwise.
        teacher: the model that the recipe's `teacher` names.
        anchor: the weights that the proximal term pulls to, where they aren't those of `model`.
    """
    recipe = recipe or Recipe()
    model.train()
    trained = {n: p for n, p in model.named_parameters() if p.requires_grad}
    loss_of = _objective(model, data, config, recipe, teacher, trained, anchor)
    optimizer = torch.optim.SGD(
        trained.values(),
        lr=config.lr,
        momentum=config.momentum,
        weight_decay=config.weight_decay,
    )
    done, progress = 0, Progress()
    with scaled_outputs(model, recipe.rate), watched(model, recipe.activations) as activations:
        for _ in range(config.epochs if recipe.epochs is None else recipe.epochs):
            summed, seen = [], 0
            for batch in torch.randperm(len(data.y), generator=generator).split(config.batch_size):
                if len(batch) < 2 and len(data.y) > 1:
                    continue  # a last batch of one: BatchNorm has nothing to average over
                if recipe.steps is not None and done >= recipe.steps:
                    break
                x, y = data.x[batch], data.y[batch]
                if data.augment is not None:
                    x = data.augment(x, generator)
                optimizer.zero_grad()
                loss = loss_of(x, y, batch)
                loss.backward()
                if limit := recipe.clip or config.clip:
                    nn.utils.clip_grad_norm_(trained.values(), limit)
                optimizer.step()
                summed.append(loss.detach() * len(batch))
                seen, done = seen + len(batch), done + 1
            if summed:
                progress.loss = float(torch.stack(summed).sum()) / seen
    progress.extras = {f"activation/{group}": mean() for group, mean in activations.items()}
    return progress


def _objective(
    model: nn.Module,
    data: Samples,
    config: LocalConfig,
    recipe: Recipe,
    teacher: nn.Module | None,
    trained: Mapping[str, Tensor],
    anchor: Mapping[str, Tensor] | None,
) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """The loss of a batch under a recipe: of its inputs, labels and places in the data."""
    if anchor is None:
        anchor = {n: p.detach().clone() for n, p in trained.items()} if recipe.prox else {}
    present = torch.bincount(data.y) > 0
    taught = None if teacher is None else _taught(teacher, data)

    def fit(x: Tensor, y: Tensor, batch: Tensor) -> Tensor:
        if recipe.exits is not None:
            return losses.exits_loss(zoo.run(model, x).exits, y, recipe.exits)
        if taught is not None:
            return losses.transfer_loss(zoo.run(model, x), taught(x, batch), y, config.kl)
        logits = logits_of(model(x))
        if recipe.own_classes:
            absent = logits.shape[1] - len(present)
            logits = losses.masked(logits, F.pad(present, (0, absent)))
        return F.cross_entropy(logits, y)

    def whole(x: Tensor, y: Tensor, batch: Tensor) -> Tensor:
        if recipe.prox or recipe.linear is not None:
            pull = losses.proximal(trained, anchor, recipe.prox, recipe.linear)
            return fit(x, y, batch) + pull
        return fit(x, y, batch)

    return whole


def _taught(teacher: nn.Module, data: Samples) -> Callable[[Tensor, Tensor], zoo.Output]:
    """What a teacher says of a batch, of its inputs and places; it is asked once if it can be."""

    def ask(x: Tensor) -> zoo.Output:
        with torch.no_grad():
            return zoo.run(teacher, x)

    if data.augment is not None:  # in every epoch other inputs
        return lambda x, _: ask(x)
    said = [ask(x) for x in data.x.split(500)]
    logits, features = torch.cat([o.logits for o in said]), torch.cat([o.features for o in said])
    return lambda _, batch: zoo.Output(logits[batch], features[batch], ())


def logits_of(output: Any) -> Tensor:
    """The logits, whether a model gives them as they are or in an object of transformers."""
    return output if isinstance(output, Tensor) else output.logits


@contextlib.contextmanager
def scaled_outputs(model: nn.Module, rate: float) -> Iterator[None]:
    """HeteroFL's scaler: hidden layers' outputs divided by `rate`, in training mode only."""

    def scale(module: nn.Module, _: Any, out: Tensor) -> Tensor:
        return out / rate if module.training else out

    hooks = [
        module.register_forward_hook(scale)
        for path, module in model.named_modules()
        if rate != 1
        and isinstance(module, nn.Conv2d | nn.Linear)
        and not path.endswith("classifier")
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


@contextlib.contextmanager
def watched(model: nn.Module, wanted: bool) -> Iterator[dict[str, Callable[[], Tensor]]]:
    """For every hidden dense group a function that gives each unit's mean activation so far."""
    sums: dict[str, tuple[Tensor, int]] = {}
    means: dict[str, Callable[[], Tensor]] = {}
    hooks = []

    def add(group: str, out: Tensor) -> None:
        out = out.detach().relu().flatten(0, -2)  # of texts every token counts
        total, count = sums.get(group, (torch.zeros(out.shape[1]), 0))
        sums[group] = total + out.sum(0), count + len(out)

    for path, group in dense_groups(model).items() if wanted else ():
        hook = partial(lambda group, _, __, out: add(group, out), group)
        hooks.append(model.get_submodule(path).register_forward_hook(hook))
        means[group] = partial(lambda group: sums[group][0] / sums[group][1], group)
    try:
        yield means
    finally:
        for handle in hooks:
            handle.remove()


def dense_groups(model: nn.Module) -> dict[str, str]:
    """The hidden dense layers whose units can be masked: path of the layer -> group of units."""
    return {
        path: wire.out[0].group
        for path, wire in getattr(model, "wiring", {}).items()
        if isinstance(model.get_submodule(path), nn.Linear)
        and len(wire.out) == 1
        and wire.out[0].group is not None
        and wire.out[0].size == wire.out[0].units  # not the features of attention heads
    }


def static_norm(model: nn.Module, data: Samples) -> None:
    """Collect the BatchNorm statistics anew: one pass over the data with the present weights."""
    norms = [m for m in model.modules() if isinstance(m, _BatchNorm)]
    if not norms:
        return
    _forget_statistics(model)
    model.eval()
    for module in norms:
        module.train()
    with torch.no_grad():
        for x in data.x.split(500):
            if len(x) > 1:
                model(x if data.prepare is None else data.prepare(x))


def load(model: nn.Module, weights: Mapping[str, Tensor]) -> nn.Module:
    """Put weights into a model that is ours to change, and forget its BatchNorm statistics.

    Statistics of other weights mislead; from here on they are the mean over all batches seen.
    """
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                parameter.copy_(weights[name])
    _forget_statistics(model)
    return model


def _forget_statistics(model: nn.Module) -> None:
    for module in model.modules():
        if isinstance(module, _BatchNorm):
            module.reset_running_stats()
            module.momentum = None  # cumulative average


def unload(model: nn.Module) -> dict[str, Tensor]:
    """A copy of the model's trainable parameters."""
    return {n: p.detach().clone() for n, p in model.named_parameters() if p.requires_grad}


@dataclass(frozen=True)
class Score:
    """Accuracy and mean loss on a test set, and accuracy by class (nan where there is none).

    `exits` is the accuracy of every exit, shallow to deep; empty if there is just one.
    """

    accuracy: float
    loss: float
    by_class: tuple[float, ...]
    exits: tuple[float, ...] = ()


def evaluate(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    num_classes: int,
    others: Sequence[tuple[nn.Module, float]] = (),
) -> Score:
    """How well the model does on a test set, or with others, each with its part of the answer.

    The exits' accuracies are the first model's own.
    """
    for each in (model, *(other for other, _ in others)):
        each.eval()
    parts = [1 - sum(part for _, part in others), *(part for _, part in others)]
    several = isinstance(model, StagedNet) and len(model.exits) > 1
    hits, loss = [], 0.0
    with torch.no_grad():
        for part_x, part_y in zip(x.split(250), y.split(250), strict=True):
            answers = [logits_of(model(part_x))] if not several else _answers(model, part_x)
            if others:
                said = [logits_of(other(part_x)) for other, _ in others]
                answers[0] = mixed([answers[0], *said], parts)
            loss += float(F.cross_entropy(answers[0], part_y, reduction="sum"))
            hits.append(torch.stack([logits.argmax(1) == part_y for logits in answers]))
    hit, *exits = torch.cat(hits, 1).double()
    count = torch.bincount(y, minlength=num_classes)
    right = torch.zeros(num_classes, dtype=torch.double).index_add(0, y, hit)
    return Score(
        float(hit.mean()),
        loss / len(y),
        tuple((right / count).tolist()),
        tuple(float(e.mean()) for e in exits),
    )


def likeliest_part(p: Tensor, q: Tensor) -> float:
    """The part of q in a mixture of p and q under which some samples' labels are likeliest.

    By expectation and maximisation, from 0.001 to 0.999.

    Args:
        p: the probability that one gives each sample's label (`of_labels`).
        q: the same of the other.
    """
    part = 0.5
    for _ in range(100):
        part = float((part * q / ((1 - part) * p + part * q)).mean())
    return min(max(part, 0.001), 0.999)


def of_labels(model: nn.Module, data: Samples) -> Tensor:
    """The probability that a model gives every sample's own label, never quite 0."""
    model.eval()
    found = []
    with torch.no_grad():
        for x, y in zip(data.x.split(250), data.y.split(250), strict=True):
            logits = logits_of(model(x if data.prepare is None else data.prepare(x)))
            found.append(F.softmax(logits.double(), 1).gather(1, y[:, None])[:, 0])
    return torch.cat(found).clamp(min=1e-12)


def mixed(logits: Sequence[Tensor], parts: Sequence[float]) -> Tensor:
    """The logarithm of the sum of some models' probabilities, each times its part."""
    told = [F.log_softmax(z, 1) + math.log(b) for z, b in zip(logits, parts, strict=True)]
    return torch.stack(told).logsumexp(0)


def _answers(model: nn.Module, x: Tensor) -> list[Tensor]:
    """The logits of the ensemble, then those of every exit."""
    output = zoo.run(model, x)
    return [output.logits, *output.exits]
