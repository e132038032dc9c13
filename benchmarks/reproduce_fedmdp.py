"""The experiments of the FedMDP paper on our harness, our numbers beside the paper's.

    python -m benchmarks.reproduce_fedmdp agents stragglers --data-dir ../shared/data

agents: ten architectures learn together, alone and on pooled data (Table 1, Fig. 5). stragglers:
slow agents do a part of the work or are left out (Figs. 3, 4), and FedAvg without them (Figs. 6,
7). Public data are digits of MNIST, private data FEMNIST's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.experiments import (
    Case,
    Results,
    Section,
    Summary,
    compared,
    device_accuracies,
    main,
    spread,
    table,
    write_fleet,
)

MODELS = {
    "small": (  # the paper's train 60 to 400 samples a second and core, these some thousands
        "lenet5",
        "lenet5-d1",
        "lenet5-w0.5",
        "femnist_cnn-w0.25",
        "femnist_cnn-w0.125",
        "femnist_cnn-w0.0625",
        "heterofl_cnn-w0.125",
        "heterofl_cnn-d3-w0.125",
        "heterofl_cnn-d2-w0.125",
        "heterofl_cnn-d2-w0.25",
    ),
    "paper": tuple(f"fedmdp_mnist_{row}" for row in range(1, 11)),
}
FEDAVG_MODEL = {"small": "lenet5", "paper": "fedmdp_mnist_9"}  # it needs one model for all
PRETRAINED = (96.4, 96.6, 96.0, 98.2, 95.3, 98.3, 98.4, 97.9, 98.9, 97.4)  # Table 1, %
SHARE = {"small": 0.0125, "paper": 0.00625}  # of an agent: 6 and, as in FedMD, 3 samples a class
STRAGGLERS = {"small": (0, 50, 90), "paper": (0, 10, 20, 50, 90)}  # %
MIXES = {"iid": 0, "non-iid": 5}  # classes of every agent; 0: the global mix
TRAINING: Mapping[str, dict[str, Any]] = {
    "small": {
        "public": "mnist5k",
        "rounds": 10,
        "epochs": 10,
        "batch_size": 16,
        "lr": 0.02,
        "lr_decay": 1.0,
        "eval_every": 10,
    },
    "paper": {
        "public": "mnist",
        "rounds": 20,
        "epochs": 10,
        "batch_size": 10,
        "lr": 0.01,
        "lr_decay": 1.0,
    },
}
PLAN: Mapping[str, dict[str, Any]] = {
    "small": {"pretrain_epochs": 5, "private_init_epochs": 10, "align": 500},
    "paper": {"pretrain_epochs": 20, "private_init_epochs": 25, "align": 5000},
}
ALONE = {"digest_epochs": 0}  # pretrained as the others, then without a consensus


def agents(scale: str, folder: Path) -> list[Case]:
    """Ten agents together, alone, alone without public data; in full also with all private data."""
    base, plan = _base(scale), PLAN[scale]
    ten = {"fleet": _ten(scale, folder, "iid")}
    cases = [
        Case(name="fedmdp", settings=base | ten | {"method": "fedmdp", "options": plan}),
        Case(name="alone", settings=base | ten | {"method": "fedmdp", "options": plan | ALONE}),
        Case(name="local", settings=base | ten | {"method": "local"}),
    ]
    for number, model in enumerate(MODELS[scale] if scale == "paper" else (), 1):
        everything = {"name": "pooled", "count": 1, "model": model, "share": 10 * SHARE[scale]}
        fleet = write_fleet(folder / f"pooled{number}.toml", [everything])
        settings = {"fleet": fleet, "method": "fedmdp", "options": plan | ALONE}
        cases.append(Case(name=f"pooled, {model}", settings=base | settings))
    return cases


def stragglers(scale: str, folder: Path) -> list[Case]:
    """Shares of stragglers, who do a part of the work or are dropped; FedAvg drops them."""
    cases = []
    for mix, classes in MIXES.items():
        base = _base(scale) | {"method": "fedmdp", "fleet": _ten(scale, folder, mix)}
        for slow in STRAGGLERS[scale]:
            for work in ("partial", "drop"):
                options = PLAN[scale] | {"stragglers": slow / 100, "work": work}
                name = f"{mix}, {slow} %, fedmdp {work}"
                if slow or work == "partial":  # without stragglers they are one
                    cases.append(Case(name=name, settings=base | {"options": options}))
            fleet = _fast_and_slow(scale, folder, slow, classes)
            own = {"method": "fedavg", "fleet": fleet, "options": {"slow": "drop"}}
            cases.append(Case(name=f"{mix}, {slow} %, fedavg drop", settings=_base(scale) | own))
    return cases


def _base(scale: str) -> dict[str, Any]:
    return {"dataset": "femnist", "sample": 10, **TRAINING[scale]}


def _ten(scale: str, folder: Path, mix: str) -> str:
    """A fleet of ten agents, each with an architecture of its own."""
    tiers = [
        {
            "name": f"agent{number}",
            "count": 1,
            "model": model,
            "share": SHARE[scale],
            "classes": MIXES[mix],
        }
        for number, model in enumerate(MODELS[scale], 1)
    ]
    return write_fleet(folder / f"ten_{mix}.toml", tiers)


def _fast_and_slow(scale: str, folder: Path, slow: int, classes: int) -> str:
    """A fleet of ten agents with one architecture, some of them slow."""
    weak = slow // 10
    tiers = [
        {
            "name": name,
            "count": count,
            "model": FEDAVG_MODEL[scale],
            "share": count * SHARE[scale],
            "classes": classes,
        }
        for name, count in (("strong", 10 - weak), ("weak", weak))
        if count
    ]
    return write_fleet(folder / f"one_model_{slow}_{classes}.toml", tiers)


def agents_text(cases: Sequence[Case], results: Results) -> str:
    """A row an agent, then their mean."""
    full = any("pooled" in case.name for case in cases)
    models = MODELS["paper" if full else "small"]
    rows = [
        (
            model,
            *(spread(_agent(results[c], number)) for c in ("fedmdp", "alone", "local")),
            *((_pooled(model, results), str(PRETRAINED[number])) if full else ()),
        )
        for number, model in enumerate(models)
    ]
    means = [spread([_mean(s) for s in results[c].values()]) for c in ("fedmdp", "alone", "local")]
    means += [spread(_pooled_means(models, results)), ""] if full else []
    header = ("model", "fedmdp", "alone, pretrained", "local")
    header += ("pooled", "paper: pretrained") * full
    gains = [
        ("alone, pretrained", compared(results["fedmdp"], results["alone"]), "+15 on average"),
        ("local", compared(results["fedmdp"], results["local"]), ""),
    ]
    return "\n\n".join(
        (
            f"Accuracy in % of ten agents. {_setup(cases)} Alone: pretrained on the public data "
            "like FedMDP's agents, then trained on its own for as many epochs, without a "
            "consensus. Local: its own data only. "
            + "Pooled: alone, with the private data of all ten. " * full
            + "All have the global class mix.",
            table(header, [*rows, ("mean", *means)]),
            "FedMDP ahead, in points (p over agents and seeds); the paper's is over no "
            "collaboration.",
            table(("ahead of", "ours", "paper"), gains),
        )
    )


def stragglers_text(cases: Sequence[Case], results: Results) -> str:
    """A row a share, a column a way to treat stragglers, for both class mixes."""
    shares = list(dict.fromkeys(case.name.split(", ")[1] for case in cases))
    rows = []
    for mix in MIXES:
        for share in shares:
            partial = f"{mix}, {share}, fedmdp partial"
            names = (partial, f"{mix}, {share}, fedmdp drop", f"{mix}, {share}, fedavg drop")
            figures = [spread([_mean(s) for s in results.get(n, {}).values()]) for n in names]
            ahead = compared(results[partial], results.get(names[1], {}))
            rows.append((mix, share, *figures, ahead))
    header = (
        "classes",
        "stragglers",
        "fedmdp, partial work",
        "fedmdp, dropped",
        "fedavg, dropped",
        "partial ahead of dropped",
    )
    model = FEDAVG_MODEL["paper" if "fedmdp_mnist" in _models(cases) else "small"]
    return "\n\n".join(
        (
            "Accuracy in %, mean over all ten agents, stragglers too, by their share. "
            f"{_setup(cases)} Non-iid: {MIXES['non-iid']} classes an agent. A dropped FedMDP agent "
            "never trains and is left with its initial weights; a dropped FedAvg client is served "
            f"the others' model. FedAvg's clients all have {model} and no public data.",
            table(header, rows, names=2),
            "Paper: curves without numbers, with and without partial work (Figs. 3, 4), and FedAvg "
            "against FedMDP (Figs. 6, 7); FedAvg is better on iid synthetic data.",
        )
    )


def _agent(runs: Mapping[int, Summary], number: int) -> list[float]:
    """One agent's accuracy for every seed."""
    return [device_accuracies(summary)[number] for summary in runs.values()]


