"""`ghnfl compare` and `ghnfl tune` as a person types them."""

from __future__ import annotations

import dataclasses
import tomllib
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from ghn_fl.cli.app import app
from ghn_fl.cli.grid import say_missing
from ghn_fl.engines import Outcome
from ghn_fl.errors import GhnFlError
from ghn_fl.simulation.config import RunConfig
from ghn_fl.simulation.grid import Cell
from tests.cli.typed import ghnfl

TINY = ("--dataset", "synthetic", "--skew", "1:6", "--rounds", "1", "--epochs", "1")


def test_a_grid_runs_keeps_what_is_done_and_reports_what_is_impossible(tmp_path: Path) -> None:
    methods = ("--methods", "allsmall,exclusivefl", "--out", "grid")
    # nobody can train a text model on images, but with AllSmall nobody has to
    words = (
        "compare",
        *TINY,
        *methods,
        "--seeds",
        "0",
        "--large",
        "lstm",
        "--set",
        "allsmall:lr=0.1",
    )
    done = ghnfl(tmp_path, *words)
    assert done.returncode == 0, done.stderr
    out = tmp_path / "grid"
    assert "2 of 2" in done.stdout and "| allsmall | 1 |" in done.stdout
    assert done.stderr.startswith("ghnfl: exclusivefl-0 refused: lstm takes num_classes")
    assert len(done.stderr.splitlines()) == 1
    assert (out / "compare.csv").read_text().startswith("method,dataset,skew,rounds,seed,")
    assert "lstm takes" in (out / "compare.html").read_text()
    assert not (out / "exclusivefl-0").exists()
    before = (out / "allsmall-0" / "summary.json").stat().st_mtime_ns
    again = ghnfl(tmp_path, *words, "--quiet")
    assert again.returncode == 0 and again.stdout == ""
    assert (out / "allsmall-0" / "summary.json").stat().st_mtime_ns == before
    other = ghnfl(tmp_path, *words, "--rounds", "2")
    assert other.returncode == 2
    assert other.stderr.startswith("ghnfl: grid holds a grid of other settings: allsmall-0 differs")
    assert "rounds (1 there, 2 now)" in other.stderr


def test_one_reason_of_several_runs_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    config = RunConfig(method="fedavg")
    ends = [
        Outcome(cell=Cell(name=f"fedavg-{seed}", config=config), status="refused", reason=reason)
        for seed, reason in enumerate(("two models", "two models", "no data"))
    ]
    say_missing([*ends, Outcome(cell=Cell(name="fedavg-3", config=config), status="done")])
    assert capsys.readouterr().err.splitlines() == [
        "ghnfl: fedavg-0, fedavg-1 refused: two models",
        "ghnfl: fedavg-2 refused: no data",
    ]


def test_tuning_chooses_and_the_comparison_takes_it(tmp_path: Path) -> None:
    words = [*TINY, "--methods", "allsmall", "--out", str(tmp_path / "tune")]
    done = CliRunner().invoke(app, ["tune", *words, "--grid", "lr=0.001,0.2", "--workers", "2"])
    assert done.exit_code == 0, done.output
    text = (tmp_path / "tune" / "tuned.toml").read_text()
    (chosen,) = [table["lr"] for table in tomllib.loads(text).values()]
    assert chosen in (0.001, 0.2) and "validation 0.2" in text
    table = (tmp_path / "tune" / "tune.md").read_text()
    assert "| allsmall | lr 0.001 |" in table and "| allsmall | lr 0.2 |" in table
    words[-1] = str(tmp_path / "compare")
    tuned = ["--tuned", str(tmp_path / "tune" / "tuned.toml")]
    done = CliRunner().invoke(app, ["compare", *words, *tuned, "--seeds", "0"])
    assert done.exit_code == 0, done.output
    assert f"| lr | {chosen} |" in (tmp_path / "compare" / "compare.md").read_text()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("compare --methods recipf", "did you mean 'recipfl'"),
        ("compare --methods ,", "one method or more"),
        ("compare --methods allsmall --seeds 1,1", "seeds must differ, got 1 twice"),
        ("compare --methods allsmall --against recipfl", "against must be one of the methods"),
        ("compare --methods allsmall --set lr=3", "set takes METHOD:NAME=VALUE"),
        ("compare --methods allsmall --set allsmall:lr=-3", "lr must be above 0"),
        ("compare --methods allsmall --tuned none.toml", "cannot read none.toml"),
        ("compare --methods allsmall --skew 2", "skew must be S:W"),
        ("tune --methods allsmall --grid lr", "expected METHOD:NAME=VALUE"),
        ("tune --methods allsmall --validation 0", "validation must be above 0"),
    ],
)
def test_wrong_input_is_one_line_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, words.split())
    assert isinstance(done.exception, GhnFlError), done.output
    assert says in str(done.exception) and "\n" not in str(done.exception)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["compare", "tune"])
def test_every_setting_that_a_grid_shares_is_a_flag(name: str) -> None:
    command = typer.main.get_command(app).commands[name]  # type: ignore[attr-defined]
    flags = {parameter.name for parameter in command.params}
    settings = {f.name for f in dataclasses.fields(RunConfig)} - {"options", "method", "seed"}
    assert settings | {"methods", "seeds", "preset", "config", "data_dir"} <= flags
    assert not {"method", "seed", "resume", "given"} & flags
