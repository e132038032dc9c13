"""The experiments of the RecipFL paper on our harness, our numbers beside the paper's.

    python -m benchmarks.reproduce_recipfl mnist transfer shares weak strong cifar --data-dir DIR
    python -m benchmarks.reproduce_recipfl table table_cifar cifar100 --scale paper --data-dir DIR

Every run has a folder under --runs; finished ones are kept, interrupted ones go on.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.experiments import NONE, Case, Results, Section, Summary, main, spread, table
from benchmarks.results_file import FOLDER
from ghn_fl.files import write_atomic
from ghn_fl.report.grid import device_pairs
from ghn_fl.report.grid_plots import courses_figure, tiers_figure
from ghn_fl.report.paired import holm, paired_test
from ghn_fl.report.read import Run, read_run
from ghn_fl.report.style import svg
from ghn_fl.simulation.presets import PRESETS

COLUMNS = ("strong_accuracy", "weak_accuracy", "strong_accuracy_full", "weak_accuracy_full")
NAIVE = ("recipfl", "exclusivefl", "allsmall")
# Table 3, strong and weak
MNIST = {
    "recipfl": "97.99 / 95.44",
    "recipfl-paper": "97.99 / 95.44",
    "exclusivefl": "96.21 / 83.59",
    "allsmall": "94.84 / 92.01",
    "flexifed": "96.13 / 90.15",
    "inclusivefl": "91.18 / 87.42",
    "depthfl": "96.92 / 92.94",
    "heterofl": "83.47 / 79.17",
}
CIFAR10 = {
    "depth": {
        "recipfl": "85.28 / 78.65",
        "exclusivefl": "84.85 / 59.11",
        "allsmall": "64.34 / 68.50",
        "flexifed": "82.86 / 67.66",
        "inclusivefl": "83.22 / 67.66",
        "depthfl": "73.90 / 78.16",
    },
    "width": {
        "recipfl": "85.06 / 82.88",
        "exclusivefl": "83.96 / 70.65",
        "allsmall": "82.86 / 78.90",
        "heterofl": "84.76 / 77.93",
    },
}
# RecipFL's protocol, where it is no method's default: a strong device's small model joins the
# others', everybody counts by its samples, and public images, if a method needs any, are of other
# things and have no labels, so that devices keep all of their own
_DISTILLATION = {"public": "fashion_mnist", "options": {"pretrain_epochs": 0, "align": 500}}
PROTOCOL: Mapping[str, Mapping[str, Any]] = {
    "depthfl": {"options": {"own_and_smallest": True, "weighting": "samples"}},
    "flexifed": {"options": {"weighting": "samples"}},
    "heterofl": {"options": {"weighting": "samples"}},
    "fedmd": _DISTILLATION,
    "fedmdp": _DISTILLATION,
}
# MNIST, 100 rounds: the first round's step size, in the last one a tenth of it. Held-out data
# choose it for every method but RecipFL, which does not care (`results/tune_mnist.md`)
RATE = 0.3


def digits(scale: str, _: Path) -> list[Case]:
    """The demo: the bundled digits (4000 for training), 2:100, 30 rounds."""
    base = {"skew": "2:100", "eval_every": 30}
    return [_case(m, base) for m in ("recipfl", "recipfl-paper", "exclusivefl", "allsmall")]


def mnist(scale: str, _: Path) -> list[Case]:
    """Table 3, MNIST, 2:100, 100 rounds: RecipFL and the naive baselines."""
    return [_case(m, _mnist(), MNIST[m]) for m in NAIVE]


def table_mnist(scale: str, _: Path) -> list[Case]:
    """Table 3, Figs. 1(b) and 7, MNIST, 2:100, 100 rounds: every method that serves the fleet."""
    others = ("alllarge", "local", "fedmd", "fedmdp")
    return [_case(m, _mnist(), MNIST.get(m, "")) for m in (*MNIST, *others)]


def transfer(scale: str, _: Path) -> list[Case]:
    """Fig. 6: knowledge transfer on strong devices, MNIST, 2:100."""
    with_transfer, _exclusive, allsmall = _sweep(scale, "strong_share", (0.5,))
    without = Case(
        name=with_transfer.name.replace("recipfl", "without transfer"),
        settings={**with_transfer.settings, "transfer": False},
    )
    return [with_transfer, without, allsmall]


def shares(scale: str, _: Path) -> list[Case]:
    """Fig. 5(a): the part of the data that strong devices hold, MNIST, 2:100."""
    return _sweep(scale, "strong_share", (0.1, 0.5, 0.9))


def weak(scale: str, _: Path) -> list[Case]:
    """Fig. 5(b): the number of weak devices, MNIST, 2 strong ones."""
    return _sweep(scale, "skew", ("2:10", "2:100", "2:1000"))


def strong(scale: str, _: Path) -> list[Case]:
    """Fig. 5(c): the number of strong devices, MNIST, 100 weak ones."""
    return _sweep(scale, "skew", ("2:100", "5:100", "50:100"))


def cifar(scale: str, _: Path) -> list[Case]:
    """Table 3, CIFAR-10, 1:5, both scalings: RecipFL and the naive baselines."""
    return [c for c in table_cifar(scale, _) if c.settings["method"] in NAIVE]


def table_cifar(scale: str, _: Path) -> list[Case]:
    """Table 3, CIFAR-10, 1:5, both scalings: the methods of the paper's table."""
    return [
        _case(m, _cifar10(scale, scaling), paper, f"{scaling}, {m}")
        for scaling, methods in CIFAR10.items()
        for m, paper in methods.items()
    ]


