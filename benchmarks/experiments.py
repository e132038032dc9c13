"""What the scripts that repeat papers' experiments share: runs over seeds, and tables of them.

A script has sections; a section has cases, one for every row of its table; a case is run once for
every seed. Runs are ordinary run folders: finished ones are kept, interrupted ones go on.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import re
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.results_file import write
from ghn_fl import RunConfig
from ghn_fl.engines.grid import Outcome, run_grid
from ghn_fl.errors import USER_ERRORS, ConfigError
from ghn_fl.report.paired import paired_test
from ghn_fl.report.read import client_scores, read_run
from ghn_fl.report.tables import Table, markdown
from ghn_fl.simulation.config import from_mapping
from ghn_fl.simulation.grid import Cell
from ghn_fl.simulation.records import read_config

SCALES = ("small", "paper")
SEEDS = (0, 1, 2)
NONE = "–"  # where a run has no result

Summary = dict[str, Any]  # of one run: its summary.json, and its "folder"
Results = Mapping[str, Mapping[int, Summary]]  # by the case's name and the seed


@dataclass(frozen=True, kw_only=True)
class Case:
    """A row: runs that differ in their seed alone.

    Attributes:
        name: for people; the folders' names are made of it.
        settings: of a RunConfig, without the seed.
        paper: what the paper has for it, as text.
    """

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    paper: str = ""


@dataclass(frozen=True, kw_only=True)
class Section:
    """A table or figure of a paper.

    Attributes:
        cases: from the scale and a folder, where fleets may be written, to the rows.
        text: from the rows and their results to Markdown.
        folder: of the runs, where a section has those of another; its own name if empty.
    """

    cases: Callable[[str, Path], list[Case]]
    text: Callable[[Sequence[Case], Results], str]
    folder: str = ""


def main(name: str, title: str, sections: Mapping[str, Section], doc: str) -> None:
    """The command of a script: run sections, and write results/reproduce_NAME_SECTION.md."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    listed = ", ".join(sections)
    parser.add_argument("sections", nargs="+", choices=sections, metavar="SECTION", help=listed)
    parser.add_argument("--scale", choices=SCALES, default="small")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS))
    parser.add_argument("--runs", type=Path, default=Path(f"runs/reproduce_{name}"))
    parser.add_argument("--data-dir", type=Path)
    options = parser.parse_args()
    options.seeds = list(dict.fromkeys(options.seeds))
    for chosen in options.sections:
        section = sections[chosen]
        runs = options.runs / options.scale / (section.folder or chosen)
        try:
            cases = section.cases(options.scale, runs)
            found = perform(cells_of(cases, options.seeds), runs, options.data_dir)
        except USER_ERRORS as err:
            sys.exit(f"{name} {chosen}: {err}")
        results = by_case(cases, options.seeds, found)
        lines = [section.text(cases, results), "", closing(options.scale, options.seeds, results)]
        suffix = "" if options.scale == "small" else f"_{options.scale}"
        path = write(f"reproduce_{name}_{chosen}{suffix}", f"{title}: {chosen}", "\n".join(lines))
        print(f"\n{path.read_text()}\n{path}")


def cells_of(cases: Sequence[Case], seeds: Sequence[int]) -> list[Cell]:
    """All runs, seed by seed, so that an interrupted section has all of its rows already."""
    return [
        Cell(
            name=folder_name(case.name, seed),
            config=from_mapping(RunConfig, {**case.settings, "seed": seed}, "setting"),
        )
        for seed in seeds
        for case in cases
    ]


def folder_name(case: str, seed: int) -> str:
    """The name of a run's folder.

    >>> folder_name("2:100, recipfl, share 0.5", 0)
    '2-100_recipfl_share-0.5-0'
    """
    text = re.sub(r"[^\w.+=-]+", "-", case.replace(", ", "_").replace("%", "pc"))
    return f"{text.strip('-')}-{seed}"


def perform(cells: Sequence[Cell], runs: Path, data_dir: Path | None) -> dict[str, Summary]:
    """The summaries of all runs by name; those that have none are told on stderr and left out."""
    return {
        o.cell.name: _summary(runs / o.cell.name) | {"folder": str(runs / o.cell.name)}
        for o in run_cells(cells, runs, data_dir)
        if o.has_result
    }


def run_cells(cells: Sequence[Cell], runs: Path, data_dir: Path | None) -> list[Outcome]:
    """What became of all runs, each told when it ends; in the order of the cells."""
    names = [cell.name for cell in cells]
    assert len(set(names)) == len(names), "two cases have one name"
    for cell in cells:
        _refuse_other(cell, runs / cell.name)
    outcomes = dict[str, Outcome]()
    for event in run_grid(cells, runs, data_dir=data_dir):
        if not isinstance(event, Outcome):
            continue
        outcomes[event.cell.name] = event
        said = f"[{len(outcomes)}/{len(cells)}] {event.cell.name}: {event.status}"
        if event.has_result:
            seconds = _summary(runs / event.cell.name)["seconds"]
            print(f"{said}, {seconds:.0f} s", flush=True)
        else:
            print(f"{said}: {event.reason}", file=sys.stderr, flush=True)
    return [outcomes[name] for name in names]


