"""GatedGNN: a forward and a backward sweep along the graph, level by level (Eqs. 6 and 7).

    m_v = sum over edges u -> v of MLP(h_u)
        + sum over paths u ~> v of s <= cutoff steps of MLP_ve(h_u) / s      (s = 1 included)
    h_v = GRU(m_v, h_v)

Nodes are updated in place along the topological order. The nodes of one level (longest path from a
source) don't hear from each other, so a whole level, of all graphs of the batch at once, is one
step, and gives what visiting node by node would. The backward sweep turns the edges round.

Suffixes: N nodes, E edges, V virtual edges, H width, K nodes of one level.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from ghn_fl.hypernet.config import GHNConfig


class Sweep(NamedTuple):
    """One direction of one batch: what every level hears from the levels before it."""

    order_N: Tensor  # nodes sorted by level
    sizes: list[int]  # nodes of each level
    near: list[
        tuple[Tensor, Tensor]
    ]  # per level: (place of u in the order, place of v in the level)
    far: list[tuple[Tensor, Tensor, Tensor]]  # the same with weight 1 / s


def plan_sweep(level_N: Tensor, edges_2V: Tensor, distance_V: Tensor) -> Sweep:
    """Sort a batch's edges by the level that hears them.

    Args:
        level_N: levels of the direction; an edge goes to a higher one.
        edges_2V: pairs (u, v) with v reachable from u, sources first; real edges among them.
        distance_V: the length of the shortest path of each pair, 1 for a real edge.
    """
    order_N = level_N.argsort(stable=True)
    place_N = order_N.argsort()
    sizes = torch.bincount(level_N)
    starts = sizes.cumsum(0) - sizes

    def by_level(pairs: Tensor, *extra: Tensor) -> list[tuple[Tensor, ...]]:
        level = level_N[pairs[1]]
        order = level.argsort(stable=True)
        columns = (place_N[pairs[0]], place_N[pairs[1]] - starts[level], *extra)
        counts = torch.bincount(level, minlength=len(sizes)).tolist()
        parts = [column[order].split(counts) for column in columns]
        return list(zip(*parts, strict=True))

    near = by_level(edges_2V[:, distance_V == 1])
    far = by_level(edges_2V, 1 / distance_V.float())
    return Sweep(order_N, sizes.tolist(), near, far)  # type: ignore[arg-type]


class GatedGNN(nn.Module):
    """Embeddings of the nodes of a batch of graphs; graphs of one batch do not interact."""

    def __init__(self, config: GHNConfig) -> None:
        super().__init__()
        width = config.width
        self.sweeps = config.sweeps
        self.message = _mlp(width)
        self.virtual_message = _mlp(width) if config.virtual_edges else None
        self.gru = nn.GRUCell(width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, h_NH: Tensor, sweeps: tuple[Sweep, Sweep]) -> Tensor:
        for _ in range(self.sweeps):
            for sweep in sweeps:
                h_NH = self._traverse(h_NH, sweep)
        normed_NH: Tensor = self.norm(h_NH)
        return normed_NH

    def _traverse(self, h_NH: Tensor, sweep: Sweep) -> Tensor:
        old = h_NH[sweep.order_N].split(sweep.sizes)
        new: list[Tensor] = []
        near_NH = far_NH = h_NH[:0]  # messages of all levels so far
        for level, h_KH in enumerate(old):
            source_E, target_E = sweep.near[level]
            m_KH = torch.zeros_like(h_KH).index_add(0, target_E, near_NH[source_E])
            if self.virtual_message is not None:
                source_V, target_V, weight_V = sweep.far[level]
                heard_VH = far_NH[source_V] * weight_V.unsqueeze(1)
                m_KH = m_KH.index_add(0, target_V, heard_VH)
            new.append(self.gru(m_KH, h_KH))  # Eq. (7)
            near_NH = torch.cat([near_NH, self.message(new[-1])])  # Eq. (6)
            if self.virtual_message is not None:
                far_NH = torch.cat([far_NH, self.virtual_message(new[-1])])
        return torch.cat(new)[sweep.order_N.argsort()]


def _mlp(width: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(width, width // 2), nn.ReLU(), nn.Linear(width // 2, width), nn.ReLU()
    )
