"""The benchmark of devices that change: its runs exist, and it can tell their results."""

import doctest
from pathlib import Path

import pytest

from benchmarks import elastic
from benchmarks.experiments import by_case, cells_of
from ghn_fl import run
from ghn_fl.simulation.elastic import changes_of
from ghn_fl.simulation.fleet import tiers_of

TINY = {"dataset": "synthetic", "skew": "1:6", "rounds": 8, "sample": 4, "epochs": 1}


@pytest.mark.parametrize("name", elastic.BASES)
def test_a_third_of_the_weak_devices_change_at_half_of_the_run(name: str, tmp_path: Path) -> None:
    cases = elastic.cases_of(elastic.BASES[name], tmp_path, list(elastic.CHANGES))
    assert len(cases) == 9
    for cell in cells_of(cases, (0,)):
        (change,) = changes_of(cell.config, tiers_of(cell.config, 1))
        early = elastic.EARLY in cell.name
        assert change.round == (2 if early else cell.config.rounds // 2 + 1)
        assert round(100 * change.part) == 33 and str(change.model) in cell.name


def test_it_tells_what_changes_cost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elastic, "FOLDER", tmp_path)  # where its picture goes
    cases = [
        c
        for c in elastic.cases_of(TINY, tmp_path, list(elastic.CHANGES))
        if "exclusivefl" in c.name
    ]
    found = {}
    for cell in cells_of(cases, (0,)):
        summary = run(cell.config, out=tmp_path / cell.name, workers=1).summary
        found[cell.name] = summary | {"folder": str(tmp_path / cell.name)}
    text = elastic.text("tiny", by_case(cases, (0,), found))
    rows = [line for line in text.splitlines() if "exclusivefl" in line]
    assert len(rows) == 3 * 3 and "nan" not in text
    assert "8 rounds, 1:6; before round 5" in text
    assert "lenet5-w0.5" in (tmp_path / "elastic_tiny.svg").read_text()


def test_never_back() -> None:
    assert elastic.recovery([0.6, 0.5, 0.4, 0.3, 0.4], 4).rounds is None


def test_examples() -> None:
    assert doctest.testmod(elastic).failed == 0
