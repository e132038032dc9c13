"""Graph and Node: what they accept, refuse and say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from graphs import OPS, Graph, GraphError, Node, Role, op_index

#  input -> fc1 -> fc2
#      \________^        (fc2 reads both)
INPUT = Node(op="input", shape=(1, 3))
FC1 = Node(
    op="linear",
    parameters={"fc1.weight": (4, 3), "fc1.bias": (4,)},
    roles={"fc1.weight": Role.WEIGHT, "fc1.bias": Role.BIAS},
    shape=(1, 4),
    module="fc1",
)
FC2 = Node(op="linear", parameters={"fc2.weight": (2, 4)}, roles={"fc2.weight": Role.CLASSIFIER})
GRAPH = Graph(
    nodes=(INPUT, FC1, FC2), edges=((0, 1), (0, 2), (1, 2)), frozen=frozenset({"fc1.bias"})
)


def test_parameters_are_trainable_ones_unless_asked() -> None:
    assert GRAPH.validate().parameters() == {"fc1.weight": (4, 3), "fc2.weight": (2, 4)}
    assert list(GRAPH.parameters(frozen=True)) == ["fc1.weight", "fc1.bias", "fc2.weight"]
    assert GRAPH.num_parameters == 12 + 4 + 8


def test_a_parameter_on_two_nodes_counts_once() -> None:
    twice = Graph(nodes=(INPUT, FC1, FC1), edges=((0, 1), (1, 2)))
    assert twice.validate().num_parameters == 16


def test_role_is_that_of_the_first_parameter() -> None:
    assert (INPUT.role, FC1.role, FC2.role) == (None, Role.WEIGHT, Role.CLASSIFIER)


def test_equality_is_of_contents_not_of_origin() -> None:
    same = replace(GRAPH, front_end="another")
    assert same == GRAPH and same.identity == GRAPH.identity and hash(same) == hash(GRAPH)
    other = replace(GRAPH, edges=((0, 1), (1, 2)))
    assert other != GRAPH and other.identity != GRAPH.identity
    assert GRAPH != "graph"


def test_operator_table_keeps_its_order() -> None:
    # These indices are rows of embeddings in saved files: entries may only be added at the end.
    assert OPS[:8] == (
        "input", "other", "conv", "sep_conv", "dil_conv", "conv_transpose", "linear", "matmul",
    )  # fmt: skip
    assert (OPS[31], OPS[34], len(OPS)) == ("write", "glob_avg", 35)
    assert len(set(OPS)) == len(OPS)
    assert [op_index(name) for name in OPS] == list(range(len(OPS)))
    with pytest.raises(GraphError, match="unknown operator type 'convolve'"):
        op_index("convolve")


def node(**changes: object) -> Callable[[], Graph]:
    """A graph whose last node is changed."""
    return lambda: replace(GRAPH, nodes=(INPUT, FC1, replace(FC2, **changes)))  # type: ignore[arg-type]


def edges(*pairs: tuple[int, int]) -> Callable[[], Graph]:
    return lambda: replace(GRAPH, edges=pairs)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Graph(nodes=(), edges=()), "1 to 200000 nodes, got 0"),
        (node(op="dance"), r"node 2 \(dance\): unknown operator type"),
        (node(roles={}), "has roles for"),
        (node(parameters={"": (2,)}, roles={"": Role.BIAS}), "a name has 1 to 1024 characters"),
        (node(parameters={"fc2.weight": (0, 2)}), "'fc2.weight' is empty"),
        (node(parameters={"fc2.weight": (-1, 2)}), "must not be negative"),
        (node(parameters={"fc2.weight": (2**21, 2**21)}), "elements, got"),
        (node(parameters={"fc2.weight": (1,) * 17}), "at most 16 dimensions, got 17"),
        (node(shape=(-1,)), "output: sizes must not be negative"),
        (node(module="m" * 2000), "module path of 2000 characters"),
        (node(orphan=True, parameters={}, roles={}), "an orphan without parameters"),
        (node(orphan=True), r"edge \(0, 2\) touches an orphan"),
        (node(parameters={"fc1.weight": (5, 3)}, roles={"fc1.weight": Role.WEIGHT}), "elsewhere"),
        (edges((0, 3)), r"edge \(0, 3\): the graph has nodes 0 to 2"),
        (edges((1, 1)), "goes backwards"),
        (edges((2, 1)), "goes backwards"),
        (edges((0, 1), (0, 1)), "sorted and unique"),
        (edges((1, 2), (0, 1)), "sorted and unique"),
        (lambda: replace(GRAPH, nodes=(FC1, INPUT, FC2)), "leads into an input node"),
        (
            lambda: replace(GRAPH, frozen=frozenset({"gone"})),
            r"frozen names without a node: \['gone",
        ),
        (lambda: replace(GRAPH, ties=(("fc1.weight",),)), "a tie joins two or more"),
        (lambda: replace(GRAPH, ties=(("gone", "a"),)), "the first name is not a parameter"),
    ],
)
def test_validate_says_what_is_wrong(build: Callable[[], Graph], message: str) -> None:
    with pytest.raises(GraphError, match=message):
        build().validate()
