"""Several runs side by side: their curves in one picture, their results in one table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    tiers = common_tiers(runs)
    words = best_words({t: _scores(runs, labels, t, "accuracy") for t in tiers})
    table = comparison_table(runs, labels)
    columns = {t: _scores(runs, labels, t, "accuracy") for t in tiers} | {
        f"{t}, whole test set": _scores(runs, labels, t, "accuracy_full") for t in tiers
    }
    notes = [
        paragraph(f"{label}: {note}", "note")
        for label, run in zip(labels, runs, strict=True)
        for note in run.notes
    ]
    head = [
        f"<h1>{unbroken(words)}</h1>",
        paragraph(f"{len(runs)} runs side by side; the best of a tier is set off", "soft"),
        *notes,
        html_table(table, best_cells(table, columns)),
    ]
    caption = (
        "Mean accuracy of each tier by round. Each axis is fitted to the course after the first "
        "tenth of the rounds; earlier values may lie below it."
    )
    drawn = picture(comparison_figure(runs, labels), "comparison", caption)
    return page(words, ["\n".join(head), section("Accuracy by round", drawn), _settings(runs)])


def best_words(scores: Mapping[str, Mapping[str, float]]) -> str:
    """Which run is best for which tier, in words; from the scores of each tier by label.

    >>> best_words({"strong": {"a": 0.9, "b": 0.8}, "weak": {"a": 0.5, "b": 0.6}})
    'a is best for strong devices (90.0 %); b is best for weak devices (60.0 %)'
    >>> best_words({"strong": {"a": 0.9, "b": 0.9}})
    'a and b are best for strong devices (90.0 %)'
    """
    best: dict[str, list[str]] = {}
    for tier, by_label in scores.items():
        if by_label:
            top = max(by_label.values())
            labels = [label for label, score in by_label.items() if score == top]
            who = f"{' and '.join(labels)} {'is' if len(labels) == 1 else 'are'}"
            best.setdefault(who, []).append(f"{tier} devices ({percent_text(top)})")
    if not best:
        return "Nothing is evaluated yet"
    return "; ".join(f"{who} best for {' and '.join(of)}" for who, of in best.items())


def best_cells(
    table: Table, columns: Mapping[str, Mapping[str, float]]
) -> frozenset[tuple[int, int]]:
    """The places of the highest scores; `columns` has the scores of some columns by label."""
    cells = set()
    for column, scores in columns.items():
        if scores and column in table.header:
            best = {label for label, score in scores.items() if score == max(scores.values())}
            x = table.header.index(column)
            cells |= {(y, x) for y, row in enumerate(table.rows) if row[0] in best}
    return frozenset(cells)


def _scores(
    runs: Sequence[Run], labels: Sequence[str], tier: str, protocol: str
) -> dict[str, float]:
    """The accuracy of every run that has one for the tier, by its label."""
    found = {
        label: getattr(run.summary.tiers.get(tier), protocol, None)
        for label, run in zip(labels, runs, strict=True)
    }
    return {label: score for label, score in found.items() if score is not None}


def _settings(runs: Sequence[Run]) -> str:
    table = differences(runs, run_labels(runs))
    if not table.rows:
        return section("The runs have the same settings")
    names = Table(header=table.header, rows=table.rows, names=len(table.header))
    return section("Settings in which the runs differ", html_table(names))
