"""`ghnfl bound` and `ghnfl datasets`, as functions of an app."""

from pathlib import Path

import pytest
import typer
from click.testing import Result
from typer.testing import CliRunner

from ghn_fl.cli.bound import bound
from ghn_fl.cli.datasets import datasets
from ghn_fl.errors import GhnFlError

app = typer.Typer()
app.command()(bound)
app.command()(datasets)


def run(*words: str, env: dict[str, str] | None = None) -> Result:
    return CliRunner().invoke(app, words, env={"COLUMNS": "200", **(env or {})})


def test_bound_says_what_both_kinds_of_client_need() -> None:
    words = ["--parameters", "1000", "--epsilon", "0.1", "--weak", "100"]
    done = run("bound", *words, "--strong", "2", "--ratio", "50")
    assert done.exit_code == 0, done.output
    assert "weak client    14,295 samples (14294.2782)" in done.output
    assert "strong client  714,714 samples" in done.output
    assert "training loss + 0.1, with probability 0.95 or more" in done.output
    assert "strong" not in run("bound", *words).output


def test_bound_backwards() -> None:
    done = run(
        "bound", "--parameters", "4", "--samples", "125.5642", "--weak", "2", "--delta", ".04"
    )
    assert done.exit_code == 0, done.output
    assert "training loss + 0.5, with probability 0.96" in done.output


def test_bound_wants_one_question() -> None:
    for extra in ((), ("--epsilon", "0.1", "--samples", "9")):
        done = run("bound", "--parameters", "4", "--weak", "2", *extra)
        assert done.exit_code == 2
        assert "give either --epsilon or --samples" in done.output
    done = run("bound", "--parameters", "4", "--weak", "2", "--epsilon", "2")
    assert isinstance(done.exception, GhnFlError)


def test_datasets_says_what_is_here_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "mnist.npz").touch()
    (tmp_path / "cifar-10-python.tar.gz").touch()
    by_flag = run("datasets", "--data-dir", str(tmp_path))
    by_environment = run("datasets", env={"GHNFL_DATA": str(tmp_path)})
    assert by_flag.exit_code == 0, by_flag.output
    assert by_flag.output == by_environment.output
    rows = {line.split()[0]: line.split() for line in by_flag.output.splitlines() if line.split()}
    assert rows["mnist5k"][1:] == ["4,000", "1,000", "10", "28x28", "bundled"]
    assert rows["mnist"][5] == "mnist.npz"
    assert rows["cifar10"][4:] == ["32x32x3", "no,", "see", "below"]
    assert f"Data folder: {tmp_path}" in by_flag.output
    assert "fashion_mnist: downloaded when it is used (31 MB); or put" in by_flag.output
    assert "cifar-10-python.tar.gz holds pickles" in by_flag.output
    assert "femnist: put femnist_digits_12clients.npz into the data folder" in by_flag.output
    assert "mnist5k:" not in by_flag.output
    assert (
        "name one with --data-dir or GHNFL_DATA" in run("datasets", env={"GHNFL_DATA": ""}).output
    )


def test_a_data_folder_that_is_none_is_an_error(tmp_path: Path) -> None:
    done = run("datasets", "--data-dir", str(tmp_path / "gone"))
    assert isinstance(done.exception, GhnFlError)
    assert "is not there" in str(done.exception)
