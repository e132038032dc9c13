"""How fast? RecipFL and AllSmall round by round, in settings of `benchmarks.gains`.

    python -m benchmarks.gains_course c --seeds 0 1 2 --data-dir DIR

The panel's own settings and learning rates, evaluated after every round. Every run has a folder
under --runs; finished ones are kept, interrupted ones go on.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from benchmarks import gains
from benchmarks.experiments import SEEDS, run_cells, table
from benchmarks.results_file import FOLDER, write
from ghn_fl.errors import USER_ERRORS
from ghn_fl.report.plots import draw_curve, percentages, round_axis
from ghn_fl.report.read import Run, read_run
from ghn_fl.report.style import WIDTH, styled, svg
from ghn_fl.simulation.grid import Cell

METHODS = ("recipfl", "allsmall")
Course = Sequence[float]  # accuracy, round by round


def cells_of(name: str, folder: Path, seeds: Sequence[int]) -> list[Cell]:
    """The panel's runs of these methods, with an evaluation after every round."""
    rates = {m: lr for m, lr in gains.rates_of(name).items() if m in METHODS}
    return [
        dataclasses.replace(cell, config=dataclasses.replace(cell.config, eval_every=1))
        for cell in gains.evaluation_cells(name, folder, seeds, rates)
    ]


def courses(runs: Sequence[Run], tier: str) -> list[Course]:
    """A tier's mean accuracy by round, run by run."""
    found: list[Course] = []
    for run in runs:
        ids = [device.id for device in run.tiers[tier]]
        found.append(
            [statistics.fmean(r.clients[i].accuracy or 0.0 for i in ids) for r in run.rounds]
        )
    return found


def text(name: str, found: Mapping[str, Sequence[Run]]) -> str:
    """A row a round, and the picture beside it."""
    tiers = list(found[METHODS[0]][0].tiers)
    told = {tier: {m: courses(runs, tier) for m, runs in found.items()} for tier in tiers}
    rounds = len(found[METHODS[0]][0].rounds)
    rows = []
    for n in range(rounds):
        row = [str(n + 1)]
        for tier in tiers:
            ours, other = ([run[n] for run in told[tier][m]] for m in METHODS)
            ahead = [a - b for a, b in zip(ours, other, strict=True)]
            row += [f"{100 * statistics.fmean(values):.2f}" for values in (ours, other)]
            row += [f"{100 * statistics.fmean(ahead):+.2f}", f"{sum(a > 0 for a in ahead)}"]
        rows.append(row)
    picture = FOLDER / f"gains_course_{name}.svg"
    picture.write_text(svg(figure(told)))
    seeds = len(found[METHODS[0]])
    header = [
        "round",
        *(
            f"{tier}: {part}"
            for tier in tiers
            for part in (*METHODS, "difference", f"seeds of {seeds} ahead")
        ),
    ]
    return "\n\n".join(
        (
            f"## {name}. {gains.SETTINGS[name].title}",
            table(header, rows),
            f"![Accuracy by round]({picture.name})",
        )
    )


@styled
def figure(told: Mapping[str, Mapping[str, Sequence[Course]]]) -> Figure:
    """Mean accuracy over the seeds by round, a panel a tier."""
    drawing = Figure(figsize=(WIDTH, 3))
    panels = drawing.subplots(1, len(told), squeeze=False, sharey=True)[0]
    drawn = []
    for axes, (tier, by_method) in zip(panels, told.items(), strict=True):
        for i, (method, runs) in enumerate(by_method.items()):
            points = [(n, statistics.fmean(v)) for n, v in enumerate(zip(*runs, strict=True), 1)]
            draw_curve(axes, points, i, method)
            drawn.append(points)
        axes.set_title(tier)
        round_axis(axes, drawn[-1])
    percentages(panels, drawn, max(map(len, drawn)))
    handles, names = panels[0].get_legend_handles_labels()
    drawing.legend(handles, names, loc="outside upper left", ncols=len(names), frameon=False)
    return drawing


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("settings", nargs="+", choices=gains.SETTINGS, metavar="SETTING")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS))
    parser.add_argument("--runs", type=Path, default=Path("runs/gains_course"))
    parser.add_argument("--data-dir", type=Path)
    options = parser.parse_args()
    parts = [
        "Accuracy in % on the devices' own test samples, after an epoch of fine-tuning, mean over "
        f"the devices of a tier and seeds {', '.join(map(str, options.seeds))}. Each method has "
        "the learning rate that was tuned for it in `gains.md`."
    ]
    try:
        for name in options.settings:
            folder = options.runs / name
            cells = cells_of(name, folder, options.seeds)
            run_cells(cells, folder, options.data_dir)
            found = {
                m: [read_run(folder / f"{m}-{seed}") for seed in options.seeds] for m in METHODS
            }
            parts.append(text(name, found))
    except USER_ERRORS as err:
        sys.exit(f"gains_course: {err}")
    print(write("gains_course", "How fast RecipFL and AllSmall learn", "\n\n".join(parts)))


if __name__ == "__main__":
    main()