def cifar100(scale: str, _: Path) -> list[Case]:
    """Table 3, CIFAR-100, 1:50, both scalings."""
    cases = []
    for scaling, methods in CIFAR10.items():
        base = PRESETS[f"recipfl-cifar100-{scaling}"]()
        if scale == "small":
            base |= {"dataset": "cifar100_subset", "rounds": 10, "epochs": 2, "eval_every": 10}
        cases += [_case(m, base, name=f"{scaling}, {m}") for m in methods]
    return cases


def _mnist() -> dict[str, Any]:
    """The paper's, but for the step size, which falls: docs/decisions/0010."""
    return PRESETS["recipfl-mnist"]() | {"eval_every": 20, "lr": RATE, "lr_decay": 0.1}


def _cifar10(scale: str, scaling: str) -> dict[str, Any]:
    """The paper's, or 15,000 images, an eighth of the width and four rounds."""
    if scale == "paper":
        return PRESETS[f"recipfl-cifar10-{scaling}"]()
    small = {"depth": "resnet18-d1-w0.125", "width": "resnet18-w0.05"}
    return {
        "dataset": "cifar10_subset",
        "skew": "1:5",
        "large": "resnet18-w0.125",
        "small": small[scaling],
        "rounds": 4,
        "epochs": 1,
        "lr": 0.1,
        "lr_decay": 1.0,
        "batch_size": 32,
        "eval_every": 4,
    }


def _sweep(scale: str, key: str, values: Sequence[Any]) -> list[Case]:
    """RecipFL and the naive baselines at each value; equal settings have equal names."""
    cases = []
    for value in values:
        base = PRESETS["recipfl-mnist"]() | {"strong_share": 0.5, "lr": 0.1, key: value}
        if scale == "small":
            base |= {"rounds": 10, "eval_every": 10}
        name = f"{base['skew']}, share {base['strong_share']}"
        cases += [_case(m, base, name=f"{name}, {m}") for m in NAIVE]
    return cases


def _case(method: str, base: Mapping[str, Any], paper: str = "", name: str = "") -> Case:
    settings = {**base, "method": method}
    if method not in ("recipfl", "recipfl-paper"):
        settings.pop("options", None)  # they are RecipFL's
    settings |= PROTOCOL.get(method, {})
    return Case(name=name or method, settings=settings, paper=paper)


def rows(
    note: str = "",
    draw: Callable[[Sequence[Case], Results], str] | None = None,
    small: tuple[int, str] = (0, ""),
) -> Callable[[Sequence[Case], Results], str]:
    """How a section becomes text: a row a case, differences from the first of its group.

    Args:
        note: what it shows.
        draw: writes its picture, and returns the line that shows it.
        small: the rounds of a small run, and what is to be said of such.
    """

    def text(cases: Sequence[Case], results: Results) -> str:
        reduced = small[1] if cases[0].settings["rounds"] == small[0] else ""
        accuracies = ("", "strong", "weak", "strong, whole set", "weak, whole set")
        header = (*accuracies, "RecipFL − it: strong", "weak", "train s", "server s", "paper")
        differences = [ahead(cases, results, tier) for tier in ("strong", "weak")]
        body = []
        for case in cases:
            runs = list(results[case.name].values())
            phases = [run["seconds_by_phase"] for run in runs]
            body.append(
                (
                    case.name,
                    *(spread([run[c] for run in runs]) for c in COLUMNS),
                    *(texts.get(case.name, "") for texts in differences),
                    f"{statistics.fmean(p['train'] for p in phases):.0f}" if phases else "",
                    f"{statistics.fmean(p['generate'] + p['update'] for p in phases):.0f}"
                    if phases
                    else "",
                    case.paper,
                )
            )
        by_seed = [
            f"- {case.name}: "
            + "; ".join(
                f"seed {seed} " + " / ".join(f"{100 * run[c]:.2f}" for c in COLUMNS)
                for seed, run in results[case.name].items()
            )
            for case in cases
        ]
        parts = [
            f"{note} {reduced}".strip(),
            "Accuracy in %, mean ± standard deviation over the seeds; a run's figure is its mean "
            "over the last fifth of the rounds on the clients' own test samples, or the last "
            "round's on the whole test set, weighted by each client's label mix. Differences: "
            "whole set, with p of a paired test over all devices and seeds (of fewer than four "
            "devices a seed: over the seeds), Holm's correction.",
            table(header, body),
            draw(cases, results) if draw else "",
            "By seed (strong / weak / strong, whole set / weak, whole set):\n\n"
            + "\n".join(by_seed),
        ]
        return "\n\n".join(part for part in parts if part)

    return text


