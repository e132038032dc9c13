"""The command as a person types it, in a process of its own."""

import subprocess
import sys

import pytest


def ghnfl(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from ghn_fl.cli import main; main()", *words]
    return subprocess.run(command, capture_output=True, text=True)


def test_models_prints_the_table() -> None:
    done = ghnfl("models", "resnet18", "resnet18-w0.2", "--batch-size", "4")
    assert done.returncode == 0, done.stderr
    assert "11,173,962" in done.stdout
    assert "444,218" in done.stdout


def test_help_and_version() -> None:
    done = ghnfl("models", "--help")
    assert done.returncode == 0
    assert "Example: ghnfl models" in done.stdout
    assert ghnfl("--version").stdout.startswith("ghnfl ")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("models", "resnet81"), "did you mean 'resnet18'"),
        (("models", "resnet18-w1.5"), "width must be"),
        (("models", "resnet18-d9"), "has depths 1 to 4, got 9"),
        (("models", "resnet18-wide"), "cannot read '-wide'"),
        (("models", "--batch-size", "0"), "--batch-size"),
        (("modles",), "modles"),
    ],
)
def test_wrong_usage_is_one_clear_line_and_exit_code_2(words: tuple[str, ...], says: str) -> None:
    done = ghnfl(*words)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr
