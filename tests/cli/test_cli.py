"""The command as a person types it."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
import typer
from safetensors.torch import load_file

import zoo
from ghn_fl import GHN, GHNConfig, Lessons
from ghn_fl.cli.app import app
from tests.cli.typed import ghnfl


def in_a_process(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from ghn_fl.cli import main; main()", *words]
    return subprocess.run(command, capture_output=True, text=True)


def test_every_command_shows_an_example_that_its_flags_fit() -> None:
    group = typer.main.get_command(app)
    for name, command in group.commands.items():  # type: ignore[attr-defined]
        words = command.epilog.removeprefix("Example: ").split()
        assert words[:2] == ["ghnfl", name]
        known = {option for parameter in command.params for option in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= known, name


def test_models_prints_the_table(tmp_path: Path) -> None:
    done = ghnfl(tmp_path, "models", "resnet18", "resnet18-w0.2", "--batch-size", "4")
    assert done.returncode == 0, done.stderr
    assert "11,173,962" in done.stdout
    assert "444,218" in done.stdout


def test_help_and_version(tmp_path: Path) -> None:
    done = ghnfl(tmp_path, "models", "--help")
    assert done.returncode == 0
    assert "Example: ghnfl models" in done.stdout
    assert ghnfl(tmp_path, "--version").stdout.startswith("ghnfl ")


def test_the_exit_code_and_the_line_leave_the_process() -> None:
    done = in_a_process("models", "resnet81")
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("ghnfl: unknown") and len(done.stderr.splitlines()) == 1


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
def test_wrong_usage_is_one_clear_line_and_exit_code_2(
    tmp_path: Path, words: tuple[str, ...], says: str
) -> None:
    done = ghnfl(tmp_path, *words)
    assert done.returncode == 2
    assert says in done.stderr


@pytest.mark.parametrize("flag", ["--draw", "--json"])
def test_a_folder_that_is_not_there_is_one_line(tmp_path: Path, flag: str) -> None:
    done = ghnfl(tmp_path, "trace", "lenet5", flag, "missing/graph.svg")
    assert done.returncode and done.stdout == ""
    assert done.stderr == "ghnfl: cannot write missing/graph.svg: No such file or directory\n"


def test_generate_writes_weights_for_an_unseen_model(tmp_path: Path) -> None:
    torch.manual_seed(0)
    GHN(GHNConfig(width=16, decoder_width=16)).save(tmp_path / "ghn.safetensors")
    out = tmp_path / "weights.safetensors"
    words = ["--ghn", str(tmp_path), "--model", "lenet5-w0.5", "--out", str(out)]
    done = ghnfl(tmp_path, "generate", *words, "--histogram", "0.5,0.5,0,0,0,0,0,0,0,0")
    assert done.returncode == 0, done.stderr
    shapes = {n: w.shape for n, w in load_file(out).items()}
    assert shapes == {n: p.shape for n, p in zoo.build("lenet5-w0.5").named_parameters()}
    assert f"{zoo.num_parameters('lenet5-w0.5'):,} parameters" in done.stdout


def test_generate_lets_the_model_learn_the_lessons_of_the_run(tmp_path: Path) -> None:
    torch.manual_seed(0)
    GHN(GHNConfig(width=16, decoder_width=16)).save(tmp_path / "ghn.safetensors")
    images, answers = torch.randn(8, 1, 28, 28), torch.randn(8, 10).log_softmax(1)
    Lessons(images, answers).save(tmp_path / "lessons.safetensors")
    made = []
    for number, study in enumerate(("0", "2")):
        out = tmp_path / f"{number}.safetensors"
        words = ["--ghn", str(tmp_path), "--model", "lenet5-d1-w0.5", "--out", str(out)]
        done = ghnfl(tmp_path, "generate", *words, "--study", study)
        assert done.returncode == 0, done.stderr
        made.append(load_file(out))
    plain, taught = made
    assert plain.keys() == taught.keys()
    assert not torch.equal(plain["exits.1.classifier.bias"], taught["exits.1.classifier.bias"])


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--model", "lenet5", "--study", "3"), "there are no lessons at"),
        (("--model", "lenet5", "--study", "-1"), "0 steps or more, got -1"),
        (("--graph", "broken.json", "--study", "3"), "needs a --model"),
        (("--model", "lenet5", "--histogram", "0.5,0.5"), "must have 10 entries"),
        (("--model", "lenet5", "--histogram", "a,b"), "--histogram takes numbers"),
        (("--model", "lenet6"), "did you mean 'lenet5'"),
        ((), "either --model or --graph"),
        (("--graph", "missing.json"), "cannot read missing.json"),
        (("--graph", "broken.json"), "not the JSON of a graph, or cut"),
    ],
)
def test_generate_refuses_and_writes_nothing(
    tmp_path: Path, words: tuple[str, ...], says: str
) -> None:
    GHN(GHNConfig(width=16, decoder_width=16)).save(tmp_path / "ghn.safetensors")
    (tmp_path / "broken.json").write_text('{"format": ')
    out = tmp_path / "weights.safetensors"
    done = ghnfl(tmp_path, "generate", "--ghn", str(tmp_path), "--out", str(out), *words)
    assert done.returncode == 2, done.stderr
    assert says in done.stderr
    assert not out.exists()
