"""A run in rows: the closing table of the terminal, and the same as Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ghn_fl.report.read import Run, TierSummary, common_tiers
from ghn_fl.report.style import byte_text, percent_text, time_text

if TYPE_CHECKING:
    from rich.table import Table as RichTable

NO_TIER = TierSummary(accuracy=None, accuracy_full=None, std=None)


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows of text under a header; the first `names` columns are names, the rest numbers."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    names: int = 1


def tier_table(run: Run) -> Table:
    """A row a tier: its devices, their models and the accuracy of the run."""
    rows = []
    for tier, devices in run.tiers.items():
        models = dict.fromkeys(model for device in devices for model in device.models)
        found = run.summary.tiers[tier]
        numbers = (found.accuracy, found.accuracy_full, found.std)
        rows.append(
            (tier, shortened(models), f"{len(devices):,}", *(percent_text(n, 2) for n in numbers))
        )
    header = ("tier", "models", "devices", "accuracy", "whole test set", "std")
    return Table(header=header, rows=tuple(rows), names=2)


def facts(run: Run) -> list[tuple[str, str]]:
    """What a run took, as pairs of a name and a text."""
    summary = run.summary
    found = [
        ("rounds", f"{summary.rounds:,}" if run.finished else f"{summary.rounds:,} so far"),
        ("time", time_text(summary.seconds)),
        ("bytes to devices", byte_text(summary.bytes_down)),
        ("bytes from devices", byte_text(summary.bytes_up)),
        ("rejected updates", f"{summary.rejected:,}"),
    ]
    if summary.peak_rss_mb is not None:
        found.append(("peak memory", f"{summary.peak_rss_mb:,.0f} MB"))
    if summary.fairness_loss_std is not None:
        found.append(("std of client losses", f"{summary.fairness_loss_std:.4f}"))
    return found


def title(run: Run) -> str:
    """A run in a few words, for example "recipfl on mnist, skew 2:100, seed 0"."""
    method, dataset, skew, seed = map(run.setting, ("method", "dataset", "skew", "seed"))
    return f"{method} on {dataset}, skew {skew}, seed {seed}"


def closing_table(run: Run) -> RichTable:
    """The tiers' table for the terminal, what the run took beneath it."""
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text  # unlike str it shows [brackets] as they are

    table = tier_table(run)
    caption = [", ".join(f"{name} {text}" for name, text in facts(run)), *run.notes]
    shown = RichTable(
        title=Text(title(run)),
        caption=Text("\n".join(caption)),
        caption_justify="left",
        title_justify="left",
        box=box.SIMPLE_HEAD,
    )
    for index, name in enumerate(table.header):
        is_name = index < table.names
        shown.add_column(name, justify="left" if is_name else "right", no_wrap=not is_name)
    for row in table.rows:
        shown.add_row(*map(Text, row))
    return shown


def comparison_table(runs: Sequence[Run], labels: Sequence[str]) -> Table:
    """A row a run: the accuracy of every tier, and what the run took."""
    tiers = common_tiers(runs)
    header = ["run", "rounds"]
    for tier in tiers:
        header += [tier, f"{tier}, whole test set"]
    header += ["bytes down", "bytes up", "time", "rejected"]
    rows = []
    for run, label in zip(runs, labels, strict=True):
        row = [label, f"{run.summary.rounds:,}" + ("" if run.finished else " so far")]
        for tier in tiers:
            found = run.summary.tiers.get(tier, NO_TIER)
            row += [percent_text(found.accuracy, 2), percent_text(found.accuracy_full, 2)]
        row += [byte_text(run.summary.bytes_down), byte_text(run.summary.bytes_up)]
        row += [time_text(run.summary.seconds), f"{run.summary.rejected:,}"]
        rows.append(tuple(row))
    return Table(header=tuple(header), rows=tuple(rows))


def markdown(table: Table) -> str:
    """The table as Markdown, numbers to the right.

    >>> print(markdown(Table(header=("tier", "accuracy"), rows=(("weak", "98.40 %"),))))
    | tier | accuracy |
    |---|---:|
    | weak | 98.40 % |
    """
    rules = ["---" if i < table.names else "---:" for i in range(len(table.header))]
    lines = [table.header, *table.rows]
    cells = [" | ".join(cell.replace("|", "\\|") for cell in line) for line in lines]
    return "\n".join([f"| {cells[0]} |", f"|{'|'.join(rules)}|", *(f"| {c} |" for c in cells[1:])])


def rejection_table(run: Run) -> Table:
    """A row a reason: how many updates were rejected for it, of how many devices."""
    every = [(r.reason, r.client) for record in run.rounds for r in record.rejected]
    counts = Counter(reason for reason, _ in every)
    rows = tuple(
        (reason, f"{count:,}", f"{len({c for r, c in every if r == reason}):,}")
        for reason, count in counts.most_common()
    )
    return Table(header=("reason", "updates", "devices"), rows=rows)


def run_labels(runs: Sequence[Run]) -> list[str]:
    """A short name for every run that tells it from the others: its method, else its folder."""
    methods = [run.setting("method") for run in runs]
    if len(set(methods)) == len(runs):
        return methods
    seeds = [f"{m}, seed {run.setting('seed')}" for m, run in zip(methods, runs, strict=True)]
    if len(set(seeds)) == len(runs):
        return seeds
    return [f"{m}, {run.folder}" for m, run in zip(methods, runs, strict=True)]


def differences(runs: Sequence[Run], labels: Sequence[str]) -> Table:
    """A row a setting that is not the same in all runs."""
    names = dict.fromkeys(name for run in runs for name in run.settings)
    values = {name: tuple(run.setting(name) for run in runs) for name in names}
    rows = tuple((name, *v) for name, v in values.items() if len(set(v)) > 1 and name != "out")
    return Table(header=("setting", *labels), rows=rows)


def shortened(names: Sequence[str] | dict[str, None], most: int = 4) -> str:
    """The names in one line; only the first few of many.

    >>> shortened(["a", "b", "c"], most=2)
    'a, b and 1 more'
    """
    names = list(names)
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest
