"""What the hypernetwork needs of a graph, worked out once a graph; and batches of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ghn_fl.hypernet.config import GHNConfig
from ghn_fl.hypernet.decode import FAMILIES, VECTORS, family_of
from ghn_fl.hypernet.embed import channel_bins, shape_bins
from ghn_fl.hypernet.gatedgnn import Sweep, plan_sweep
from graphs import Graph, Role
from graphs.batch import to_data
from graphs.graph import Shape

if TYPE_CHECKING:  # importing it takes seconds, and most processes of a run never batch
    from torch_geometric.data import Data

_LEGACY_HEADS = ("classifier.", "heads.")


@dataclass(frozen=True)
class Slot:
    """A parameter to generate, and what its decoder must know."""

    name: str
    node: int
    op: str
    role: Role
    number: int  # which one of the parameters that this node decodes alike: ih and hh of an LSTM
    shape: Shape
    transposed: bool

    @property
    def kind(self) -> tuple[str, str, int, Shape, bool]:
        """Slots of one kind are decoded together; vectors are, up to the tiles that they take."""
        family = family_of(self.op, self.role)
        shape, op = self.shape, self.op
        if family in VECTORS:  # of any rank: a norm over several dimensions has one number each
            tile = FAMILIES[family].rows
            shape, op = (math.ceil(math.prod(shape) / tile) * tile,), ""
        return op, family, self.number, shape, self.transposed


@dataclass(frozen=True)
class Plan:
    """A graph as tensors, its parameters to generate, and all of them with node and role."""

    data: Data
    slots: tuple[Slot, ...]
    values: tuple[tuple[str, int, Role], ...]


@lru_cache(maxsize=128)
def plan(graph: Graph, config: GHNConfig) -> Plan:
    """The plan of a graph; equal graphs share theirs."""
    channels = channel_bins(config.num_classes)
    data = to_data(graph, config.cutoff if config.virtual_edges else 1)
    data.bins = torch.tensor([shape_bins(shape, channels) for shape in data.shape.tolist()])
    return Plan(data, *_parameters(graph, config))


def _parameters(
    graph: Graph, config: GHNConfig
) -> tuple[tuple[Slot, ...], tuple[tuple[str, int, Role], ...]]:
    slots: dict[str, Slot] = {}
    values: dict[str, tuple[str, int, Role]] = {}
    for i, node in enumerate(graph.nodes):
        seen: dict[str, int] = {}
        for name, shape in node.parameters.items():
            role = _role(name, node.roles[name], config)
            family = family_of(node.op, role)
            number = seen[family] = seen.get(family, -1) + 1
            values.setdefault(name, (name, i, role))
            generated = role is not Role.NORM_BIAS or config.norm_bias
            if generated and name not in graph.frozen and name not in slots:
                transposed = bool(node.attributes.get("transposed", 0))
                slots[name] = Slot(name, i, node.op, role, number, shape, transposed)
    return tuple(slots.values()), tuple(values.values())


def _role(name: str, role: Role, config: GHNConfig) -> Role:
    if config.head_match == "role" or name.startswith(_LEGACY_HEADS):
        return role
    plain = {Role.CLASSIFIER: Role.WEIGHT, Role.CLASSIFIER_BIAS: Role.BIAS}
    return plain.get(role, role)


@dataclass(frozen=True)
class Joined:
    """Several graphs side by side, as the encoder reads them."""

    op_N: Tensor
    bins_N4: Tensor
    sweeps: tuple[Sweep, Sweep]
    start: tuple[int, ...]  # first node of every graph
    kinds: Mapping[Any, list[tuple[int, Slot]]]  # what is decoded together: (graph, slot) pairs


@lru_cache(maxsize=32)
def join(graphs: tuple[Graph, ...], config: GHNConfig) -> Joined:
    """The batch of some graphs; fleets ask for the same few again and again."""
    from torch_geometric.data import Batch

    plans = [plan(graph, config) for graph in graphs]
    batch = Batch.from_data_list([p.data for p in plans])
    kinds: dict[Any, list[tuple[int, Slot]]] = {}
    for b, p in enumerate(plans):
        for slot in p.slots:
            kinds.setdefault(slot.kind, []).append((b, slot))
    return Joined(
        op_N=batch.op,
        bins_N4=batch.bins,
        sweeps=(
            plan_sweep(batch.level, batch.edge_index, batch.edge_distance),
            plan_sweep(batch.level_from_end, batch.edge_index.flip(0), batch.edge_distance),
        ),
        start=tuple(batch.ptr.tolist()[:-1]),
        kinds=kinds,
    )
