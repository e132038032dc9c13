"""The figures of a report, each a matplotlib Figure of its own; nothing is shown or written."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullLocator

from ghn_fl.report.read import Device, Round, Run, client_scores, common_tiers, mean, scored
from ghn_fl.report.style import (
    BAND,
    COLOUR_MAP,
    INK,
    WIDTH,
    byte_axis,
    byte_text,
    colour,
    count_axis,
    line,
    marker,
    percent_axis,
    percent_text,
    styled,
    time_text,
)

PROTOCOLS = {
    "accuracy": "On the device's own test samples",
    "accuracy_full": "On the whole test set, weighted by the device's labels",
}
SHORT = {"accuracy": "own test samples", "accuracy_full": "whole test set"}
PHASES = ("generate", "train", "update", "evaluate", "record")
MANY_POINTS = 3000  # more are drawn as pixels, to keep the file small
MARKED_POINTS = 30  # fewer are marked, as a line alone would hide where they are
SEPARATE_BARS = 150  # more would only be gaps
LOWEST = 0.7  # of a logarithmic axis of counts: one sample is still seen
NARROWEST = 0.14  # share of the width that the smallest tier gets

Points = list[tuple[int, float]]


@styled
def accuracy_figure(run: Run) -> Figure:
    """Accuracy of every tier by round, a panel a protocol."""
    protocols = [p for p in PROTOCOLS if any(curve(run, tier, p) for tier in run.tiers)]
    figure, panels = _panels(protocols or ["accuracy"], height=3.6)
    for axes, protocol in zip(panels, protocols, strict=False):
        axes.set_title(PROTOCOLS[protocol])
        _mark_rounds(axes, run.rounds)
        for tier in run.tiers:
            score = getattr(run.summary.tiers[tier], protocol)
            label = f"{tier}  {percent_text(score)}"
            draw_curve(axes, curve(run, tier, protocol), tier_index(run, tier), label)
        _legend(axes, "lower right")
    curves = [curve(run, tier, p) for tier in run.tiers for p in protocols]
    percentages(panels, curves, len(run.rounds))
    return figure


@styled
def clients_figure(run: Run) -> Figure:
    """Accuracy of every client, tier by tier, from the lowest to the highest."""
    scores = client_scores(run)
    figure, panels = _tier_panels(run, rows=1, height=3.4)
    for axes, (tier, devices) in zip(panels[0], run.tiers.items(), strict=True):
        own = [scores[d.id] for d in devices if d.id in scores]
        own.sort(key=lambda score: -1.0 if score.accuracy is None else score.accuracy)
        index = tier_index(run, tier)
        pixels = len(own) > MANY_POINTS
        for protocol, filled in (("accuracy_full", False), ("accuracy", True)):
            values = [getattr(score, protocol) for score in own]
            points = [(i, v) for i, v in enumerate(values) if v is not None]
            axes.scatter(
                [x for x, _ in points],
                [y for _, y in points],
                s=_dot_area(len(own)),
                marker="o",
                facecolors=colour(index) if filled else "none",
                edgecolors=colour(index),
                linewidths=0.7,
                rasterized=pixels,
                label=SHORT[protocol],
            )
        average = mean(score.accuracy for score in own)
        if average is not None:
            axes.axhline(average, color=colour(index), linewidth=1, linestyle="--", zorder=0)
        axes.set_title(f"{tier}, {len(devices):,}")
        axes.set_xticks([])
        axes.set_xlim(-0.7, max(len(own), 1) - 0.3)
    panels[0][0].yaxis.set_major_formatter(percent_axis)
    panels[0][-1].set_xlabel("devices, from the lowest accuracy to the highest")
    _legend(panels[0][-1], "lower right")
    return figure


@styled
def fleet_figure(run: Run) -> Figure:
    """Training samples of every client and, if known, its label mix, tier by tier."""
    with_mix = bool(run.fleet[0].mix)
    figure, panels = _tier_panels(run, rows=2 if with_mix else 1, height=4.8 if with_mix else 2.4)
    largest_share = max((max(d.mix) for d in run.fleet if d.mix), default=1.0)
    for column, (tier, members) in enumerate(run.tiers.items()):
        devices = sorted(members, key=_by_main_label)
        samples = panels[0][column]
        _draw_samples(samples, devices, colour(tier_index(run, tier)))
        samples.set_title(f"{tier}, {len(devices):,}")
        samples.set_xticks([])
        samples.set_xlim(-0.5, len(devices) - 0.5)
        samples.grid(visible=False, axis="x")
        if with_mix:
            mixes = panels[1][column]
            image = mixes.imshow(
                [list(shares) for shares in zip(*(d.mix for d in devices), strict=True)],
                aspect="auto",
                interpolation="none",
                cmap=COLOUR_MAP,
                vmin=0,
                vmax=largest_share,
            )
            mixes.grid(visible=False)
            mixes.set_xticks([])
            mixes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=10, steps=[1, 2, 5, 10]))
    panels[0][0].set_yscale("log")
    panels[0][0].set_ylim(bottom=LOWEST)
    panels[0][0].yaxis.set_minor_locator(NullLocator())
    panels[0][0].yaxis.set_major_formatter(count_axis)
    panels[0][0].set_ylabel("training samples")
    if with_mix:
        panels[1][0].set_ylabel("class")
        panels[1][-1].set_xlabel("devices, ordered by their most common class")
        bar = figure.colorbar(image, ax=panels[1], format=percent_axis, pad=0.01)
        bar.set_label("share of its samples")
        bar.outline.set_visible(False)
    return figure


@styled
def seconds_figure(run: Run) -> Figure:
    """Seconds by phase: the whole run on the left, round by round on the right."""
    figure = Figure(figsize=(WIDTH, 2.9))
    left, right = figure.subplots(1, 2, width_ratios=[1, 1.4])
    totals = phase_seconds(run)
    whole = sum(totals.values())
    left.barh(
        list(totals), list(totals.values()), color=[_phase_colour(i) for i in range(len(totals))]
    )
    for row, seconds in enumerate(totals.values()):
        text = f"{time_text(seconds)}, {percent_text(seconds / whole if whole else 0.0, 0)}"
        left.annotate(text, (seconds, row), (5, 0), textcoords="offset points", va="center")
    left.invert_yaxis()
    left.set_xlim(0, 1.6 * max(totals.values(), default=1.0) or 1.0)
    left.set_xticks([])
    left.grid(visible=False)
    left.spines[["left", "bottom"]].set_visible(False)
    left.tick_params(axis="y", length=0)
    left.set_title("The whole run")
    bottom = [0.0] * len(run.rounds)
    for index, phase in enumerate(totals):
        top = [b + r.seconds.get(phase, 0.0) for b, r in zip(bottom, run.rounds, strict=True)]
        right.stairs(
            top, _edges(run.rounds), baseline=bottom, fill=True, color=_phase_colour(index)
        )
        bottom = top
    right.set_title("Seconds of each round")
    round_axis(right, run.rounds)
    return figure


@styled
def bytes_figure(run: Run) -> Figure:
    """Bytes to and from the devices: in each round, and all so far."""
    figure = Figure(figsize=(WIDTH, 2.9))
    each, total = figure.subplots(1, 2)
    directions: tuple[tuple[str, Callable[[Round], int]], ...] = (
        ("to the devices", lambda record: record.bytes_down),
        ("from the devices", lambda record: record.bytes_up),
    )
    for index, (name, count) in enumerate(directions):
        counts = [count(record) for record in run.rounds]
        style = {"color": _phase_colour(index), "linestyle": ("-", "--")[index], "label": name}
        numbers = [record.number for record in run.rounds]
        marker = "o" if len(numbers) == 1 else ""
        each.plot(numbers, counts, marker=marker, **style)
        summed = list(accumulate(counts))
        style["label"] = f"{name}  {byte_text(summed[-1] if summed else 0)}"
        total.plot(numbers, summed, marker=marker, **style)
    each.set_title("Bytes of each round")
    total.set_title("Bytes so far")
    for axes in (each, total):
        axes.set_ylim(0, 1.08 * axes.get_ylim()[1])
        axes.yaxis.set_major_formatter(byte_axis)
        round_axis(axes, run.rounds)
    _legend(total, "upper left")
    return figure


@styled
def metrics_figure(run: Run) -> Figure:
    """Test loss of every tier and what the method itself reports, a panel each."""
    names = sorted({name for record in run.rounds for name in record.metrics})
    rows = math.ceil((1 + len(names)) / 3)
    figure = Figure(figsize=(WIDTH, 2.5 * rows))
    panels = list(figure.subplots(rows, 3, squeeze=False).flat)
    for tier in run.tiers:
        draw_curve(panels[0], curve(run, tier, "loss"), tier_index(run, tier), tier)
    panels[0].set_title("test loss")
    _legend(panels[0], "upper right")
    for axes, name in zip(panels[1:], names, strict=False):
        points = [(r.number, r.metrics[name]) for r in run.rounds if name in r.metrics]
        draw_curve(axes, points, 2, name)
        axes.set_title(name)
    for axes in panels[: 1 + len(names)]:
        round_axis(axes, run.rounds)
    for axes in panels[1 + len(names) :]:
        axes.set_visible(False)
    return figure


@styled
def comparison_figure(runs: Sequence[Run], labels: Sequence[str]) -> Figure:
    """Accuracy by round of several runs: a column a tier, a row a protocol, a line a run."""
    tiers = common_tiers(runs)
    protocols = [p for p in PROTOCOLS if any(curve(r, t, p) for r in runs for t in tiers)]
    protocols = protocols or ["accuracy"]
    figure = Figure(figsize=(WIDTH, 3.2 * len(protocols) + 0.25 * math.ceil(len(runs) / 4)))
    panels = figure.subplots(len(protocols), len(tiers), squeeze=False)
    longest = max(runs, key=lambda run: len(run.rounds)).rounds
    for row, protocol in zip(panels, protocols, strict=True):
        for axes, tier in zip(row, tiers, strict=True):
            curves = [curve(run, tier, protocol) for run in runs]
            for index, points in enumerate(curves):
                draw_curve(axes, points, index, labels[index])
            percentages([axes], curves, len(longest))
            round_axis(axes, longest)
            axes.set_title(f"{tier}, {SHORT[protocol]}")
    handles, names = panels[0][0].get_legend_handles_labels()
    columns = min(len(names), 4) or 1
    figure.legend(handles, names, loc="outside upper left", ncols=columns, frameon=False)
    return figure


def phase_seconds(run: Run) -> dict[str, float]:
    """The seconds of the whole run by phase, in the order of a round."""
    named = {phase for record in run.rounds for phase in record.seconds}
    order = [*(p for p in PHASES if p in named), *sorted(named - set(PHASES))]
    return {p: sum(record.seconds.get(p, 0.0) for record in run.rounds) for p in order}


def tier_index(run: Run, tier: str) -> int:
    """The place of a tier in the palette: strong and weak keep theirs in every report."""
    fixed = {"strong": 0, "weak": 1}
    others = [name for name in run.tiers if name not in fixed]
    return fixed[tier] if tier in fixed else len(fixed) + others.index(tier)


def curve(run: Run, tier: str, field: str) -> Points:
    """Round and value of a tier, where it was evaluated."""
    values = ((r.number, getattr(r.tiers.get(tier), field, None)) for r in run.rounds)
    return [(number, value) for number, value in values if value is not None]


def draw_curve(axes: Axes, points: Points, index: int, label: str) -> None:
    """A line in the colour and the stroke of the place `index`."""
    axes.plot(
        [x for x, _ in points],
        [y for _, y in points],
        color=colour(index),
        linestyle=line(index),
        marker=marker(index) if len(points) <= MARKED_POINTS else "",
        markersize=3.5,
        label=label,
    )


def _panels(names: Sequence[str], height: float) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(WIDTH, height))
    return figure, list(figure.subplots(1, len(names), squeeze=False, sharey=True).flat)


def _tier_panels(run: Run, rows: int, height: float) -> tuple[Figure, list[list[Axes]]]:
    """A column for each tier; two strong devices stay visible beside a thousand weak ones."""
    roots = [math.sqrt(len(devices)) for devices in run.tiers.values()]
    ratios = [max(root / sum(roots), NARROWEST) for root in roots]
    figure = Figure(figsize=(WIDTH, height))
    heights = [1, 1.6][:rows]
    panels = figure.subplots(
        rows,
        len(ratios),
        squeeze=False,
        sharey="row",
        width_ratios=ratios,
        height_ratios=heights,
    )
    return figure, [list(row) for row in panels]


def _mark_rounds(axes: Axes, rounds: tuple[Round, ...]) -> None:
    """Shade the rounds of the score, and draw a line where devices changed."""
    if last := scored(rounds):
        axes.axvspan(last[0].number - 0.5, last[-1].number + 0.5, color=BAND[0], zorder=0)
    for record in rounds:
        if record.changed:
            axes.axvline(record.number - 0.5, color=INK[0], linewidth=0.8, zorder=0)
    round_axis(axes, rounds)


def round_axis(axes: Axes, rounds: Sequence[object]) -> None:
    axes.set_xlabel("round")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
    axes.set_xlim(0.5, max(len(rounds), 1) + 0.5)


def percentages(panels: Iterable[Axes], curves: Iterable[Points], rounds: int) -> None:
    """Percent axes that spend their height on the course after the first tenth of the rounds."""
    later = [y for points in curves for x, y in points if x > 0.1 * rounds]
    low, high = (min(later), max(later)) if later else (0.0, 1.0)
    margin = 0.06 * max(high - low, 0.02)
    for axes in panels:
        axes.yaxis.set_major_formatter(percent_axis)
        axes.set_ylim(low - margin, high + margin)


def _legend(axes: Axes, place: Literal["upper left", "upper right", "lower right"]) -> None:
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc=place)


def _draw_samples(axes: Axes, devices: Sequence[Device], fill: str) -> None:
    counts = [device.train_samples for device in devices]
    if len(counts) <= SEPARATE_BARS:
        axes.bar(range(len(counts)), counts, width=0.86, color=fill)
    else:
        edges = [i - 0.5 for i in range(len(counts) + 1)]
        axes.stairs(counts, edges, baseline=LOWEST, fill=True, color=fill)


def _dot_area(count: int) -> float:
    return 30.0 if count <= 150 else 12.0 if count <= 600 else 5.0


def _by_main_label(device: Device) -> tuple[int, float, int]:
    if not device.mix:
        return (0, -device.train_samples, device.id)
    share = max(device.mix)
    return (device.mix.index(share), -share, device.id)


def _phase_colour(index: int) -> str:
    return colour(2 + index)  # the first two mean strong and weak


def _edges(rounds: tuple[Round, ...]) -> list[float]:
    return [number + 0.5 for number in range(len(rounds) + 1)]
