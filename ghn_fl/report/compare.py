"""Several runs side by side: their curves in one picture, their results in one table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ghn_fl.errors import ReportError
from ghn_fl.files import write_atomic
from ghn_fl.report.page import html_table, page, paragraph, picture, section, unbroken
from ghn_fl.report.plots import comparison_figure
from ghn_fl.report.read import Run, common_tiers, read_run
from ghn_fl.report.style import percent_text
from ghn_fl.report.tables import Table, comparison_table, differences, run_labels


def compare_runs(folders: Sequence[str | Path]) -> str:
    """The comparison of the runs in `folders` as the text of one HTML file."""
    if not folders:
        raise ReportError("a comparison needs at least one run folder, got none")
    return comparison_html([read_run(folder) for folder in folders])


def write_comparison(folders: Sequence[str | Path], out: str | Path) -> Path:
    """Write the comparison to `out` and return its path."""
    write_atomic(out, compare_runs(folders))
    return Path(out)


def comparison_html(runs: Sequence[Run]) -> str:
    """The comparison as the text of one HTML file."""
    labels = run_labels(runs)
    words = best_words(runs, labels)
    table = comparison_table(runs, labels)
    notes = [
        paragraph(f"{label}: {note}", "note")
        for label, run in zip(labels, runs, strict=True)
        for note in run.notes
    ]
    head = [
        f"<h1>{unbroken(words)}</h1>",
        paragraph(f"{len(runs)} runs side by side; the best of a tier is set off", "soft"),
        *notes,
        html_table(table, _best_cells(runs, table)),
    ]
    caption = (
        "Mean accuracy of each tier by round. Each axis is fitted to the course after the first "
        "tenth of the rounds; earlier values may lie below it."
    )
    drawn = picture(comparison_figure(runs, labels), "comparison", caption)
    return page(words, ["\n".join(head), section("Accuracy by round", drawn), _settings(runs)])


def best_words(runs: Sequence[Run], labels: Sequence[str]) -> str:
    """Which run is best for which tier, in words."""
    best: dict[str, list[str]] = {}
    for tier in common_tiers(runs):
        if scores := _scores(runs, tier, "accuracy"):
            place = max(scores, key=lambda index: scores[index])  # the first of equals
            text = f"{tier} devices, {percent_text(scores[place])}"
            best.setdefault(labels[place], []).append(text)
    if not best:
        return "Nothing is evaluated yet"
    return "; ".join(f"{label} is best for {' and '.join(of)}" for label, of in best.items())


def _scores(runs: Sequence[Run], tier: str, protocol: str) -> dict[int, float]:
    """The accuracy of every run, by its place, that has one for the tier."""
    found = {i: getattr(run.summary.tiers.get(tier), protocol, None) for i, run in enumerate(runs)}
    return {index: score for index, score in found.items() if score is not None}


def _best_cells(runs: Sequence[Run], table: Table) -> frozenset[tuple[int, int]]:
    cells = set()
    for tier in common_tiers(runs):
        for column, protocol in (
            (tier, "accuracy"),
            (f"{tier}, whole test set", "accuracy_full"),
        ):
            if scores := _scores(runs, tier, protocol):
                best = max(scores.values())
                x = table.header.index(column)
                cells |= {(y, x) for y, score in scores.items() if score == best}
    return frozenset(cells)


def _settings(runs: Sequence[Run]) -> str:
    table = differences(runs, run_labels(runs))
    if not table.rows:
        return section("The runs have the same settings")
    names = Table(header=table.header, rows=table.rows, names=len(table.header))
    return section("Settings in which the runs differ", html_table(names))
