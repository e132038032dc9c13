"""What `benchmarks.gains` found: verdicts for every tier, their tables, and the picture."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from benchmarks.experiments import NONE, spread, table
from benchmarks.results_file import FOLDER, write
from ghn_fl.files import write_atomic
from ghn_fl.report.grid import SERVER, Grid, device_pairs, p_text, pairs_text
from ghn_fl.report.paired import DEVICES, Paired, holm, paired_test
from ghn_fl.report.plots import phase_seconds
from ghn_fl.report.read import Run, mean
from ghn_fl.report.style import BAND, INK, WIDTH, byte_text, colour, styled, svg

LEVEL = 0.05  # of significance
PAGE = Path(__file__).parent.parent / "docs" / "results.md"
BEGIN, END = "<!-- gains: begin -->", "<!-- gains: end -->"

Verdict: TypeAlias = Literal["above", "level", "below", "–"]


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One setting.

    Attributes:
        name: its letter.
        title: in words.
        grid: its runs; `against` is the method that all others are compared with.
        scores: what tuning saw, by method and learning rate.
    """

    name: str
    title: str
    grid: Grid
    scores: Mapping[str, Mapping[str, float]]


@dataclass(frozen=True, kw_only=True)
class Row:
    """A method on a tier.

    Attributes:
        method: which.
        lr: its learning rate.
        values: accuracy on the whole test set, a seed each.
        ahead: how far our method is ahead of it, device by device; None for our own.
        p: of that, with Holm's correction over the methods of the tier.
        verdict: where our method stands.
    """

    method: str
    lr: str
    values: tuple[float, ...]
    ahead: Paired | None = None
    p: float | None = None
    verdict: Verdict = "–"

    @property
    def mean(self) -> float:
        return statistics.fmean(self.values)


def rows_of(grid: Grid, tier: str) -> list[Row]:
    """Our method first, then the others in their order; without those that have no figure."""
    ours = grid.runs[grid.against]
    others = [m for m in grid.runs if m != grid.against]
    ahead = {m: paired_test(device_pairs(grid.runs[m], ours, tier)) for m in others}
    ps = holm({m: None if a is None else a.p for m, a in ahead.items()})
    rows = []
    for method in (grid.against, *others):
        runs = grid.runs[method].values()
        full = [run.summary.tiers[tier].accuracy_full for run in runs]
        found, p = ahead.get(method), ps.get(method)
        row = Row(
            method=method,
            lr=next(iter(runs)).setting("lr"),
            values=tuple(value for value in full if value is not None),
            ahead=found,
            p=p,
            verdict=verdict(found, p),
        )
        if row.values:
            rows.append(row)
    return rows


def verdict(ahead: Paired | None, p: float | None) -> Verdict:
    """Where our method stands, from how far it is ahead and the corrected p of that.

    Two tests have to agree: the paired test over devices and seeds after its correction, and a
    t-test over the means of the seeds, for devices of one run share its server and a hundred of
    them are no hundred observations. A dash: one seed cannot tell.
    """
    if ahead is None or p is None or ahead.p_seeds is None:
        return "–"
    if max(p, ahead.p_seeds) >= LEVEL:
        return "level"
    return "above" if ahead.difference > 0 else "below"


def best_baseline(rows: Sequence[Row]) -> Row | None:
    """The row with the highest mean behind the first, which is our method's own."""
    return max(rows[1:], key=lambda row: row.mean, default=None)


# --- tables ---------------------------------------------------------------------------------------


def summary_table(found: Sequence[Measured]) -> str:
    """A row for every setting and tier: against the best of the others, and how many are where."""
    body = []
    for measured in found:
        for tier in measured.grid.tiers:
            rows = rows_of(measured.grid, tier)
            best = best_baseline(rows)
            verdicts = [row.verdict for row in rows[1:]]
            body.append(
                (
                    f"{measured.name}. {measured.title}",
                    tier,
                    spread(rows[0].values),
                    NONE if best is None else f"{best.method} {spread(best.values)}",
                    NONE if best is None else _points(best.ahead),
                    NONE if best is None else _seeds_ahead(best.ahead),
                    NONE if best is None else f"**{best.verdict}**",
                    " / ".join(str(verdicts.count(v)) for v in ("above", "level", "below")),
                )
            )
    header = (
        "setting", "tier", "recipfl", "best of the others", "recipfl − it", "seeds ahead",
        "recipfl is", "above / level / below",
    )  # fmt: skip
    return table(header, body, names=2)


