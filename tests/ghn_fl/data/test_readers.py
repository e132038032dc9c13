"""The published formats, on tiny files: read right, or refused with the file's name."""

import gzip
import io
import struct
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ghn_fl.data.catalogue import CIFAR10, CIFAR100
from ghn_fl.data.readers import (
    read_cifar_archive,
    read_cifar_folder,
    read_idx,
    read_npz,
    read_split_npz,
    read_writers_npz,
)
from ghn_fl.errors import DataError

DIGITS = np.arange(2 * 3 * 4, dtype=np.uint8).reshape(2, 3, 4)


def idx_bytes(array: np.ndarray[Any, Any]) -> bytes:
    header = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return header + array.tobytes()


def record(labels: list[int], red: int, green: int, blue: int) -> bytes:
    return bytes(labels) + bytes([red]) * 1024 + bytes([green]) * 1024 + bytes([blue]) * 1024


# --- IDX ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gz"])
def test_idx(tmp_path: Path, pack: Any) -> None:
    path = tmp_path / ("x.gz" if pack is gzip.compress else "x")
    path.write_bytes(pack(idx_bytes(DIGITS)))
    assert np.array_equal(read_idx(path, 3), DIGITS)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "starts with , expected 00 00 08 03"),
        (
            b"\x00\x00\x08\x01" + bytes(20),
            "no IDX file of 3 dimensions: it starts with 00 00 08 01",
        ),
        (b"\x00\x00\x0d\x03" + bytes(20), "starts with 00 00 0d 03"),
        (idx_bytes(DIGITS)[:10], "is cut off: expected 12 bytes, got 6"),
        (idx_bytes(DIGITS)[:-1], "is cut off: expected 24 bytes, got 23"),
        (idx_bytes(DIGITS) + b"x", "longer than its header says"),
        (b"\x00\x00\x08\x03" + b"\xff" * 12, "its header is damaged"),
    ],
)
def test_a_damaged_idx_file_is_named(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "digits-ubyte"
    path.write_bytes(content)
    with pytest.raises(DataError, match=f"digits-ubyte.*{says}"):
        read_idx(path, 3)


@pytest.mark.parametrize(
    "content",
    [gzip.compress(idx_bytes(DIGITS))[:-12], b"no gzip at all", b"\x1f\x8b\x08\x00" + b"\xff" * 40],
    ids=["cut off", "text", "garbage"],
)
def test_a_damaged_gz_file_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "digits-ubyte.gz"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"digits-ubyte\.gz is cut off or damaged"):
        read_idx(path, 3)


def test_a_missing_or_unreadable_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="gone is missing"):
        read_idx(tmp_path / "gone", 3)
    with pytest.raises(DataError, match=f"cannot read {tmp_path}: Is a directory"):
        read_idx(tmp_path, 3)


# --- CIFAR --------------------------------------------------------------------------------------


