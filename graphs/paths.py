"""Levels and distances in a graph: what a sweep over it needs to know."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from graphs.graph import Graph

Ints = npt.NDArray[np.int64]
FAR = np.iinfo(np.int16).max  # the distance of nodes without a path


def levels(graph: Graph) -> Ints:
    """For every node the number of edges on the longest path that ends in it.

    An edge always goes to a higher level, so nodes of one level don't depend on each other: a
    forward sweep may update them at once.

    >>> from graphs.graph import Node
    >>> skip = Graph(nodes=(Node(op="input"), Node(op="sum"), Node(op="sum")),
    ...              edges=((0, 1), (0, 2), (1, 2)))
    >>> levels(skip).tolist(), levels_from_end(skip).tolist()
    ([0, 1, 2], [2, 1, 0])
    """
    level = [0] * len(graph.nodes)
    for u, v in sorted(graph.edges, key=lambda edge: edge[1]):
        level[v] = max(level[v], level[u] + 1)
    return np.array(level, dtype=np.int64)


def levels_from_end(graph: Graph) -> Ints:
    """For every node the number of edges on the longest path that starts in it.

    These are the levels of the backward sweep.
    """
    level = [0] * len(graph.nodes)
    for u, v in reversed(graph.edges):  # sorted by u: all edges out of v come before
        level[u] = max(level[u], level[v] + 1)
    return np.array(level, dtype=np.int64)


def distances(graph: Graph, cutoff: int = 50) -> npt.NDArray[np.int16]:
    """The number of edges on the shortest path from every node to every other; `FAR` beyond cutoff.

    The nodes are in topological order, so one pass from the last to the first suffices: the way
    from u is one step to a successor and the best way from there. On these sparse, deep graphs
    that is several times faster than `scipy.sparse.csgraph`, which the tests compare it with.
    """
    n = len(graph.nodes)
    successors: list[list[int]] = [[] for _ in range(n)]
    for u, v in graph.edges:
        successors[u].append(v)
    table = np.full((n, n), FAR - 1, dtype=np.int16)
    for u in range(n - 1, -1, -1):
        following = successors[u]
        if len(following) == 1:
            np.add(table[following[0]], 1, out=table[u])
        elif following:
            np.add(table[following].min(axis=0), 1, out=table[u])
        np.minimum(table[u], FAR - 1, out=table[u])
        table[u, u] = 0
    table[table > cutoff] = FAR
    return table


def virtual_edges(graph: Graph, cutoff: int = 50) -> tuple[Ints, Ints]:
    """The pairs of nodes with a path of 2 to `cutoff` edges, and their distances.

    Returns:
        pairs of shape (2, E) in lexicographic order, and E distances.

    >>> from graphs.graph import Node
    >>> path = Graph(nodes=(Node(op="input"), Node(op="sum"), Node(op="sum")),
    ...              edges=((0, 1), (1, 2)))
    >>> pairs, distance = virtual_edges(path)
    >>> pairs.tolist(), distance.tolist()
    ([[0], [2]], [2])
    """
    table = distances(graph, cutoff)
    flat = table.ravel()
    found = np.flatnonzero((flat > 1) & (flat < FAR))
    pairs: Ints = np.stack(np.divmod(found, len(graph.nodes)))
    return pairs, flat[found].astype(np.int64)
