"""A graph in words and numbers: statistics, and a tree for the terminal."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

from graphs.blocks import Block, collapse
from graphs.graph import Graph, Node
from graphs.paths import levels


@dataclass(frozen=True)
class Statistics:
    """Counts of a graph; parameters are counted as scalars, shared ones once."""

    nodes: int
    edges: int
    levels: int
    parameters: int
    trainable: int
    tensors: int
    orphans: int
    ops: dict[str, int]


def statistics(graph: Graph) -> Statistics:
    """How large a graph is, and what it is made of."""
    everything = graph.parameters(frozen=True)
    return Statistics(
        nodes=len(graph.nodes),
        edges=len(graph.edges),
        levels=int(levels(graph).max()) + 1,
        parameters=sum(math.prod(s) for s in everything.values()),
        trainable=sum(math.prod(s) for s in graph.parameters().values()),
        tensors=len(everything),
        orphans=len(graph.report.orphans),
        ops=dict(Counter(node.op for node in graph.nodes).most_common()),
    )


def tree(graph: Graph, depth: int | None = None) -> str:
    """The graph as a tree of modules, a line for each node, in the order of execution.

    >>> from graphs.graph import Role
    >>> layer = Node(op="linear", parameters={"fc.weight": (3, 5)}, module="fc",
    ...              roles={"fc.weight": Role.CLASSIFIER}, shape=(1, 3))
    >>> print(tree(Graph(nodes=(Node(op="input", shape=(1, 5)), layer), edges=((0, 1),))))
    input                                              -> 1x5
    fc              linear  3x5  15  classifier        -> 1x3
    """
    seen: list[str] = []
    rows: list[tuple[str, str, str]] = []
    for block in collapse(graph, depth).blocks if depth is not None else _single(graph):
        parts = block.path.split(".") if block.path else []
        common = 0
        while common < min(len(seen), len(parts) - 1) and seen[common] == parts[common]:
            common += 1
        for level in range(common, len(parts) - 1):
            rows.append(("  " * level + parts[level], "", ""))
        seen = parts
        rows.append(_row(graph, block, parts))
    widths = [max([len(row[i]) for row in rows] + [14, 34][i : i + 1]) for i in range(2)]
    return "\n".join(
        f"{a:{widths[0]}}  {b:{widths[1]}} {c}".rstrip() if b or c else a for a, b, c in rows
    )


def _single(graph: Graph) -> list[Block]:
    """A block for every node; a join inside a module stands beside the module's other parts."""
    parents = {node.module.rpartition(".")[0] for node in graph.nodes}
    return [
        Block(
            f"{node.module}.{node.op}" if node.module and node.module in parents else node.module,
            (i,),
        )
        for i, node in enumerate(graph.nodes)
    ]


def _row(graph: Graph, block: Block, parts: list[str]) -> tuple[str, str, str]:
    nodes = [graph.nodes[i] for i in block.nodes]
    label = "  " * max(len(parts) - 1, 0) + (parts[-1] if parts else nodes[0].op)
    shape = nodes[-1].shape
    result = "" if shape is None else f"-> {times(shape)}"
    if len(nodes) > 1:
        return label, f"{contents(nodes)}  {short(_size(nodes))}", result
    node = nodes[0]
    described = [node.op] if parts and parts[-1] != node.op else []
    described += [times(s) for s in list(node.parameters.values())[:1]]
    if node.parameters:
        described.append(short(_size(nodes)))
        described.append(str(node.role))
    if node.orphan:
        described.append("unused")
    return label, "  ".join(described), result


def contents(nodes: list[Node]) -> str:
    """What is in a block, as "conv 2, batch_norm 2, sum"."""
    counts = Counter(node.op for node in nodes).most_common()
    return ", ".join(op if n == 1 else f"{op} {n}" for op, n in counts)


def _size(nodes: list[Node]) -> int:
    shapes = {n: s for node in nodes for n, s in node.parameters.items()}
    return sum(math.prod(s) for s in shapes.values())


def times(shape: tuple[int, ...]) -> str:
    """A shape as 64x3x7x7; a scalar is 1."""
    return "x".join(map(str, shape)) or "1"


def short(count: int) -> str:
    """A count in few characters.

    >>> short(950), short(11_689_512)
    ('950', '11.7 M')
    """
    for limit, unit in ((1e9, " G"), (1e6, " M"), (1e3, " K")):
        if count >= limit:
            return f"{count / limit:.3g}{unit}"
    return str(count)
