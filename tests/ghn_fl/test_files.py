import resource
import signal
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


def test_others_may_read_it_as_any_file(tmp_path: Path) -> None:
    write_atomic(tmp_path / "ours.txt", "x")
    (tmp_path / "plain.txt").write_text("x")
    assert (tmp_path / "ours.txt").stat().st_mode == (tmp_path / "plain.txt").stat().st_mode


def test_what_cannot_be_written_leaves_the_old_file(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    write_atomic(file, "old")
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limit[1]))  # as if the disk were full
    try:
        with pytest.raises(GhnFlError, match=r"cannot write .*a\.txt: File too large"):
            write_atomic(file, "x" * 2000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, handler)
    assert file.read_text() == "old"
    assert [f.name for f in tmp_path.iterdir()] == ["a.txt"]