def tier_tables(measured: Measured) -> str:
    """A row for every tier and method; the best of the others is set off."""
    body = []
    for tier in measured.grid.tiers:
        rows = rows_of(measured.grid, tier)
        best = best_baseline(rows)
        for row in rows:
            ours = row.method == measured.grid.against
            body.append(
                (
                    tier,
                    f"**{row.method}**" if row is best else row.method,
                    row.lr,
                    spread(row.values),
                    *(
                        ("", "", "", "", "")
                        if ours
                        else (
                            _points(row.ahead),
                            _seeds_ahead(row.ahead),
                            pairs_text(row.ahead),
                            p_text(row.p),
                            row.verdict,
                        )
                    ),
                )
            )
    header = (
        "tier", "method", "lr", "accuracy", "recipfl − it", "seeds ahead", "pairs", "p",
        "recipfl is",
    )  # fmt: skip
    return table(header, body, names=2)


def cost_table(grid: Grid) -> str:
    """A row a method: what its devices train and send, means over the seeds."""
    body = []
    for method, by_seed in grid.runs.items():
        runs = list(by_seed.values())
        phases = [phase_seconds(run) for run in runs]
        server = [sum(p.get(phase, 0.0) for phase in SERVER) for p in phases]
        first = runs[0].fleet[0]
        body.append(
            (
                method,
                " + ".join(first.models),
                f"{mean(samples_trained(run) for run in runs) or 0:,.0f}",
                f"{statistics.fmean(p.get('train', 0.0) for p in phases):,.0f}",
                f"{statistics.fmean(server):,.0f}",
                byte_text(statistics.fmean(bytes_a_visit(run) for run in runs)),
            )
        )
    header = (
        "method", "a strong device trains", "samples trained", "training s", "server s",
        "bytes a client and round",
    )  # fmt: skip
    return table(header, body, names=2)


def samples_trained(run: Run) -> int:
    """Passes over private samples in all rounds, every model of a device counted."""
    work = {d.id: d.train_samples * len(d.models) for d in run.fleet}
    return int(run.settings["epochs"]) * sum(work[c] for c in _visits(run))


def bytes_a_visit(run: Run) -> float:
    """Bytes down and up of a client in a round that it answers, mean over tiers as sampled."""
    return (run.summary.bytes_down + run.summary.bytes_up) / max(1, len(_visits(run)))


def _visits(run: Run) -> list[int]:
    """The clients that answered, round after round."""
    return [
        client
        for record in run.rounds
        for client in record.sampled
        if client not in {r.client for r in record.rejected}
    ]


def tuning_table(found: Sequence[Measured]) -> str:
    """The scores of all learning rates; the highest was chosen."""
    rates = list(dict.fromkeys(lr for m in found for own in m.scores.values() for lr in own))
    body = []
    for measured in found:
        for method, scores in measured.scores.items():
            best = max((s for s in scores.values() if s is not None), default=None)
            cells = [
                NONE if (score := scores.get(lr)) is None else f"{100 * score:.2f}" for lr in rates
            ]
            marked = [
                f"**{cell}**" if best is not None and scores.get(lr) == best else cell
                for lr, cell in zip(rates, cells, strict=True)
            ]
            body.append((measured.name, method, *marked))
    return table(("setting", "method", *(f"lr {lr}" for lr in rates)), body, names=2)


def _points(ahead: Paired | None) -> str:
    return NONE if ahead is None else f"{100 * ahead.difference:+.2f}"


def _seeds_ahead(ahead: Paired | None) -> str:
    if ahead is None:
        return NONE
    return f"{sum(d > 0 for d in ahead.by_seed)} of {len(ahead.by_seed)}"


# --- words ----------------------------------------------------------------------------------------

