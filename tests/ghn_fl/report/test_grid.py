"""The tables, the page and the pictures of a grid of made-up runs."""

import csv
import dataclasses
import io
import json
import math
from pathlib import Path

import pytest

from ghn_fl.report.grid import (
    Grid,
    Missing,
    accuracy_caption,
    accuracy_table,
    comparisons,
    cost_table,
    csv_text,
    device_pairs,
    difference_table,
    grid_html,
    grid_markdown,
    missing_table,
    read_grid,
    settings_tables,
    write_grid,
)
from ghn_fl.report.grid_plots import courses_figure, tiers_figure
from tests.ghn_fl.report.examples import change, change_round, write_run
from tests.ghn_fl.report.test_html import check_page

REFUSED = Missing(method="fedavg", seed=0, status="refused", reason="needs <one> model")


def write(folder: Path, method: str, seed: int, gain: float = 0.0, **more: int) -> Path:
    tiers = more or {"strong": 2, "weak": 5}
    return write_run(folder / f"{method}-{seed}", method=method, seed=seed, gain=gain, tiers=tiers)


@pytest.fixture
def grid(tmp_path: Path) -> Grid:
    gains = {"allsmall": -0.1, "recipfl": 0.0, "exclusivefl": -0.05}
    folders = [write(tmp_path, m, seed, gain) for seed in (0, 1) for m, gain in gains.items()]
    change(folders[0] / "config.json", "config", "options", to={"mu": 0.1})
    return read_grid(folders, [REFUSED], "recipfl")


def test_rows_of_the_csv_are_runs_and_columns_those_of_the_summary(grid: Grid) -> None:
    text = csv_text([run.folder for run in grid.all_runs])
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [(r["method"], r["dataset"], r["seed"]) for r in rows][:3] == [
        ("allsmall", "mnist", "0"),
        ("allsmall", "mnist", "1"),
        ("recipfl", "mnist", "0"),
    ]
    summary = json.loads((grid.runs["allsmall"][0].folder / "summary.json").read_text())
    plain = {name for name, value in summary.items() if not isinstance(value, dict)}
    assert set(rows[0]) == plain
    for name in plain:
        assert rows[0][name] == str(summary[name])


def test_other_tiers_and_phases_have_columns_with_dots(tmp_path: Path) -> None:
    folder = write(tmp_path, "recipfl", 0, strong=1, gateway=2, weak=3)
    change(folder / "summary.json", "seconds_by_phase", to={"train": 1.5})
    (row,) = csv.DictReader(io.StringIO(csv_text([folder])))
    assert row["seconds_by_phase.train"] == "1.5"
    assert float(row["tiers.gateway.accuracy"]) > 0.9 and "tiers.weak.accuracy" not in row


def test_means_and_spread_over_the_seeds(grid: Grid) -> None:
    for seed, score in ((0, 0.96), (1, 0.98)):
        file = grid.runs["recipfl"][seed].folder / "summary.json"
        change(file, "tiers", "strong", "accuracy", to=score)
    again = read_grid([run.folder for run in grid.all_runs], [], "recipfl")
    table = accuracy_table(again)
    assert table.header == (
        "method", "seeds", "strong", "strong, whole test set", "weak", "weak, whole test set",
    )  # fmt: skip
    # 0.97, and sqrt(((0.01)^2 + (0.01)^2) / 1) = 0.01414
    assert table.rows[1][:3] == ("recipfl", "2", "97.00 ± 1.41 %")


def test_pairs_are_devices_of_the_final_round_with_the_same_seed(tmp_path: Path) -> None:
    folders = {m: write(tmp_path, m, 0) for m in ("recipfl", "allsmall")}
    lone = write(tmp_path, "allsmall", 1)  # a seed that the other has not
    for method, values in (("recipfl", (0.5, 0.6)), ("allsmall", (0.55, 0.5))):
        for place, value in enumerate(values):
            change_round(folders[method], 10, "clients", place, "accuracy_full", to=value)
    grid = read_grid([*folders.values(), lone], [], "recipfl")
    one, other = grid.runs["recipfl"], grid.runs["allsmall"]
    assert device_pairs(one, other, "strong") == {0: [(0.5, 0.55), (0.6, 0.5)]}
    found = comparisons(grid, "strong")["allsmall"]
    assert found is not None and found.over_seeds and found.p is None
    assert found.difference == pytest.approx((0.05 - 0.1) / 2)
    # where the whole test set was not looked at, the device's own samples count
    change_round(folders["recipfl"], 10, "clients", 0, "accuracy_full", to=None)
    change_round(folders["recipfl"], 10, "clients", 0, "accuracy", to=0.25)
    grid = read_grid([*folders.values()], [], "recipfl")
    assert device_pairs(grid.runs["recipfl"], other, "strong")[0][0] == (0.25, 0.55)


def test_differences_carry_their_pairs_and_corrected_p(grid: Grid) -> None:
    table = difference_table(grid)
    assert [row[0] for row in table.rows] == ["allsmall", "exclusivefl"]
    cells = dict(zip(table.header, table.rows[0], strict=True))
    assert cells["strong, pairs"] == "2 seeds" and cells["weak, pairs"] == "10"
    assert float(cells["weak"]) == pytest.approx(-10, abs=1)
    # all ten changes of one sign: 2 / 2^10, twice for two methods
    assert cells["weak, p"] == f"{2 * 2 / 2**10:.3f}"
    without = Grid(runs=grid.runs, missing=(), against="fedavg")
    assert difference_table(without).rows == ()


