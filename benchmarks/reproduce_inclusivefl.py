"""The experiments of the InclusiveFL paper on our harness, our numbers beside the paper's.

    python -m benchmarks.reproduce_inclusivefl groups

groups: three depths in the mixes of Table 5, with and without momentum distillation and
heterogeneous aggregation, against the baselines; whether all stays finite where, as at 7:2:1, no
strong device is sampled in many rounds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.experiments import (
    Case,
    Results,
    Section,
    compared,
    main,
    spread,
    table,
    write_fleet,
)
from ghn_fl.report.read import read_run

TIERS = ("weak", "medium", "strong")
MODELS = {
    "small": ("heterofl_cnn-d2-w0.125", "heterofl_cnn-d3-w0.125", "heterofl_cnn-w0.125"),
    "paper": ("heterofl_cnn-d2", "heterofl_cnn-d3", "heterofl_cnn"),
}
# devices of every tier, by the mix of Table 5: weak to strong
FLEETS: Mapping[str, Mapping[str, tuple[int, int, int]]] = {
    "small": {"7:2:1": (14, 4, 2)},
    "paper": {"7:2:1": (700, 200, 100), "1:1:1": (334, 333, 333), "1:2:7": (100, 200, 700)},
}
SHARE = {"small": 0.5, "paper": 1.0}  # of the training data: 100 and 60 samples a device
METHODS: Mapping[str, dict[str, Any]] = {
    "inclusivefl": {"method": "inclusivefl"},
    "without momentum": {"method": "inclusivefl", "options": {"momentum": False}},
    "without hetero aggregation": {
        "method": "inclusivefl",
        "options": {"hetero_aggregation": False},
    },
    "allsmall": {"method": "allsmall"},
    "exclusivefl": {"method": "exclusivefl", "options": {"mode": "drop_weak"}},
    "alllarge": {"method": "alllarge"},
}
PAPER = {  # Table 5, CoLA: Matthews correlation of the large model
    "inclusivefl": {"1:1:1": "54.85", "1:2:7": "61.23", "7:2:1": "N/A"},
    "without momentum": {"1:1:1": "52.69", "1:2:7": "60.35", "7:2:1": "N/A"},
    "without hetero aggregation": {"7:2:1": "34.96"},
    "allsmall": dict.fromkeys(FLEETS["paper"], "34.91"),
    "exclusivefl": {"1:1:1": "37.77", "1:2:7": "59.15", "7:2:1": "36.87"},
    "alllarge": dict.fromkeys(FLEETS["paper"], "63.03"),
}
TRAINING: Mapping[str, dict[str, Any]] = {
    "small": {
        "dataset": "mnist5k",
        "sample": 5,
        "rounds": 300,
        "epochs": 1,
        "batch_size": 32,
        "lr": 0.05,
        "lr_decay": 1.0,
        "eval_every": 300,
    },
    "paper": {
        "dataset": "mnist",
        "sample": 20,
        "rounds": 1000,
        "epochs": 1,
        "batch_size": 64,
        "lr": 0.05,
        "lr_decay": 1.0,
        "eval_every": 100,
    },
}


def groups(scale: str, folder: Path) -> list[Case]:
    """All methods in all mixes of depths; the paper's server is FedAdam, the small scale's not."""
    cases = []
    for mix, counts in FLEETS[scale].items():
        fleet = write_fleet(folder / f"{mix.replace(':', '-')}.toml", _tiers(scale, counts))
        for name, own in METHODS.items():
            options = dict(own.get("options", {}))
            if scale == "paper":
                options["server"] = "fedadam"
                if own["method"] == "inclusivefl":
                    options["weights"] = "clients"
            settings = TRAINING[scale] | own | {"fleet": fleet, "options": options}
            paper = PAPER[name].get(mix, "")
            cases.append(Case(name=f"{mix}, {name}", settings=settings, paper=paper))
    return cases


def _tiers(scale: str, counts: Sequence[int]) -> list[dict[str, Any]]:
    """Devices of three depths; all have as many samples, of the global class mix."""
    share = SHARE[scale] / sum(counts)
    tiers = [
        {"name": name, "count": count, "model": model, "share": share * count}
        for name, count, model in zip(TIERS, counts, MODELS[scale], strict=True)
    ]
    return tiers[::-1]  # strongest first


def groups_text(cases: Sequence[Case], results: Results) -> str:
    """Accuracy of every tier, and whether everything stayed finite."""
    rows = []
    for case in cases:
        mix, name = case.name.split(", ")
        runs = results[case.name]
        accuracies = [
            spread([s["tiers"][tier]["accuracy"] for s in runs.values()]) for tier in TIERS[::-1]
        ]
        base = results[f"{mix}, inclusivefl"]
        ahead = "" if name == "inclusivefl" else compared(base, runs)
        rows.append((mix, name, *accuracies, ahead, case.paper))
    header = ("mix", "method", *TIERS[::-1], "inclusivefl ahead", "paper: CoLA")
    return "\n\n".join(
        (
            "Accuracy in % of three depths in the mix weak:medium:strong. " + _setup(cases),
            table(header, rows, names=2),
            _finite(cases, results),
            "Ahead: points, mean over devices; Wilcoxon's p over devices and seeds. The paper's "
            "figures are the large model's (Table 5: RoBERTa on CoLA), so strong is the column to "
            "compare, by its order only. ExclusiveFL leaves all but the strong out: the others "
            "have their initial weights and the epoch of fine-tuning. Paper: at 1:1:1 and "
            "1:2:7 InclusiveFL is above its variant without momentum, and both are above AllSmall "
            "and ExclusiveFL; at 7:2:1 only the variant without heterogeneous aggregation has a "
            "number.",
        )
    )


def _finite(cases: Sequence[Case], results: Results) -> str:
    """How often no strong device was sampled, and what came of it."""
    ours = [c.name for c in cases if c.name.startswith("7:2:1") and "inclusive" in c.name]
    rounds = without = 0
    for summary in (s for name in ours for s in results[name].values()):
        run = read_run(summary["folder"])
        strong = {device.id for device in run.tiers["strong"]}
        rounds += len(run.rounds)
        without += sum(not strong & set(record.sampled) for record in run.rounds)
    rejected = sum(s["rejected"] for runs in results.values() for s in runs.values())
    finished = sum(map(len, results.values()))
    return (
        f"At 7:2:1 no strong device was sampled in {without} of InclusiveFL's {rounds} rounds. A "
        "run whose weights are no longer finite is stopped and has no result: all of the "
        f"{finished} runs in this table stayed finite, and {rejected} clients' answers were "
        "rejected."
    )


def _setup(cases: Sequence[Case]) -> str:
    """What all runs have in common."""
    settings = cases[0].settings
    scale = "small" if settings["dataset"] == TRAINING["small"]["dataset"] else "paper"
    devices = sum(next(iter(FLEETS[scale].values())))
    server = "FedAvg (paper: FedAdam)" if scale == "small" else "FedAdam"
    return (
        f"{settings['dataset']} ({SHARE[scale]:.0%} of it), {devices} devices of equal size and "
        f"class mix, {settings['sample']} a round, models {', '.join(MODELS[scale])}; "
        f"{settings['rounds']} rounds of {settings['epochs']} epoch, batches of "
        f"{settings['batch_size']}, SGD {settings['lr']}; server {server} (paper: RoBERTa of 4, 8 "
        "and 12 layers, 1000 devices, 20 a round, 1000 rounds). Only layers of one shape give "
        "each other momentum: here a top layer gets that of the same layer in the next larger "
        "model, as deeper ones are wider. Larger devices train the smallest model as well, as in "
        "all of our comparisons."
    )


SECTIONS = {"groups": Section(cases=groups, text=groups_text)}

if __name__ == "__main__":
    main("inclusivefl", "InclusiveFL's experiments", SECTIONS, __doc__ or "")
