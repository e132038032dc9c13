"""Does everybody gain? RecipFL against tuned simple methods, on every tier of eight settings.

    python -m benchmarks.gains tune a b c d e f g h --data-dir DIR
    python -m benchmarks.gains run a b c d e f g h --seeds 0 1 2 --data-dir DIR
    python -m benchmarks.gains report

tune: tries the same learning rates for every method and setting, on held-out training data and with
a seed of its own, and writes results/gains_tuned.json. run: trains with what was chosen, then does
what report does: writes results/gains.md and gains.svg, and the tables of docs/results.md, and
packs the runs into results/gains. Every run has a folder under --runs; finished ones are kept,
those of results/gains too, interrupted ones go on.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.experiments import SEEDS, run_cells, write_fleet
from benchmarks.gains_report import Measured, write_report
from benchmarks.kept import keep, restore
from benchmarks.results_file import FOLDER
from ghn_fl import RunConfig
from ghn_fl.cli.tune import trials_of
from ghn_fl.errors import USER_ERRORS, ConfigError
from ghn_fl.files import write_atomic
from ghn_fl.report.grid import Missing, read_grid
from ghn_fl.report.tune import Trial, chosen
from ghn_fl.simulation import grid as grids
from ghn_fl.simulation.config import from_mapping
from ghn_fl.simulation.grid import Cell, Settings

OURS = "recipfl"
METHODS = (
    OURS, "allsmall", "exclusivefl", "heterofl", "flexifed", "inclusivefl", "depthfl", "fedmd",
    "local",
)  # fmt: skip
TUNING_SEED = 7  # of no comparison; strong devices of 2:100 are sampled in 3 of its first 10 rounds
VALIDATION = 0.2
TUNED = FOLDER / "gains_tuned.json"
KEPT = FOLDER / "gains"


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One fleet on one data set: what all methods have in common.

    Attributes:
        title: for people.
        settings: of a RunConfig.
        tuning_rounds: rounds of a run that tries a learning rate.
        rates: learning rates to try: of the first round; in the last one a tenth of it.
        tiers: a fleet of its own, instead of a skew.
        tuned_in: the setting whose learning rates it takes, where that has the same models and
            images.
    """

    title: str
    settings: Mapping[str, Any]
    tuning_rounds: int
    rates: str = "lr=0.3,1.0"
    tiers: Sequence[Mapping[str, Any]] = field(default=())
    tuned_in: str = ""


# Three quarters of the images (of the digits a tenth) are held out as public data, which FedMD
# alone looks at.
_LENET = {
    "skew": "2:100",
    "large": "lenet5",
    "small": "lenet5-d1",
    "public": "heldout:0.75",
    "rounds": 20,
    "epochs": 3,
    "clip": 1.0,
}
_RESNET = {
    "dataset": "cifar10_subset",
    "skew": "1:5",
    "large": "resnet18-w0.125",
    "small": "resnet18-d1-w0.125",
    "public": "heldout:0.75",
    "rounds": 10,
    "epochs": 1,
    "batch_size": 32,
    "clip": 1.0,
}
_RESNET_RATES = "lr=0.1,0.3"
# every tier another family; the weak one's model is the smallest, which larger devices train, too
_MIXED = (
    {"name": "strong", "count": 2, "model": "resnet18-w0.125", "share": 0.4},
    {"name": "densenet", "count": 2, "model": "densenet121-d1-w0.25", "share": 0.1, "alpha": 0.5},
    {"name": "vit", "count": 4, "model": "timm:test_vit", "share": 0.15, "alpha": 0.5},
    {"name": "cnn5x5", "count": 4, "model": "lenet5", "share": 0.15, "alpha": 0.5},
    {"name": "weak", "count": 8, "model": "heterofl_cnn-w0.0625", "share": 0.2, "alpha": 0.5},
)
SETTINGS: Mapping[str, Setting] = {
    "a": Setting(
        title="Fashion-MNIST, 2:100",
        settings={**_LENET, "dataset": "fashion_mnist"},
        tuning_rounds=10,
    ),
    "b": Setting(
        title="MNIST, 2:100, strong share 0.1",
        settings={**_LENET, "dataset": "mnist", "strong_share": 0.1},
        tuning_rounds=10,
        tuned_in="c",
    ),
    "c": Setting(
        title="MNIST, 2:100, 20 rounds",
        settings={**_LENET, "dataset": "mnist"},
        tuning_rounds=10,
    ),
    "d": Setting(
        title="CIFAR-10, 1:5, depth", settings=_RESNET, tuning_rounds=4, rates=_RESNET_RATES
    ),
    "e": Setting(
        title="CIFAR-10, 1:5, width",
        settings={**_RESNET, "small": "resnet18-w0.05"},
        tuning_rounds=4,
        rates=_RESNET_RATES,
    ),
    "f": Setting(
        title="CIFAR-10, 1:10, alpha 0.1",
        settings={**_RESNET, "skew": "1:10", "alpha": 0.1},
        tuning_rounds=4,
        rates=_RESNET_RATES,
        tuned_in="d",
    ),
    "g": Setting(
        title="CIFAR-10, five families",
        settings={
            "dataset": "cifar10_subset",
            "public": "heldout:0.75",
            "rounds": 15,
            "epochs": 1,
            "batch_size": 32,
            "clip": 1.0,
        },
        tuning_rounds=5,
        rates="lr=0.03,0.1,0.3",  # a ViT wants less
        tiers=_MIXED,
    ),
    "h": Setting(
        title="Bundled digits, 2:100, 30 rounds",
        settings={**_LENET, "dataset": "mnist5k", "public": "heldout", "rounds": 30, "epochs": 5},
        tuning_rounds=15,
    ),
}


