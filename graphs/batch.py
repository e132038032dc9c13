"""Graphs as torch-geometric data, and back.

Legend: N nodes, E edges (virtual ones included), P parameters of all nodes, B graphs.

`to_data(graph)` is a `torch_geometric.data.Data` with

    op               (N,)    index in `graphs.OPS`
    shape            (N, 4)  shape of its first parameter as (out, in, height, width); 0s: none
    level            (N,)    level of the forward sweep; an edge goes to a higher level
    level_from_end   (N,)    level of the backward sweep; an edge comes from a higher level
    edge_index       (2, E)  real and virtual edges, from source to target
    edge_distance    (E,)    1 for a real edge, else the length of the shortest path
    parameter_index  (P,)    the node of each parameter
    parameter_shape  (P, 4)  shape of each parameter
    parameter_role   (P,)    index in `ROLES`
    graph                    the `Graph` itself; `graph.nodes[i].parameters` has the names, in order

`to_batch(graphs)` puts many graphs of any architectures side by side: the same fields, with node
indices shifted, `batch` (N,) saying which graph a node is of, and `graph` a list. torch-geometric
shifts what has "index" in its name, so a `DataLoader` and `Batch.from_data_list` work too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from graphs.errors import GraphError
from graphs.graph import Graph, Role, Shape
from graphs.ops import op_index
from graphs.paths import levels, levels_from_end, virtual_edges

if TYPE_CHECKING:  # importing it takes seconds, and only batching needs it
    from torch_geometric.data import Batch, Data

ROLES: tuple[Role, ...] = tuple(Role)  # the order is part of a saved hypernetwork
_ROLE_INDEX = {role: i for i, role in enumerate(ROLES)}
CUTOFF = 50  # the longest virtual edge


def to_data(graph: Graph, cutoff: int = CUTOFF) -> Data:
    """One graph as tensors; `cutoff` 1 leaves the virtual edges out.

    >>> from graphs.graph import Node
    >>> layer = Node(op="linear", parameters={"w": (3, 5), "b": (3,)},
    ...              roles={"w": Role.WEIGHT, "b": Role.BIAS})
    >>> data = to_data(Graph(nodes=(Node(op="input"), layer), edges=((0, 1),)))
    >>> data.shape.tolist(), data.parameter_index.tolist()
    ([[0, 0, 0, 0], [3, 5, 1, 1]], [1, 1])
    """
    from torch_geometric.data import Data

    edges = np.array(graph.edges, dtype=np.int64).reshape(-1, 2).T
    pairs, distance = virtual_edges(graph, cutoff)
    entries = [
        (i, four_dimensions(shape), _ROLE_INDEX[node.roles[name]])
        for i, node in enumerate(graph.nodes)
        for name, shape in node.parameters.items()
    ]
    first = [next(iter(node.parameters.values()), None) for node in graph.nodes]
    return Data(
        op=torch.tensor([op_index(node.op) for node in graph.nodes]),
        shape=torch.tensor([(0, 0, 0, 0) if s is None else four_dimensions(s) for s in first]),
        level=torch.from_numpy(levels(graph)),
        level_from_end=torch.from_numpy(levels_from_end(graph)),
        edge_index=torch.from_numpy(np.concatenate([edges, pairs], axis=1)),
        edge_distance=torch.from_numpy(
            np.concatenate([np.ones(edges.shape[1], dtype=np.int64), distance])
        ),
        parameter_index=torch.tensor([e[0] for e in entries], dtype=torch.long),
        parameter_shape=torch.tensor([e[1] for e in entries], dtype=torch.long).reshape(-1, 4),
        parameter_role=torch.tensor([e[2] for e in entries], dtype=torch.long),
        graph=graph,
        num_nodes=len(graph.nodes),
    )


def to_batch(graphs: Sequence[Graph], cutoff: int = CUTOFF) -> Batch:
    """Many graphs side by side, without edges between them."""
    from torch_geometric.data import Batch

    if not graphs:
        raise GraphError("a batch needs at least one graph")
    return Batch.from_data_list([to_data(graph, cutoff) for graph in graphs])


def to_graphs(data: Data) -> list[Graph]:
    """The graphs in a `Data` or `Batch`, in order."""
    graphs = data.graph if isinstance(data.graph, list) else [data.graph]
    return list(graphs)


def four_dimensions(shape: Shape) -> tuple[int, int, int, int]:
    """A parameter's shape as (out, in, height, width); leading kernel dimensions are multiplied.

    >>> four_dimensions((8,)), four_dimensions((8, 4, 2, 3, 5))
    ((8, 1, 1, 1), (8, 4, 6, 5))
    """
    if len(shape) > 4:
        height = 1
        for size in shape[2:-1]:
            height *= size
        return shape[0], shape[1], height, shape[-1]
    padded = (*shape, 1, 1, 1, 1)
    return padded[0], padded[1], padded[2], padded[3]
