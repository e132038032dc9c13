"""A layered picture of a graph, as SVG or PNG: operators coloured by kind, modules as blocks."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

from graphs.blocks import Block, Blocks, collapse
from graphs.errors import GraphError
from graphs.graph import Graph
from graphs.layout import Layout, layered
from graphs.summary import contents, short, statistics, times

_KINDS: tuple[tuple[str, str, frozenset[str]], ...] = (
    ("input", "#37474f", frozenset({"input"})),
    ("convolution", "#3f7fbf", frozenset({"conv", "sep_conv", "dil_conv", "conv_transpose"})),
    ("linear", "#e0823d", frozenset({"linear", "matmul", "bilinear"})),
    ("attention", "#8e5bb5", frozenset({"multi_head_attention", "attention"})),
    ("recurrent", "#8d6748", frozenset({"lstm", "gru", "rnn"})),
    (
        "norm",
        "#4f9f6e",
        frozenset({"batch_norm", "layer_norm", "group_norm", "rms_norm", "instance_norm"}),
    ),
    ("embedding", "#2f9da3", frozenset({"embedding"})),
    (
        "stand-alone parameter",
        "#c75b8a",
        frozenset({"parameter", "shift", "scale", "token", "lookup", "prelu"}),
    ),
    ("join", "#8b959e", frozenset({"sum", "mul", "concat", "select", "index", "write"})),
    ("pooling", "#d3ad2f", frozenset({"max_pool", "avg_pool", "glob_avg"})),
    ("other", "#b04a4a", frozenset({"other"})),
)
_KIND_OF = {op: i for i, (_, _, kinds) in enumerate(_KINDS) for op in kinds}

_ROW = 0.62  # inches from row to row
_HEIGHT = 0.40  # of a box
_INK = "#263238"
_LINE = "#90a4ae"


def draw(graph: Graph, path: str | Path, *, depth: int | None = None, title: str = "") -> None:
    """Write a picture of the graph to `path`, whose ending says the format (.svg or .png).

    Args:
        graph: what to draw.
        path: where to.
        depth: how many names of a module path to show; default: as many as stay readable.
        title: a heading.
    """
    path = Path(path)
    if path.suffix.lower() not in (".svg", ".png"):
        raise GraphError(f"a picture is .svg or .png, got {path.name!r}")
    from matplotlib import rc_context

    # Text stays text in an SVG, and the same graph gives the same file.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "ghnfl"}):
        figure = _figure(graph, collapse(graph, depth), title)
        metadata = {"Date": None} if path.suffix.lower() == ".svg" else None
        try:
            figure.savefig(path, dpi=110, metadata=metadata)
        except OSError as err:
            raise GraphError(f"cannot write {path}: {err.strerror or err}") from err


def _figure(graph: Graph, blocks: Blocks, title: str) -> Any:
    from matplotlib.figure import Figure

    labels = [_label(graph, block) for block in blocks.blocks]
    widths = [_width(*label) for label in labels]
    used = {k for pair in blocks.edges for k in pair}
    shown = [k for k, b in enumerate(blocks.blocks) if k in used or not _is_orphan(graph, b)]
    lonely = [k for k in range(len(widths)) if k not in set(shown)]
    number = {k: i for i, k in enumerate(shown)}
    edges = [(number[u], number[v]) for u, v in blocks.edges]
    layout = layered([widths[k] for k in shown], edges)
    places = {k: (layout.x[i], float(layout.row[i])) for k, i in number.items()}
    places |= _lonely_places(lonely, widths, places)

    left = min(x - widths[k] / 2 for k, (x, _) in places.items()) - 0.3
    right = max(x + widths[k] / 2 for k, (x, _) in places.items()) + 0.3
    passing = [x for bends in layout.bends.values() for x in bends]
    left, right = (
        min([left, *[x - 0.2 for x in passing]]),
        max([right, *[x + 0.2 for x in passing]]),
    )
    if right - left < 7.2:
        middle = (left + right) / 2
        left, right = middle - 3.6, middle + 3.6
    bottom = max(y for _, y in places.values()) * _ROW + 0.5
    present = sorted({_KIND_OF[node.op] for node in graph.nodes})
    legend_rows = -(-len(present) // max(1, int((right - left) // 1.75)))
    top, end = -0.95, bottom + 0.28 * legend_rows + 0.1
    figure = Figure(figsize=(right - left, end - top), facecolor="white")
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(left, right)
    axes.set_ylim(end, top)
    axes.axis("off")
    _heading(axes, graph, title, (left + right) / 2, top)
    for (u, v), bends in layout.bends.items():
        _edge(axes, layout, u, v, bends)
    for k, block in enumerate(blocks.blocks):
        _box(axes, graph, block, labels[k], widths[k], places[k])
    _legend(axes, present, left, right, bottom)
    return figure


def _label(graph: Graph, block: Block) -> tuple[str, str]:
    """Two lines: what it is, and how large."""
    nodes = [graph.nodes[i] for i in block.nodes]
    shapes = {n: s for node in nodes for n, s in node.parameters.items()}
    count = sum(_product(s) for s in shapes.values())
    shape = nodes[-1].shape
    size = [short(count)] if count else []
    size += ["unused"] if _is_orphan(graph, block) else []
    if len(nodes) > 1:
        return block.path or "(model)", "  ".join([contents(nodes), *size])
    node = nodes[0]
    if node.parameters:
        size = [times(next(iter(node.parameters.values()))), *size]
    elif shape is not None:
        size = [times(shape)]
    name = f"{block.path}: {node.op}" if block.path and node.parameters else node.op
    return name, "  ".join(size)


def _product(shape: tuple[int, ...]) -> int:
    result = 1
    for size in shape:
        result *= size
    return result


def _width(first: str, second: str) -> float:
    return max(0.075 * len(first), 0.062 * len(second), 0.6) + 0.28


def _is_orphan(graph: Graph, block: Block) -> bool:
    return graph.nodes[block.nodes[0]].orphan


def _lonely_places(
    lonely: list[int], widths: list[float], places: dict[int, tuple[float, float]]
) -> dict[int, tuple[float, float]]:
    """Unused blocks stand in a column of their own, to the right."""
    edge = max((x + widths[k] / 2 for k, (x, _) in places.items()), default=0.0)
    column = edge + 0.8 + max((widths[k] for k in lonely), default=0.0) / 2
    return {k: (column, float(i)) for i, k in enumerate(lonely)}


def _heading(axes: Any, graph: Graph, title: str, x: float, top: float) -> None:
    facts = statistics(graph)
    line = (
        f"{facts.nodes} nodes   {facts.edges} edges   {facts.levels} levels   "
        f"{short(facts.parameters)} parameters"
    )
    if facts.trainable < facts.parameters:
        line += f" ({short(facts.trainable)} trainable)"
    axes.text(x, top + 0.27, title, ha="center", va="center", size=14, weight="bold", color=_INK)
    axes.text(x, top + 0.52, line, ha="center", va="center", size=8.5, color="#607d8b")


def _edge(axes: Any, layout: Layout, u: int, v: int, bends: list[float]) -> None:
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path as Curve

    points = [(layout.x[u], layout.row[u] * _ROW + _HEIGHT / 2)]
    points += [(x, (layout.row[u] + 1 + i) * _ROW) for i, x in enumerate(bends)]
    points.append((layout.x[v], layout.row[v] * _ROW - _HEIGHT / 2))
    vertices, codes = [points[0]], [Curve.MOVETO]
    for (x0, y0), (x1, y1) in pairwise(points):
        half = (y1 - y0) / 2
        vertices += [(x0, y0 + half), (x1, y1 - half), (x1, y1)]
        codes += [Curve.CURVE4] * 3
    skips = bool(bends)
    axes.add_patch(
        PathPatch(
            Curve(vertices, codes),
            facecolor="none",
            edgecolor=_LINE,
            linewidth=0.9 if skips else 1.3,
            zorder=1,
        )
    )
    x, y = points[-1]
    axes.fill([x - 0.045, x + 0.045, x], [y - 0.07, y - 0.07, y], color=_LINE, zorder=1, lw=0)


def _box(
    axes: Any,
    graph: Graph,
    block: Block,
    label: tuple[str, str],
    width: float,
    place: tuple[float, float],
) -> None:
    from matplotlib.patches import FancyBboxPatch

    x, y = place[0] - width / 2, place[1] * _ROW - _HEIGHT / 2
    kinds = Counter(_KIND_OF[graph.nodes[i].op] for i in block.nodes)
    colour = _KINDS[kinds.most_common(1)[0][0]][1]
    single = len(block.nodes) == 1
    patch = FancyBboxPatch(
        (x, y),
        width,
        _HEIGHT,
        boxstyle="round,pad=0,rounding_size=0.09",
        facecolor=colour if single else "#f7f9fa",
        edgecolor=colour if single else "#78909c",
        linewidth=1.0,
        linestyle="--" if _is_orphan(graph, block) else "-",
        alpha=0.55 if _is_orphan(graph, block) else 1.0,
        zorder=2,
    )
    axes.add_patch(patch)
    if not single:  # a strip that shows what the block is made of
        start = x + 0.1
        for kind, count in sorted(kinds.items()):
            part = (width - 0.2) * count / len(block.nodes)
            axes.fill(
                [start, start + part, start + part, start],
                [y + _HEIGHT - 0.055] * 2 + [y + _HEIGHT - 0.02] * 2,
                color=_KINDS[kind][1],
                zorder=3,
                lw=0,
            )
            start += part
    ink = "white" if single else _INK
    first, second = label
    middle = place[1] * _ROW - (0.0 if single else 0.02)
    up = 0.075 if second else 0.0
    axes.text(place[0], middle - up, first, ha="center", va="center", size=8, color=ink, zorder=4)
    if second:
        axes.text(
            place[0],
            middle + 0.085,
            second,
            ha="center",
            va="center",
            size=6.3,
            color=ink,
            zorder=4,
        )


def _legend(axes: Any, present: list[int], left: float, right: float, bottom: float) -> None:
    columns = max(1, int((right - left) // 1.75))
    used = min(columns, len(present))
    start = (left + right) / 2 - used * 1.75 / 2
    for i, kind in enumerate(present):
        x, y = start + (i % columns) * 1.75 + 0.15, bottom + (i // columns) * 0.28
        axes.fill(
            [x, x + 0.16, x + 0.16, x], [y - 0.07] * 2 + [y + 0.07] * 2, color=_KINDS[kind][1]
        )
        axes.text(x + 0.23, y, _KINDS[kind][0], va="center", size=7.5, color="#455a64")
