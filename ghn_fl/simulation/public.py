"""Public data: another set's training part, or a part of the run's own, before it is shared out."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from ghn_fl.data import DATASETS, Dataset, load
from ghn_fl.errors import ConfigError, DataError
from ghn_fl.random import stratified, torch_stream
from ghn_fl.simulation.world import Public

HELDOUT = "heldout"
_PART = 0.1  # of the training set, where nobody says how much


def held_part(text: str) -> float | None:
    """The part of the training set that is held out; None if the text names no such thing.

    >>> held_part("heldout"), held_part("heldout:0.25"), held_part("mnist")
    (0.1, 0.25, None)
    """
    name, colon, number = text.partition(":")
    if name != HELDOUT:
        return None
    try:
        part = float(number) if colon else _PART
    except ValueError:
        part = 0.0
    if not 0 < part < 1:
        raise ConfigError(
            f"public must be a data set, {HELDOUT}, or {HELDOUT}:PART with a part above 0 and "
            f"below 1, got {text!r}"
        )
    return part


def public_data(
    text: str, dataset: Dataset, seed: int, data_dir: Path | None
) -> tuple[Public | None, Tensor]:
    """The public data that `text` asks for, and the training samples left for the clients."""
    everything = torch.arange(len(dataset.y_train))
    if not text:
        return None, everything
    part = held_part(text)
    if part is None:
        return _other_set(text, dataset, data_dir), everything
    count = round(part * len(everything))
    if count < 2:
        raise DataError(f"{text} of {len(everything)} samples is {count}; 2 or more are needed")
    held = stratified(dataset.y_train, count, torch_stream(seed, "public data"))
    left = torch.ones(len(everything), dtype=torch.bool).index_fill(0, held, False)
    return Public(dataset.x_train[held], dataset.y_train[held]), everything[left]


def _other_set(name: str, dataset: Dataset, data_dir: Path | None) -> Public:
    """Another set's training part, without the images that the run's own set has as well.

    Where its classes are others than the run's, they come after those, as in FedMD's code.
    """
    own, other = DATASETS[dataset.name], DATASETS[name]
    if other.shape != own.shape:
        raise DataError(
            f"the public set {name} has images of {_text(other.shape)}, {dataset.name} of "
            f"{_text(own.shape)}; choose one with the same, or {HELDOUT}"
        )
    found = load(name, data_dir)
    known = {image.tobytes() for x in (dataset.x_train, dataset.x_test) for image in x.numpy()}
    new = torch.tensor([image.tobytes() not in known for image in found.x_train.numpy()])
    if int(new.sum()) < 2:
        raise DataError(
            f"the images of the public set {name} are those of {dataset.name}; "
            f"choose another set, or {HELDOUT}"
        )
    images, labels = found.x_train[new], found.y_train[new]
    if own.classes == other.classes != "":
        return Public(images, labels)
    return Public(images, labels + dataset.num_classes, others=found.num_classes)


def _text(shape: tuple[int, int, int]) -> str:
    channels, height, width = shape
    return f"{height}x{width} with {channels} channel{'s' * (channels > 1)}"
