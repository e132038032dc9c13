"""A grid of methods and seeds: compare.csv, compare.md, compare.html and the pictures."""

from __future__ import annotations

import csv
import io
import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from ghn_fl.files import write_atomic
from ghn_fl.methods import METHODS
from ghn_fl.report.compare import best_cells, best_words
from ghn_fl.report.grid_plots import courses_figure, tiers_figure
from ghn_fl.report.page import folded, html_table, page, paragraph, picture, section, unbroken
from ghn_fl.report.paired import DEVICES, FEWEST, Pair, Paired, holm, paired_test
from ghn_fl.report.plots import phase_seconds
from ghn_fl.report.read import Run, Score, common_tiers, mean, read_run
from ghn_fl.report.style import byte_text, pdf, percent_text, svg, time_text
from ghn_fl.report.tables import Table, markdown

SERVER = ("generate", "update")  # the phases of a round in which the server computes
NO_SCORE = Score(accuracy=None, loss=None, accuracy_full=None)
NOT_SHARED = ("method", "seed", "options")


@dataclass(frozen=True, kw_only=True)
class Missing:
    """A run of the grid without a result, and why."""

    method: str
    seed: int
    status: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Grid:
    """All that a comparison shows: runs by method and seed, what is missing, who is compared."""

    runs: Mapping[str, Mapping[int, Run]]
    missing: tuple[Missing, ...]
    against: str

    @property
    def all_runs(self) -> list[Run]:
        return [run for by_seed in self.runs.values() for run in by_seed.values()]

    @property
    def tiers(self) -> list[str]:
        return common_tiers(self.all_runs)

    @property
    def seeds(self) -> list[int]:
        return sorted({seed for by_seed in self.runs.values() for seed in by_seed})


def read_grid(folders: Sequence[Path], missing: Sequence[Missing], against: str) -> Grid:
    """The grid of some finished runs, methods in the order of their folders."""
    runs: dict[str, dict[int, Run]] = {}
    for folder in folders:
        run = read_run(folder)
        runs.setdefault(run.setting("method"), {})[int(run.settings["seed"])] = run
    return Grid(runs=runs, missing=tuple(missing), against=against)


def write_grid(grid: Grid, out: Path) -> list[Path]:
    """Write tables, page and pictures into `out` and return their paths."""
    pictures = {name: draw(grid.runs) for name, draw in _pictures(grid).items()}
    contents: dict[str, str | bytes] = {
        "compare.csv": csv_text([run.folder for run in grid.all_runs]),
        "compare.md": grid_markdown(grid),
        "compare.html": grid_html(grid),
    }
    for name, figure in pictures.items():
        contents |= {f"{name}.svg": svg(figure), f"{name}.pdf": pdf(figure)}
    for name, content in contents.items():
        write_atomic(out / name, content)
    return [out / name for name in contents]