def test_costs_missing_runs_and_settings(grid: Grid) -> None:
    costs = dict(zip(cost_table(grid).header, cost_table(grid).rows[0], strict=True))
    assert costs["std of losses"] == "0.050" and costs["peak memory"] == "812 MB"
    run = grid.runs["allsmall"][0]
    server = [sum(r.seconds[p] for p in ("generate", "update")) for r in run.rounds]
    other = [
        sum(r.seconds[p] for p in ("generate", "update")) for r in grid.runs["allsmall"][1].rounds
    ]
    assert costs["server"] == f"{(math.fsum(server) + math.fsum(other)) / 2:.3g} s"
    assert missing_table(grid).rows == (("fedavg", "0", "refused", "needs <one> model"),)
    twice = (REFUSED, dataclasses.replace(REFUSED, seed=1))
    missing = missing_table(dataclasses.replace(grid, missing=twice))
    assert missing.rows == (("fedavg", "0, 1", "refused", "needs <one> model"),)
    same, own = settings_tables(grid)
    assert ("skew", "2:5") in same.rows and own.rows == (("allsmall", "mu 0.1"),)


def test_page_has_no_address_and_says_what_is_missing(grid: Grid, tmp_path: Path) -> None:
    written = {path.name for path in write_grid(grid, tmp_path)}
    assert written == {
        "compare.csv", "compare.md", "compare.html",
        "tiers.svg", "tiers.pdf", "rounds.svg", "rounds.pdf",
    }  # fmt: skip
    text = (tmp_path / "compare.html").read_text()
    page = check_page(text)
    assert page.tags.count("svg") == 2
    assert page.headings[0].startswith("recipfl is best for strong devices")
    assert "needs &lt;one&gt; model" in text and "<strong>" in text
    assert "over (seed, device) pairs" in text and "Holm" in text
    assert (tmp_path / "tiers.pdf").read_bytes().startswith(b"%PDF")
    assert "| fedavg | 0 | refused | needs <one> model |" in (tmp_path / "compare.md").read_text()
    assert grid_html(grid) == text


def test_who_has_more_than_the_others_is_named(grid: Grid, tmp_path: Path) -> None:
    assert "public" not in accuracy_caption(grid)
    found = read_grid([write(tmp_path, m, 0) for m in ("fedmd", "recipfl")], [], "recipfl")
    caption = accuracy_caption(found)
    assert "besides, from before round 1 on: fedmd." in caption
    assert caption.endswith("A device that trains two models answers with both: recipfl.")
    run = found.runs["recipfl"][0]
    alone = dataclasses.replace(run, settings=run.settings | {"options": {"second": 0.0}})
    assert "answers with both" not in accuracy_caption(
        dataclasses.replace(found, runs={"recipfl": {0: alone}})
    )


def test_how_devices_are_tested_is_told(grid: Grid) -> None:
    run = grid.all_runs[0]
    told = [
        dataclasses.replace(run, settings=run.settings | {"finetune": n}).tested for n in (0, 1, 2)
    ]
    assert told[0].startswith(
        "every device, with the model that it is served, is tested on its own"
    )
    assert "for one epoch on a copy" in told[1] and "for 2 epochs on a copy" in told[2]
    held = dataclasses.replace(run, settings=run.settings | {"validation": 0.2})
    assert held.tested.endswith("held-out training samples")


def test_grids_with_one_tier_or_without_a_run(tmp_path: Path) -> None:
    lone = read_grid([write(tmp_path, "recipfl", 0, weak=3)], [], "recipfl")
    assert check_page(grid_html(lone)).tags.count("svg") == 1  # no tier against another
    empty = Grid(runs={}, missing=(REFUSED,), against="recipfl")
    headings = ["No run has a result", "Runs without a result"]
    assert check_page(grid_html(empty)).headings == headings
    assert "| fedavg |" in grid_markdown(empty)
    assert {p.name for p in write_grid(empty, tmp_path)} == {
        "compare.csv", "compare.md", "compare.html",
    }  # fmt: skip


def test_pictures_show_seeds_means_and_bands(grid: Grid) -> None:
    panels = tiers_figure(grid.runs).axes
    assert len(panels) == 2
    for axes in panels:
        seeds = [len(c.get_offsets()) for c in axes.collections if hasattr(c, "get_offsets")]
        assert seeds.count(2) >= 3 and len(axes.texts) == 3
    strong, weak = courses_figure(grid.runs).axes
    assert len(strong.lines) == len(weak.lines) == 3
    assert len(strong.collections) == 3
    values = [r.rounds[-1].tiers["weak"].accuracy or 0.0 for r in grid.runs["recipfl"].values()]
    assert weak.lines[1].get_ydata()[-1] == pytest.approx(sum(values) / 2)


def test_labels_of_the_tier_picture_lie_apart(tmp_path: Path) -> None:
    names = [f"method{i}" for i in range(8)]
    folders = [write(tmp_path, m, 0, gain=-0.004 * i) for i, m in enumerate(names)]
    figure = tiers_figure(read_grid(folders, [], "method0").runs)
    figure.draw_without_rendering()
    for axes in figure.axes:
        boxes = [text.get_window_extent() for text in axes.texts]
        assert len(boxes) == 8
        touching = [
            (i, j)
            for i in range(8)
            for j in range(i)
            if boxes[i].shrunk(0.9, 0.7).overlaps(boxes[j])
        ]
        assert not touching
