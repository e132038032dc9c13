"""The experiments of the RecipFL paper on our harness, our numbers beside the paper's.

    python -m benchmarks.reproduce_recipfl mnist --data-dir ../shared/data
    python -m benchmarks.reproduce_recipfl transfer shares weak strong cifar --data-dir ...

Every run has a folder under --runs; finished ones are kept, interrupted ones resumed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.results_file import write
from ghn_fl import RunConfig, run
from ghn_fl.simulation.config import from_mapping
from ghn_fl.simulation.presets import PRESETS

SEEDS = (0, 1, 2)
PAPER = {  # Table 3, MNIST: strong, weak
    "recipfl": (97.99, 95.44),
    "exclusivefl": (96.21, 83.59),
    "allsmall": (94.84, 92.01),
}


@dataclass(frozen=True)
class Case:
    """Runs over the seeds that make one row."""

    name: str
    method: str
    settings: dict[str, Any] = field(default_factory=dict)
    paper: tuple[float, float] | None = None


def digits() -> list[Case]:
    """The demo: the bundled digits (4000 for training), 2:100, 30 rounds."""
    return [Case(m, m, {"skew": "2:100", "eval_every": 30}) for m in PAPER]


def mnist() -> list[Case]:
    """Table 3: MNIST, 2:100, 100 rounds."""
    base = PRESETS["recipfl-mnist"]() | {"eval_every": 10}
    return [Case(m, m, base, PAPER[m]) for m in ("recipfl", "exclusivefl", "allsmall")]


def transfer() -> list[Case]:
    """Fig. 6: without knowledge transfer."""
    base = PRESETS["recipfl-mnist"]() | {"eval_every": 10}
    return [
        Case("with transfer", "recipfl", base),
        Case("without", "recipfl", base | {"transfer": False}),
    ]


def shares() -> list[Case]:
    """Fig. 5(a): the part of the data that strong devices hold; 30 rounds instead of 100."""
    return [
        Case(f"share {s}, {m}", m, _short() | {"strong_share": s})
        for s in (0.1, 0.5, 0.9)
        for m in PAPER
    ]


def weak() -> list[Case]:
    """Fig. 5(b): the number of weak devices; 30 rounds instead of 100."""
    return [
        Case(f"2:{n}, {m}", m, _short() | {"skew": f"2:{n}"})
        for n in (10, 100, 1000)
        for m in PAPER
    ]


def strong() -> list[Case]:
    """Fig. 5(c): the number of strong devices; 30 rounds instead of 100."""
    return [
        Case(f"{n}:100, {m}", m, _short() | {"skew": f"{n}:100"}) for n in (2, 5, 50) for m in PAPER
    ]


def cifar() -> list[Case]:
    """Table 3: CIFAR-10 1:5 on a subset of 15,000 images, a quarter of the width, 15 rounds."""
    cases = []
    for scaling, small in (("depth", "resnet18-d1-w0.25"), ("width", "resnet18-w0.05")):
        base = {
            "dataset": "cifar10_subset",
            "skew": "1:5",
            "large": "resnet18-w0.25",
            "small": small,
            "rounds": 15,
            "epochs": 2,
            "lr": 0.05,
            "eval_every": 15,
        }
        cases += [Case(f"{scaling}, {m}", m, base) for m in PAPER]
    return cases


def _short() -> dict[str, Any]:
    return PRESETS["recipfl-mnist"]() | {"rounds": 30, "eval_every": 30}


SECTIONS: dict[str, Callable[[], list[Case]]] = {
    f.__name__: f for f in (digits, mnist, transfer, shares, weak, strong, cifar)
}


def perform(case: Case, seed: int, runs: Path, data_dir: Path | None) -> dict[str, Any]:
    """The summary of one run; from its folder if it is finished."""
    values = {**case.settings, "method": case.method, "seed": seed}
    if case.method != "recipfl":
        values.pop("options", None)
    config = from_mapping(RunConfig, values, "setting")
    folder = runs / f"{case.name.replace(', ', '_').replace(' ', '-').replace(':', '-')}-{seed}"
    if not (folder / "summary.json").exists():
        run(config, out=folder, data_dir=data_dir, resume=True)
    summary: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    print(folder.name, {k: summary[k] for k in COLUMNS}, flush=True)
    return summary


COLUMNS = ("strong_accuracy", "weak_accuracy", "strong_accuracy_full", "weak_accuracy_full")


def section(name: str, options: argparse.Namespace) -> str:
    """A section's table in Markdown: mean and standard deviation over the seeds."""
    lines = [
        f"## {SECTIONS[name].__doc__}",
        "",
        f"Seeds {', '.join(map(str, options.seeds))}; accuracy in %, mean ± standard deviation "
        "over the seeds; a run's figure is its mean over the last fifth of the rounds, on the "
        "clients' own test samples and on the whole test set weighted by their label mix. "
        "Server: generation and update.",
        "",
        "| | strong | weak | strong, whole set | weak, whole set | train s | server s "
        "| paper: strong, weak |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for case in SECTIONS[name]():
        summaries = [perform(case, s, options.runs / name, options.data_dir) for s in options.seeds]
        cells = [_spread([100 * s[c] for s in summaries]) for c in COLUMNS]
        phases = [s["seconds_by_phase"] for s in summaries]
        train = statistics.fmean(p["train"] for p in phases)
        server = statistics.fmean(p["generate"] + p["update"] for p in phases)
        paper = f"{case.paper[0]}, {case.paper[1]}" if case.paper else ""
        lines.append(
            f"| {case.name} | {' | '.join(cells)} | {train:.0f} | {server:.0f} | {paper} |"
        )
        if len(options.seeds) > 1:
            each = "; ".join(
                f"{100 * s['strong_accuracy']:.2f} / {100 * s['weak_accuracy']:.2f}"
                for s in summaries
            )
            lines.append(f"| by seed | {each} | | | | | | |")
    return "\n".join(lines)


def _spread(values: list[float]) -> str:
    spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.2f}{spread}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("sections", nargs="+", choices=SECTIONS)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--runs", type=Path, default=Path("runs/reproduce_recipfl"))
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    options = parser.parse_args()
    for name in options.sections:
        text = section(name, options)
        print(write(f"reproduce_recipfl_{name}", "RecipFL's experiments", text))
        print(text)


if __name__ == "__main__":
    sys.exit(main())