HOW = (
    "Accuracy in % on the whole test set after the last round, every class weighted as in the "
    "device's own training data, after one epoch of fine-tuning on them; mean over the devices of "
    "a tier, then mean ± standard deviation over the seeds. All methods of a setting have the same "
    "fleet, partition, rounds and local epochs. Public data is held out for all of them, though "
    "only FedMD looks at it (its labels serve to draw all classes alike, not to learn from): the "
    "private data is the same for all. "
    "The learning rate of each method in each setting is the best of those tried by the mean of "
    "the tiers' accuracies on held-out training data, in fewer rounds and with a seed that is not "
    "among these; b takes c's and f takes d's. The best of the others is chosen by its accuracy "
    "here, which is in its favour."
)
TEST = (
    "recipfl − it: points, mean over the devices and seeds. p: of a two-sided paired test over all "
    f"devices and seeds (Wilcoxon's signed-rank test; with fewer than {DEVICES} devices a seed, a "
    "t-test over the means of the seeds: devices that one server serves with one model are one "
    "observation), with Holm's correction over the methods of the setting and tier. **above** and "
    "**below**: this p and that of a t-test over the means of the seeds are both below 5 %, else "
    "**level**. The second condition is there because devices of one run share its server: their "
    "number makes the first p small even where another seed would turn the sign. It takes a "
    "difference of 2.5 times its standard deviation over the seeds with three of them, of 1.05 "
    "times with six, and a tier of few devices several times that after the correction: level "
    "often means that so few seeds cannot tell. Seeds ahead: in how many the tier's mean is higher."
)
COST = (
    "Samples trained: passes over private samples by all devices in a run, every model of a device "
    "counted. Where two models are named, a strong device trains, receives and sends both, and so "
    "does every device whose own model is not the fleet's smallest. On top come FedMD's passes "
    "over public samples, at most 500 a device and round, and a device's first training, as long "
    "as a round. Bytes: down and up, mean over the devices as they were sampled. Seconds: of the "
    "whole run, with what else the machine did at that time; the samples compare better."
)


def results_text(found: Sequence[Measured]) -> str:
    """The body of gains.md."""
    minutes = sum(run.summary.seconds for m in found for run in m.grid.all_runs) / 60
    parts = [
        HOW,
        f"{minutes:,.0f} core minutes in all, without tuning.",
        "## All settings",
        summary_table(found),
        f"![{PICTURE}](gains.svg)",
        TEST,
    ]
    for measured in found:
        parts += [f"## {measured.name}. {measured.title}", described(measured.grid)]
        parts += [tier_tables(measured), *_left_out(measured.grid), cost_table(measured.grid)]
    parts += ["## What the costs mean", COST]
    tuned = [m for m in found if m.scores]
    if tuned:
        words = "Mean of the tiers' accuracies in % on held-out training data; the best is chosen."
        parts += ["## Learning rates tried", words, tuning_table(tuned)]
    return "\n\n".join(parts)


def described(grid: Grid) -> str:
    """Fleet and training of a setting in words, from one of its runs."""
    run = next(iter(grid.runs[grid.against].values()))
    tiers = "; ".join(
        f"{len(devices)} {name}: {devices[0].models[0]}, "
        f"{round(statistics.fmean(d.train_samples for d in devices)):,} images each"
        for name, devices in run.tiers.items()
    )
    said = {name: run.setting(name) for name in ("dataset", "rounds", "epochs", "batch_size")}
    return (
        f"{said['dataset']}, {run.setting('public')} as public data. {tiers}. "
        f"{said['rounds']} rounds of {said['epochs']} local epochs with batches of "
        f"{said['batch_size']}, at most {run.setting('sample')} devices a round; Dirichlet "
        f"{'as the fleet says' if run.settings.get('fleet') else run.setting('alpha')}. "
        f"Seeds {', '.join(map(str, grid.seeds))}."
    )


def _left_out(grid: Grid) -> list[str]:
    """Which methods are not in the table, and why."""
    reasons: dict[tuple[str, str], list[int]] = {}
    for m in grid.missing:
        reasons.setdefault((m.method, m.reason), []).append(m.seed)
    lines = [
        f"- {method}: {reason}"
        if method not in grid.runs
        else f"- {method}, seed {', '.join(map(str, seeds))}: {reason}"
        for (method, reason), seeds in reasons.items()
    ]
    return ["Left out:\n\n" + "\n".join(lines)] if lines else []


