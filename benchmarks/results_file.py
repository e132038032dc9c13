"""How a benchmark writes its result: a Markdown file that says how it came about."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from datetime import date
from importlib.metadata import version
from pathlib import Path

FOLDER = Path(__file__).parent / "results"
_VERSIONS = ("torch", "torch-geometric", "timm", "transformers", "torchvision")


def write(name: str, title: str, body: str) -> Path:
    """Write results/NAME.md: command, commit, machine and versions, then the body."""
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / f"{name}.md"
    path.write_text(f"# {title}\n\n{header()}\n\n{body.rstrip()}\n")
    return path


def header() -> str:
    """Where the numbers come from, as a Markdown list."""
    versions = ", ".join(f"{package} {version(package)}" for package in _VERSIONS)
    lines = (
        f"- command: `python -m {' '.join([_script(), *sys.argv[1:]])}`",
        f"- commit: {commit()}, {date.today().isoformat()}",
        f"- machine: {os.cpu_count()} cores, {_cpu()}, no GPU",
        f"- versions: Python {platform.python_version()}, {versions}",
    )
    return "\n".join(lines)


def _script() -> str:
    return f"benchmarks.{Path(sys.argv[0]).stem}"


def commit() -> str:
    """The commit that is checked out, and whether something differs from it."""

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=FOLDER, capture_output=True, text=True)
        return done.stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "--", ":!.")
    return git("rev-parse", "--short", "HEAD") + (" with changes" if changed else "")


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
