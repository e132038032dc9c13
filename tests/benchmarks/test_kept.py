"""Finished runs are packed and unpacked; what is there already stays as it is."""

from pathlib import Path

from benchmarks.kept import FILES, keep, restore
from tests.ghn_fl.report.examples import write_run


def test_there_and_back(tmp_path: Path) -> None:
    runs, archive, other = tmp_path / "runs", tmp_path / "results" / "a.tar.xz", tmp_path / "other"
    for name in ("recipfl-0", "local-0", "local-1"):
        write_run(runs / name)
    (runs / "local-1" / "summary.json").unlink()  # has not finished
    (runs / "local-0" / "checkpoint").mkdir()
    keep(runs, archive)
    first = archive.read_bytes()
    keep(runs, archive)
    assert archive.read_bytes() == first
    (other / "local-0").mkdir(parents=True)
    restore(archive, other)
    assert sorted(p.name for p in other.iterdir()) == ["local-0", "recipfl-0"]
    assert not list((other / "local-0").iterdir())
    for name in FILES:
        assert (other / "recipfl-0" / name).read_bytes() == (runs / "recipfl-0" / name).read_bytes()
    restore(tmp_path / "none.tar.xz", tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()
