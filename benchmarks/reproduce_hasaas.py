"""The experiments of the Hasaas paper on our harness, our numbers beside the paper's.

    python -m benchmarks.reproduce_hasaas tune --seeds 7 --data-dir ../shared/data
    python -m benchmarks.reproduce_hasaas drop fairness ablation clt tuned --data-dir ../shared/data

drop: accuracy by the share of slow clients (Figs. 1, 3, 4). fairness: spread of the clients' test
losses in the same runs (Figs. 1, 5). ablation: masks, aggregation, serving. clt: FedAvg and FedProx
with Hasaas' aggregation. tune: step sizes and FedProx' mu, with a seed of no comparison; tuned: all
methods with what it chose.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from benchmarks.experiments import (
    NONE,
    Case,
    Results,
    Section,
    Summary,
    compared,
    main,
    sample_weighted_accuracy,
    spread,
    table,
    write_fleet,
)

# %, the paper's client drop rate: FedAvg drops them
SLOW = {"small": (0, 50, 90), "paper": (0, 30, 50, 70, 90)}
ABLATED = {"small": (90,), "paper": (30, 90)}
CLASSES = 5  # of every client, as in FEMNIST-skewed
METHODS: Mapping[str, dict[str, Any]] = {
    "hasaas": {"method": "hasaas"},
    "fedavg": {"method": "fedavg", "options": {"slow": "drop"}},
    "fedprox": {"method": "fedprox", "options": {"partial": True, "mu": 1.0}},  # the paper's mu
    "afd": {"method": "afd"},
    "federated dropout": {"method": "afd", "options": {"mode": "federated_dropout"}},
}
ABLATIONS: Mapping[str, dict[str, Any]] = {
    "hasaas": {},
    "mask random_each_round": {"mask": "random_each_round"},
    "mask random_fixed": {"mask": "random_fixed"},
    "aggregation mean": {"aggregation": "mean"},
    "serving hms": {"serving": "hms"},
}
# points by which Hasaas is ahead at 90 % on FEMNIST-skewed
PAPER_AHEAD = {"fedavg": "+27", "fedprox": "+14", "afd": "+34"}
PAPER_ABLATION = {
    "mask random_each_round": "+3.7 at 30 %, +6.9 at 90 % (random mask)",
    "mask random_fixed": "+3.7 at 30 %, +6.9 at 90 % (random mask)",
    "aggregation mean": "up to +6.7",
    "serving hms": "+9.4 (testbed)",
}
MODELS = {
    "small": ("femnist_cnn-w0.25", "femnist_cnn-w0.125"),
    "paper": ("femnist_cnn", "femnist_cnn-w0.5"),
}
CLIENTS = {"small": (50, 0.125), "paper": (100, 1.0)}  # number, and share of the data
TRAINING: Mapping[str, dict[str, Any]] = {
    # 150 samples a client, of which 30 are its test
    "small": {
        "rounds": 30,
        "epochs": 5,
        "batch_size": 32,
        "lr": 0.05,
        "lr_decay": 1.0,
        "validation": 0.2,
        "eval_every": 30,
    },
    "paper": {
        "rounds": 1000,
        "epochs": 10,
        "batch_size": 10,
        "lr": 0.001,
        "lr_decay": 1.0,
        "eval_every": 5,
    },
}
RATES = {"small": (0.02, 0.05, 0.1, 0.2), "paper": (0.0003, 0.001, 0.01)}  # tried
MUS = (0.01, 0.1, 1.0)  # tried for FedProx
# what `tune` chose for small runs, by accuracy (`results/reproduce_hasaas_tune.md`)
CHOSEN: Mapping[str, Mapping[str, float]] = {
    "hasaas": {"lr": 0.2},
    "fedavg": {"lr": 0.1},
    "fedprox": {"lr": 0.2, "mu": 0.1},
    "afd": {"lr": 0.2},
    "federated dropout": {"lr": 0.2},
}


def tune(scale: str, folder: Path) -> list[Case]:
    """Step sizes for all methods, and mu for FedProx, with most clients slow."""
    cases = []
    for name in METHODS:
        for lr in RATES[scale]:
            for mu in MUS if name == "fedprox" else (None,):
                own = {"lr": lr} if mu is None else {"lr": lr, "mu": mu}
                title = ", ".join((name, *(f"{key} {value}" for key, value in own.items())))
                cases.append(Case(name=title, settings=_settings(scale, folder, 90, name, own)))
    return cases


def tuned(scale: str, folder: Path) -> list[Case]:
    """All methods with what `tune` chose for small runs, and FedProx also with the paper's mu."""
    chosen = CHOSEN if scale == "small" else {name: {} for name in METHODS}
    own = {name: (name, options) for name, options in chosen.items()}
    own["fedprox, mu 1"] = ("fedprox", {**chosen["fedprox"], "mu": 1.0})
    return [
        Case(name=f"90 %, {title}, tuned", settings=_settings(scale, folder, 90, name, options))
        for title, (name, options) in own.items()
    ]


