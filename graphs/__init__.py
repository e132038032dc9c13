"""Any nn.Module becomes a typed DAG."""

from graphs.errors import GraphError
from graphs.graph import Graph, Node, Report, Role
from graphs.ops import OPS, op_index
from graphs.trace import Recording, record, trace

__all__ = [
    "OPS",
    "Graph",
    "GraphError",
    "Node",
    "Recording",
    "Report",
    "Role",
    "op_index",
    "record",
    "trace",
]
