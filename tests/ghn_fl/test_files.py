from pathlib import Path

import pytest

from ghn_fl.errors import GhnFlError
from ghn_fl.files import write_atomic


def test_replaces_the_whole_file_and_leaves_nothing_behind(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    write_atomic(file, "old")
    write_atomic(file, b"new")
    assert file.read_bytes() == b"new"
    assert [f.name for f in tmp_path.iterdir()] == ["a.txt"]


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(GhnFlError, match=r"cannot write .*missing.*: No such file"):
        write_atomic(tmp_path / "missing" / "a.txt", "x")


def test_a_full_disk_keeps_the_old_file() -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("no /dev/full here")
    with pytest.raises(GhnFlError, match="cannot write"):
        write_atomic("/proc/ghnfl.txt", "x")
