"""Any image model of timm as `timm:NAME`; timm is imported when the first one is asked for."""

from __future__ import annotations

from functools import partial
from typing import Any, cast

from torch import nn

from zoo.errors import SpecError
from zoo.family import OPEN_FAMILIES, Family, images
from zoo.registry import unknown
from zoo.spec import ModelSpec


def family(name: str) -> Family:
    import timm

    architecture = name.split(".", 1)[0]
    if not timm.is_model(architecture):
        raise SpecError(unknown("timm model", name, tuple(timm.list_models())))
    cfg = timm.models.get_pretrained_cfg(name, allow_unregistered=True)
    _, *sides = cfg.input_size if cfg else (3, 224, 224)
    return Family(
        summary="image model of timm",
        make=partial(make, name=name, default_size=sides[-1]),
        example=images,
        task={"num_classes": 10, "in_channels": 3, "image_size": sides[-1]},
    )


def make(
    spec: ModelSpec,
    *,
    name: str,
    default_size: int,
    num_classes: int,
    in_channels: int,
    image_size: int,
) -> nn.Module:
    import timm

    options = {"num_classes": num_classes, "in_chans": in_channels}
    try:
        model: Any = timm.create_model(name, **options)
        if image_size != default_size and model.pretrained_cfg.get("fixed_input_size"):
            model = timm.create_model(name, img_size=image_size, **options)
    except (RuntimeError, ValueError, TypeError, AssertionError) as err:
        raise SpecError(
            f"timm cannot build {name} with {num_classes} classes, {in_channels} channels and "
            f"{image_size} pixels: {err}"
        ) from err
    heads = model.pretrained_cfg.get("classifier")
    head = heads if isinstance(heads, str) else (heads or [None])[0]
    if head is None:
        raise SpecError(f"{spec} has no classifier: timm offers it as a feature extractor only")
    model.classifier_name = head
    return cast(nn.Module, model)


OPEN_FAMILIES.register("timm", family)
