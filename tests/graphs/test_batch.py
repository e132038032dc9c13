"""Graphs as torch-geometric data, and back."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Batch
from torch_geometric.loader import DataLoader

from graphs import OPS, ROLES, Graph, GraphError, Node, Role, op_index, to_batch, to_data, to_graphs

#  input -> conv -> sum -> fc
#      \___________/
CONV = Node(
    op="conv",
    parameters={"conv.weight": (8, 3, 5, 7), "conv.bias": (8,)},
    roles={"conv.weight": Role.WEIGHT, "conv.bias": Role.BIAS},
)
FC = Node(op="linear", parameters={"fc.weight": (2, 8)}, roles={"fc.weight": Role.CLASSIFIER})
A = Graph(
    nodes=(Node(op="input"), CONV, Node(op="sum"), FC), edges=((0, 1), (0, 2), (1, 2), (2, 3))
)
B = Graph(nodes=(Node(op="input"), FC), edges=((0, 1),))


def test_fields_by_hand() -> None:
    data = to_data(A)
    assert [OPS[i] for i in data.op] == ["input", "conv", "sum", "linear"]
    assert data.shape.tolist() == [[0, 0, 0, 0], [8, 3, 5, 7], [0, 0, 0, 0], [2, 8, 1, 1]]
    assert data.level.tolist() == [0, 1, 2, 3]
    assert data.level_from_end.tolist() == [3, 2, 1, 0]
    # real edges first, then the virtual ones: 0 -> 3 is two steps over the skip, 1 -> 3 two
    assert data.edge_index.T.tolist() == [[0, 1], [0, 2], [1, 2], [2, 3], [0, 3], [1, 3]]
    assert data.edge_distance.tolist() == [1, 1, 1, 1, 2, 2]
    assert data.parameter_index.tolist() == [1, 1, 3]
    assert data.parameter_shape.tolist() == [[8, 3, 5, 7], [8, 1, 1, 1], [2, 8, 1, 1]]
    assert [ROLES[i] for i in data.parameter_role] == [Role.WEIGHT, Role.BIAS, Role.CLASSIFIER]


def test_a_batch_puts_graphs_side_by_side() -> None:
    batch = to_batch([A, B])
    assert batch.batch.tolist() == [0, 0, 0, 0, 1, 1]
    assert batch.edge_index.T.tolist()[-1] == [4, 5]
    assert batch.parameter_index.tolist() == [1, 1, 3, 5]
    assert batch.level.tolist() == [0, 1, 2, 3, 0, 1]
    assert to_graphs(batch) == [A, B]
    assert [to_graphs(part) for part in batch.to_data_list()] == [[A], [B]]


def test_the_usual_loader_works() -> None:
    (batch,) = DataLoader([to_data(A), to_data(B)], batch_size=2)
    assert torch.equal(batch.parameter_index, to_batch([A, B]).parameter_index)
    assert isinstance(batch, Batch) and to_graphs(batch) == [A, B]


def test_without_virtual_edges() -> None:
    assert to_data(A, cutoff=1).edge_distance.tolist() == [1, 1, 1, 1]


def test_a_graph_without_edges_or_parameters() -> None:
    data = to_data(Graph(nodes=(Node(op="input"),), edges=()))
    assert data.edge_index.shape == (2, 0) and data.parameter_shape.shape == (0, 4)


def test_an_empty_batch_is_refused() -> None:
    with pytest.raises(GraphError, match="at least one graph"):
        to_batch([])


@settings(deadline=None, max_examples=25)
@given(st.lists(st.sampled_from([A, B]), min_size=1, max_size=4))
def test_batching_changes_nothing(graphs: list[Graph]) -> None:
    for graph, part in zip(graphs, to_batch(graphs).to_data_list(), strict=True):
        single = to_data(graph)
        for key in ("op", "shape", "edge_index", "edge_distance", "parameter_index", "level"):
            assert torch.equal(part[key], single[key]), key


def test_indices_are_those_of_the_table() -> None:
    assert to_data(A).op.tolist() == [op_index(node.op) for node in A.nodes]