def drop(scale: str, folder: Path) -> list[Case]:
    """All methods at all shares of slow clients."""
    return [
        Case(name=f"{slow} %, {name}", settings=_settings(scale, folder, slow, name))
        for slow in SLOW[scale]
        for name in METHODS
    ]


def ablation(scale: str, folder: Path) -> list[Case]:
    """Hasaas with one part replaced, with slow clients."""
    return [
        Case(
            name=f"{slow} %, {name}",
            settings=_settings(scale, folder, slow, "hasaas") | _options(options),
        )
        for slow in ABLATED[scale]
        for name, options in ABLATIONS.items()
    ]


def clt(scale: str, folder: Path) -> list[Case]:
    """FedAvg and FedProx with slow clients, and the same with Hasaas' aggregation."""
    cases = []
    for slow in ABLATED[scale]:
        for name in ("fedavg", "fedprox"):
            own = _settings(scale, folder, slow, name)
            drawn = own | {"options": own["options"] | {"aggregation": "clt"}}
            cases.append(Case(name=f"{slow} %, {name}", settings=own))
            cases.append(Case(name=f"{slow} %, {name} with clt", settings=drawn))
    return cases


def _settings(
    scale: str,
    folder: Path,
    slow: int,
    name: str,
    own: Mapping[str, float] = MappingProxyType({}),
) -> dict[str, Any]:
    """A method's run, with a step size or mu of its own if there are any."""
    base = _base(scale, folder, slow, one_model=name != "hasaas") | METHODS[name]
    lr = {"lr": own["lr"]} if "lr" in own else {}
    mu = {"mu": own["mu"]} if "mu" in own else {}
    return base | lr | _options({**base.get("options", {}), **mu})


def _options(options: dict[str, Any]) -> dict[str, Any]:
    return {"options": options} if options else {}


def _base(scale: str, folder: Path, slow: int, *, one_model: bool = False) -> dict[str, Any]:
    """Ten clients a round, of which exactly the given share is slow; every client has 5 classes."""
    fleet = write_fleet(
        folder / f"slow{slow}{'_one_model' if one_model else ''}.toml",
        _tiers(scale, slow, one_model),
    )
    return {
        "dataset": "fashion_mnist",
        "fleet": fleet,
        "sample": 10,
        "stratified": True,
        "finetune": 0,  # the paper's clients test what they are served
        **TRAINING[scale],
    }


def _tiers(scale: str, slow: int, one_model: bool) -> list[dict[str, Any]]:
    """Fast clients are strong, slow ones weak; with `one_model`, these have the large one too."""
    (clients, data), (large, small) = CLIENTS[scale], MODELS[scale]
    weak = clients * slow // 100
    tiers = (("strong", clients - weak, large), ("weak", weak, large if one_model else small))
    return [
        {"name": n, "count": c, "model": m, "share": data * c / clients, "classes": CLASSES}
        for n, c, m in tiers
        if c
    ]


