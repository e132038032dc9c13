"""Devices that change to another model in the middle of a run: what it costs, and for how long.

    python -m benchmarks.elastic digits mnist --data-dir DIR

At half of the run, or before its second round, a third of the weak devices change to the large
model, or to a larger or smaller one that nobody has trained. Every run has a folder under --runs;
finished ones are kept, interrupted ones go on.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from benchmarks.experiments import (
    SEEDS,
    Case,
    Results,
    by_case,
    cells_of,
    closing,
    perform,
    spread,
    table,
)
from benchmarks.results_file import FOLDER, write
from ghn_fl.errors import USER_ERRORS
from ghn_fl.report.plots import draw_curve, percentages
from ghn_fl.report.read import Run, mean, read_run
from ghn_fl.report.style import INK, WIDTH, styled, svg
from ghn_fl.simulation.presets import PRESETS

PART = 1 / 3
LEVEL = 3  # rounds before the change whose mean accuracy is the level to come back to
RESTART = "recipfl-restart"  # without lessons, a new architecture begins from its initial weights
EARLY = "recipfl-early"  # the same devices change before round 2: what the fleet can come to
OWN: Mapping[str, Mapping[str, Any]] = {
    RESTART: {"method": "recipfl", "options": {"lessons": 0}},
    EARLY: {"method": "recipfl"},
}
BASES: Mapping[str, Mapping[str, Any]] = {
    "digits": {"skew": "2:100", "rounds": 30},
    "mnist": PRESETS["recipfl-mnist"]() | {"rounds": 60},
}
# to what they change -> the methods; to the large model recipfl has no new architecture to begin
CHANGES = {
    "lenet5": ("recipfl", "exclusivefl"),
    "lenet5-w0.5": ("recipfl", RESTART, "exclusivefl"),
    "lenet5-d1-w0.5": ("recipfl", RESTART, EARLY, "exclusivefl"),
}
NAMES = {
    "lenet5": "to lenet5, the large model",
    "lenet5-w0.5": "to lenet5-w0.5, larger and new",
    "lenet5-d1-w0.5": "to lenet5-d1-w0.5, smaller and new",
}


def cases_of(base: Mapping[str, Any], folder: Path, changes: Sequence[str]) -> list[Case]:
    """The runs with some settings in common; their schedules are written into the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    half = base["rounds"] // 2
    return [
        Case(
            name=f"{model}, {method}",
            settings={
                **base,
                "eval_every": 1,
                "elastic": _schedule(folder, model, 2 if method == EARLY else half + 1),
                **OWN.get(method, {"method": method}),
            },
        )
        for model in changes
        for method in CHANGES[model]
    ]


def _schedule(folder: Path, model: str, number: int) -> str:
    """A file: before a round a third of the weak devices change to a model."""
    path = folder / f"{model}-{number}.toml"
    path.write_text(
        f'[[change]]\nround = {number}\ntier = "weak"\npart = {PART:.4f}\nmodel = "{model}"\n'
    )
    return str(path)


@dataclass(frozen=True, kw_only=True)
class Recovery:
    """What a change cost some devices.

    Attributes:
        before: their mean accuracy over the last rounds before it.
        at: after the first round with it.
        rounds: the first round, counted from the change, after which they are back at `before`; 1:
            at once; None: not within the run.
        end: over the last fifth of the rounds.
    """

    before: float
    at: float
    rounds: int | None
    end: float


def recovery(course: Sequence[float], start: int) -> Recovery:
    """From the accuracy of every round, counted from 1, and the first one after the change.

    >>> recovery([0.2, 0.5, 0.5, 0.5, 0.3, 0.4, 0.6, 0.8, 0.8, 0.8], 5)
    Recovery(before=0.5, at=0.3, rounds=3, end=0.8)
    """
    level = statistics.fmean(course[start - 1 - LEVEL : start - 1])
    after = course[start - 1 :]
    back = next((n for n, accuracy in enumerate(after, 1) if accuracy >= level), None)
    end = statistics.fmean(course[-math.ceil(0.2 * len(course)) :])
    return Recovery(before=level, at=after[0], rounds=back, end=end)


def courses(run: Run) -> dict[str, list[float]]:
    """The mean accuracy by round of those who changed, of the other weak devices, and the strong.

    Accuracy is on a device's own test samples after an epoch of fine-tuning.
    """
    changed = {i for record in run.rounds for i in record.changed}
    groups = {
        "changed": changed,
        "other weak": {device.id for device in run.tiers["weak"]} - changed,
        "strong": {device.id for device in run.tiers["strong"]},
    }
    found: dict[str, list[float]] = {}
    for name, ids in groups.items():
        means = [mean(record.clients[i].accuracy for i in ids) for record in run.rounds]
        found[name] = [value for value in means if value is not None]
        assert len(found[name]) == len(run.rounds), "these runs are evaluated in every round"
    return found


