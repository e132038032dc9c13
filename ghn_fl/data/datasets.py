"""Image sets: what one is, how its images become a model's input, and where it comes from."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from ghn_fl.data.download import Remote, cache_folder, fetch
from ghn_fl.data.readers import Arrays, Bytes
from ghn_fl.errors import DataError
from zoo.registry import Registry


@dataclass(frozen=True, kw_only=True, eq=False)
class Dataset:
    """A set in memory: images as uint8 of shape (N, C, H, W), labels as int64 of shape (N,).

    Attributes:
        mean: of a channel, where pixels go from 0 to 1.
        std: likewise.
        augment: whether training images are to be cropped and flipped at random.
        writers: who wrote each training sample, where that is known; `writers_test` likewise.
    """

    name: str
    x_train: Tensor
    y_train: Tensor
    x_test: Tensor
    y_test: Tensor
    num_classes: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    augment: bool = False
    writers: Tensor | None = None
    writers_test: Tensor | None = None

    @property
    def in_channels(self) -> int:
        return self.x_train.shape[1]

    @property
    def image_size(self) -> int:
        return self.x_train.shape[-1]


def normalise(images: Tensor, dataset: Dataset) -> Tensor:
    """Bytes of shape (N, C, H, W) as float32 with the set's mean at 0 and its deviation at 1.

    >>> digits = load("synthetic")
    >>> x = normalise(digits.x_train[:4], digits)
    >>> x.dtype, x.shape
    (torch.float32, torch.Size([4, 1, 16, 16]))
    """
    mean = torch.tensor(dataset.mean, device=images.device).view(-1, 1, 1)
    std = torch.tensor(dataset.std, device=images.device).view(-1, 1, 1)
    return images.float().div_(255).sub_(mean).div_(std)


def augment(images: Tensor, generator: torch.Generator, *, padding: int = 4) -> Tensor:
    """Images of shape (N, C, H, W), each moved by up to `padding` pixels and flipped or not.

    What comes into sight at the border is black, as in the papers that train on CIFAR so.

    >>> image = torch.arange(4, dtype=torch.uint8).view(1, 1, 2, 2)
    >>> augment(image, torch.Generator().manual_seed(1), padding=0)  # moved by 0: flipped or not
    tensor([[[[0, 1],
              [2, 3]]]], dtype=torch.uint8)
    """
    count, _, height, width = images.shape
    padded = functional.pad(images, (padding,) * 4)

    def draw(high: int) -> Tensor:
        return torch.randint(high, (count, 1), generator=generator)

    rows_NH = draw(2 * padding + 1) + torch.arange(height)
    columns_W = torch.arange(width)
    columns_NW = draw(2 * padding + 1) + torch.where(draw(2) == 1, columns_W.flip(0), columns_W)
    samples_N = torch.arange(count)[:, None, None]
    # Indices on both sides of a slice: the result is (N, H, W, C).
    moved = padded[samples_N, :, rows_NH[:, :, None], columns_NW[:, None, :]]
    return moved.permute(0, 3, 1, 2).contiguous()


@dataclass(frozen=True, kw_only=True)
class Found:
    """A set that was found: where, for people, and what reads it."""

    place: str
    read: Callable[[], Arrays]


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A set of the catalogue: what it is before it is loaded, and where it comes from.

    Attributes:
        shape: (C, H, W).
        bundled: makes the set out of what is installed; such a set needs nothing else.
        formats: each looks for the set's files in a folder.
        remotes: the public files that `formats` read once they are downloaded.
        wanted: the files that a person can put into the data folder.
        labels_sha256: of the official test labels; tells sets apart whose files are named alike.
        classes: what its classes are, where other sets have the same ones in the same order.
    """

    num_train: int
    num_test: int
    num_classes: int
    shape: tuple[int, int, int]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    augment: bool = False
    bundled: Callable[[], Arrays] | None = None
    formats: tuple[Callable[[Path], Found | None], ...] = ()
    remotes: tuple[Remote, ...] = ()
    wanted: str = ""
    labels_sha256: str | None = None
    classes: str = ""


DATASETS: Registry[Entry] = Registry("data set", DataError)