def ahead(cases: Sequence[Case], results: Results, tier: str) -> dict[str, str]:
    """By how many points RecipFL is ahead of every other case of its group, and p.

    Device by device on the whole test set; p is Holm's, over the cases of a group.
    """
    texts = dict[str, str]()
    for base in dict.fromkeys(_group_base(case, cases).name for case in cases):
        own = _runs(results[base])
        found = {
            case.name: paired_test(device_pairs(_runs(results[case.name]), own, tier))
            for case in cases
            if _group_base(case, cases).name == base != case.name
        }
        ps = holm({name: None if test is None else test.p for name, test in found.items()})
        for name, test in found.items():
            p = "" if ps[name] is None else f" (p {ps[name]:.1g})"
            texts[name] = NONE if test is None else f"{100 * test.difference:+.2f}{p}"
    return texts


def _runs(results: Mapping[int, Summary]) -> dict[int, Run]:
    return {seed: read_run(summary["folder"]) for seed, summary in results.items()}


def _group_base(case: Case, cases: Sequence[Case]) -> Case:
    """The case that a row is compared with: RecipFL's of the same setting."""
    prefix = case.name.rpartition(", ")[0]
    same = [c for c in cases if c.name.rpartition(", ")[0] == prefix]
    return next((c for c in same if c.settings["method"] == "recipfl"), same[0])


def curves(name: str, key: str, axis: str) -> Callable[[Sequence[Case], Results], str]:
    """A picture of a sweep, written beside the table: one line a method."""

    def draw(cases: Sequence[Case], results: Results) -> str:
        import matplotlib

        matplotlib.use("svg")
        from matplotlib import pyplot

        figure, axes = pyplot.subplots(1, 2, figsize=(8, 3), sharex=True)
        for method in NAIVE:
            own = [c for c in cases if c.settings["method"] == method and results[c.name]]
            places = [str(c.settings[key]) for c in own]
            for ax, tier in zip(axes, ("strong", "weak"), strict=True):
                values = [
                    100
                    * statistics.fmean(r[f"{tier}_accuracy_full"] for r in results[c.name].values())
                    for c in own
                ]
                ax.plot(places, values, marker="o", label=method)
                ax.set_title(f"{tier} devices")
                ax.set_xlabel(axis)
        axes[0].set_ylabel("accuracy, %, whole test set")
        axes[1].legend()
        figure.tight_layout()
        path = FOLDER / f"reproduce_recipfl_{name}.svg"
        figure.savefig(path, metadata={"Date": None})
        pyplot.close(figure)
        return f"![{axis}]({path.name})"

    return draw


def field(cases: Sequence[Case], results: Results) -> str:
    """Figs. 1(b) and 7: tier against tier, and accuracy by round; written beside the table."""
    runs = {c.name: _runs(results[c.name]) for c in cases if results[c.name]}
    pictures = {"tiers": tiers_figure(runs), "rounds": courses_figure(runs)}
    for name, figure in pictures.items():
        write_atomic(FOLDER / f"reproduce_recipfl_table_{name}.svg", svg(figure))
    return "\n\n".join(f"![{name}](reproduce_recipfl_table_{name}.svg)" for name in pictures)


REDUCED = (
    10,
    "10 rounds instead of the paper's 100, local SGD 0.1 throughout. The paper's figure has no "
    "numbers.",
)
REDUCED_CIFAR = (
    4,
    "15,000 of 60,000 images, ResNet-18 with an eighth of its width (small models: its first "
    "stage, or 0.05 of the width), 4 rounds instead of 50, one local epoch of SGD 0.1 with batches "
    "of 32: not to be compared with the paper's figures, only row with row.",
)


def _figure(cases: Callable[[str, Path], list[Case]], key: str = "", axis: str = "") -> Section:
    """A section of reduced runs; those of equal settings are shared between sections."""
    picture = curves(cases.__name__, key, axis) if key else None
    return Section(cases=cases, text=rows(cases.__doc__ or "", picture, REDUCED), folder="shares")


SECTIONS = {
    "digits": Section(cases=digits, text=rows(digits.__doc__ or "")),
    "mnist": Section(cases=mnist, text=rows(mnist.__doc__ or "")),
    "table": Section(
        cases=table_mnist, text=rows(table_mnist.__doc__ or "", field), folder="mnist"
    ),
    "transfer": _figure(transfer),
    "shares": _figure(shares, "strong_share", "share of the data on strong devices"),
    "weak": _figure(weak, "skew", "strong:weak devices"),
    "strong": _figure(strong, "skew", "strong:weak devices"),
    "cifar": Section(cases=cifar, text=rows(cifar.__doc__ or "", small=REDUCED_CIFAR)),
    "table_cifar": Section(
        cases=table_cifar,
        text=rows(table_cifar.__doc__ or "", small=REDUCED_CIFAR),
        folder="cifar",
    ),
    "cifar100": Section(cases=cifar100, text=rows(cifar100.__doc__ or "")),
}

if __name__ == "__main__":
    main("recipfl", "RecipFL's experiments", SECTIONS, __doc__ or "")
