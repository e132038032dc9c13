"""Which settings are chosen, and how they are written down."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from ghn_fl.report.read import Run, read_run
from ghn_fl.report.tune import (
    Trial,
    chosen,
    edge_notes,
    run_score,
    tune_markdown,
    tune_table,
    tuned_toml,
    write_tuned,
)
from tests.ghn_fl.report.examples import change, write_run


def run_with(folder: Path, strong: float | None, weak: float) -> Run:
    write_run(folder, tiers={"strong": 1, "weak": 4} if strong is not None else {"weak": 4})
    change(folder / "summary.json", "tiers", "weak", "accuracy", to=weak)
    if strong is not None:
        change(folder / "summary.json", "tiers", "strong", "accuracy", to=strong)
    return read_run(folder)


def trial(method: str, words: dict[str, Any], runs: list[Run], reasons: tuple[str, ...] = ()):  # type: ignore[no-untyped-def]
    options = {k: v for k, v in words.items() if k != "lr"}
    settings = {k: v for k, v in words.items() if k == "lr"}
    if options:
        settings["options"] = options
    return Trial(
        method=method, settings=settings, words=words, runs=tuple(runs), reasons=tuple(reasons)
    )


def test_tiers_count_alike_and_a_missing_one_is_left_out(tmp_path: Path) -> None:
    assert run_score(run_with(tmp_path / "a", 0.9, 0.5)) == pytest.approx(0.7)  # 1 and 4 devices
    assert run_score(run_with(tmp_path / "b", None, 0.5)) == pytest.approx(0.5)


def test_the_best_mean_over_seeds_is_chosen(tmp_path: Path) -> None:
    low = run_with(tmp_path / "low", 0.6, 0.4)  # 0.5
    high = run_with(tmp_path / "high", 0.9, 0.7)  # 0.8
    mid = run_with(tmp_path / "mid", 0.7, 0.7)  # 0.7
    trials = [
        trial("recipfl", {"lr": 0.003}, [low, high]),  # 0.65
        trial("recipfl", {"lr": 0.01}, [mid, mid]),  # 0.7
        trial("recipfl", {"lr": 0.03}, [high], ("not finite",)),  # a seed is missing
        trial("fedprox", {"lr": 0.01, "mu.x": 0.1, "kind": 'a "b"'}, [mid]),
        trial("fedavg", {"lr": 0.01}, [], ("needs one model",)),
    ]
    best = chosen(trials)
    assert {m: t.words["lr"] for m, t in best.items()} == {"recipfl": 0.01, "fedprox": 0.01}
    text = tuned_toml(trials, "mnist")
    assert tomllib.loads(text) == {
        "recipfl": {"lr": 0.01},
        "fedprox": {"lr": 0.01, "options": {"mu.x": 0.1, "kind": 'a "b"'}},
    }
    assert "# fedavg: nothing to choose from; needs one model" in text
    assert "# score 0.700000" in text
    rows = tune_table(trials).rows
    assert rows[1] == ("recipfl", "lr 0.01", "chosen", "70.00 %", "70.00 %", "70.00 %")
    assert rows[2][2] == "not finite" and rows[2][-1] == "–"
    assert rows[4][3:] == ("–", "–", "–")
    assert edge_notes(trials) == []
    assert edge_notes(trials[:2]) == ["recipfl: lr 0.01 is the largest tried."]
    assert "largest tried" in tune_markdown(trials[:2], "mnist")
    assert [p.name for p in write_tuned(trials, "mnist", tmp_path)] == ["tuned.toml", "tune.md"]