def _summary(folder: Path) -> Summary:
    summary: Summary = json.loads((folder / "summary.json").read_text())
    return summary


def _refuse_other(cell: Cell, folder: Path) -> None:
    """Refuse a folder with a run of other settings, which would be taken for this one."""
    if not (folder / "config.json").exists():
        return
    known, wanted = read_config(folder)["config"], dataclasses.asdict(cell.config)
    differing = sorted(name for name, value in wanted.items() if known.get(name) != value)
    if differing:
        raise ConfigError(
            f"{folder} holds a run of other settings ({', '.join(differing)}); give another --runs"
        )


def by_case(
    cases: Sequence[Case], seeds: Sequence[int], found: Mapping[str, Summary]
) -> dict[str, dict[int, Summary]]:
    """Results by case and seed; seeds without one are left out."""
    return {
        case.name: {
            seed: found[folder]
            for seed in seeds
            if (folder := folder_name(case.name, seed)) in found
        }
        for case in cases
    }


def spread(values: Sequence[float | None], scale: float = 100, digits: int = 2) -> str:
    """Mean and standard deviation over the seeds; values in % unless `scale` says otherwise.

    >>> spread([0.5, 0.52]), spread([0.5]), spread([])
    ('51.00 ± 1.41', '50.00', '–')
    """
    there = [scale * value for value in values if value is not None]
    if not there:
        return NONE
    deviation = f" ± {statistics.stdev(there):.{digits}f}" if len(there) > 1 else ""
    return f"{statistics.fmean(there):.{digits}f}{deviation}"


def table(header: Sequence[str], rows: Sequence[Sequence[str]], names: int = 1) -> str:
    """A table in Markdown; the first `names` columns are text."""
    return markdown(Table(header=tuple(header), rows=tuple(map(tuple, rows)), names=names))


def device_accuracies(summary: Summary) -> dict[int, float]:
    """Every device's accuracy on its own test samples, a mean over the last fifth of the rounds."""
    scores = client_scores(read_run(summary["folder"]))
    return {id: score.accuracy for id, score in scores.items() if score.accuracy is not None}


def sample_weighted_accuracy(summary: Summary) -> float:
    """The accuracy over all devices, each of which counts by its test samples."""
    run = read_run(summary["folder"])
    tests = {device.id: device.test_samples for device in run.fleet}
    scores = device_accuracies(summary)
    total = sum(tests[id] for id in scores)
    return math.fsum(tests[id] * accuracy for id, accuracy in scores.items()) / total


def compared(results: Mapping[int, Summary], base: Mapping[int, Summary]) -> str:
    """Mean difference to `base` in points, device by device and seed by seed, and its p."""
    pairs = {}
    for seed in results.keys() & base.keys():
        ours, theirs = device_accuracies(results[seed]), device_accuracies(base[seed])
        pairs[seed] = [(theirs[id], ours[id]) for id in sorted(ours.keys() & theirs.keys())]
    test = paired_test(pairs)
    if test is None:
        return NONE
    p = "" if test.p is None else f" (p {test.p:.1g})"
    return f"{100 * test.difference:+.2f}{p}"


def write_fleet(path: Path, tiers: Sequence[Mapping[str, Any]]) -> str:
    """Write a fleet's TOML, a table a tier; returns its path as `fleet` wants it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    parts = [
        "[[tier]]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in tier.items())
        for tier in tiers
    ]
    path.write_text("\n".join(parts))
    return str(path)


def closing(scale: str, seeds: Sequence[int], results: Results) -> str:
    """What holds for every table: scale, seeds, how a figure comes about, what is missing."""
    runs = [summary for by_seed in results.values() for summary in by_seed.values()]
    minutes = sum(run["seconds"] for run in runs) / 60
    epochs = {read_config(Path(run["folder"]))["config"]["finetune"] for run in runs}
    tuned = "with what it is served" if epochs == {0} else "after an epoch on its training samples"
    lines = [
        f"Scale {scale}, seeds {', '.join(map(str, seeds))}; {minutes:.0f} core minutes in all. "
        "Figures are mean ± standard deviation over the seeds; a run's accuracy is the mean over "
        f"the last fifth of its rounds, on every device's own test samples, {tuned}."
    ]
    missing = [f"{n} ({len(seeds) - len(r)})" for n, r in results.items() if len(r) < len(seeds)]
    if missing:
        lines.append(f"Runs without a result: {', '.join(missing)}.")
    return "\n\n".join(lines)
