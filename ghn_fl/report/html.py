"""report.html: a run told in pictures, under headings that say what the reader sees."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ghn_fl.files import write_atomic
from ghn_fl.report import plots
from ghn_fl.report.page import (
    code,
    folded,
    html_table,
    page,
    paragraph,
    picture,
    section,
    tiles,
    unbroken,
)
from ghn_fl.report.read import Run, Score, client_scores, read_run, scored
from ghn_fl.report.style import byte_text, percent_text, time_text
from ghn_fl.report.tables import Table, facts, rejection_table, shortened, tier_table, title

FILE_NAME = "report.html"
MOST_ROWS = 1000
LINE_LENGTH = 84
NEAR = 0.01  # "within a point"
NO_SCORE = Score(accuracy=None, loss=None, accuracy_full=None)
HERE_ONLY = frozenset({"out", "resume", "quiet"})  # settings that do not change the result


def write_report(folder: str | Path, out: str | Path | None = None) -> Path:
    """Write the report of a run folder, into it if `out` is not given, and return its path."""
    path = Path(folder) / FILE_NAME if out is None else Path(out)
    write_atomic(path, report_html(read_run(folder)))
    return path


def report_html(run: Run) -> str:
    """The report as the text of one HTML file."""
    sections = [_head(run)]
    if run.rounds:
        sections += [_curves(run), _clients(run)]
    sections.append(_fleet(run))
    if run.rounds:
        sections += [_seconds(run), _bytes(run), _metrics(run)]
    sections += [_rejected(run), _repeat(run)]
    return page(f"{accuracy_words(run)}: {title(run)}", sections)


def accuracy_words(run: Run) -> str:
    """The result in words: "Strong devices reach 99.0 %, weak devices 98.4 %"."""
    found = {tier: s.accuracy for tier, s in run.summary.tiers.items() if s.accuracy is not None}
    if not found:
        return "Nothing is evaluated yet"
    (first, score), *rest = found.items()
    words = f"{capitalized(first)} devices reach {percent_text(score)}"
    return ", ".join([words, *(f"{tier} devices {percent_text(s)}" for tier, s in rest)])


def course_words(run: Run) -> str:
    """How fast it went: the round that first came within a point of the tier's score."""
    parts: list[str] = []
    for tier, summary in run.summary.tiers.items():
        for record in run.rounds:
            score = record.tiers.get(tier, NO_SCORE).accuracy
            reached = summary.accuracy
            if score is not None and reached is not None and score >= reached - NEAR:
                verb = "" if parts else " come within a point of their score"
                parts.append(f"{tier} devices{verb} by round {record.number}")
                break
    if not parts:
        return f"Nothing is evaluated after {len(run.rounds):,} rounds"
    return capitalized(", ".join(parts))


def spread_words(run: Run) -> str:
    """How even the devices of the largest tier are: what nine in ten of them reach."""
    tier, devices = max(run.tiers.items(), key=lambda item: len(item[1]))
    scores = client_scores(run)
    found = sorted(
        score.accuracy
        for device in devices
        if (score := scores.get(device.id)) is not None and score.accuracy is not None
    )
    if not found:
        return "No device is evaluated yet"
    if len(found) < 10:
        return f"{capitalized(tier)} devices lie between {percent_text(found[0])} and " + (
            percent_text(found[-1])
        )
    # the value that at least nine in ten reach
    bound = found[len(found) - math.ceil(0.9 * len(found))]
    return (
        f"Nine in ten {tier} devices reach {percent_text(bound)} or more, "
        f"the lowest {percent_text(found[0])}"
    )


def fleet_words(run: Run) -> str:
    """Who holds the data: "2 strong devices hold 50 % of the samples, 100 weak ones 50 %"."""
    whole = sum(device.train_samples for device in run.fleet)
    parts: list[str] = []
    for tier, devices in run.tiers.items():
        share = sum(device.train_samples for device in devices) / whole if whole else 0.0
        noun = "device" if len(devices) == 1 else "devices"
        verb = ("holds" if len(devices) == 1 else "hold") + " " if not parts else ""
        of = " of the training samples" if not parts else ""
        parts.append(f"{len(devices):,} {tier} {noun} {verb}{percent_text(share, 0)}{of}")
    return ", ".join(parts)


def seconds_words(run: Run) -> str:
    """Where the time goes: "Of 10 min 19 s, 66 % go into train"."""
    totals = plots.phase_seconds(run)
    whole = sum(totals.values())
    if not whole:
        return "The rounds took no time"
    phase, seconds = max(totals.items(), key=lambda item: item[1])
    return (
        f"The rounds take {time_text(whole)}, {percent_text(seconds / whole, 0)} of it to {phase}"
    )


def command(settings: Mapping[str, Any]) -> str:
    """The command that repeats a run; settings that no flag can hold are left out.

    >>> print(command({"skew": "2:100", "transfer": False, "batch_size": 32, "deadline": None}))
    ghnfl train --skew 2:100 --no-transfer --batch-size 32
    """
    words: list[str] = []
    for name, value in settings.items():
        flag = name.replace("_", "-")
        if name in HERE_ONLY or value is None or isinstance(value, list | dict):
            continue
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            words.append(f"--{flag} {shlex.quote(str(value))}")
    lines = ["ghnfl train"]
    for word in words:
        if len(lines[-1]) + len(word) > LINE_LENGTH:
            lines.append("   ")
        lines[-1] += f" {word}"
    return " \\\n".join(lines)