def tune_text(cases: Sequence[Case], results: Results) -> str:
    """Accuracy of all that was tried; the best of every method is set off."""
    scores = {c.name: _accuracies(results[c.name]) for c in cases}
    rows = []
    for name in METHODS:
        own = [c.name for c in cases if c.name.startswith(f"{name}, ") and scores[c.name]]
        best = max(own, key=lambda case: statistics.fmean(scores[case]), default="")
        for case in own:
            accuracy, losses = spread(scores[case]), _loss_stds(results[case])
            tried = case.removeprefix(f"{name}, ")
            chosen = f"**{accuracy}**" if case == best else accuracy
            rows.append((name, tried, chosen, losses))
    return "\n\n".join(
        (
            "Accuracy in %, samples weighted alike, with 90 % slow clients. The best step size of "
            f"every method, with FedProx' best mu, is set off. {_setup(cases, tried=True)}",
            table(("method", "tried", "accuracy %", "std of loss"), rows, names=2),
        )
    )


def tuned_text(cases: Sequence[Case], results: Results) -> str:
    """Each method with its own step size, and how far Hasaas is ahead of it."""
    ours = results[cases[0].name]
    rows = [
        (
            case.name.removeprefix("90 %, ").removesuffix(", tuned"),
            f"{case.settings['lr']}",
            spread(_accuracies(results[case.name])),
            _loss_stds(results[case.name]),
            "" if case is cases[0] else compared(ours, results[case.name]),
        )
        for case in cases
    ]
    header = ("method", "step size", "accuracy %", "std of loss", "hasaas ahead")
    return "\n\n".join(
        (
            "90 % slow clients, every method with the best step size of those tried, FedProx with "
            "the best mu, too (`reproduce_hasaas_tune.md`). Ahead: points, mean over clients; "
            f"Wilcoxon's p over clients and seeds. {_setup(cases, tried=True)}",
            table(header, rows),
        )
    )


def drop_text(cases: Sequence[Case], results: Results) -> str:
    """Accuracy by method and share, then how far Hasaas is ahead at 90 %."""

    def figure(slow: int, name: str) -> str:
        return spread(_accuracies(results[f"{slow} %, {name}"]))

    ahead = {n: compared(results["90 %, hasaas"], results[f"90 %, {n}"]) for n in METHODS}
    rows = [(n, ahead[n], PAPER_AHEAD.get(n, NONE)) for n in METHODS if n != "hasaas"]
    return "\n\n".join(
        (
            f"Accuracy in % by the share of slow clients, samples weighted alike. {_setup(cases)}",
            _by_share(cases, figure),
            "Hasaas ahead at 90 % slow clients, in points (mean over clients; Wilcoxon's p over "
            "clients and seeds); the paper's on FEMNIST-skewed.",
            table(("ahead of", "ours", "paper"), rows),
            "Paper: FedAvg falls with the share of slow clients (Fig. 1); Figs. 3 and 4 are curves "
            "without numbers.",
        )
    )


def fairness_text(cases: Sequence[Case], results: Results) -> str:
    """Standard deviation of the clients' test losses."""

    def figure(slow: int, name: str) -> str:
        return _loss_stds(results[f"{slow} %, {name}"])

    return "\n\n".join(
        (
            "Standard deviation over the clients of their test loss after the last round, by the "
            f"share of slow clients; lower is fairer. {_setup(cases)}",
            _by_share(cases, figure),
            "Paper: FedAvg's variance of the loss rises with the share of slow clients (Fig. 1); "
            "Fig. 5 shows variance against accuracy, without numbers.",
        )
    )


