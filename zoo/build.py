"""From a spec to a model, its example input and what it computes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from torch import Tensor, nn
from torch.func import functional_call

from zoo.errors import SpecError
from zoo.families import FAMILIES
from zoo.family import Inputs, fill, find
from zoo.spec import SpecLike, as_spec
from zoo.staged import Exit


def names() -> tuple[str, ...]:
    """The registered families; beside them `timm:NAME` and `hf:FOLDER_OR_ID` are open."""
    return FAMILIES.names()


def build(
    spec: SpecLike,
    *,
    num_classes: int | None = None,
    in_channels: int | None = None,
    image_size: int | None = None,
    vocab_size: int | None = None,
    sequence_length: int | None = None,
) -> nn.Module:
    """A fresh model; what is not given has the family's default.

    The model's `classifier_name` is the path of the layer that gives the logits. Initial weights
    are drawn from torch's global generator, as those of any module.

    >>> model = build("lenet5", num_classes=10, in_channels=1)
    >>> sum(p.numel() for p in model.parameters())
    44470
    """
    spec = as_spec(spec)
    family = find(spec)
    task = fill(spec, family, _given(locals()))
    return family.make(spec, **task)


def example_input(
    spec: SpecLike,
    *,
    batch_size: int = 1,
    num_classes: int | None = None,
    in_channels: int | None = None,
    image_size: int | None = None,
    vocab_size: int | None = None,
    sequence_length: int | None = None,
) -> Inputs:
    """An input that the model of `spec` accepts: a batch of images, or of token ids and mask.

    >>> example_input("resnet18-w0.2", batch_size=2).shape
    torch.Size([2, 3, 32, 32])
    """
    spec = as_spec(spec)
    family = find(spec)
    task = fill(spec, family, _given(locals()))
    return family.example(batch_size, **task)


class Output(NamedTuple):
    """What a model says about a batch.

    Attributes:
        logits: shape (batch, classes); the mean over the exits where there are several.
        features: what the classifier reads, the last hidden layer: shape (batch, features).
        exits: the logits of every exit, shallow to deep; one entry for a model without exits.
    """

    logits: Tensor
    features: Tensor
    exits: tuple[Tensor, ...]


def run(model: nn.Module, inputs: Inputs, weights: Mapping[str, Tensor] | None = None) -> Output:
    """Logits, features and exit logits of a zoo model, with its own or with given weights.

    `weights` replaces parameters and buffers for this call only; nothing is written into the
    model but the BatchNorm statistics that a forward pass in training mode updates anyway.
    """
    name = getattr(model, "classifier_name", None)
    if not isinstance(name, str):
        raise SpecError(f"{type(model).__name__} does not come from zoo.build: no classifier_name")
    features: list[Tensor] = []
    exits: list[Tensor] = []
    hooks = [
        model.get_submodule(name).register_forward_pre_hook(
            lambda _, args: features.append(args[0])
        )
    ]
    for module in model.modules():
        if isinstance(module, Exit):
            hooks.append(module.register_forward_hook(lambda _, __, out: exits.append(out)))
    try:
        args, kwargs = ((), inputs) if isinstance(inputs, Mapping) else ((inputs,), {})
        out = functional_call(model, dict(weights or {}), args, kwargs)
    finally:
        for hook in hooks:
            hook.remove()
    logits: Tensor = out if isinstance(out, Tensor) else out.logits
    return Output(logits, _pooled(features[-1]), tuple(exits) or (logits,))


def _pooled(features: Tensor) -> Tensor:
    """One vector a sample: convolutional classifiers read (batch, channels, height, width)."""
    return features.mean(dim=tuple(range(2, features.ndim))) if features.ndim > 2 else features


def _given(arguments: Mapping[str, object]) -> dict[str, int | None]:
    """The task fields among a call's arguments."""
    fields = ("num_classes", "in_channels", "image_size", "vocab_size", "sequence_length")
    return {name: arguments[name] for name in fields}  # type: ignore[misc]
