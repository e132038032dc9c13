from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from ghn_fl.cli.report import report
from ghn_fl.errors import ReportError
from tests.ghn_fl.report.examples import write_run

app = typer.Typer()
app.command()(report)


def test_one_run_gets_its_report_and_the_closing_table(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", rounds=2)
    done = CliRunner().invoke(app, [str(folder)])
    assert done.exit_code == 0, done.output
    assert "recipfl on mnist, skew 2:6, seed 0" in done.output
    assert (folder / "report.html").is_file()


def test_several_runs_get_a_page_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folders = [str(write_run(tmp_path / n, method=n, rounds=2)) for n in ("fedavg", "local")]
    done = CliRunner().invoke(app, folders)
    assert done.exit_code == 0 and "| fedavg | 2 |" in done.output
    assert "written: compare.html" in done.output and Path("compare.html").is_file()
    done = CliRunner().invoke(app, [*folders, "--out", "both.html"])
    assert Path("both.html").read_text() == Path("compare.html").read_text()
    assert not (tmp_path / "local" / "report.html").exists()


def test_wrong_input(tmp_path: Path) -> None:
    assert CliRunner().invoke(app, []).exit_code == 2
    done = CliRunner().invoke(app, [str(tmp_path / "none")])
    assert isinstance(done.exception, ReportError)
