"""`ghnfl train` as a person types it: what it prints, what it refuses."""

import resource
import signal
from pathlib import Path

import pytest

from ghn_fl.cli.train import _pair
from tests.cli.typed import ghnfl


def test_a_run_prints_its_rounds_and_its_table_and_writes_a_report(tmp_path: Path) -> None:
    words = "train --dataset synthetic --skew 1:4 --rounds 2 --epochs 1 --eval-every 1 --workers 1"
    tiny = ("--set", "ghn.width=16", "--set", "ghn.decoder_width=16")
    done = ghnfl(tmp_path, *words.split(), *tiny)
    assert done.returncode == 0, done.stderr
    assert "round 1 of 2: strong" in done.stdout and "round 2 of 2: strong" in done.stdout
    assert "whole test set" in done.stdout
    folder = tmp_path / "runs" / "recipfl-synthetic-0"
    assert (folder / "report.html").exists()
    again = ghnfl(tmp_path, *words.split(), *tiny)
    assert again.returncode == 2 and "--resume goes on with it" in again.stderr
    quiet = ghnfl(tmp_path, *words.split(), *tiny, "--resume", "--quiet")
    assert quiet.returncode == 0 and quiet.stdout == ""
    made = ghnfl(
        tmp_path, "generate", "--ghn", str(folder), "--model", "lenet5-w0.5", "--image-size", "16",
        "--out", "w.safetensors",
    )  # fmt: skip
    assert made.returncode == 0, made.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--skew 0:0", "one device or more"),
        ("--skew 2", "skew must be S:W"),
        ("--skew 2:999999", "999999 clients cannot share 2000 training samples"),
        ("--out file", "file is a file, not a folder"),
        ("--fleet missing.toml", "cannot read missing.toml"),
        ("--dataset minst5k", "did you mean 'mnist5k'"),
        ("--method recipf", "did you mean 'recipfl'"),
        ("--config broken.toml", "unknown setting 'rouns'; did you mean 'rounds'"),
        ("--preset recipfl-mnis", "did you mean 'recipfl-mnist'"),
        ("--dataset mnist --data-dir data", "mnist.npz"),
        ("--public heldout:1.5", "above 0 and below 1, got 'heldout:1.5'"),
        ("--public femnist --data-dir data", "femnist is not in the data folder"),
        ("--method fedmd --public synthetic", "has images of 16x16 with 1 channel"),
    ],
)
def test_wrong_input_is_one_line_and_nothing_is_written(
    tmp_path: Path, words: str, says: str
) -> None:
    (tmp_path / "broken.toml").write_text("rouns = 3\n")
    (tmp_path / "file").touch()
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "mnist.npz").write_bytes(b"PK cut off")
    done = ghnfl(tmp_path, "train", *words.split())
    assert done.returncode == 2, done.stderr
    assert says in done.stderr
    assert not (tmp_path / "runs").exists() and not (tmp_path / "file").read_bytes()


SHORT = "train --dataset synthetic --skew 1:2 --method allsmall --rounds 1 --epochs 1 --workers 1"


@pytest.mark.parametrize(
    ("config", "says"),
    [
        (b"\xff\xfe", "holds no readable config.json"),
        (b'{"version": 1}', "config.json is damaged: it has no settings"),
    ],
)
def test_a_damaged_folder_is_one_line(tmp_path: Path, config: bytes, says: str) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_bytes(config)
    done = ghnfl(tmp_path, *SHORT.split(), "--out", "run", "--resume")
    assert done.returncode == 1 and says in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_full_disk_is_one_line_and_the_run_goes_on_when_there_is_room(tmp_path: Path) -> None:
    words = (*SHORT.split(), "--out", "run", "--resume")
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8000, limit[1]))  # less than the weights take
    try:
        done = ghnfl(tmp_path, *words)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, handler)
    assert done.returncode == 1
    assert done.stderr.startswith("ghnfl: cannot write run/checkpoint/state.safetensors: ")
    assert len(done.stderr.splitlines()) == 1
    assert not any((tmp_path / "run" / "checkpoint").iterdir())
    again = ghnfl(tmp_path, *words)
    assert again.returncode == 0 and "round 1 of 1" in again.stdout


def test_settings_are_pairs() -> None:
    assert _pair("update.lr=0.1") == ("update.lr", "0.1")