def write_report(found: Sequence[Measured]) -> list[Path]:
    """Write results/gains.md and gains.svg, and the tables of docs/results.md."""
    picture = FOLDER / "gains.svg"
    write_atomic(picture, svg(gains_figure(found)))
    results = write(
        "gains", "Does everybody gain? RecipFL against tuned methods", results_text(found)
    )
    write_atomic(PAGE, filled(PAGE.read_text(), found))
    return [results, picture, PAGE]


def filled(page: str, found: Sequence[Measured]) -> str:
    """The page with the tables of `found` between its marks."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    assert begin and end, f"{PAGE} must have {BEGIN} and {END}"
    link = "All methods, p values, costs: [gains.md](../benchmarks/results/gains.md)."
    picture = f"![{PICTURE}](../benchmarks/results/gains.svg)"
    inside = "\n\n".join((summary_table(found), picture, link))
    return f"{before}{begin}\n\n{inside}\n\n{end}{after}"


# --- the picture ----------------------------------------------------------------------------------

PICTURE = "RecipFL minus the best of the other methods, by setting and tier"
_LOOKS: Mapping[Verdict, tuple[str, str]] = {  # marker and colour
    "above": ("^", colour(0)),
    "level": ("o", "#7a828c"),
    "below": ("v", colour(1)),
    "–": ("x", "#7a828c"),
}


@styled
def gains_figure(found: Sequence[Measured]) -> Figure:
    """A line for every setting and tier: our method minus the best other, seeds, mean, spread."""
    lines = [
        (measured, tier, best)
        for measured in found
        for tier in measured.grid.tiers
        if (best := best_baseline(rows_of(measured.grid, tier))) is not None and best.ahead
    ]
    figure = Figure(figsize=(WIDTH, 1.3 + 0.29 * len(lines)))
    axes = figure.subplots()
    shaded = {m.name for m in found[::2]}
    labels, used = [], dict[Verdict, None]()
    for y, (measured, tier, best) in enumerate(lines):
        if measured.name in shaded:
            axes.axhspan(y - 0.5, y + 0.5, color=BAND[0], linewidth=0, zorder=0)
        assert best.ahead is not None
        points = [100 * d for d in best.ahead.by_seed]
        marker, paint = _LOOKS[best.verdict]
        used[best.verdict] = None
        axes.scatter(points, [y] * len(points), s=12, color=paint, alpha=0.5, linewidths=0)
        axes.errorbar(
            statistics.fmean(points),
            y,
            xerr=statistics.stdev(points) if len(points) > 1 else None,
            marker=marker,
            markersize=7,
            color=paint,
            elinewidth=1.2,
        )
        text = f"{statistics.fmean(points):+.2f} vs {best.method}  "
        axes.text(1.01, y, text, transform=axes.get_yaxis_transform(), va="center", fontsize=9)
        first = y == 0 or lines[y - 1][0] is not measured
        labels.append(f"{measured.name}. {measured.title}   {tier}" if first else tier)
    axes.set_yticks(range(len(lines)), labels, fontsize=9)
    axes.set_ylim(len(lines) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
    axes.axvline(0, color=INK[0], linewidth=0.9)
    _points_axis(axes, [100 * d for *_, best in lines for d in best.ahead.by_seed])
    # a page in dark mode shows through a figure without a ground
    figure.add_artist(Rectangle((0, 0), 1, 1, transform=figure.transFigure, color="w", zorder=-9))
    handles = [
        Line2D([], [], marker=_LOOKS[v][0], color=_LOOKS[v][1], linestyle="", label=v)
        for v in _LOOKS
        if v in used
    ]
    title = "RecipFL minus the best other method, points of accuracy"
    figure.legend(handles=handles, loc="outside upper left", ncols=len(handles), title=title)
    return figure


def _points_axis(axes: Axes, points: Sequence[float]) -> None:
    """Points up to one on a plain scale, beyond it by powers: gains differ a hundredfold."""
    axes.set_xscale("symlog", linthresh=1.0, linscale=0.5)
    limit = 1.4 * max(1.0, *(abs(point) for point in points))
    axes.set_xlim(-limit, limit)
    steps = [step for step in (0.5, 1, 2, 5, 10, 20, 50) if step <= limit]
    ticks = [*(-step for step in reversed(steps)), 0, *steps]
    axes.set_xticks(ticks, [f"{tick:+g}" if tick else "0" for tick in ticks])
    axes.minorticks_off()
