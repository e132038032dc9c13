"""A network as a typed DAG: nodes are operators with the parameters they use, edges are data flow.

Plain data: no torch module, no code. A graph can be compared, hashed, sent and drawn.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from graphs.errors import GraphError
from graphs.ops import is_op

Shape = tuple[int, ...]

# What a graph may hold; far above any real model, low enough that a hostile file stays harmless.
MAX_NODES = 200_000
MAX_EDGES = 2_000_000
MAX_DIMENSIONS = 16
MAX_ELEMENTS = 2**40
MAX_NAME = 1024


class Role(enum.StrEnum):
    """What a parameter does in the operator that uses it."""

    WEIGHT = "weight"
    BIAS = "bias"
    NORM_SCALE = "norm_scale"
    NORM_BIAS = "norm_bias"
    EMBEDDING = "embedding"
    CLASSIFIER = "classifier"
    CLASSIFIER_BIAS = "classifier_bias"
    STANDALONE = "standalone"


@dataclass(frozen=True, kw_only=True)
class Node:
    """One operator.

    Attributes:
        op: its type, a name from `graphs.OPS`.
        parameters: name -> shape, in the order of the operator's arguments (weight before bias).
        roles: name -> role, the same names.
        shape: of the operator's (first) output in the recorded pass, batch dimension included.
        module: path of the module it belongs to; for drawing and collapsing only.
        attributes: whole numbers that a decoder may need: `groups`, `dilation`, and
            `transposed` = 1 for a matrix kept as (in, out) instead of (out, in).
        orphan: the recorded pass didn't use these parameters; the node has no edges.
    """

    op: str
    parameters: Mapping[str, Shape] = field(default_factory=dict)
    roles: Mapping[str, Role] = field(default_factory=dict)
    shape: Shape | None = None
    module: str = ""
    attributes: Mapping[str, int] = field(default_factory=dict)
    orphan: bool = False

    @property
    def role(self) -> Role | None:
        """The role of the first parameter; None for an operator without parameters."""
        return next(iter(self.roles.values()), None)


@dataclass(frozen=True, kw_only=True)
class Report:
    """What a person should know about a trace.

    Attributes:
        other: torch function -> number of nodes that the operator table has no type for.
        orphans: parameters the recorded pass didn't lead to the output.
        gradient_free: trainable parameters used by the output, but without a gradient
            (behind `detach`, `no_grad`, or a rounding).
        attempts: front ends tried before the one that made the graph, each with its reason.
    """

    other: Mapping[str, int] = field(default_factory=dict)
    orphans: tuple[str, ...] = ()
    gradient_free: tuple[str, ...] = ()
    attempts: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Graph:
    """A network's operators in topological order, and the data flow between them.

    Two graphs are equal when their contents are: nodes, edges, frozen names and ties. Which front
    end made them, and its report, does not count.

    Attributes:
        nodes: in topological order; a node's index is its identity within the graph.
        edges: pairs (u, v) of node indices with u < v, sorted, without repetition.
        frozen: names of the parameters that do not require a gradient.
        ties: groups of state-dict names that are one tensor, the canonical name first.

    >>> a = Node(op="input")
    >>> b = Node(op="linear", parameters={"w": (2, 3)}, roles={"w": Role.WEIGHT})
    >>> graph = Graph(nodes=(a, b), edges=((0, 1),))
    >>> graph.validate().parameters()
    {'w': (2, 3)}
    >>> Graph.from_json(graph.to_json()) == graph
    True
    """

    nodes: tuple[Node, ...]
    edges: tuple[tuple[int, int], ...]
    frozen: frozenset[str] = frozenset()
    ties: tuple[tuple[str, ...], ...] = ()
    front_end: str = ""
    report: Report = field(default_factory=Report)

    def parameters(self, *, frozen: bool = False) -> dict[str, Shape]:
        """Name -> shape of every distinct trainable parameter; with `frozen`, of all of them.

        The names are those of `model.named_parameters()`, in the order of first use.
        """
        found: dict[str, Shape] = {}
        for node in self.nodes:
            for name, shape in node.parameters.items():
                if frozen or name not in self.frozen:
                    found[name] = shape
        return found

    @property
    def num_parameters(self) -> int:
        """The number of scalars in all distinct parameters, frozen ones included."""
        return sum(math.prod(shape) for shape in self.parameters(frozen=True).values())

    def to_json(self) -> str:
        """The graph as text: the same graph always gives the same bytes."""
        from graphs import wire

        return wire.to_json(self)

    @classmethod
    def from_json(cls, text: str | bytes) -> Graph:
        """The graph that `to_json` wrote; text from elsewhere is checked wholly before use."""
        from graphs import wire

        return wire.from_json(text)

    @cached_property
    def identity(self) -> str:
        """A hash of the contents: equal graphs, and only they, have the same one."""
        from graphs import wire

        return wire.identity(self)

    def __repr__(self) -> str:
        return (
            f"Graph({len(self.nodes)} nodes, {len(self.edges)} edges, "
            f"{self.num_parameters} parameters, by {self.front_end or 'hand'})"
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Graph):
            return NotImplemented
        return self._content() == other._content()

    def __hash__(self) -> int:
        return hash(self.identity)

    def _content(self) -> tuple[object, ...]:
        return (self.nodes, self.edges, self.frozen, self.ties)

    def validate(self) -> Graph:
        """The same graph, after checking that it is one.

        Raises:
            GraphError: says which node, edge or name is wrong, what was got and expected.
        """
        if not self.nodes or len(self.nodes) > MAX_NODES:
            raise GraphError(f"a graph has 1 to {MAX_NODES} nodes, got {len(self.nodes)}")
        if len(self.edges) > MAX_EDGES:
            raise GraphError(f"a graph has at most {MAX_EDGES} edges, got {len(self.edges)}")
        for i, node in enumerate(self.nodes):
            _validate_node(node, f"node {i} ({node.op})")
        _validate_edges(self.edges, self.nodes)
        _validate_names(self)
        return self


def _validate_node(node: Node, where: str) -> None:
    if not is_op(node.op):
        raise GraphError(f"{where}: unknown operator type")
    if tuple(node.parameters) != tuple(node.roles):
        raise GraphError(
            f"{where}: has roles for {tuple(node.roles)[:3]}, "
            f"parameters {tuple(node.parameters)[:3]}"
        )
    for name, shape in node.parameters.items():
        if not 0 < len(name) <= MAX_NAME:
            raise GraphError(f"{where}: a name has 1 to {MAX_NAME} characters, got {len(name)}")
        if 0 in shape:
            raise GraphError(f"{where}: parameter {name!r} is empty, got shape {shape}")
        _validate_shape(shape, f"{where}, parameter {name!r}")
    if node.shape is not None:
        _validate_shape(node.shape, f"{where}, output")
    if len(node.module) > MAX_NAME:
        raise GraphError(f"{where}: module path of {len(node.module)} characters")
    if node.orphan and not node.parameters:
        raise GraphError(f"{where}: an orphan without parameters")


def _validate_shape(shape: Shape, where: str) -> None:
    if len(shape) > MAX_DIMENSIONS:
        raise GraphError(f"{where}: at most {MAX_DIMENSIONS} dimensions, got {len(shape)}")
    if any(size < 0 for size in shape):
        raise GraphError(f"{where}: sizes must not be negative, got {shape}")
    if math.prod(shape) > MAX_ELEMENTS:
        raise GraphError(f"{where}: at most {MAX_ELEMENTS} elements, got {shape}")


def _validate_edges(edges: tuple[tuple[int, int], ...], nodes: tuple[Node, ...]) -> None:
    before = (-1, -1)
    for edge in edges:
        u, v = edge
        if not (0 <= u < len(nodes) and 0 <= v < len(nodes)):
            raise GraphError(f"edge {edge}: the graph has nodes 0 to {len(nodes) - 1}")
        if u >= v:
            # Every DAG can be numbered so that edges go up; one that doesn't may hold a cycle.
            raise GraphError(f"edge {edge} goes backwards: nodes are not in topological order")
        if edge <= before:
            raise GraphError(f"edge {edge} comes after {before}: edges must be sorted and unique")
        if nodes[u].orphan or nodes[v].orphan:
            raise GraphError(f"edge {edge} touches an orphan node")
        if nodes[v].op == "input":
            raise GraphError(f"edge {edge} leads into an input node")
        before = edge


def _validate_names(graph: Graph) -> None:
    shapes: dict[str, Shape] = {}
    for i, node in enumerate(graph.nodes):
        for name, shape in node.parameters.items():
            if shapes.setdefault(name, shape) != shape:
                raise GraphError(
                    f"node {i}: parameter {name!r} has shape {shape}, elsewhere {shapes[name]}"
                )
    unknown = sorted(graph.frozen - shapes.keys())
    if unknown:
        raise GraphError(f"frozen names without a node: {unknown[:3]}")
    tied: set[str] = set()
    for group in graph.ties:
        if len(group) < 2 or len(set(group)) < len(group) or tied & set(group):
            raise GraphError(f"a tie joins two or more different names, once; got {group[:4]}")
        if group[0] not in shapes:
            raise GraphError(f"tie {group[:4]}: the first name is not a parameter of the graph")
        tied |= set(group)
