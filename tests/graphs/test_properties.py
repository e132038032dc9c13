"""Properties of tracing, on random networks."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import graphs
from graphs import Graph, Node

WIDTH = 4
KINDS = ("linear", "norm", "relu", "skip", "concat", "scale", "tied", "unused")


class Random(nn.Module):
    """A network by recipe: each step reads the last value and may read an earlier one."""

    def __init__(self, recipe: list[tuple[str, int]], names: list[str]) -> None:
        super().__init__()
        self.recipe, self.names = recipe, names
        first = nn.Linear(WIDTH, WIDTH)
        self.add_module(names[0], first)
        for (kind, _), name in zip(recipe, names[1:], strict=False):
            if kind in ("linear", "unused"):
                self.add_module(name, nn.Linear(WIDTH, WIDTH))
            elif kind == "norm":
                self.add_module(name, nn.LayerNorm(WIDTH))
            elif kind == "concat":
                self.add_module(name, nn.Linear(2 * WIDTH, WIDTH, bias=False))
            elif kind == "scale":
                self.register_parameter(name, nn.Parameter(torch.ones(WIDTH)))
            elif kind == "tied":
                self.add_module(name, first)

    def forward(self, x: Tensor) -> Any:
        values = [getattr(self, self.names[0])(x)]
        for (kind, back), name in zip(self.recipe, self.names[1:], strict=False):
            last, earlier = values[-1], values[-1 - back % len(values)]
            if kind in ("linear", "norm", "tied"):
                values.append(getattr(self, name)(last))
            elif kind == "relu":
                values.append(last.relu())
            elif kind == "skip":
                values.append(last + earlier)
            elif kind == "concat":
                values.append(getattr(self, name)(torch.cat([last, earlier], 1)))
            elif kind == "scale":
                values.append(last * getattr(self, name))
        return values[-1]


recipes = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 3)), max_size=8)
quick = settings(deadline=None, max_examples=40)


def build(recipe: list[tuple[str, int]], prefix: str = "part") -> Random:
    return Random(recipe, [f"{prefix}{i}" for i in range(len(recipe) + 1)])


def structure(graph: Graph) -> list[Any]:
    """A graph without names."""

    def anonymous(node: Node) -> Any:
        shapes, roles = tuple(node.parameters.values()), tuple(node.roles.values())
        return node.op, shapes, roles, node.shape, dict(node.attributes), node.orphan

    return [[anonymous(node) for node in graph.nodes], graph.edges, [len(t) for t in graph.ties]]


@quick
@given(recipes)
def test_parameters_are_those_of_the_model(recipe: list[tuple[str, int]]) -> None:
    model = build(recipe)
    graph = graphs.trace(model, torch.ones(2, WIDTH)).validate()
    assert graph.parameters() == {n: tuple(p.shape) for n, p in model.named_parameters()}


@quick
@given(recipes, st.permutations("abcdefghi"))
def test_other_names_give_the_same_structure(
    recipe: list[tuple[str, int]], letters: list[str]
) -> None:
    renamed = Random(recipe, letters)
    first = graphs.trace(build(recipe), torch.ones(2, WIDTH))
    assert structure(graphs.trace(renamed, torch.ones(2, WIDTH))) == structure(first)


@quick
@given(recipes)
def test_json_round_trip_and_two_traces(recipe: list[tuple[str, int]]) -> None:
    model = build(recipe)
    graph = graphs.trace(model, torch.ones(2, WIDTH))
    assert Graph.from_json(graph.to_json()) == graph == graphs.trace(model, torch.ones(2, WIDTH))


@quick
@given(recipes)
def test_every_front_end_gives_the_same_graph(recipe: list[tuple[str, int]]) -> None:
    on_meta = build(recipe).to("meta")
    real = graphs.trace(build(recipe), torch.ones(2, WIDTH))
    assert graphs.trace(on_meta, torch.ones(2, WIDTH)) == real


@quick
@given(recipes)
def test_all_kept_nodes_lead_to_the_output(recipe: list[tuple[str, int]]) -> None:
    graph = graphs.trace(build(recipe), torch.ones(2, WIDTH))
    used = [i for i, node in enumerate(graph.nodes) if not node.orphan]
    distance = graphs.distances(graph)
    last = used[-1]
    assert all(distance[i, last] < 1000 for i in used)