def _mean(summary: Summary) -> float:
    return fmean(device_accuracies(summary).values())


def _pooled(model: str, results: Results) -> str:
    return spread(_agent(results[f"pooled, {model}"], 0))


def _pooled_means(models: Sequence[str], results: Results) -> list[float]:
    """The mean over the architectures for every seed that all of them have."""
    runs = [results[f"pooled, {model}"] for model in models]
    seeds = set.intersection(*(set(r) for r in runs))
    return [fmean(_mean(r[seed]) for r in runs) for seed in sorted(seeds)]


def _models(cases: Sequence[Case]) -> str:
    return " ".join(Path(str(case.settings["fleet"])).read_text() for case in cases)


def _setup(cases: Sequence[Case]) -> str:
    """What the runs of a section have in common."""
    settings, options = cases[0].settings, cases[0].settings["options"]
    samples = 60 if settings["public"] == TRAINING["small"]["public"] else 30
    return (
        f"Private: FEMNIST digits, {samples} training samples an agent; public: the "
        f"training part of {settings['public']}. {options['pretrain_epochs']} epochs of "
        f"pretraining, {options['private_init_epochs']} on the private data, then "
        f"{settings['rounds']} rounds: alignment on {options['align']} samples, "
        f"{settings['epochs']} epochs of revisiting, batches of {settings['batch_size']}, SGD "
        f"{settings['lr']}, beta 0.01 (the paper gives neither beta nor epochs)."
    )


SECTIONS = {
    "agents": Section(cases=agents, text=agents_text),
    "stragglers": Section(cases=stragglers, text=stragglers_text),
}

if __name__ == "__main__":
    main("fedmdp", "FedMDP's experiments", SECTIONS, __doc__ or "")
