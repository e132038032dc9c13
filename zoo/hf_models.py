"""Any classifier that transformers can load, as `hf:FOLDER_OR_ID`, with its pretrained weights.

Weights are read from safetensors files only, and no code that comes with a model is run. Depth d
keeps the first d encoder layers.
"""

from __future__ import annotations

from functools import partial
from typing import Any, cast

import torch
from torch import nn

from zoo.errors import SpecError
from zoo.family import OPEN_FAMILIES, Family, images, tokens
from zoo.spec import ModelSpec


def family(name: str) -> Family:
    config = _load_config(name)
    depth = getattr(config, "num_hidden_layers", 0)
    if hasattr(config, "vocab_size"):
        example, task = tokens, {"num_classes": 2, "sequence_length": 128}
    else:
        side = config.image_size if isinstance(getattr(config, "image_size", None), int) else 224
        channels = getattr(config, "num_channels", 3)
        example = images  # type: ignore[assignment]
        task = {"num_classes": 10, "in_channels": channels, "image_size": side}
    return Family(
        summary=f"{config.model_type} of transformers",
        make=partial(make, name=name),
        example=example,
        task=task,
        depth=depth,
    )


def make(spec: ModelSpec, *, name: str, num_classes: int, **task: int) -> nn.Module:
    import transformers

    config = _load_config(name)
    config.num_labels = num_classes
    if spec.depth is not None:
        config.num_hidden_layers = spec.depth
    for ours, theirs in (("in_channels", "num_channels"), ("image_size", "image_size")):
        if ours in task and hasattr(config, theirs):
            setattr(config, theirs, task[ours])
    text = "sequence_length" in task
    auto: Any = (
        transformers.AutoModelForSequenceClassification
        if text
        else transformers.AutoModelForImageClassification
    )
    try:
        if torch.get_default_device().type == "meta":  # only shapes are wanted
            model: Any = auto.from_config(config)
        else:
            model = _load(auto, name, config)
    except (OSError, ValueError, RuntimeError) as err:
        raise SpecError(f"transformers cannot build {spec}: {_first_line(err)}") from err
    model.classifier_name = _classifier_name(model, num_classes)
    return cast(nn.Module, model.train())


def _load(auto: Any, name: str, config: Any) -> Any:
    """The pretrained model; only its head may be made anew, or the body's layers left out."""
    from transformers import logging

    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()  # its report of left-out layers; what matters is checked below
    try:
        model, info = auto.from_pretrained(
            name,
            config=config,
            use_safetensors=True,
            ignore_mismatched_sizes=True,
            output_loading_info=True,
        )
    finally:
        logging.set_verbosity(verbosity)
    body = f"{model.base_model_prefix}."
    for key, saved, wanted in info["mismatched_keys"]:
        if key.startswith(body):
            raise ValueError(f"{key} has shape {tuple(saved)}, the model wants {tuple(wanted)}")
    missing = sorted(k for k in info["missing_keys"] if k.startswith(body) and "pooler" not in k)
    if missing:
        raise ValueError(f"the saved weights lack {', '.join(missing[:3])}")
    return model


def _load_config(name: str) -> Any:
    import transformers

    try:
        return transformers.AutoConfig.from_pretrained(name)
    except (OSError, ValueError) as err:
        raise SpecError(
            f"cannot load the transformers model {name!r}: it is no folder with a config.json, "
            f"and the hub gave none ({_first_line(err)})"
        ) from err


def _classifier_name(model: nn.Module, num_classes: int) -> str:
    """The last linear layer that gives one number a class; heads come last in every model."""
    found: list[str] = [
        path
        for path, module in model.named_modules()
        if isinstance(module, nn.Linear) and module.out_features == num_classes
    ]
    if not found:
        raise SpecError(f"{type(model).__name__} has no linear layer with {num_classes} outputs")
    return found[-1]


def _first_line(err: Exception) -> str:
    return (str(err).strip().splitlines() or [type(err).__name__])[0]


OPEN_FAMILIES.register("hf", family)
