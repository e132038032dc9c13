"""Pictures, blocks and text of a graph."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import graphs
from benchmarks import awkward
from graphs import Graph, GraphError, Node
from graphs.layout import layered


def deep() -> Graph:
    """Four modules of three layers each, in two groups: groups.0.0, groups.0.1, groups.1.0, ..."""
    part = lambda: nn.Sequential(nn.Linear(3, 3), nn.LayerNorm(3), nn.Linear(3, 3))  # noqa: E731
    group = lambda: nn.Sequential(part(), part())  # noqa: E731
    model = nn.Sequential()
    model.add_module("stem", nn.Linear(3, 3))
    model.add_module("groups", nn.Sequential(group(), group()))
    return graphs.trace(model, torch.ones(1, 3))


@pytest.mark.parametrize(("depth", "count"), [(1, 3), (2, 4), (3, 6), (4, 14), (9, 14)])
def test_blocks_follow_the_module_path(depth: int, count: int) -> None:
    blocks = graphs.collapse(deep(), depth)
    assert len(blocks.blocks) == count
    assert sorted(i for b in blocks.blocks for i in b.nodes) == list(range(14))
    assert blocks.edges == tuple((i, i + 1) for i in range(count - 1))


def test_block_names() -> None:
    assert [b.path for b in graphs.collapse(deep(), 2).blocks] == [
        "",
        "stem",
        "groups.0",
        "groups.1",
    ]


def test_the_default_depth_stays_readable() -> None:
    layers = [nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)) for _ in range(30)]
    graph = graphs.trace(nn.Sequential(*layers), torch.ones(1, 3))
    assert len(graph.nodes) == 61 and len(graphs.collapse(graph).blocks) == 31


def test_blocks_that_would_form_a_cycle_stay_apart() -> None:
    #  a.x -> b -> a.y: with both parts of a in one block, a and b would depend on each other
    nodes = tuple(Node(op="sum", module=m) for m in ("a.x", "b.z", "a.y"))
    blocks = graphs.collapse(Graph(nodes=nodes, edges=((0, 1), (1, 2))), 1)
    assert [b.nodes for b in blocks.blocks] == [(0,), (1,), (2,)]


@st.composite
def module_graphs(draw: st.DrawFn) -> Graph:
    n = draw(st.integers(1, 10))
    paths = st.sampled_from(["", "a", "a.b", "a.b.c", "d.e", "d"])
    pairs = [(u, v) for v in range(n) for u in range(v)]
    chosen = draw(st.sets(st.sampled_from(pairs))) if pairs else set()
    nodes = tuple(Node(op="sum", module=draw(paths)) for _ in range(n))
    return Graph(nodes=nodes, edges=tuple(sorted(chosen)))


@given(module_graphs(), st.integers(1, 3))
def test_blocks_are_a_dag_of_all_nodes(graph: Graph, depth: int) -> None:
    blocks = graphs.collapse(graph, depth)
    assert sorted(i for b in blocks.blocks for i in b.nodes) == list(range(len(graph.nodes)))
    assert all(u < v for u, v in blocks.edges)


@given(module_graphs())
def test_boxes_do_not_overlap(graph: Graph) -> None:
    widths = [1.0 + 0.1 * i for i in range(len(graph.nodes))]
    layout = layered(widths, graph.edges)
    assert all(layout.row[u] < layout.row[v] for u, v in graph.edges)
    for i in range(len(widths)):
        for k in range(i):
            if layout.row[i] == layout.row[k]:
                assert abs(layout.x[i] - layout.x[k]) >= (widths[i] + widths[k]) / 2


def test_svg_holds_every_block_and_is_the_same_twice(tmp_path: Path) -> None:
    graph = deep()
    graphs.draw(graph, tmp_path / "a.svg", depth=2, title="deep")
    graphs.draw(graph, tmp_path / "b.svg", depth=2, title="deep")
    text = (tmp_path / "a.svg").read_text()
    assert text == (tmp_path / "b.svg").read_text()
    words = "".join(ElementTree.fromstring(text).itertext())
    for word in ("deep", "stem: linear", "groups.0", "groups.1", "14 nodes", "convolution"):
        assert (word in words) == (word != "convolution"), word


@pytest.mark.parametrize("name", ["unused_parts", "mixture_of_experts", "lstm"])
def test_png(tmp_path: Path, name: str) -> None:
    graphs.draw(graphs.trace(*awkward.MODULES[name]()), tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_other_formats_are_refused(tmp_path: Path) -> None:
    with pytest.raises(GraphError, match=r"\.svg or \.png, got 'a\.gif'"):
        graphs.draw(deep(), tmp_path / "a.gif")


def test_tree() -> None:
    text = graphs.tree(graphs.trace(*awkward.MODULES["unused_parts"]()))
    assert [line.split() for line in text.splitlines()] == [
        ["input", "->", "2x3x8x8"],
        ["body", "conv", "4x3x3x3", "112", "weight", "->", "2x4x6x6"],
        ["glob_avg", "->", "2x4"],
        ["head", "linear", "3x4", "15", "classifier", "->", "2x3"],
        ["parameter", "3", "3", "standalone", "unused"],
        ["auxiliary"],
        ["0", "sep_conv", "4x2x3x3", "76", "weight", "unused"],
        ["1", "batch_norm", "4", "8", "norm_scale", "unused"],
    ]
    assert graphs.tree(deep(), 2).splitlines()[-1].split()[:3] == ["1", "linear", "4,"]


def test_statistics() -> None:
    facts = graphs.statistics(graphs.trace(*awkward.MODULES["low_rank_sum"]()))
    assert (facts.nodes, facts.edges, facts.levels, facts.tensors) == (2, 1, 2, 4)
    # frozen 6x8 and 6, trainable 2x8 and 6x2
    assert (facts.parameters, facts.trainable) == (48 + 6 + 16 + 12, 28)
    assert facts.ops == {"input": 1, "linear": 1}
