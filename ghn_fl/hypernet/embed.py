"""Node features: operator, shape, and the parameters' current values.

x_v = Emb_op + [Emb_ch(out); Emb_ch(in); Emb_sp(kh); Emb_sp(kw)] + mean over its parameters of
TransformerEnc(q). An operator's weight and bias stand on one node here (the authors give a bias a
node of its own), so a node has the encodings of all its parameters, each marked with its role.

Suffixes: N nodes, Q parameters, L values of a parameter, H width.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ghn_fl.hypernet.config import GHNConfig
from ghn_fl.hypernet.decode import sinusoid
from graphs import OPS, Role

SPATIAL_BINS = (1, 3, 5, 7, 9, 11, 14, 16)
_HEADS = 4
_SHORT = 8  # patches


def channel_bins(num_classes: int) -> tuple[int, ...]:
    """The channel counts that have an embedding of their own: 391 for 10 classes."""
    steps = (*range(8, 64, 8), *range(64, 4096, 16), *range(4096, 8193, 32))
    return tuple(sorted({1, 3, num_classes, *steps}))


def nearest_bin(size: int, bins: Sequence[int]) -> int:
    """Index of the bin nearest to `size`, the larger one of two; 4 to 7 go up to 8.

    >>> [SPATIAL_BINS[nearest_bin(k, SPATIAL_BINS)] for k in (1, 2, 3, 12, 31)]
    [1, 3, 3, 11, 16]
    """
    above = bisect.bisect_left(bins, size)
    if above == 0 or above == len(bins):
        return min(above, len(bins) - 1)
    low, high = bins[above - 1], bins[above]
    return above if high - size <= size - low or (low == 3 and high == 8) else above - 1


def shape_bins(shape: Sequence[int], channels: Sequence[int]) -> tuple[int, int, int, int]:
    """Bin indices of (out, in, height, width); the index behind the last means "no parameter"."""
    if shape[0] == 0:
        return len(channels), len(channels), len(SPATIAL_BINS), len(SPATIAL_BINS)
    out, inp, height, width = shape
    return (
        nearest_bin(out, channels),
        nearest_bin(inp, channels),
        nearest_bin(height, SPATIAL_BINS),
        nearest_bin(width, SPATIAL_BINS),
    )


def shorten(values: Tensor, length: int, pooling: str) -> Tensor:
    """At most `length` numbers that stand for a parameter.

    >>> shorten(torch.arange(260.0), 128, "chunk")[[0, 1, -1]]
    tensor([  0.5000,   2.5000, 254.5000])
    """
    flat = values.detach().float().flatten()
    if flat.numel() <= length:
        return flat
    if pooling == "adaptive":
        return F.adaptive_avg_pool1d(flat[None], length)[0]
    step = flat.numel() // length
    return flat[: step * length].reshape(length, step).mean(1)


class ValueEncoder(nn.Module):
    """A sequence of numbers to one vector: patches, positions, one Transformer layer, mean.

    The layer is the authors': 4 heads, 64 units in the feed-forward part, norms after. A patch is
    a few neighbouring values together with which of them are real, so that no value has to stand
    for "nothing here" (the authors pad with -1 and read one value at a time).
    """

    def __init__(self, config: GHNConfig) -> None:
        super().__init__()
        width = config.width
        self.patch, self.dropout = config.patch, config.dropout
        self.longest = max(_SHORT, -(-config.value_length // config.patch))
        self.lift = nn.Linear(2 * config.patch, width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm1 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 64)
        self.down = nn.Linear(64, width)
        self.norm2 = nn.LayerNorm(width)
        self.norm = nn.LayerNorm(width)

    def forward(self, sequences: Sequence[Tensor]) -> Tensor:
        """Encodings of Q sequences of any lengths, shape (Q, H)."""
        buckets: dict[int, list[int]] = {}  # short ones apart: they are many, and would be padded
        for i, sequence in enumerate(sequences):
            patches = -(-len(sequence) // self.patch)
            buckets.setdefault(_SHORT if patches <= _SHORT else self.longest, []).append(i)
        parts = [
            self._encode([sequences[i] for i in members], size) for size, members in buckets.items()
        ]
        order = [i for members in buckets.values() for i in members]
        return torch.cat(parts)[torch.tensor(order).argsort()]

    def _encode(self, sequences: list[Tensor], num_patches: int) -> Tensor:
        size = num_patches * self.patch
        lengths_Q1 = torch.tensor([[len(s)] for s in sequences])
        values_QV = torch.stack([F.pad(s, (0, size - len(s))) for s in sequences])
        real_QV = (torch.arange(size) < lengths_Q1).float()
        pairs = torch.stack([values_QV, real_QV], -1)
        x_QLH = self.lift(pairs.unflatten(1, (num_patches, -1)).flatten(2))
        x_QLH = self._drop(x_QLH + _positions(num_patches, x_QLH.shape[-1]))
        real_QL = real_QV[:, :: self.patch].bool()
        mask = None if real_QL.all() else real_QL[:, None, None, :]
        q, k, v = self.qkv(x_QLH).unflatten(2, (3, _HEADS, -1)).permute(2, 0, 3, 1, 4)
        rate = self.dropout if self.training else 0.0
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=rate)
        mixed = mixed.transpose(1, 2).flatten(2)
        x_QLH = self.norm1(x_QLH + self._drop(self.out(mixed)))
        x_QLH = self.norm2(x_QLH + self._drop(self.down(self._drop(F.relu(self.up(x_QLH))))))
        x_QLH = self.norm(x_QLH) * real_QL.unsqueeze(-1)
        mean_QH: Tensor = x_QLH.sum(1) / real_QL.sum(1, keepdim=True)
        return mean_QH

    def _drop(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.dropout, self.training)


@lru_cache(maxsize=64)
def _positions(length: int, width: int) -> Tensor:
    return sinusoid(torch.arange(length), width)


class NodeEncoder(nn.Module):
    """Features of all nodes of a batch, from operator, shape and values."""

    def __init__(self, config: GHNConfig) -> None:
        super().__init__()
        quarter = config.width // 4
        self.op = nn.Embedding(len(OPS), config.width)
        self.channels = nn.Embedding(len(channel_bins(config.num_classes)) + 1, quarter)
        self.spatial = nn.Embedding(len(SPATIAL_BINS) + 1, quarter)
        self.values = ValueEncoder(config)
        self.role = nn.Embedding(len(Role), config.width)
        self.mix = (
            nn.Linear(3 * config.width, config.width) if config.features == "concat" else None
        )

    def forward(
        self,
        op_N: Tensor,
        bins_N4: Tensor,
        values: Sequence[Tensor],
        node_Q: Tensor,
        role_Q: Tensor,
    ) -> Tensor:
        """Features, shape (N, H).

        Args:
            op_N: index of every node's operator in `graphs.OPS`.
            bins_N4: `shape_bins` of every node's first parameter.
            values: shortened current values of Q parameters.
            node_Q: the node that each of them belongs to.
            role_Q: index of its role.
        """
        ops_NH: Tensor = self.op(op_N)
        shapes_N4 = [self.channels(bins_N4[:, :2]), self.spatial(bins_N4[:, 2:])]
        shapes_NH = torch.cat(shapes_N4, 1).flatten(1)
        values_NH = torch.zeros_like(ops_NH)
        if values:
            encoded_QH = self.values(values) + self.role(role_Q)
            count_N1 = torch.zeros(len(op_N), 1).index_add(0, node_Q, torch.ones(len(node_Q), 1))
            summed_NH = values_NH.index_add(0, node_Q, encoded_QH)
            values_NH = summed_NH / count_N1.clamp(min=1)
        if self.mix is None:
            return ops_NH + shapes_NH + values_NH
        mixed_NH: Tensor = self.mix(torch.cat([ops_NH, shapes_NH, values_NH], 1))
        return mixed_NH