def text(name: str, results: Results) -> str:
    """The table of a data set, and its picture beside it."""
    runs = {case: [read_run(r["folder"]) for r in own.values()] for case, own in results.items()}
    told = {case: [courses(run) for run in own] for case, own in runs.items() if own}
    any_run = next(own[0] for own in runs.values() if own)
    rounds, start = len(any_run.rounds), _start(any_run)
    rows = []
    for case, found in told.items():
        model, _, method = case.partition(", ")
        for group in found[0]:
            costs = [recovery(run[group], start) for run in found]
            rows.append(
                (
                    NAMES[model],
                    method,
                    group,
                    spread([c.before for c in costs], digits=1),
                    spread([c.at for c in costs], digits=1),
                    ", ".join(str(c.rounds or f"over {rounds - start + 1}") for c in costs),
                    spread([c.end for c in costs], digits=1),
                )
            )
    picture = FOLDER / f"elastic_{name}.svg"
    picture.write_text(svg(curves_figure(told, start)))
    header = ("change", "method", "devices", "before", "at the change", "rounds until back", "end")
    return "\n\n".join(
        (
            f"## {name}",
            f"{rounds} rounds, {any_run.setting('skew')}; before round {start} a third of the weak "
            "devices change. Accuracy in % on the devices' own test samples: before, the mean over "
            f"the {LEVEL} rounds before it; at the change, after the first round with it; end, the "
            "mean over the last fifth. Rounds until back at the level before, seed by seed; 1: at "
            "once.",
            table(header, rows, names=3),
            f"![Accuracy by round]({picture.name})",
        )
    )


def _start(run: Run) -> int:
    """The first round after the change."""
    return next(record.number for record in run.rounds if record.changed)


@styled
def curves_figure(
    told: Mapping[str, Sequence[Mapping[str, Sequence[float]]]], start: int
) -> Figure:
    """Accuracy by round, mean over the seeds: a column a change, a row a group of devices."""
    groups = ("changed", "other weak")
    figure = Figure(figsize=(WIDTH, 6))
    shown = [model for model in CHANGES if any(case.startswith(f"{model},") for case in told)]
    panels = figure.subplots(len(groups), len(shown), squeeze=False, sharex=True, sharey=True)
    order = list(dict.fromkeys(m for methods in CHANGES.values() for m in methods))
    drawn = []
    for row, group in zip(panels, groups, strict=True):
        for axes, model in zip(row, shown, strict=True):
            for method in CHANGES[model]:
                values = zip(
                    *(run[group] for run in told.get(f"{model}, {method}", ())), strict=True
                )
                points = [(n, statistics.fmean(v)) for n, v in enumerate(values, 1)]
                draw_curve(axes, points, order.index(method), method)
                drawn.append(points)
            axes.axvline(start - 0.5, color=INK[0], linewidth=0.8, zorder=0)
            axes.set_title(f"{group},\n{NAMES[model]}")
            axes.set_xlabel("round" if group == groups[-1] else "")
    percentages(panels.flat, drawn, max(map(len, drawn)))
    handles, names = panels[0][-1].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper left", ncols=len(names), frameon=False)
    return figure


def main() -> None:
    """Run data sets and write results/elastic.md."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("datasets", nargs="+", choices=BASES, metavar="|".join(BASES))
    parser.add_argument("--changes", nargs="+", choices=CHANGES, default=list(CHANGES))
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS))
    parser.add_argument("--runs", type=Path, default=Path("runs/elastic"))
    parser.add_argument("--data-dir", type=Path)
    options = parser.parse_args()
    parts = []
    for dataset in options.datasets:
        runs = options.runs / dataset
        cases = cases_of(BASES[dataset], runs, options.changes)
        try:
            found = perform(cells_of(cases, options.seeds), runs, options.data_dir)
        except USER_ERRORS as err:
            sys.exit(f"elastic {dataset}: {err}")
        results = by_case(cases, options.seeds, found)
        parts += [text(dataset, results), closing("small", options.seeds, results)]
    note = (
        "`recipfl` teaches a new architecture what the known priors answer to images that the "
        f"server made up; `{RESTART}` (`lessons=0`) begins it from its initial weights, and so "
        f"does `exclusivefl`. Under `{EARLY}` the same devices change before round 2: what such a "
        "fleet can come to. Devices that change to the large model join those who train it. Under "
        "RecipFL a device that changes to a larger model trains the fleet's smallest beside it and "
        "answers with both, so that it has no worse an answer than before."
    )
    path = write(
        "elastic", "Devices that change in the middle of a run", "\n\n".join([note, *parts])
    )
    print(f"\n{path.read_text()}\n{path}")


if __name__ == "__main__":
    main()
