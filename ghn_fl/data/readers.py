"""Image sets from the files they are published in; nothing here ever unpickles.

Legend: N samples, C channels, H rows, W columns.
"""

from __future__ import annotations

import gzip
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from ghn_fl.errors import DataError

Bytes: TypeAlias = npt.NDArray[np.uint8]

IDX_FILES = {
    "x_train": "train-images-idx3-ubyte",
    "y_train": "train-labels-idx1-ubyte",
    "x_test": "t10k-images-idx3-ubyte",
    "y_test": "t10k-labels-idx1-ubyte",
}
IDX_LIMIT = 1 << 31  # bytes that a header may ask for


@dataclass(frozen=True, kw_only=True)
class Arrays:
    """What the files of a set hold: images as (N, H, W) or (N, H, W, C), labels as (N,)."""

    x_train: Bytes
    y_train: npt.NDArray[np.integer]
    x_test: Bytes
    y_test: npt.NDArray[np.integer]
    writers_train: npt.NDArray[np.int64] | None = None
    writers_test: npt.NDArray[np.int64] | None = None


def read_npz(path: Path, keys: Sequence[str]) -> dict[str, npt.NDArray[np.integer]]:
    """The arrays `keys` of a NumPy archive; a missing, pickled or non-integer one is refused."""
    with _naming(path):
        archive = np.load(path, allow_pickle=False)
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise DataError(f"{path} is a single array, expected an .npz with {', '.join(keys)}")
        with archive:
            missing = [key for key in keys if key not in archive.files]
            if missing:
                held = ", ".join(archive.files) or "nothing"
                raise DataError(f"{path} lacks {', '.join(missing)}; it holds {held}")
            arrays = {key: archive[key] for key in keys}
    for key, array in arrays.items():
        if array.dtype.kind not in "ui":
            raise DataError(f"{path}: {key} must be integers, got {array.dtype}")
    return arrays


def read_split_npz(path: Path) -> Arrays:
    """The set in an archive with the keys x_train, y_train, x_test and y_test."""
    arrays = read_npz(path, ("x_train", "y_train", "x_test", "y_test"))
    return Arrays(
        x_train=_pixels(path, arrays["x_train"]),
        y_train=arrays["y_train"],
        x_test=_pixels(path, arrays["x_test"]),
        y_test=arrays["y_test"],
    )


def read_writers_npz(path: Path) -> Arrays:
    """The set in an archive with the keys x, y and client: every fifth image of a writer tests.

    The pages are black on white; the images come back white on black, as MNIST's.
    """
    arrays = read_npz(path, ("x", "y", "client"))
    x, y, writers = 255 - _pixels(path, arrays["x"]), arrays["y"], arrays["client"].astype(np.int64)
    if not len(x) == len(y) == len(writers):
        raise DataError(f"{path}: {len(x)} images, {len(y)} labels and {len(writers)} writers")
    test = np.zeros(len(y), dtype=bool)
    for writer in np.unique(writers):
        test[np.flatnonzero(writers == writer)[4::5]] = True
    return Arrays(
        x_train=x[~test],
        y_train=y[~test],
        x_test=x[test],
        y_test=y[test],
        writers_train=writers[~test],
        writers_test=writers[test],
    )


def read_idx_set(paths: Mapping[str, Path]) -> Arrays:
    """The set in MNIST's four files, gzipped or not; `paths` has the keys of IDX_FILES."""
    return Arrays(
        x_train=read_idx(paths["x_train"], 3),
        y_train=read_idx(paths["y_train"], 1),
        x_test=read_idx(paths["x_test"], 3),
        y_test=read_idx(paths["y_test"], 1),
    )


def read_idx(path: Path, dims: int) -> Bytes:
    """The bytes of an IDX file of `dims` dimensions.

    The header is big-endian: 0, 0, 8 (unsigned bytes), the number of dimensions, their sizes.
    """
    with _naming(path), _open(path) as file:
        magic = file.read(4)
        if magic != bytes([0, 0, 8, dims]):
            raise DataError(
                f"{path} is no IDX file of {dims} dimensions: it starts with {magic.hex(' ')}, "
                f"expected 00 00 08 {dims:02x}"
            )
        shape = struct.unpack(f">{dims}I", _exactly(file, 4 * dims, path))
        size = int(np.prod(shape, dtype=np.float64))
        if size > IDX_LIMIT:
            raise DataError(f"{path} claims to hold {size} bytes: its header is damaged")
        content = _exactly(file, size, path)
        if file.read(1):
            raise DataError(f"{path} is longer than its header says: expected {size} bytes of data")
    return np.frombuffer(content, dtype=np.uint8).reshape(shape)


