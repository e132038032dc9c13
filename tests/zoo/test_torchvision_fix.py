"""torchvision imports beside a torch that its operators don't fit, and is left alone otherwise.

Each case runs in a process of its own, with a small stand-in for the torchvision package whose
import does what the real one's does.
"""

import subprocess
import sys
from pathlib import Path

import pytest

HEALTHY = "answer = 42\n"
# What torchvision 0.28 runs into: a fake for an operator that its library failed to define.
MISSING_OPERATORS = """
import torchvision.half_imported
import torch
for operator in ("nms", "qnms"):
    torch.library.register_fake(f"torchvision::{operator}")(lambda *args: None)
answer = 42
"""
OTHER_ERROR = "raise RuntimeError('libcudart is missing')\n"


def run(tmp_path: Path, init: str, code: str) -> subprocess.CompletedProcess[str]:
    package = tmp_path / "torchvision"
    package.mkdir()
    (package / "__init__.py").write_text(init)
    (package / "half_imported.py").write_text("")
    script = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\nimport zoo\n{code}"
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)


def test_missing_operators_are_declared(tmp_path: Path) -> None:
    code = """
import torchvision, torch
from zoo.torchvision_fix import was_needed
assert torchvision.answer == 42 and was_needed()
assert torch.ops.torchvision.nms is not None and torch.ops.torchvision.qnms is not None
"""
    done = run(tmp_path, MISSING_OPERATORS, code)
    assert done.returncode == 0, done.stderr


def test_without_the_fix_the_stand_in_fails(tmp_path: Path) -> None:
    code = "from zoo import torchvision_fix\nsys.meta_path.pop(0)\nimport torchvision"
    done = run(tmp_path, MISSING_OPERATORS, code)
    assert "operator torchvision::nms does not exist" in done.stderr


def test_healthy_torchvision_is_untouched(tmp_path: Path) -> None:
    code = """
import torchvision, torch
from zoo.torchvision_fix import was_needed
assert torchvision.answer == 42 and not was_needed()
assert not hasattr(torch.ops.torchvision, "nms")
"""
    done = run(tmp_path, HEALTHY, code)
    assert done.returncode == 0, done.stderr


def test_other_errors_are_not_hidden(tmp_path: Path) -> None:
    done = run(tmp_path, OTHER_ERROR, "import torchvision")
    assert "libcudart is missing" in done.stderr


@pytest.mark.parametrize("library", ["timm", "torchvision", "transformers"])
def test_the_installed_libraries_import_after_zoo(library: str) -> None:
    code = f"import zoo, {library}\nimport torchvision.transforms"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