def own_settings(method: str, base: RunConfig) -> Settings:
    """What a method has for itself, beside its learning rate; the others go as they are."""
    options: Mapping[str, Mapping[str, Any]] = {
        # what is made after the last round, for newcomers, changes no figure here
        "recipfl": {"lessons": 0, "imitate": 0},
        # as under the other methods, devices count by their samples and strong ones train a second
        # model; exits begin to teach each other within the run: 0.3 of the rounds, as in the
        # authors' code
        "depthfl": {
            "own_and_smallest": True,
            "ramp": round(0.3 * base.rounds),
            "weighting": "samples",
        },
        "flexifed": {"weighting": "samples"},
        "heterofl": {"weighting": "samples"},
        # nobody learns from public labels; before its first round a device learns for one round
        "fedmd": {"pretrain_epochs": 0, "private_init_epochs": base.epochs, "align": 500},
    }
    return {"options": dict(options[method])} if method in options else {}


def base_config(name: str, folder: Path, *, tuning: bool) -> RunConfig:
    """The settings that all runs of a setting share; a fleet of its own is written to `folder`."""
    setting = SETTINGS[name]
    values = dict(setting.settings)
    if setting.tiers:
        values["fleet"] = write_fleet(folder / "fleet.toml", setting.tiers)
    if tuning:
        values |= {"rounds": setting.tuning_rounds, "validation": VALIDATION}
    values["eval_every"] = 0
    return from_mapping(RunConfig, values, "setting")


def tuning_cells(name: str, folder: Path, methods: Sequence[str]) -> list[Cell]:
    """A run for every method and learning rate."""
    base = base_config(name, folder, tuning=True)
    own = {method: own_settings(method, base) for method in methods}
    tried = grids.parse_tried([SETTINGS[name].rates], methods)
    return grids.tuning_cells(base, methods, (TUNING_SEED,), own, tried)


def evaluation_cells(
    name: str, folder: Path, seeds: Sequence[int], rates: Mapping[str, float]
) -> list[Cell]:
    """A run for every seed and method that has a learning rate."""
    if TUNING_SEED in seeds:
        raise ConfigError(f"seed {TUNING_SEED} chose the learning rates; compare with others")
    base = base_config(name, folder, tuning=False)
    own = {m: grids.merge(own_settings(m, base), {"lr": lr}) for m, lr in rates.items()}
    return grids.cells(base, [m for m in METHODS if m in rates], seeds, own)


def tune(names: Sequence[str], methods: Sequence[str], runs: Path, data_dir: Path | None) -> None:
    """Choose some methods' learning rates in some settings; what others have is kept."""
    for name in dict.fromkeys(SETTINGS[name].tuned_in or name for name in names):
        folder = runs / name / "tune"
        trials = trials_of(run_cells(tuning_cells(name, folder, methods), folder, data_dir), folder)
        known = read_tuned()
        known[name] = known.get(name, {}) | tuned(trials)
        write_atomic(TUNED, json.dumps(known, indent=1) + "\n")
        print(f"{name}: {TUNED}", flush=True)


