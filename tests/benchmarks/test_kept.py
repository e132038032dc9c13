"""Finished runs are packed and unpacked; what is there already stays as it is."""

import json
import tarfile
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


def test_paths_below_the_runs_folder_are_those_of_where_they_are_unpacked(tmp_path: Path) -> None:
    runs, archive, other = tmp_path / "runs", tmp_path / "a.tar.xz", tmp_path / "other"
    write_run(runs / "recipfl-0")
    config = runs / "recipfl-0" / "config.json"
    config.write_text(json.dumps({"fleet": f"{runs}/fleet.toml", "data_dir": "runs/data"}))
    keep(runs, archive)
    with tarfile.open(archive) as tar:
        assert all(str(tmp_path) not in tar.extractfile(f).read().decode() for f in tar)
    restore(archive, other)
    known = json.loads((other / "recipfl-0" / "config.json").read_text())
    assert known == {"fleet": f"{other}/fleet.toml", "data_dir": "runs/data"}
