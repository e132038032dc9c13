"""JSON of a graph: exact, stable, and safe to read from strangers."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphs import OPS, Graph, GraphError, Node, Report, Role, wire

names = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1, max_size=12)
shapes = st.lists(st.integers(1, 9), max_size=4).map(tuple)


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    parameters = draw(st.dictionaries(names, st.just((2, 3)), max_size=3))
    return Node(
        op=draw(st.sampled_from(OPS[1:])),
        parameters=parameters,
        roles={name: draw(st.sampled_from(Role)) for name in parameters},
        shape=draw(st.none() | shapes),
        module=draw(st.just("") | names),
        attributes=draw(st.dictionaries(names, st.integers(0, 9), max_size=2)),
    )


@st.composite
def any_graph(draw: st.DrawFn) -> Graph:
    found = tuple(draw(st.lists(nodes(), min_size=1, max_size=6)))
    pairs = [(u, v) for v in range(len(found)) for u in range(v)]
    chosen = draw(st.sets(st.sampled_from(pairs))) if pairs else set()
    everything = [name for node in found for name in node.parameters]
    return Graph(
        nodes=found,
        edges=tuple(sorted(chosen)),
        frozen=frozenset(draw(st.sets(st.sampled_from(everything))) if everything else ()),
        front_end="by hand",
        report=Report(other={"fold": 2}, attempts=("meta: failed",)),
    )


@given(any_graph())
def test_there_and_back(graph: Graph) -> None:
    text = graph.validate().to_json()
    again = Graph.from_json(text)
    assert again == graph and again.report == graph.report and again.front_end == graph.front_end
    assert again.to_json() == text and again.identity == graph.identity
    assert Graph.from_json(text.encode()) == graph


LAYER = Node(
    op="linear", parameters={"w": (2, 3)}, roles={"w": Role.WEIGHT}, attributes={"b": 1, "a": 2}
)
SMALL = Graph(nodes=(Node(op="input"), LAYER), edges=((0, 1),))


def test_the_bytes_are_these() -> None:
    # A change here is a change of the format: raise VERSION and read both.
    assert SMALL.to_json() == (
        '{"version":1,"nodes":[{"op":"input","parameters":[],"shape":null,"module":"",'
        '"attributes":{},"orphan":false},{"op":"linear","parameters":[["w",[2,3],"weight"]],'
        '"shape":null,"module":"","attributes":{"a":2,"b":1},"orphan":false}],"edges":[[0,1]],'
        '"frozen":[],"ties":[],"front_end":"","report":{"other":{},"orphans":[],'
        '"gradient_free":[],"attempts":[]}}'
    )


def changed(**changes: Any) -> str:
    return json.dumps({**json.loads(SMALL.to_json()), **changes})


def with_node(**changes: Any) -> str:
    tree = json.loads(SMALL.to_json())
    tree["nodes"][1].update(changes)
    return json.dumps(tree)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "cut"),
        (SMALL.to_json()[:-20], "not the JSON of a graph, or cut"),
        (b"\xff\xfe", "not the JSON of a graph"),
        ("[" * 100_000, "nested too deep"),
        ("[]", "expected an object with a version"),
        ("{}", "expected an object with a version"),
        (changed(version=2), "newer version: 2, this one reads up to 1"),
        (changed(version=True), "version: expected a whole number, got bool"),
        (changed(extra=1), "graph: expected an object with"),
        (changed(nodes=7), "nodes: expected a list, got int"),
        (changed(nodes=[]), "1 to 200000 nodes"),
        (changed(nodes=[{"op": "input"}]), "node 0: expected an object with"),
        (changed(edges=[[0, 1, 2]]), "edge 0: a pair of node indices expected"),
        (changed(edges=[[1, 0]]), "goes backwards"),
        (changed(edges=[[0, 1.5]]), "edge 0: expected a whole number, got float"),
        (changed(edges=[[0, 5]]), "the graph has nodes 0 to 1"),
        (changed(frozen=[1]), "frozen: expected a string"),
        (changed(front_end=None), "front_end: expected a string, got NoneType"),
        (with_node(op="dance"), "unknown operator type"),
        (with_node(parameters=[["w", [2, 3]]]), r"a parameter is \[name, shape, role\]"),
        (with_node(parameters=[["w", [2], "bias"], ["w", [2], "bias"]]), "'w' is listed twice"),
        (with_node(parameters=[["w", [2], "boss"]]), "unknown role 'boss'"),
        (with_node(parameters=[["w", [10**13], "bias"]]), "elements"),
        (with_node(parameters=[["w", [-2], "bias"]]), "must not be negative"),
        (with_node(parameters=[["w", ["2"], "bias"]]), "expected a whole number, got str"),
        (with_node(orphan="no"), "orphan: expected true or false, got str"),
        (with_node(attributes=[]), "attributes: expected an object"),
        ('{"version":1,"version":1}', "a key is given twice"),
        ('{"version":NaN}', "NaN is not a number"),
    ],
)
def test_refuses(text: str | bytes, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        Graph.from_json(text)


def test_refuses_what_is_too_large_without_reading_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "MAX_BYTES", 100)
    with pytest.raises(GraphError, match="at most 100 bytes, got 101"):
        Graph.from_json("x" * 101)


@given(st.integers(0, 400), st.integers(0, 255))
def test_a_changed_byte_is_another_graph_or_an_error(position: int, value: int) -> None:
    damaged = bytearray(SMALL.to_json().encode())
    damaged[position % len(damaged)] = value
    with contextlib.suppress(GraphError):
        Graph.from_json(bytes(damaged)).validate()