def load(name: str, data_dir: Path | None = None) -> Dataset:
    """The set `name`: from `data_dir`, else from the download cache, else from the network.

    >>> digits = load("synthetic")
    >>> len(digits.y_train), digits.num_classes, digits.in_channels, digits.image_size
    (2000, 10, 1, 16)
    >>> load("minst5k")
    Traceback (most recent call last):
    ghn_fl.errors.DataError: unknown data set 'minst5k'; did you mean 'mnist5k' or 'mnist' ...
    """
    entry = DATASETS[name]
    _check_folder(data_dir)
    found = _find(name, data_dir) or _download(name)
    arrays = found.read()
    _refuse_other_set(name, arrays, found.place)
    x_train, y_train = _tensors(arrays.x_train, arrays.y_train, entry, f"{found.place}: training")
    x_test, y_test = _tensors(arrays.x_test, arrays.y_test, entry, f"{found.place}: test")
    return Dataset(
        name=name,
        x_train=x_train,
        y_train=y_train,
        x_test=x_test,
        y_test=y_test,
        num_classes=entry.num_classes,
        mean=entry.mean,
        std=entry.std,
        augment=entry.augment,
        writers=_optional(arrays.writers_train),
        writers_test=_optional(arrays.writers_test),
    )


def available(name: str, data_dir: Path | None = None) -> tuple[bool, str]:
    """Whether `load` would succeed without a network, and where the set is or what to do.

    >>> available("mnist5k")
    (True, 'bundled')
    """
    entry = DATASETS[name]
    _check_folder(data_dir)
    try:
        found = _find(name, data_dir)
    except DataError as err:
        return False, str(err)
    if found is not None:
        return True, found.place
    size = sum(remote.num_bytes for remote in entry.remotes)
    download = f"downloaded when it is used ({size / 1e6:.0f} MB); or " if entry.remotes else ""
    return False, f"{download}put {entry.wanted} into the data folder"


def _check_folder(data_dir: Path | None) -> None:
    if data_dir is not None and not data_dir.is_dir():
        raise DataError(f"the data folder {data_dir} is not there, or is no folder")


def _find(name: str, data_dir: Path | None) -> Found | None:
    """The set where no network is needed."""
    entry = DATASETS[name]
    if entry.bundled is not None:
        return Found(place="bundled", read=entry.bundled)
    folders = [data_dir] if data_dir is not None else []
    for folder in [*folders, cache_folder() / name]:
        for look in entry.formats:
            if found := look(folder):
                return found
    return None


def _download(name: str) -> Found:
    entry = DATASETS[name]
    advice = f"put {entry.wanted} into a folder and name it with --data-dir or GHNFL_DATA"
    if not entry.remotes:
        raise DataError(f"{name} is not in the data folder, and cannot be downloaded: {advice}")
    try:
        for remote in entry.remotes:
            fetch(remote, cache_folder() / name)
    except DataError as err:
        raise DataError(f"{err}.\nTo have {name} without a network, {advice}") from err
    found = _find(name, None)
    assert found is not None, "the catalogue's remotes are what its formats look for"
    return found


def _refuse_other_set(name: str, arrays: Arrays, place: str) -> None:
    digest = hashlib.sha256(arrays.y_test.astype(np.uint8).tobytes()).hexdigest()
    for other in DATASETS:
        if other != name and DATASETS[other].labels_sha256 == digest:
            raise DataError(f"{place} holds {other}, not {name}")


def _tensors(
    images: Bytes, labels: npt.NDArray[np.integer], entry: Entry, where: str
) -> tuple[Tensor, Tensor]:
    """Images as (N, C, H, W) and labels, once it is sure that they are the entry's."""
    images_NHWC = images[..., None] if images.ndim == 3 else images
    channels, height, width = entry.shape
    if images_NHWC.shape[1:] != (height, width, channels):
        raise DataError(
            f"{where} images have the shape {images.shape[1:]}, "
            f"expected {height}x{width} with {channels} channel{'s' * (channels > 1)}"
        )
    if labels.shape != (len(images),):
        raise DataError(f"{where} set has {len(images)} images but labels of shape {labels.shape}")
    if not len(labels):
        raise DataError(f"{where} set is empty")
    if labels.min() < 0 or labels.max() >= entry.num_classes:
        raise DataError(
            f"{where} labels go from {labels.min()} to {labels.max()}, "
            f"expected 0 to {entry.num_classes - 1}"
        )
    images_NCHW = np.array(images_NHWC.transpose(0, 3, 1, 2), order="C")  # an own, writable copy
    return torch.from_numpy(images_NCHW), torch.from_numpy(labels.astype(np.int64))


def _optional(values: npt.NDArray[np.int64] | None) -> Tensor | None:
    return None if values is None else torch.from_numpy(values.copy())