def capitalized(text: str) -> str:
    return text[:1].upper() + text[1:]


def _head(run: Run) -> str:
    notes = [paragraph(note, "note") for note in run.notes]
    parts = [
        f"<h1>{unbroken(accuracy_words(run))}</h1>",
        paragraph(f"{title(run)}; {run.setting('rounds')} rounds planned", "soft"),
        *notes,
        html_table(tier_table(run)),
        tiles(facts(run)),
        paragraph(
            f"Accuracy: {run.tested}; mean over the devices of the tier and over the last fifth of "
            "the rounds. Whole test set: the same on all test samples, weighted by "
            "the device's label mix.",
            "soft",
        ),
    ]
    return "<header>\n" + "\n".join(parts) + "\n</header>"


def _fleet(run: Run) -> str:
    caption = (
        "A column is a device. Above: its training samples, on a logarithmic scale. "
        "Below: how they are spread over the classes; the brighter, the larger the share."
    )
    return section(fleet_words(run), picture(plots.fleet_figure(run), "fleet", caption))


def _curves(run: Run) -> str:
    last = scored(run.rounds)
    caption = (
        f"Mean accuracy of each tier by round. The score is the mean over rounds "
        f"{last[0].number} to {last[-1].number}, shaded. The axis is fitted to the course after "
        "the first tenth of the rounds; earlier values may lie below it."
    )
    if any(record.changed for record in run.rounds):
        caption += " At a vertical line some devices change to other models."
    return section(
        course_words(run),
        picture(plots.accuracy_figure(run), "accuracy", caption),
    )


def _clients(run: Run) -> str:
    caption = (
        "A dot is a device: filled on its own test samples, hollow on the whole test set, mean "
        "over the last fifth of the rounds. Dashed: the mean of the tier."
    )
    drawn = picture(plots.clients_figure(run), "clients", caption)
    return section(spread_words(run), drawn, _client_list(run))


def _client_list(run: Run) -> str:
    scores = client_scores(run)
    rows = []
    for device in run.fleet[:MOST_ROWS]:
        score = scores.get(device.id, NO_SCORE)
        rows.append(
            (
                str(device.id),
                device.tier,
                shortened(device.models),
                f"{device.train_samples:,}",
                f"{device.test_samples:,}",
                percent_text(score.accuracy, 2),
                percent_text(score.accuracy_full, 2),
            )
        )
    header = ("device", "tier", "models", "training", "test", "accuracy", "whole test set")
    table = html_table(Table(header=header, rows=tuple(rows), names=3))
    more = len(run.fleet) - MOST_ROWS
    note = [paragraph(f"{more:,} more devices are in config.json and rounds.jsonl.")]
    return folded("Every device in a table", table, *(note if more > 0 else []))


def _seconds(run: Run) -> str:
    caption = (
        "Generate: weights for the devices. Train: the devices' own training. Update: what the "
        "server learns from it. Evaluate: testing every device. Record: writing results and "
        "checkpoints."
    )
    return section(seconds_words(run), picture(plots.seconds_figure(run), "seconds", caption))


def _bytes(run: Run) -> str:
    down, up = byte_text(run.summary.bytes_down), byte_text(run.summary.bytes_up)
    caption = "What crosses the network between the server and the sampled devices."
    drawn = picture(plots.bytes_figure(run), "bytes", caption)
    return section(f"Devices receive {down} and send {up}", drawn)


def _metrics(run: Run) -> str:
    caption = "The devices' loss on their own test samples, then figures of the method itself."
    drawn = picture(plots.metrics_figure(run), "metrics", caption)
    return section("Losses and the method's own figures", drawn)


def _rejected(run: Run) -> str:
    table = rejection_table(run)
    if not table.rows:
        return section("No update was rejected")
    count = sum(len(record.rejected) for record in run.rounds)
    verb = "update was" if count == 1 else "updates were"
    every = [
        (str(record.number), str(r.client), r.reason)
        for record in run.rounds
        for r in record.rejected
    ]
    listed = Table(header=("round", "device", "reason"), rows=tuple(every[:MOST_ROWS]), names=3)
    heading = "Each of them" if len(every) <= MOST_ROWS else f"The first {MOST_ROWS:,}"
    return section(
        f"{count:,} {verb} rejected, most for: {table.rows[0][0]}",
        html_table(table),
        folded(heading, html_table(listed)),
    )


def _repeat(run: Run) -> str:
    settings = tuple((name, str(value)) for name, value in run.settings.items())
    versions = tuple(run.versions.items())
    return section(
        "Repeat this run",
        code(command(run.settings)),
        paragraph("All settings are in config.json beside this report.", "soft"),
        folded("Settings", html_table(Table(header=("setting", "value"), rows=settings, names=2))),
        folded(
            "Versions", html_table(Table(header=("package", "version"), rows=versions, names=2))
        ),
    )