def _by_share(cases: Sequence[Case], figure: Callable[[int, str], str]) -> str:
    shares = dict.fromkeys(int(case.name.split(" ")[0]) for case in cases)
    header = ("method", *(f"{slow} %" for slow in shares))
    return table(header, [(n, *(figure(slow, n) for slow in shares)) for n in METHODS])


def ablation_text(cases: Sequence[Case], results: Results) -> str:
    """Each variant, and how far Hasaas is ahead of it."""
    rows = []
    for case in cases:
        slow, name = case.name.split(", ")
        own = results[case.name]
        rows.append(
            (
                slow,
                name,
                spread(_accuracies(own)),
                _loss_stds(own),
                "" if name == "hasaas" else compared(results[f"{slow}, hasaas"], own),
                PAPER_ABLATION.get(name, ""),
            )
        )
    header = ("slow", "variant", "accuracy %", "std of loss", "hasaas ahead", "paper: ahead")
    return "\n\n".join(
        (
            "Hasaas with one part replaced. Ahead: points, mean over clients; Wilcoxon's p over "
            f"clients and seeds. {_setup(cases)}",
            table(header, rows, names=2),
        )
    )


def clt_text(cases: Sequence[Case], results: Results) -> str:
    """Both methods with and without, and how far ahead they are with it."""
    rows = []
    for case in cases:
        slow, name = case.name.split(", ")
        own = results[case.name]
        plain = results[case.name.removesuffix(" with clt")]
        rows.append(
            (
                slow,
                name,
                spread(_accuracies(own)),
                _loss_stds(own),
                compared(own, plain) if own is not plain else "",
            )
        )
    return "\n\n".join(
        (
            "FedAvg and FedProx with weights drawn around the clients' mean. Gain: points, mean "
            f"over clients; Wilcoxon's p over clients and seeds. {_setup(cases)}",
            table(("slow", "method", "accuracy %", "std of loss", "gain"), rows, names=2),
            "Paper: with either of them the differences are small and not significant.",
        )
    )


def _accuracies(results: Mapping[int, Summary]) -> list[float]:
    return [sample_weighted_accuracy(summary) for summary in results.values()]


def _loss_stds(results: Mapping[int, Summary]) -> str:
    return spread([s["fairness_loss_std"] for s in results.values()], scale=1, digits=3)


def _setup(cases: Sequence[Case], tried: bool = False) -> str:
    """What the runs of a section have in common, in a sentence."""
    settings = cases[0].settings
    scale = "small" if settings["rounds"] == TRAINING["small"]["rounds"] else "paper"
    (clients, data), (large, small) = CLIENTS[scale], MODELS[scale]
    held = settings.get("validation", 0)
    tests = f"{held:.0%} of a client's samples are its test" if held else "the set's own test part"
    rate, mu = ("", "") if tried else (f", step size {settings['lr']}", "mu 1 and ")
    return (
        f"Fashion-MNIST ({data:.1%} of it), {clients} clients with {CLASSES} classes each, "
        f"{tests}; large model {large}, small {small}; 10 clients a round, stratified; "
        f"{settings['rounds']} rounds of {settings['epochs']} epochs, batches of "
        f"{settings['batch_size']}{rate} (paper: 1000 rounds of 10 epochs, batches of 10, 0.001, "
        f"femnist_cnn and its half). FedAvg drops slow clients, FedProx has {mu}partial work, AFD "
        "and federated dropout train half of every layer."
    )


SECTIONS = {
    "drop": Section(cases=drop, text=drop_text),
    "fairness": Section(cases=drop, text=fairness_text, folder="drop"),
    "ablation": Section(cases=ablation, text=ablation_text, folder="drop"),
    "clt": Section(cases=clt, text=clt_text, folder="drop"),
    "tune": Section(cases=tune, text=tune_text),
    "tuned": Section(cases=tuned, text=tuned_text),
}

if __name__ == "__main__":
    main("hasaas", "Hasaas' experiments", SECTIONS, __doc__ or "")