def tuned(trials: Sequence[Trial]) -> dict[str, Any]:
    """For every method the learning rate chosen and all scores, or why it has none."""
    best, found = chosen(trials), dict[str, Any]()
    for trial in trials:
        method = trial.method
        if method in best:
            entry = found.setdefault(method, {"lr": best[method].settings["lr"], "scores": {}})
            entry["scores"][str(trial.settings["lr"])] = trial.score
        else:
            found[method] = {"reason": trial.reasons[0]}
    return found


def read_tuned() -> dict[str, Any]:
    """What tuning chose so far, by setting and method."""
    found: dict[str, Any] = json.loads(TUNED.read_text()) if TUNED.exists() else {}
    return found


def rates_of(name: str) -> dict[str, float]:
    """The learning rates of a setting; methods that cannot serve it are left out."""
    tuned = SETTINGS[name].tuned_in or name
    choices = read_tuned().get(tuned)
    if choices is None:
        raise ConfigError(f"nothing is tuned for {name}: `python -m benchmarks.gains tune {tuned}`")
    return {method: own["lr"] for method, own in choices.items() if "lr" in own}


def run(
    names: Sequence[str],
    methods: Sequence[str],
    seeds: Sequence[int],
    runs: Path,
    data_dir: Path | None,
) -> None:
    """Train with some methods in some settings."""
    for name in names:
        folder = runs / name
        restore(_archive(name), folder)
        rates = {method: lr for method, lr in rates_of(name).items() if method in methods}
        run_cells(evaluation_cells(name, folder, seeds, rates), folder, data_dir)


def measured(name: str, runs: Path, seeds: Sequence[int]) -> Measured:
    """What a setting came to.

    A seed counts once every method has run it; until one is that far, all that has ended counts.
    """
    setting = SETTINGS[name]
    choices = read_tuned().get(setting.tuned_in or name, {})
    restore(_archive(name), runs / name)
    found = {
        seed: {m: folder for m in METHODS if _ended(folder := runs / name / f"{m}-{seed}")}
        for seed in seeds
    }
    tuned = {method for method in METHODS if "lr" in choices.get(method, {})}
    counted = [seed for seed in seeds if tuned <= found[seed].keys()] or list(seeds)
    folders, missing = [], []
    for method in METHODS:
        own = choices.get(method, {"reason": "not tuned"})
        for seed in seeds:
            if method in found[seed] and seed in counted:
                folders.append(found[seed][method])
            elif method not in found[seed] and (seed in counted or found[seed]):
                reason = own.get("reason", "not run to its end")
                missing.append(Missing(method=method, seed=seed, status="", reason=reason))
    return Measured(
        name=name,
        title=setting.title,
        grid=read_grid(folders, missing, OURS),
        scores={
            m: own["scores"] for m, own in choices.items() if "lr" in own and not setting.tuned_in
        },
    )


def report(runs: Path, seeds: Sequence[int]) -> list[Path]:
    """Write what all settings came to in which RecipFL can be compared with another method."""
    found = [measured(name, runs, seeds) for name in SETTINGS]
    there = [m for m in found if OURS in m.grid.runs and len(m.grid.runs) > 1]
    if not there:
        raise ConfigError(f"{runs} has no runs to compare yet: `python -m benchmarks.gains run a`")
    for m in there:
        keep(runs / m.name, _archive(m.name))
    return write_report(there)


def _ended(folder: Path) -> bool:
    return (folder / "summary.json").exists()


def _archive(name: str) -> Path:
    return KEPT / f"{name}.tar.xz"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for command in ("tune", "run", "report"):
        sub = commands.add_parser(command)
        if command != "report":
            sub.add_argument("settings", nargs="+", choices=SETTINGS, metavar="SETTING")
            sub.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
            sub.add_argument("--data-dir", type=Path)
        if command != "tune":
            sub.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS))
        sub.add_argument("--runs", type=Path, default=Path("runs/gains"))
    options = parser.parse_args()
    try:
        if options.command == "tune":
            tune(options.settings, options.methods, options.runs, options.data_dir)
            return
        if options.command == "run":
            run(options.settings, options.methods, options.seeds, options.runs, options.data_dir)
        for path in report(options.runs, options.seeds):
            print(path)
    except USER_ERRORS as err:
        sys.exit(f"gains: {err}")


if __name__ == "__main__":
    main()
