"""Levels and distances, by hand and against scipy."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scipy.sparse.csgraph import shortest_path

from graphs import Graph, Node, distances, levels, levels_from_end, virtual_edges
from graphs.paths import FAR


def plain(n: int, *edges: tuple[int, int]) -> Graph:
    return Graph(nodes=tuple(Node(op="sum") for _ in range(n)), edges=tuple(sorted(edges)))


# 0 -> 1 -> 2 -> 4      3 joins late: 3 -> 4, and 0 -> 4 is a skip
HAND = plain(5, (0, 1), (1, 2), (2, 4), (3, 4), (0, 4))


def test_levels_by_hand() -> None:
    assert levels(HAND).tolist() == [0, 1, 2, 0, 3]
    assert levels_from_end(HAND).tolist() == [3, 2, 1, 1, 0]


def test_distances_by_hand() -> None:
    far = FAR
    assert distances(HAND).tolist() == [
        [0, 1, 2, far, 1],
        [far, 0, 1, far, 2],
        [far, far, 0, far, 1],
        [far, far, far, 0, 1],
        [far, far, far, far, 0],
    ]
    pairs, distance = virtual_edges(HAND)
    assert pairs.tolist() == [[0, 1], [2, 4]] and distance.tolist() == [2, 2]


def test_cutoff() -> None:
    chain = plain(60, *((i, i + 1) for i in range(59)))
    _, distance = virtual_edges(chain)
    # pairs at distance s of a path of 60 nodes: 60 - s, for s = 2..50
    assert len(distance) == sum(60 - s for s in range(2, 51)) and distance.max() == 50
    pairs, _ = virtual_edges(chain, cutoff=1)
    assert pairs.shape == (2, 0)


@st.composite
def dags(draw: st.DrawFn) -> Graph:
    n = draw(st.integers(1, 14))
    pairs = [(u, v) for v in range(n) for u in range(v)]
    return plain(n, *(draw(st.sets(st.sampled_from(pairs))) if pairs else ()))


@given(dags(), st.integers(1, 6))
def test_agrees_with_scipy(graph: Graph, cutoff: int) -> None:
    n = len(graph.nodes)
    rows, columns = np.array(graph.edges, dtype=int).reshape(-1, 2).T
    matrix = csr_array((np.ones(len(rows)), (rows, columns)), shape=(n, n))
    expected = shortest_path(matrix, unweighted=True)
    expected[expected > cutoff] = FAR
    assert (distances(graph, cutoff) == expected).all()


@given(dags())
def test_an_edge_and_a_path_go_to_a_higher_level(graph: Graph) -> None:
    up, down = levels(graph), levels_from_end(graph)
    pairs, _ = virtual_edges(graph)
    for u, v in [*graph.edges, *pairs.T.tolist()]:
        assert up[u] < up[v] and down[u] > down[v]