def write_cifar10(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    for i in range(1, 6):
        content = record([i], 10 * i, 20, 30) + record([0], 1, 2, 3)
        (folder / f"data_batch_{i}.bin").write_bytes(content)
    (folder / "test_batch.bin").write_bytes(record([9], 7, 8, 9))


def test_cifar10(tmp_path: Path) -> None:
    write_cifar10(tmp_path)
    got = read_cifar_folder(tmp_path, CIFAR10)
    assert got.x_train.shape == (10, 32, 32, 3)
    assert got.y_train.tolist() == [1, 0, 2, 0, 3, 0, 4, 0, 5, 0]
    assert got.x_train[2, 5, 7].tolist() == [20, 20, 30]  # red, green, blue of one pixel
    assert got.y_test.tolist() == [9]
    assert got.x_test[0, 31, 31].tolist() == [7, 8, 9]


def test_cifar_rows_come_before_columns(tmp_path: Path) -> None:
    write_cifar10(tmp_path)
    pixels = np.zeros((3, 32, 32), dtype=np.uint8)
    pixels[1, 4, 9] = 200  # green, row 4, column 9
    (tmp_path / "test_batch.bin").write_bytes(b"\x02" + pixels.tobytes())
    got = read_cifar_folder(tmp_path, CIFAR10).x_test
    assert got[0, 4, 9].tolist() == [0, 200, 0]
    assert got.sum() == 200


def test_cifar100_takes_the_fine_label(tmp_path: Path) -> None:
    (tmp_path / "train.bin").write_bytes(record([3, 77], 1, 2, 3))
    (tmp_path / "test.bin").write_bytes(record([4, 99], 4, 5, 6))
    got = read_cifar_folder(tmp_path, CIFAR100)
    assert (got.y_train.tolist(), got.y_test.tolist()) == ([77], [99])
    assert got.x_test[0, 0, 0].tolist() == [4, 5, 6]


def packed(folder: Path, *, skip: str = "") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for file in sorted(folder.iterdir()):
            if file.name != skip:
                archive.add(file, f"cifar-10-batches-bin/{file.name}")
    return buffer.getvalue()


def test_cifar_archive(tmp_path: Path) -> None:
    write_cifar10(tmp_path / "x")
    path = tmp_path / "cifar-10-binary.tar.gz"
    path.write_bytes(packed(tmp_path / "x"))
    got, expected = read_cifar_archive(path, CIFAR10), read_cifar_folder(tmp_path / "x", CIFAR10)
    assert np.array_equal(got.x_train, expected.x_train)
    assert np.array_equal(got.y_train, expected.y_train)
    assert sorted(f.name for f in tmp_path.iterdir()) == ["cifar-10-binary.tar.gz", "x"]


def test_a_damaged_cifar_set_is_named(tmp_path: Path) -> None:
    write_cifar10(tmp_path / "x")
    path = tmp_path / "cifar-10-binary.tar.gz"
    whole = packed(tmp_path / "x")
    for content in (whole[: len(whole) // 2], b"<html>not found</html>", b""):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"cifar-10-binary\.tar\.gz is cut off or damaged"):
            read_cifar_archive(path, CIFAR10)
    path.write_bytes(packed(tmp_path / "x", skip="data_batch_3.bin"))
    with pytest.raises(DataError, match=r"tar\.gz lacks data_batch_3\.bin"):
        read_cifar_archive(path, CIFAR10)
    batch = tmp_path / "x" / "data_batch_2.bin"
    batch.write_bytes(batch.read_bytes()[:-1])
    with pytest.raises(DataError, match=r"data_batch_2\.bin is cut off .* 3073 bytes, got 6145"):
        read_cifar_folder(tmp_path / "x", CIFAR10)
    batch.unlink()
    with pytest.raises(DataError, match=r"data_batch_2\.bin is missing"):
        read_cifar_folder(tmp_path / "x", CIFAR10)


# --- NumPy archives -----------------------------------------------------------------------------


def split_arrays() -> dict[str, Any]:
    return {
        "x_train": DIGITS,
        "y_train": np.array([1, 0], np.uint8),
        "x_test": DIGITS[:1],
        "y_test": np.array([1], np.uint8),
    }


def test_split_npz(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "a.npz", **split_arrays(), class_names=np.array(["a", "b"]))
    got = read_split_npz(tmp_path / "a.npz")
    assert np.array_equal(got.x_train, DIGITS)
    assert got.y_test.tolist() == [1]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"x_train": DIGITS.astype(np.int32)}, "images must be uint8, got int32"),
        ({"y_train": np.array([0.5, 1.0])}, "y_train must be integers, got float64"),
        ({"y_train": np.array(["a", {}], dtype=object)}, "holds pickled objects, which could run"),
        ({"y_train": None, "x_test": None}, "lacks y_train, x_test; it holds x_train, y_test"),
    ],
)
def test_a_wrong_npz_is_refused(tmp_path: Path, change: dict[str, Any], says: str) -> None:
    arrays = {k: v for k, v in {**split_arrays(), **change}.items() if v is not None}
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(DataError, match=rf"a\.npz.*{says}"):
        read_split_npz(tmp_path / "a.npz")


def test_a_damaged_npz_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez_compressed(path, **split_arrays())
    whole = path.read_bytes()
    flipped = bytearray(whole)
    flipped[80:120] = bytes(40)  # inside the first array
    for content in (whole[: len(whole) // 2], whole[:3], b"", b"text", bytes(flipped)):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"a\.npz"):
            read_split_npz(path)
    with path.open("wb") as file:
        np.save(file, DIGITS)
    with pytest.raises(DataError, match=r"a\.npz is a single array"):
        read_npz(path, ("x",))


def test_writers_are_split_evenly_and_inverted(tmp_path: Path) -> None:
    x = np.full((15, 2, 2), 255, np.uint8)
    x[:, 0, 0] = np.arange(15)
    writers = np.array([7, 3, 7, 3, 7, 3, 7, 3, 7, 3, 7, 7, 7, 7, 7])
    np.savez(tmp_path / "a.npz", x=x, y=np.arange(15, dtype=np.uint8), client=writers)
    got = read_writers_npz(tmp_path / "a.npz")
    # writer 7 wrote 0 2 4 6 8 10 11 12 13 14: 8 and 14 are every fifth; writer 3's fifth is 9
    assert got.y_test.tolist() == [8, 9, 14]
    assert got.writers_test is not None
    assert got.writers_train is not None
    assert got.writers_test.tolist() == [7, 3, 7]
    assert got.writers_train.tolist() == [7, 3, 7, 3, 7, 3, 7, 3, 7, 7, 7, 7]
    assert got.x_test[:, 0, 0].tolist() == [247, 246, 241]
    assert got.x_test[:, 1, 1].tolist() == [0, 0, 0]
    np.savez(tmp_path / "b.npz", x=x, y=np.arange(14, dtype=np.uint8), client=writers)
    with pytest.raises(DataError, match=r"b\.npz: 15 images, 14 labels and 15 writers"):
        read_writers_npz(tmp_path / "b.npz")
