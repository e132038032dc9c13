"""The pictures of a comparison over seeds: tier against tier, and every tier's course."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ghn_fl.report.plots import PROTOCOLS, SHORT, Points, curve, draw_curve, percentages, round_axis
from ghn_fl.report.read import Run, common_tiers
from ghn_fl.report.style import INK, WIDTH, colour, marker, percent_axis, styled

LETTER, LINE, GAP = 5.4, 11.0, 6.0  # points: width and height of a letter, label to its dot
Runs = Mapping[str, Mapping[int, Run]]  # method -> seed -> run
Box = tuple[float, float, float, float]  # left, bottom, right, top


@styled
def tiers_figure(runs: Runs) -> Figure:
    """Strong against weak accuracy, a panel a protocol: seeds, means, spread, labels."""
    every = [run for by_seed in runs.values() for run in by_seed.values()]
    tiers = common_tiers(every)
    high, low = tiers[0], tiers[-1]
    protocols = [p for p in PROTOCOLS if any(_places(r, high, low, p) for r in runs.values())]
    figure = Figure(figsize=(WIDTH, 4.6))
    panels = figure.subplots(1, len(protocols) or 1, squeeze=False)[0]
    for axes, protocol in zip(panels, protocols, strict=False):
        places = {m: _places(by_seed, high, low, protocol) for m, by_seed in runs.items()}
        for index, (method, points) in enumerate(places.items()):
            _draw_places(axes, points, index, method)
        axes.set_title(SHORT[protocol][:1].upper() + SHORT[protocol][1:])
        axes.set_xlabel(f"{low} devices")
        axes.set_ylabel(f"{high} devices")
        axes.xaxis.set_major_formatter(percent_axis)
        axes.yaxis.set_major_formatter(percent_axis)
        axes.locator_params("x", nbins=5)  # more labels of four digits would touch each other
        axes.margins(0.16, 0.1)
    figure.draw_without_rendering()  # labels are placed by where the dots have come to lie
    for axes, protocol in zip(panels, protocols, strict=False):
        _label(axes, {m: _places(by_seed, high, low, protocol) for m, by_seed in runs.items()})
    return figure


@styled
def courses_figure(runs: Runs) -> Figure:
    """Accuracy by round, a panel a tier: the mean over the seeds and a band of its spread."""
    every = [run for by_seed in runs.values() for run in by_seed.values()]
    tiers = common_tiers(every)
    longest = max(every, key=lambda run: len(run.rounds)).rounds
    figure = Figure(figsize=(WIDTH, 3.6 + 0.22 * math.ceil(len(runs) / 5)))
    panels = figure.subplots(1, len(tiers), squeeze=False)[0]
    for axes, tier in zip(panels, tiers, strict=True):
        edges: list[Points] = []
        for index, (method, by_seed) in enumerate(runs.items()):
            found = band([curve(run, tier, "accuracy") for run in by_seed.values()])
            draw_curve(axes, [(x, m) for x, m, _ in found], index, method)
            lower = [(x, max(m - s, 0.0)) for x, m, s in found]
            upper = [(x, min(m + s, 1.0)) for x, m, s in found]
            if len(by_seed) > 1:
                axes.fill_between(
                    [x for x, _ in lower],
                    [y for _, y in lower],
                    [y for _, y in upper],
                    color=colour(index),
                    alpha=0.15,
                    linewidth=0,
                )
            edges += [lower, upper]
        percentages([axes], edges, len(longest))
        round_axis(axes, longest)
        axes.set_title(f"{tier}, {SHORT['accuracy']}")
    handles, names = panels[0].get_legend_handles_labels()
    columns = min(len(names), 5) or 1
    figure.legend(handles, names, loc="outside upper left", ncols=columns, frameon=False)
    return figure


def band(curves: Sequence[Points]) -> list[tuple[int, float, float]]:
    """Round, mean and sample deviation, for the rounds that all curves have.

    >>> band([[(1, 0.0), (2, 1.0)], [(2, 3.0)]])
    [(2, 2.0, 1.4142135623730951)]
    """
    by_round: dict[int, list[float]] = {}
    for points in curves:
        for number, value in points:
            by_round.setdefault(number, []).append(value)
    return [
        (number, statistics.fmean(values), _deviation(values))
        for number, values in sorted(by_round.items())
        if len(values) == len(curves)
    ]


def _places(
    by_seed: Mapping[int, Run], high: str, low: str, protocol: str
) -> list[tuple[float, float]]:
    """(low, high) of every seed that has both."""
    found = (
        tuple(getattr(run.summary.tiers.get(t), protocol, None) for t in (low, high))
        for run in by_seed.values()
    )
    return [(x, y) for x, y in found if x is not None and y is not None]


def _draw_places(axes: Axes, points: Sequence[tuple[float, float]], index: int, name: str) -> None:
    if not points:
        return
    (x, across), (y, up) = _middle(points)
    if len(points) > 1:
        axes.scatter(
            [p[0] for p in points],
            [p[1] for p in points],
            s=14,
            marker=marker(index),
            color=colour(index),
            alpha=0.45,
            linewidths=0,
        )
    axes.errorbar(
        x,
        y,
        xerr=across or None,
        yerr=up or None,
        marker=marker(index),
        markersize=7.5,
        color=colour(index),
        elinewidth=1.1,
        label=name,
    )


def _label(axes: Axes, places: Mapping[str, Sequence[tuple[float, float]]]) -> None:
    """Write each method beside its mean, where it covers the least of dots and other labels."""
    scale = 72 / axes.figure.dpi  # display units to points
    middles = {
        name: axes.transData.transform([v for v, _ in _middle(points)]) * scale
        for name, points in places.items()
        if points
    }
    frame = axes.get_window_extent()
    room = (frame.x0 * scale, frame.y0 * scale, frame.x1 * scale, frame.y1 * scale)
    taken = [_around(x, y, 5, 5) for x, y in middles.values()]
    for points in places.values():
        seeds = [axes.transData.transform(p) * scale for p in points]
        taken += [_around(x, y, 2, 2) for x, y in seeds]
        taken += _bars(axes, points, scale)
    for name, (x, y) in sorted(middles.items(), key=lambda item: -item[1][1]):
        width = LETTER * len(name)
        place = min(  # the first of equals
            _candidates(x, y, width),
            key=lambda box: sum(_overlap(box, t) for t in taken) + 3 * _outside(box, room),
        )
        taken.append(place)
        shift = (place[0] - x, place[1] - y)
        (right, _), (up, _) = _middle(places[name])
        nearest = min(_distance(place, *middle) for middle in middles.values())
        far = _distance(place, x, y) > min(12.0, nearest + 1)
        axes.annotate(
            name,
            (right, up),
            shift,
            textcoords="offset points",
            fontsize=9,
            annotation_clip=False,
            arrowprops={
                "arrowstyle": "-",
                "color": INK[0],
                "linewidth": 0.5,
                "shrinkA": 0,
                "shrinkB": 0,
            }
            if far
            else None,
        )


def _candidates(x: float, y: float, width: float) -> Iterator[Box]:
    """Boxes of a label around its dot: right, left, above, below, the corners; then farther."""
    for gap in (GAP, 2 * GAP, 3 * GAP, 5 * GAP):
        for left in (x + gap, x - gap - width, x - width / 2):
            for bottom in (y - LINE / 2, y + gap, y - gap - LINE):
                if not (left == x - width / 2 and bottom == y - LINE / 2):
                    yield (left, bottom, left + width, bottom + LINE)


def _overlap(one: Box, other: Box) -> float:
    across = min(one[2], other[2]) - max(one[0], other[0])
    up = min(one[3], other[3]) - max(one[1], other[1])
    return max(across, 0.0) * max(up, 0.0)


def _outside(box: Box, room: Box) -> float:
    """The area of the box that is not in the room."""
    return (box[2] - box[0]) * (box[3] - box[1]) - _overlap(box, room)


def _distance(box: Box, x: float, y: float) -> float:
    """From the box to a point beside it."""
    across = max(box[0] - x, 0.0, x - box[2])
    return math.hypot(across, max(box[1] - y, 0.0, y - box[3]))


def _around(x: float, y: float, across: float, up: float) -> Box:
    return (x - across, y - up, x + across, y + up)


def _bars(axes: Axes, points: Sequence[tuple[float, float]], scale: float) -> list[Box]:
    """What the bars of a mean cover."""
    if not points:
        return []
    (x, across), (y, up) = _middle(points)
    ends = axes.transData.transform([(x - across, y - up), (x + across, y + up)]) * scale
    (left, bottom), (right, top) = ends
    return [
        (left, (bottom + top) / 2 - 1, right, (bottom + top) / 2 + 1),
        ((left + right) / 2 - 1, bottom, (left + right) / 2 + 1, top),
    ]


def _middle(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Mean and deviation of either coordinate."""
    return [(statistics.fmean(v), _deviation(v)) for v in zip(*points, strict=True)]


def _deviation(values: Sequence[float]) -> float:
    return statistics.stdev(values) if len(values) > 1 else 0.0