def csv_text(folders: Sequence[Path]) -> str:
    """A row a run, a column a figure of summary.json; what is nested there has a dot here."""
    rows = [_flat(json.loads((folder / "summary.json").read_text())) for folder in folders]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    file = io.StringIO()
    writer = csv.DictWriter(file, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()


def accuracy_table(grid: Grid) -> Table:
    """A row a method: mean and spread over the seeds for every tier and protocol."""
    header = ["method", "seeds"]
    for tier in grid.tiers:
        header += [tier, f"{tier}, whole test set"]
    rows = []
    for method, by_seed in grid.runs.items():
        row = [method, str(len(by_seed))]
        for tier in grid.tiers:
            row += [spread_text(_scores(by_seed, tier, p)) for p in ("accuracy", "accuracy_full")]
        rows.append(tuple(row))
    return Table(header=tuple(header), rows=tuple(rows))


def difference_table(grid: Grid) -> Table:
    """A row a method: how far it is from the one that is compared, and a test of that."""
    header = ["method"]
    columns: list[dict[str, str]] = []
    for tier in grid.tiers:
        header += [tier, f"{tier}, pairs", f"{tier}, p"]
        found = comparisons(grid, tier)
        ps = holm({m: c.p if c is not None else None for m, c in found.items()})
        columns.append({m: _points(c) for m, c in found.items()})
        columns.append({m: pairs_text(c) for m, c in found.items()})
        columns.append({m: p_text(p) for m, p in ps.items()})
    rows = tuple((m, *(column[m] for column in columns)) for m in _others(grid))
    return Table(header=tuple(header), rows=rows)


def comparisons(grid: Grid, tier: str) -> dict[str, Paired | None]:
    """Every other method against the chosen one, on the tier's devices in the final round."""
    base = grid.runs.get(grid.against, {})
    return {m: paired_test(device_pairs(base, grid.runs[m], tier)) for m in _others(grid)}


def device_pairs(
    one: Mapping[int, Run], other: Mapping[int, Run], tier: str
) -> dict[int, list[Pair]]:
    """For each seed of both the devices' accuracies with either, in the final round.

    On the whole test set; on the device's own samples where that was not measured.
    """
    return {
        seed: [
            (a, b)
            for device in run.tiers.get(tier, ())
            if (a := _final(run, device.id)) is not None
            and (b := _final(other[seed], device.id)) is not None
        ]
        for seed, run in one.items()
        if seed in other
    }


def cost_table(grid: Grid) -> Table:
    """A row a method: how even its devices are, and what a run took; means over the seeds."""
    rows = []
    for method, by_seed in grid.runs.items():
        runs = list(by_seed.values())
        phases = [phase_seconds(run) for run in runs]
        fairness = mean(run.summary.fairness_loss_std for run in runs)
        memory = mean(run.summary.peak_rss_mb for run in runs)
        server = [sum(p.get(phase, 0.0) for phase in SERVER) for p in phases]
        rows.append(
            (
                method,
                "–" if fairness is None else f"{fairness:.3f}",
                byte_text(statistics.fmean(run.summary.bytes_down for run in runs)),
                byte_text(statistics.fmean(run.summary.bytes_up for run in runs)),
                time_text(statistics.fmean(p.get("train", 0.0) for p in phases)),
                time_text(statistics.fmean(server)),
                time_text(statistics.fmean(run.summary.seconds for run in runs)),
                "–" if memory is None else f"{memory:,.0f} MB",
            )
        )
    header = (
        "method", "std of losses", "bytes down", "bytes up", "training", "server", "whole run",
        "peak memory",
    )  # fmt: skip
    return Table(header=header, rows=tuple(rows))


def missing_table(grid: Grid) -> Table:
    """A row for every reason that a method gives, with the seeds that it gives it for."""
    seeds: dict[tuple[str, str, str], list[str]] = {}
    for m in grid.missing:
        seeds.setdefault((m.method, m.status, m.reason), []).append(str(m.seed))
    rows = tuple((method, ", ".join(n), what, why) for (method, what, why), n in seeds.items())
    return Table(header=("method", "seeds", "what", "why"), rows=rows, names=4)


def settings_tables(grid: Grid) -> tuple[Table, Table]:
    """The settings of all runs, and those that a method has for itself."""
    runs = [next(iter(by_seed.values())) for by_seed in grid.runs.values()]
    names = dict.fromkeys(n for run in runs for n in run.settings if n not in NOT_SHARED)
    values = {name: {run.setting(name) for run in runs} for name in names}
    same = tuple((name, v.pop()) for name, v in values.items() if len(v) == 1)
    differing = [name for name in names if name not in dict(same)]
    rows = []
    for method, run in zip(grid.runs, runs, strict=True):
        own = {name: run.setting(name) for name in differing} | dict(
            run.settings.get("options") or {}
        )
        if own:
            rows.append((method, ", ".join(f"{name} {value}" for name, value in own.items())))
    return (
        Table(header=("setting", "value"), rows=same, names=2),
        Table(header=("method", "settings of its own"), rows=tuple(rows), names=2),
    )


def grid_title(grid: Grid) -> str:
    """The grid in a few words, for example "mnist, skew 2:100: 3 methods, seeds 0, 1"."""
    runs = grid.all_runs
    if not runs:
        return "no run has a result"
    fleet = runs[0].settings.get("fleet") or f"skew {runs[0].setting('skew')}"
    methods = "1 method" if len(grid.runs) == 1 else f"{len(grid.runs)} methods"
    seeds = "seed" if len(grid.seeds) == 1 else "seeds"
    return (
        f"{runs[0].setting('dataset')}, {fleet}, {runs[0].setting('rounds')} rounds: "
        f"{methods}, {seeds} {', '.join(map(str, grid.seeds))}"
    )


def accuracy_caption(grid: Grid) -> str:
    notes = {
        "Trained on public data besides, from before round 1 on": [
            m for m in grid.runs if m in METHODS and METHODS[m].public
        ],
        "A device that trains two models answers with both": [
            m for m, runs in grid.runs.items() if any(map(_asks_two, runs.values()))
        ],
    }
    return (
        f"Accuracy: {grid.all_runs[0].tested}; mean over the devices of the tier and the last "
        "fifth of the rounds. "
        "Whole test set: on all test samples, weighted by the device's label mix, after the final "
        "round. Mean ± sample standard deviation over the seeds."
        + "".join(f" {note}: {', '.join(names)}." for note, names in notes.items() if names)
    )


def _asks_two(run: Run) -> bool:
    """Whether the method gives some devices a second model to ask, as RecipFL does."""
    method = run.setting("method")
    usual = getattr(METHODS[method].config(), "second", 0) if method in METHODS else 0
    return float(dict(run.settings.get("options") or {}).get("second", usual)) > 0


def difference_caption(grid: Grid) -> str:
    return (
        f"Points of accuracy above or below {grid.against}, after the final round on the whole "
        "test set (own samples where that was not measured). A pair is the same device with "
        f"the same seed under both methods: from {FEWEST} pairs and {DEVICES} a seed on, the test "
        "is Wilcoxon's signed-rank test over (seed, device) pairs; with fewer, a paired t-test "
        "over the means of the seeds, and the pairs are seeds. Two-sided, p with Holm's correction "
        "over the methods of the tier. Devices of one run share its server: pairs within a seed "
        "are not independent, so p speaks of these devices and seeds, and is too small as a word "
        "on others."
    )


COST_CAPTION = (
    "Std of losses: standard deviation over the devices of the loss in their test after the final "
    "round; the smaller, the fairer. Bytes: between server and devices in the whole run. Training: "
    "the devices' own; server: generating and updating. Means over the seeds; each run had one "
    "core."
)
TIERS_CAPTION = (
    "Mean accuracy of both tiers: a small dot is a seed, a large one the mean, its bars the "
    "standard deviation over the seeds. The best corner is the upper right one."
)
COURSES_CAPTION = (
    "Mean accuracy of each tier by round, on the devices' own samples: mean over the seeds, and a "
    "band of one standard deviation. Each axis is fitted to the course after the first tenth "
    "of the rounds; earlier values may lie below it."
)


def _notes(grid: Grid) -> list[str]:
    """What a reader should know before the figures."""
    names = ", ".join(dict.fromkeys(m.method for m in grid.missing))
    notes = [f"Runs of {names} have no result; the end of this page says why."] if names else []
    if grid.against not in grid.runs and len(grid.runs) > 1:
        notes.append(f"{grid.against} has no result, so the others are not compared with it.")
    return notes


def grid_markdown(grid: Grid) -> str:
    """The comparison as Markdown, with the pictures beside it."""
    parts = [f"# {_words(grid)}", grid_title(grid)]
    if grid.runs:
        parts += _notes(grid)
        captions = {"tiers": TIERS_CAPTION, "rounds": COURSES_CAPTION}
        pictures = [f"![{captions[name]}]({name}.svg)" for name in _pictures(grid)]
        parts += [markdown(accuracy_table(grid)), accuracy_caption(grid), *pictures]
        if difference_table(grid).rows:
            parts += [f"## {_difference_words(grid)}"]
            parts += [markdown(difference_table(grid)), difference_caption(grid)]
        parts += ["## Fairness and cost", markdown(cost_table(grid)), COST_CAPTION]
    if grid.missing:
        parts += ["## Runs without a result", markdown(missing_table(grid))]
    if grid.runs:
        same, own = settings_tables(grid)
        parts += ["## Settings", *([markdown(own)] if own.rows else []), markdown(same)]
    return "\n\n".join(parts) + "\n"


def grid_html(grid: Grid) -> str:
    """The comparison as the text of one HTML file."""
    head = [f"<h1>{unbroken(_words(grid))}</h1>", paragraph(grid_title(grid), "soft")]
    without = section("Runs without a result", html_table(missing_table(grid)))
    if not grid.runs:
        return page(_words(grid), ["\n".join(head), without])
    head += [paragraph(note, "note") for note in _notes(grid)]
    table = accuracy_table(grid)
    head += [html_table(table, best_cells(table, _means(grid)))]
    head += [paragraph(accuracy_caption(grid), "soft")]
    sections = ["\n".join(head)]
    pictures = {name: draw(grid.runs) for name, draw in _pictures(grid).items()}
    if "tiers" in pictures:
        drawn = picture(pictures["tiers"], "tiers", TIERS_CAPTION)
        sections.append(section("Who gains: strong against weak devices", drawn))
    if difference_table(grid).rows:
        shown = html_table(difference_table(grid))
        caption = paragraph(difference_caption(grid), "soft")
        sections.append(section(_difference_words(grid), shown, caption))
    drawn = picture(pictures["rounds"], "rounds", COURSES_CAPTION)
    sections.append(section("Accuracy by round", drawn))
    cost = html_table(cost_table(grid)), paragraph(COST_CAPTION, "soft")
    sections.append(section("Fairness and cost", *cost))
    if grid.missing:
        sections.append(without)
    same, own = settings_tables(grid)
    shown = html_table(own) if own.rows else paragraph("All methods had the same settings.", "soft")
    sections.append(section("Settings", shown, folded("Settings of all runs", html_table(same))))
    return page(_words(grid), sections)


def spread_text(values: Sequence[float]) -> str:
    """Mean and sample standard deviation of fractions, in percent.

    >>> spread_text([0.96, 0.98]), spread_text([0.97]), spread_text([])
    ('97.00 ± 1.41 %', '97.00 %', '–')
    """
    if len(values) < 2:
        return percent_text(mean(values), 2)
    return f"{100 * statistics.fmean(values):.2f} ± {100 * statistics.stdev(values):.2f} %"


def p_text(p: float | None) -> str:
    """A probability for people.

    >>> p_text(0.01234), p_text(0.00001), p_text(None)
    ('0.012', '< 0.001', '–')
    """
    if p is None:
        return "–"
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def _pictures(grid: Grid) -> dict[str, Callable[..., Figure]]:
    """The drawing functions by name; one tier alone has no picture against another."""
    if not grid.runs:
        return {}
    both: dict[str, Callable[..., Figure]] = {"tiers": tiers_figure, "rounds": courses_figure}
    return both if len(grid.tiers) > 1 else {"rounds": courses_figure}


def _words(grid: Grid) -> str:
    if not grid.runs:
        return "No run has a result"
    return best_words({tier: _means(grid)[tier] for tier in grid.tiers})


def _difference_words(grid: Grid) -> str:
    return f"The others against {grid.against}"


def _means(grid: Grid) -> dict[str, dict[str, float]]:
    """The means of the accuracy table: column -> method -> mean."""
    found: dict[str, dict[str, float]] = {}
    for tier in grid.tiers:
        for column, protocol in ((tier, "accuracy"), (f"{tier}, whole test set", "accuracy_full")):
            scores = {m: _scores(by_seed, tier, protocol) for m, by_seed in grid.runs.items()}
            found[column] = {m: statistics.fmean(v) for m, v in scores.items() if v}
    return found


def _scores(by_seed: Mapping[int, Run], tier: str, protocol: str) -> list[float]:
    found = (getattr(run.summary.tiers.get(tier), protocol, None) for run in by_seed.values())
    return [score for score in found if score is not None]


def _others(grid: Grid) -> list[str]:
    """The methods to compare; none if there is nothing to compare them with."""
    return [m for m in grid.runs if m != grid.against] if grid.against in grid.runs else []


def _final(run: Run, client: int) -> float | None:
    score = run.rounds[-1].clients.get(client, NO_SCORE)
    return score.accuracy if score.accuracy_full is None else score.accuracy_full


def _points(found: Paired | None) -> str:
    return "–" if found is None else f"{100 * found.difference:+.2f}"


def pairs_text(found: Paired | None) -> str:
    """What a test was over: a number of pairs, or of seeds."""
    if found is None:
        return "–"
    if not found.over_seeds:
        return f"{found.pairs:,}"
    return "1 seed" if found.pairs == 1 else f"{found.pairs} seeds"


def _flat(summary: Mapping[str, Any]) -> dict[str, Any]:
    """The figures of a summary in one row; those of strong and weak devices stand there twice."""
    row: dict[str, Any] = {}
    for name, value in summary.items():
        if not isinstance(value, dict):
            row[name] = value
        elif name == "tiers":
            others = {t: v for t, v in value.items() if t not in ("strong", "weak")}
            row |= {f"tiers.{t}.{k}": v for t, own in others.items() for k, v in own.items()}
        else:
            row |= {f"{name}.{key}": v for key, v in value.items()}
    return row
