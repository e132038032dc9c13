"""What each part of RecipFL is worth: settings of `benchmarks.gains` with one part taken out.

    python -m benchmarks.gains_ablation c d h --seeds 0 1 2 --data-dir DIR

Every variant has RecipFL's own learning rate. Whole runs are those of `benchmarks.gains`; variants
have a folder each under --runs; finished ones are kept, interrupted ones go on.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import gains
from benchmarks.experiments import SEEDS, folder_name, run_cells, spread, table
from benchmarks.gains_report import verdict
from benchmarks.kept import restore
from benchmarks.results_file import write
from ghn_fl.errors import USER_ERRORS, ConfigError
from ghn_fl.report.grid import device_pairs, p_text
from ghn_fl.report.paired import holm, paired_test
from ghn_fl.report.read import Run, read_run
from ghn_fl.simulation.grid import Cell

WHOLE = "recipfl"
VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "no class odds": {"odds": 0.0},
    "no second answer": {"second": 0.0},
    "tuned models alone": {"untuned": 0.0},
    "neither": {"odds": 0.0, "second": 0.0},
    "no label mixes": {"ghn.descriptor": "none"},
    "no transfer": {"transfer": False},
    "no step of the hypernetwork's": {"step": 0.0},
    "no longer steps": {"stretch": False},
    "no momentum": {"momentum": 0.0},
    "the last prior, no mean": {"window": 0.0},
    "as published": {},
}
METHODS = {"as published": "recipfl-paper"}
NOTES = (
    "*No label mixes*: `ghn.descriptor=none`, so no class odds either. *No second answer*: a "
    "strong device asks its tuned model alone; *tuned models alone*: that and the small one, but "
    "not its own as it was served; *neither*: no class odds and no second answer. *No step of the "
    "hypernetwork's*: a prior goes along FedAvg's step alone. *No longer steps*: that step is "
    "never longer than the mean of its clients' moves. Momentum begins after 20 rounds, so it only "
    "matters in longer runs. *As published*: `recipfl-paper`, which has the hypernetwork alone. "
    "All have the learning rate that was tuned for the whole method."
)


def cells_of(name: str, folder: Path, seeds: Sequence[int]) -> list[Cell]:
    """A setting's variants, seed by seed."""
    base = gains.base_config(name, folder, tuning=False)
    shared = gains.own_settings(WHOLE, base)["options"]
    cells = []
    for seed in seeds:
        for variant, options in VARIANTS.items():
            method = METHODS.get(variant, WHOLE)
            config = dataclasses.replace(
                base,
                method=method,
                seed=seed,
                lr=gains.rates_of(name)[WHOLE],
                options=shared | options if method == WHOLE else {},
            )
            cells.append(Cell(name=folder_name(variant, seed), config=config))
    return cells


def runs_of(name: str, runs: Path, whole: Path, seeds: Sequence[int]) -> dict[str, dict[int, Run]]:
    """By variant and seed what has ended; whole runs from the panel's."""
    restore(gains.KEPT / f"{name}.tar.xz", whole / name)
    folders = {WHOLE: {seed: whole / name / f"{WHOLE}-{seed}" for seed in seeds}} | {
        variant: {seed: runs / name / folder_name(variant, seed) for seed in seeds}
        for variant in VARIANTS
    }
    return {
        variant: {s: read_run(f) for s, f in own.items() if (f / "summary.json").exists()}
        for variant, own in folders.items()
    }


def text(name: str, found: Mapping[str, Mapping[int, Run]]) -> str:
    """A setting's table: a row a variant, both tiers."""
    tiers = next(iter(found[WHOLE].values())).tiers
    rows = {variant: [variant] for variant, own in found.items() if own}
    for tier in tiers:
        tests = {
            variant: paired_test(device_pairs(found[WHOLE], found[variant], tier))
            for variant in rows
            if variant != WHOLE
        }
        ps = holm({v: None if test is None else test.p for v, test in tests.items()})
        for variant, row in rows.items():
            full = [run.summary.tiers[tier].accuracy_full for run in found[variant].values()]
            row.append(spread(full))
            test = tests.get(variant)
            change = "" if test is None else f"{100 * test.difference:+.2f}"
            row += [change, p_text(ps.get(variant)) if test else "", verdict(test, ps.get(variant))]
    header = ("", *(part for tier in tiers for part in (tier, "− recipfl", "p", "is")))
    return table(header, list(rows.values()))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("settings", nargs="+", choices=gains.SETTINGS, metavar="SETTING")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS))
    parser.add_argument("--runs", type=Path, default=Path("runs/gains_ablation"))
    parser.add_argument("--whole", type=Path, default=Path("runs/gains"), help="the panel's runs")
    parser.add_argument("--data-dir", type=Path)
    options = parser.parse_args()
    parts = [NOTES]
    try:
        for name in options.settings:
            folder = options.runs / name
            run_cells(cells_of(name, folder, options.seeds), folder, options.data_dir)
            found = runs_of(name, options.runs, options.whole, options.seeds)
            if not found[WHOLE]:
                raise ConfigError(f"the panel has no run of {name}: `benchmarks.gains run {name}`")
            parts += [f"## {name}. {gains.SETTINGS[name].title}", text(name, found)]
    except USER_ERRORS as err:
        sys.exit(f"gains_ablation: {err}")
    parts.append(
        f"Seeds {', '.join(map(str, options.seeds))}. − recipfl: points of accuracy that the "
        "variant has more than the whole method, mean over devices and seeds; where it has less, "
        "the part helps. p, with Holm's correction over the variants of a tier, and above, level, "
        "below as in `gains.md`."
    )
    print(write("gains_ablation", "What each part of RecipFL is worth", "\n\n".join(parts)))


if __name__ == "__main__":
    main()
