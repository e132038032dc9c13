"""A graph seen from further away: nodes of one module become one block."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from graphs.graph import Graph
from graphs.paths import Ints

MAX_BLOCKS = 40  # about what a person takes in at once


@dataclass(frozen=True)
class Block:
    """Some nodes that are drawn as one.

    Attributes:
        path: the module they belong to.
        nodes: their indices, at least one.
    """

    path: str
    nodes: tuple[int, ...]


@dataclass(frozen=True)
class Blocks:
    """Blocks in topological order, and the edges between them."""

    blocks: tuple[Block, ...]
    edges: tuple[tuple[int, int], ...]


def collapse(graph: Graph, depth: int | None = None) -> Blocks:
    """The graph with all nodes below the same `depth` names of module path in one block.

    Without a depth, the finest one that gives no more than about 40 blocks. Blocks that would
    form a cycle (a module that is entered twice) stay apart. Orphans have blocks without edges.
    """
    if depth is not None:
        return _collapsed(graph, depth)
    deepest = max(node.module.count(".") + 1 for node in graph.nodes)
    result = _collapsed(graph, deepest + 1)
    for shallower in range(deepest, 0, -1):
        if len(result.blocks) <= MAX_BLOCKS:
            break
        result = _collapsed(graph, shallower)
    return result


def _collapsed(graph: Graph, depth: int) -> Blocks:
    names: list[tuple[str, int]] = []
    for i, node in enumerate(graph.nodes):
        parts = node.module.split(".") if node.module else []
        # A node right in the module that holds the blocks is not part of one of them.
        alone = len(parts) < depth
        names.append((".".join(parts[:depth]), i if alone else -1 - node.orphan))
    while True:
        index = {name: k for k, name in enumerate(dict.fromkeys(names))}
        group = np.array([index[name] for name in names])
        apart = _in_cycles(graph, group, len(index))
        if not apart:
            return _ordered(graph, group, len(index))
        names = [(n[0], i) if group[i] in apart else n for i, n in enumerate(names)]


def _in_cycles(graph: Graph, group: Ints, count: int) -> set[int]:
    """The blocks that lie on a cycle of blocks."""
    edges = [(group[u], group[v]) for u, v in graph.edges if group[u] != group[v]]
    if not edges:
        return set()
    rows, columns = np.array(edges).T
    matrix = csr_array((np.ones(len(edges)), (rows, columns)), shape=(count, count))
    _, component = connected_components(matrix, directed=True, connection="strong")
    sizes = np.bincount(component)
    return {int(k) for k in range(count) if sizes[component[k]] > 1}


def _ordered(graph: Graph, group: Ints, count: int) -> Blocks:
    """The blocks, each after all that lead to it, and otherwise by their first node."""
    members: list[list[int]] = [[] for _ in range(count)]
    for i, k in enumerate(group.tolist()):
        members[k].append(i)
    edges = {(int(group[u]), int(group[v])) for u, v in graph.edges if group[u] != group[v]}
    waiting = [0] * count
    following: list[list[int]] = [[] for _ in range(count)]
    for u, v in edges:
        waiting[v] += 1
        following[u].append(v)
    order: list[int] = []
    ready = [k for k in range(count) if waiting[k] == 0]
    while ready:
        k = min(ready, key=lambda b: members[b][0])
        ready.remove(k)
        order.append(k)
        for v in following[k]:
            waiting[v] -= 1
            if waiting[v] == 0:
                ready.append(v)
    place = {k: i for i, k in enumerate(order)}
    blocks = [Block(graph.nodes[members[k][0]].module, tuple(members[k])) for k in order]
    blocks = [_named(graph, block) for block in blocks]
    return Blocks(tuple(blocks), tuple(sorted((place[u], place[v]) for u, v in edges)))


def _named(graph: Graph, block: Block) -> Block:
    """The block with the longest module path that all its nodes share."""
    paths = [graph.nodes[i].module.split(".") for i in block.nodes]
    shared = 0
    while all(len(p) > shared and p[shared] == paths[0][shared] for p in paths):
        shared += 1
    return Block(".".join(paths[0][:shared]), block.nodes)
