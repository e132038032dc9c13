"""A graph as JSON: versioned, deterministic, bounded, and checked before use.

What comes from another machine is data of unknown origin: size, form, every type and every limit
is checked here, and then `Graph.validate` checks the meaning.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from graphs.errors import GraphError
from graphs.graph import Graph, Node, Report, Role, Shape

VERSION = 1
MAX_BYTES = 64 * 2**20

_GRAPH_KEYS = {"version", "nodes", "edges", "frozen", "ties", "front_end", "report"}
_NODE_KEYS = {"op", "parameters", "shape", "module", "attributes", "orphan"}
_REPORT_KEYS = {"other", "orphans", "gradient_free", "attempts"}


def to_json(graph: Graph) -> str:
    """The graph as one line of JSON; equal graphs from one front end give equal bytes."""
    report = graph.report
    return _dump(
        {
            "version": VERSION,
            **_content(graph),
            "front_end": graph.front_end,
            "report": {
                "other": dict(report.other),
                "orphans": report.orphans,
                "gradient_free": report.gradient_free,
                "attempts": report.attempts,
            },
        }
    )


def identity(graph: Graph) -> str:
    """SHA-256 of nodes, edges, frozen names and ties, as 64 hexadecimal digits."""
    return hashlib.sha256(_dump(_content(graph)).encode()).hexdigest()


def from_json(text: str | bytes) -> Graph:
    """The graph that `to_json` wrote.

    Raises:
        GraphError: the text is cut, too large, of a newer version, not of this form, or is not
            a graph.
    """
    size = len(text)
    if size > MAX_BYTES:
        raise GraphError(f"a graph's JSON has at most {MAX_BYTES} bytes, got {size}")
    try:
        if isinstance(text, bytes):
            text = text.decode()
        tree = json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_unique_keys)
    except RecursionError as err:
        raise GraphError("not the JSON of a graph: nested too deep") from err
    except GraphError:
        raise
    except ValueError as err:  # also UnicodeDecodeError and JSONDecodeError
        raise GraphError(f"not the JSON of a graph, or cut: {err}") from err
    return _graph(tree).validate()


def _dump(tree: dict[str, Any]) -> str:
    return json.dumps(tree, separators=(",", ":"), ensure_ascii=True)


def _content(graph: Graph) -> dict[str, Any]:
    return {
        "nodes": [
            {
                "op": node.op,
                "parameters": [[n, s, node.roles[n]] for n, s in node.parameters.items()],
                "shape": node.shape,
                "module": node.module,
                "attributes": dict(sorted(node.attributes.items())),
                "orphan": node.orphan,
            }
            for node in graph.nodes
        ],
        "edges": graph.edges,
        "frozen": sorted(graph.frozen),
        "ties": graph.ties,
    }


# --- reading, each function named after what it returns --------------------------------------


def _graph(tree: object) -> Graph:
    if not isinstance(tree, dict) or "version" not in tree:
        raise GraphError("not the JSON of a graph: expected an object with a version")
    version = _int(tree["version"], "version")
    if version > VERSION:
        raise GraphError(f"written by a newer version: {version}, this one reads up to {VERSION}")
    tree = _object(tree, "graph", _GRAPH_KEYS)
    report = _object(tree["report"], "report", _REPORT_KEYS)
    return Graph(
        nodes=tuple(_node(n, f"node {i}") for i, n in enumerate(_list(tree["nodes"], "nodes"))),
        edges=tuple(_edge(e, f"edge {i}") for i, e in enumerate(_list(tree["edges"], "edges"))),
        frozen=frozenset(_strings(tree["frozen"], "frozen")),
        ties=tuple(_strings(t, "ties") for t in _list(tree["ties"], "ties")),
        front_end=_str(tree["front_end"], "front_end"),
        report=Report(
            other=_counts(report["other"], "report.other"),
            orphans=_strings(report["orphans"], "report.orphans"),
            gradient_free=_strings(report["gradient_free"], "report.gradient_free"),
            attempts=_strings(report["attempts"], "report.attempts"),
        ),
    )


def _node(tree: object, where: str) -> Node:
    tree = _object(tree, where, _NODE_KEYS)
    parameters: dict[str, Shape] = {}
    roles: dict[str, Role] = {}
    for entry in _list(tree["parameters"], f"{where}, parameters"):
        entry = _list(entry, f"{where}, parameter")
        if len(entry) != 3:
            raise GraphError(
                f"{where}: a parameter is [name, shape, role], got {len(entry)} entries"
            )
        name = _str(entry[0], f"{where}, parameter name")
        if name in parameters:
            raise GraphError(f"{where}: parameter {name!r} is listed twice")
        parameters[name] = _shape(entry[1], f"{where}, parameter {name!r}")
        try:
            roles[name] = Role(_str(entry[2], f"{where}, role"))
        except ValueError as err:
            raise GraphError(f"{where}: unknown role {entry[2]!r}") from err
    shape = tree["shape"]
    return Node(
        op=_str(tree["op"], f"{where}, op"),
        parameters=parameters,
        roles=roles,
        shape=None if shape is None else _shape(shape, f"{where}, shape"),
        module=_str(tree["module"], f"{where}, module"),
        attributes=_counts(tree["attributes"], f"{where}, attributes"),
        orphan=_bool(tree["orphan"], f"{where}, orphan"),
    )


def _edge(tree: object, where: str) -> tuple[int, int]:
    pair = _list(tree, where)
    if len(pair) != 2:
        raise GraphError(f"{where}: a pair of node indices expected, got {len(pair)} numbers")
    return _int(pair[0], where), _int(pair[1], where)


def _object(tree: object, where: str, keys: set[str]) -> dict[str, Any]:
    if not isinstance(tree, dict) or set(tree) != keys:
        got = sorted(tree) if isinstance(tree, dict) else type(tree).__name__
        raise GraphError(f"{where}: expected an object with {sorted(keys)}, got {got}")
    return tree


def _counts(tree: object, where: str) -> dict[str, int]:
    if not isinstance(tree, dict):
        raise GraphError(f"{where}: expected an object, got {type(tree).__name__}")
    return {_str(k, where): _int(v, f"{where}.{k}") for k, v in tree.items()}


def _list(tree: object, where: str) -> list[Any]:
    if not isinstance(tree, list):
        raise GraphError(f"{where}: expected a list, got {type(tree).__name__}")
    return tree


def _strings(tree: object, where: str) -> tuple[str, ...]:
    return tuple(_str(s, where) for s in _list(tree, where))


def _shape(tree: object, where: str) -> Shape:
    return tuple(_int(n, where) for n in _list(tree, where))


def _str(tree: object, where: str) -> str:
    if not isinstance(tree, str):
        raise GraphError(f"{where}: expected a string, got {type(tree).__name__}")
    return tree


def _int(tree: object, where: str) -> int:
    if type(tree) is not int:  # True is an int to isinstance
        raise GraphError(f"{where}: expected a whole number, got {type(tree).__name__}")
    return tree


def _bool(tree: object, where: str) -> bool:
    if not isinstance(tree, bool):
        raise GraphError(f"{where}: expected true or false, got {type(tree).__name__}")
    return tree


def _refuse_constant(name: str) -> None:
    raise GraphError(f"not the JSON of a graph: {name} is not a number")


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    tree = dict(pairs)
    if len(tree) < len(pairs):
        raise GraphError("not the JSON of a graph: a key is given twice in one object")
    return tree
