"""Where to draw the boxes of a layered picture: rows by level, few crossings, straight lines.

The usual three steps: a row for every level, with a dummy wherever an edge passes a row; an order
within each row by the mean place of the neighbours; then places that pull neighbours in line.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

_SWEEPS = 8
_GAP = 0.35
_DUMMY = 0.12


@dataclass(frozen=True)
class Layout:
    """Places in units of a row's height: x to the right, row downwards.

    Attributes:
        x: centre of every box.
        row: of every box.
        bends: for every edge, the x where it passes each row between its ends.
    """

    x: list[float]
    row: list[int]
    bends: dict[tuple[int, int], list[float]]


def layered(widths: Sequence[float], edges: Sequence[tuple[int, int]]) -> Layout:
    """A layout of boxes of these widths; an edge (u, v) has u < v and goes downwards."""
    row = [0] * len(widths)
    for u, v in sorted(edges, key=lambda e: e[1]):
        row[v] = max(row[v], row[u] + 1)
    sources = {v for _, v in edges}
    for u in range(len(widths)):  # a source stands right above its first reader, not at the top
        below = [row[v] for a, v in edges if a == u]
        if below and u not in sources and u > 0:
            row[u] = min(below) - 1
    width = list(widths)
    place = list(row)
    chains: dict[tuple[int, int], list[int]] = {}
    links: list[tuple[int, int]] = []
    for u, v in edges:
        chain = [u]
        for level in range(row[u] + 1, row[v]):
            chain.append(len(width))
            width.append(_DUMMY)
            place.append(level)
        chain.append(v)
        chains[u, v] = chain[1:-1]
        links += list(pairwise(chain))
    rows: list[list[int]] = [[] for _ in range(max(place, default=0) + 1)]
    for item, level in enumerate(place):
        rows[level].append(item)
    above: list[list[int]] = [[] for _ in width]
    under: list[list[int]] = [[] for _ in width]
    for u, v in links:
        above[v].append(u)
        under[u].append(v)
    x = _placed(rows, width, above, under)
    bends = {edge: [x[d] for d in chain] for edge, chain in chains.items()}
    return Layout(x[: len(widths)], row, bends)


def _placed(
    rows: list[list[int]], width: list[float], above: list[list[int]], under: list[list[int]]
) -> list[float]:
    x = [0.0] * len(width)
    for row in rows:
        _spread(row, [float(i) for i in range(len(row))], width, x)
    for sweep in range(2 * _SWEEPS):
        down = sweep % 2 == 0
        for row in rows if down else rows[::-1]:
            near = above if down else under
            wanted = {i: _mean([x[k] for k in near[i]] or [x[i]]) for i in row}
            if sweep < _SWEEPS:  # the order may still change
                row.sort(key=lambda i: wanted[i])
            _spread(row, [wanted[i] for i in row], width, x)
    return x


def _spread(row: list[int], wanted: list[float], width: list[float], x: list[float]) -> None:
    """Put the items of a row as near to where they want to be as their widths allow."""
    right = list(wanted)
    for k in range(1, len(row)):
        right[k] = max(right[k], right[k - 1] + _apart(width, row[k - 1], row[k]))
    left = list(wanted)
    for k in range(len(row) - 2, -1, -1):
        left[k] = min(left[k], left[k + 1] - _apart(width, row[k], row[k + 1]))
    for k, item in enumerate(row):
        x[item] = (right[k] + left[k]) / 2  # the mean of two valid placements is valid


def _apart(width: list[float], a: int, b: int) -> float:
    return (width[a] + width[b]) / 2 + _GAP


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