@dataclass(frozen=True, kw_only=True)
class CifarLayout:
    """Where CIFAR's binary version keeps what: files of records of label bytes and 3072 pixels."""

    folder: str
    train: tuple[str, ...]
    test: str
    labels: int  # label bytes of a record; the last one is the class

    @property
    def files(self) -> tuple[str, ...]:
        return (*self.train, self.test)


def read_cifar_folder(folder: Path, layout: CifarLayout) -> Arrays:
    """The set in a folder with the files of CIFAR's binary version."""
    contents = {}
    for name in layout.files:
        with _naming(folder / name):
            contents[name] = (folder / name).read_bytes()
    return _cifar(contents, layout, folder)


def read_cifar_archive(path: Path, layout: CifarLayout) -> Arrays:
    """The set in CIFAR's binary .tar.gz, read in place: nothing is unpacked onto the disk."""
    contents = {}
    with _naming(path), tarfile.open(path, "r:gz") as archive:
        for member in archive:  # in the archive's order: going back would decompress it again
            name = member.name.rsplit("/", 1)[-1]
            file = archive.extractfile(member) if name in layout.files else None
            if file is not None:
                contents[name] = file.read()
    missing = [name for name in layout.files if name not in contents]
    if missing:
        raise DataError(f"{path} lacks {', '.join(missing)}")
    return _cifar(contents, layout, path)


def _cifar(contents: Mapping[str, bytes], layout: CifarLayout, home: Path) -> Arrays:
    parts = [_records(contents[name], layout.labels, home / name) for name in layout.train]
    x_test, y_test = _records(contents[layout.test], layout.labels, home / layout.test)
    return Arrays(
        x_train=np.concatenate([x for x, _ in parts]),
        y_train=np.concatenate([y for _, y in parts]),
        x_test=x_test,
        y_test=y_test,
    )


def _records(content: bytes, labels: int, path: Path) -> tuple[Bytes, Bytes]:
    """Images as (N, 32, 32, 3) and labels of a file of CIFAR records."""
    size = labels + 3 * 32 * 32
    if not content or len(content) % size:
        raise DataError(
            f"{path} is cut off or none of CIFAR's binary files: expected records of {size} bytes, "
            f"got {len(content)} bytes"
        )
    records = np.frombuffer(content, dtype=np.uint8).reshape(-1, size)
    images_NCHW = records[:, labels:].reshape(-1, 3, 32, 32)
    return images_NCHW.transpose(0, 2, 3, 1), records[:, labels - 1]


def _open(path: Path) -> IO[bytes]:
    return cast(IO[bytes], gzip.open(path)) if path.suffix == ".gz" else path.open("rb")


def _exactly(file: IO[bytes], size: int, path: Path) -> bytes:
    content = file.read(size)
    if len(content) < size:
        raise DataError(f"{path} is cut off: expected {size} bytes, got {len(content)}")
    return content


def _pixels(path: Path, images: npt.NDArray[np.integer]) -> Bytes:
    if images.dtype != np.uint8:
        raise DataError(f"{path}: images must be uint8, got {images.dtype}")
    return images.astype(np.uint8, copy=False)


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Turns what the libraries raise on a damaged file into a DataError that names it."""
    try:
        yield
    except DataError:
        raise
    except FileNotFoundError as err:
        raise DataError(f"{path} is missing") from err
    except (EOFError, zlib.error, zipfile.BadZipFile, tarfile.TarError, gzip.BadGzipFile) as err:
        raise DataError(f"{path} is cut off or damaged: {err}") from err
    except (ValueError, NotImplementedError, MemoryError) as err:
        if "pickle" in str(err):
            text = "holds pickled objects, which could run code: save plain integer arrays instead"
            raise DataError(f"{path} {text}") from err
        raise DataError(f"{path} cannot be read: {err}") from err
    except OSError as err:
        raise DataError(f"cannot read {path}: {err.strerror or err}") from err
