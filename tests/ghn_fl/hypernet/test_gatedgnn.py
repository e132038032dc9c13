"""The level-by-level sweep against a node-by-node traversal, and against numbers by hand."""

import networkx as nx
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from ghn_fl.hypernet.config import GHNConfig
from ghn_fl.hypernet.gatedgnn import GatedGNN, Sweep, plan_sweep
from graphs import Graph, Node
from graphs.batch import to_batch

CONFIG = GHNConfig(width=8, sweeps=2)


def sweeps(graphs: list[Graph], cutoff: int = 50) -> tuple[Sweep, Sweep]:
    batch = to_batch(graphs, cutoff)
    return (
        plan_sweep(batch.level, batch.edge_index, batch.edge_distance),
        plan_sweep(batch.level_from_end, batch.edge_index.flip(0), batch.edge_distance),
    )


def node_by_node(gnn: GatedGNN, h_NH: Tensor, graph: Graph, cutoff: int = 50) -> Tensor:
    """The traversal as the paper tells it: one node after another, distances by networkx."""
    forward = nx.DiGraph()
    forward.add_nodes_from(range(len(graph.nodes)))
    forward.add_edges_from(graph.edges)
    h = list(h_NH)
    for _ in range(gnn.sweeps):
        for direction in (forward, forward.reverse()):
            order = range(len(h)) if direction is forward else reversed(range(len(h)))
            for v in order:
                message = torch.zeros_like(h[v])
                for u, s in nx.single_target_shortest_path_length(direction, v, cutoff).items():
                    if s == 1:
                        message = message + gnn.message(h[u])
                    if s >= 1:
                        message = message + gnn.virtual_message(h[u]) / s
                h[v] = gnn.gru(message[None], h[v][None])[0]
    return gnn.norm(torch.stack(h))


@st.composite
def dags(draw: st.DrawFn) -> Graph:
    n = draw(st.integers(1, 12))
    pairs = [(u, v) for u in range(n) for v in range(u + 1, n)]
    edges = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    return Graph(nodes=(Node(op="sum"),) * n, edges=tuple(sorted(edges)))


@settings(max_examples=40, deadline=None)
@given(st.lists(dags(), min_size=1, max_size=3), st.sampled_from([2, 50]))
def test_level_by_level_is_node_by_node(graphs: list[Graph], cutoff: int) -> None:
    torch.manual_seed(len(graphs))
    gnn = GatedGNN(CONFIG)
    h = [torch.randn(len(g.nodes), 8) for g in graphs]
    together = gnn(torch.cat(h), sweeps(graphs, cutoff))
    alone = torch.cat([node_by_node(gnn, x, g, cutoff) for x, g in zip(h, graphs, strict=True)])
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-5)


class AddGRU(nn.Module):
    def forward(self, m: Tensor, h: Tensor) -> Tensor:
        return h + m


def test_a_path_of_three_by_hand() -> None:
    #  a -> b -> c, all features 1, MLPs the identity, GRU(m, h) = h + m:
    #  forward   a = 1;  b = 1 + (1 + 1) = 3;  c = 1 + (3 + 3) + 1/2 = 7.5
    #  backward  c = 7.5;  b = 3 + 2 * 7.5 = 18;  a = 1 + 2 * 18 + 7.5/2 = 40.75
    gnn = GatedGNN(GHNConfig(width=4, sweeps=1))
    gnn.message = gnn.virtual_message = gnn.norm = nn.Identity()
    gnn.gru = AddGRU()
    path = Graph(nodes=(Node(op="sum"),) * 3, edges=((0, 1), (1, 2)))
    forward, backward = sweeps([path])
    h = gnn._traverse(torch.ones(3, 4), forward)
    assert h[:, 0].tolist() == [1, 3, 7.5]
    assert gnn._traverse(h, backward)[:, 0].tolist() == [40.75, 18, 7.5]


def test_without_virtual_edges_only_neighbours_are_heard() -> None:
    gnn = GatedGNN(GHNConfig(width=4, virtual_edges=False))
    gnn.message = gnn.norm = nn.Identity()
    gnn.gru = AddGRU()
    path = Graph(nodes=(Node(op="sum"),) * 3, edges=((0, 1), (1, 2)))
    assert gnn._traverse(torch.ones(3, 4), sweeps([path], 1)[0])[:, 0].tolist() == [1, 2, 3]


def test_a_node_nobody_talks_to_is_still_updated() -> None:
    gnn = GatedGNN(GHNConfig(width=4, sweeps=1))
    gnn.norm = nn.Identity()
    lonely = Graph(nodes=(Node(op="sum"),), edges=())
    h = torch.ones(1, 4)
    zero = torch.zeros(1, 4)
    expected = gnn.gru(zero, gnn.gru(zero, h))
    torch.testing.assert_close(gnn(h, sweeps([lonely])), expected)


def test_gradients_reach_every_node_that_is_heard() -> None:
    torch.manual_seed(0)
    gnn = GatedGNN(GHNConfig(width=4))
    path = Graph(nodes=(Node(op="sum"),) * 3, edges=((0, 1), (1, 2)))
    h, direction = torch.randn(3, 4, requires_grad=True), torch.randn(4)
    (g,) = torch.autograd.grad(gnn(h, sweeps([path]))[2] @ direction, h)
    assert (g.abs().sum(1) > 0).all()  # c hears from a and b
