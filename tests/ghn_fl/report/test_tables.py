import io
from pathlib import Path

import pytest
from rich.console import Console

from ghn_fl.report import closing_table, read_run
from ghn_fl.report.tables import (
    comparison_table,
    differences,
    facts,
    markdown,
    rejection_table,
    run_labels,
    tier_table,
)
from tests.ghn_fl.report.examples import change, change_round, write_run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = write_run(tmp_path / "run", tiers={"strong": 2, "weak": 3})
    summary = folder / "summary.json"
    change(summary, "tiers", "strong", to={"accuracy": 0.99041, "accuracy_full": 0.9881, "std": 0})
    change(summary, "tiers", "weak", to={"accuracy": 0.98406, "accuracy_full": None})
    change(summary, "bytes_down", to=1_250_000_000)
    change(summary, "seconds", to=619.4)
    change(summary, "weak_std", to=0.0123)
    return folder


def test_tiers_are_given_to_two_digits(folder: Path) -> None:
    assert tier_table(read_run(folder)).rows == (
        ("strong", "lenet5, lenet5-d1", "2", "99.04 %", "98.81 %", "0.00 %"),
        ("weak", "lenet5-d1", "3", "98.41 %", "–", "1.23 %"),
    )


def test_facts(folder: Path) -> None:
    found = dict(facts(read_run(folder)))
    assert found["bytes to devices"] == "1.25 GB"
    assert found["time"] == "10 min 19 s"
    assert found["peak memory"] == "812 MB"
    assert found["rejected updates"] == "2"
    assert found["rounds"] == "10"


def test_closing_table_in_the_terminal(folder: Path) -> None:
    change(folder / "config.json", "config", "method", to="[bold]x")
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(closing_table(read_run(folder)))
    text = console.export_text()
    assert "[bold]x on mnist, skew 2:3, seed 0" in text
    assert "99.04 %" in text and "time 10 min 19 s" in text


def test_markdown_escapes_bars(folder: Path) -> None:
    runs = [read_run(folder)]
    lines = markdown(comparison_table(runs, ["a|b"])).splitlines()
    assert lines[0].startswith("| run | rounds | strong | strong, whole test set | weak |")
    assert lines[1].startswith("|---|---:|")
    assert lines[2].startswith("| a\\|b | 10 | 99.04 % | 98.81 % | 98.41 % | – | 1.25 GB |")


def test_rejections_by_reason(folder: Path) -> None:
    rejected = [{"client": c, "reason": "not finite"} for c in (1, 2)]
    change_round(folder, 1, "rejected", to=rejected)
    change_round(folder, 2, "rejected", to=rejected[:1])
    table = rejection_table(read_run(folder))
    assert table.rows[0] == ("not finite", "3", "2")
    assert table.rows[1][:2] == ("dropped out", "2")


def test_labels_tell_runs_apart(folder: Path) -> None:
    one = read_run(folder)
    seed = read_run(write_run(folder.parent / "seed", seed=1))
    small = read_run(write_run(folder.parent / "small", method="allsmall"))
    again = read_run(write_run(folder.parent / "again"))
    assert run_labels([one, small]) == ["recipfl", "allsmall"]
    assert run_labels([one, seed]) == ["recipfl, seed 0", "recipfl, seed 1"]
    assert run_labels([one, again])[1] == f"recipfl, {folder.parent / 'again'}"
    assert differences([one, seed], ["a", "b"]).rows == (
        ("skew", "2:3", "2:6"),
        ("seed", "0", "1"),
    )
