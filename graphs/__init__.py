"""Any nn.Module becomes a typed DAG."""

from graphs.batch import ROLES, to_batch, to_data, to_graphs
from graphs.blocks import collapse
from graphs.draw import draw
from graphs.errors import GraphError
from graphs.frontends import Recording
from graphs.graph import Graph, Node, Report, Role
from graphs.ops import OPS, op_index
from graphs.paths import distances, levels, levels_from_end, virtual_edges
from graphs.summary import Statistics, statistics, tree
from graphs.trace import record, trace

__all__ = [
    "OPS",
    "ROLES",
    "Graph",
    "GraphError",
    "Node",
    "Recording",
    "Report",
    "Role",
    "Statistics",
    "collapse",
    "distances",
    "draw",
    "levels",
    "levels_from_end",
    "op_index",
    "record",
    "statistics",
    "to_batch",
    "to_data",
    "to_graphs",
    "trace",
    "tree",
    "virtual_edges",
]
