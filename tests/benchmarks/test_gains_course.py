"""The benchmark of how fast methods learn: its runs are the panel's, and it can tell of them."""

from pathlib import Path

import pytest

from benchmarks import gains, gains_course
from ghn_fl import RunConfig, run
from ghn_fl.report.read import Run, read_run


def test_its_runs_are_the_panels_evaluated_in_every_round(tmp_path: Path) -> None:
    cells = gains_course.cells_of("c", tmp_path, (0, 1))
    assert [cell.name for cell in cells] == ["recipfl-0", "allsmall-0", "recipfl-1", "allsmall-1"]
    assert {cell.config.eval_every for cell in cells} == {1}
    panel = gains.evaluation_cells("c", tmp_path, (0,), gains.rates_of("c"))
    rates = {cell.config.method: cell.config.lr for cell in panel}
    assert all(cell.config.lr == rates[cell.config.method] for cell in cells)


def test_it_tells_who_is_ahead_round_by_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gains_course, "FOLDER", tmp_path)  # where its picture goes

    def one(method: str) -> list[Run]:
        config = RunConfig(
            dataset="synthetic", method=method, skew="1:4", rounds=3, epochs=1, eval_every=1
        )
        run(config, out=tmp_path / method, workers=1)
        return [read_run(tmp_path / method)]

    ours, other = one("exclusivefl"), one("allsmall")
    lines = gains_course.text("c", {"recipfl": ours, "allsmall": other}).splitlines()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if "| " in line]
    assert [row[0] for row in rows[-3:]] == ["1", "2", "3"]
    weak = [100 * (r.tiers["weak"].accuracy or 0) for r in (ours[0].rounds[2], other[0].rounds[2])]
    shown = [f"{weak[0]:.2f}", f"{weak[1]:.2f}", f"{weak[0] - weak[1]:+.2f}"]
    assert rows[-1][5:] == [*shown, str(int(weak[0] > weak[1]))]
    assert "allsmall" in (tmp_path / "gains_course_c.svg").read_text()
