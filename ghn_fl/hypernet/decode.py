"""Decoders: from a node's embedding to a weight of any shape, put together from tiles.

A decoder belongs to an operator type: a first layer of its own, and an output layer that operator
types with weights of one kind (`FAMILIES`) share. Biases and norms' vectors have decoders of their
own, as with the authors. The output layer gives one tile. With positional
tiling the tile's place in the weight enters the hidden layer, so that every tile is another one:

    z = relu(A_op h_v + B place + client)        hidden layer, A_op per operator type
    tile = W z + b                               W per family; only the rows in use are computed

Suffixes: N parameters of one shape, P places, H node width, D decoder width, then a tile's
R rows, C columns, Y x X kernel.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ghn_fl.hypernet.config import GHNConfig
from graphs import Graph, Role
from graphs.graph import Shape

PLACE_WIDTH = 32  # sinusoidal features of each coordinate of a place
NUM_COORDINATES = 6  # extra, row, column, kernel y, kernel x; and which parameter of its node


class Tile(NamedTuple):
    """The size of a decoder's output."""

    rows: int
    columns: int
    height: int
    width: int


# family -> tile. Kernels up to 7x7 are the middle of one tile, so that a 3x3 and a 5x5 kernel of
# one place share their middle; larger ones are put together like everything else.
FAMILIES: Mapping[str, Tile] = {
    "conv": Tile(8, 8, 7, 7),
    "depthwise": Tile(32, 2, 7, 7),
    "matrix": Tile(64, 64, 1, 1),
    "recurrent": Tile(32, 64, 1, 1),
    "embedding": Tile(64, 64, 1, 1),
    "standalone": Tile(64, 32, 1, 1),
    "bias": Tile(64, 1, 1, 1),
    "norm_scale": Tile(64, 1, 1, 1),
    "norm_bias": Tile(64, 1, 1, 1),
}
_FAMILY_OF_OP = {
    "conv": "conv",
    "dil_conv": "conv",
    "conv_transpose": "conv",
    "sep_conv": "depthwise",
    "lstm": "recurrent",
    "gru": "recurrent",
    "rnn": "recurrent",
}
_FAMILY_OF_ROLE = {
    Role.BIAS: "bias",
    Role.CLASSIFIER_BIAS: "bias",
    Role.NORM_SCALE: "norm_scale",
    Role.NORM_BIAS: "norm_bias",
    Role.EMBEDDING: "embedding",
    Role.STANDALONE: "standalone",
}
_KERNEL_FAMILIES = ("conv", "depthwise")
VECTORS = ("bias", "norm_scale", "norm_bias")  # decoded alike whatever the operator


def family_of(op: str, role: Role) -> str:
    """The kind of weight that a parameter is, which selects the output layer."""
    return _FAMILY_OF_ROLE.get(role) or _FAMILY_OF_OP.get(op, "matrix")


class Layout(NamedTuple):
    """A weight as rows x columns x kernel, `extra` times: how its shape is cut into tiles."""

    extra: int
    rows: int
    columns: int
    height: int
    width: int


def layout(shape: Shape, family: str) -> Layout:
    """Rows, columns and kernel of a shape of any rank.

    >>> layout((16, 6, 5, 5), "conv")
    Layout(extra=1, rows=16, columns=6, height=5, width=5)
    >>> layout((16, 6, 3), "conv"), layout((16, 6, 2, 3, 3), "conv")[0]
    (Layout(extra=1, rows=16, columns=6, height=1, width=3), 2)
    >>> layout((1, 197, 192), "standalone")
    Layout(extra=1, rows=197, columns=192, height=1, width=1)
    """
    if family in _KERNEL_FAMILIES and len(shape) >= 3:
        rows, columns, *kernel = shape
        height, width = (1, *kernel)[-2:]
        return Layout(math.prod(kernel[:-2]), rows, columns, height, width)
    sizes = [n for n in shape if n > 1] or [1]
    if len(sizes) == 1:
        return Layout(1, sizes[0], 1, 1, 1)
    return Layout(math.prod(sizes[:-2]), sizes[-2], sizes[-1], 1, 1)


def full_shapes(
    graphs: Iterable[Graph], cap: int | None = None
) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """For tiling `full`: each family's largest extents over all trainable tensors of some graphs.

    Args:
        graphs: the architectures of the fleet.
        cap: largest extent of any dimension; what is larger is repeated (authors: 10240).
    """
    largest: dict[str, tuple[int, ...]] = {}
    for graph in graphs:
        for node in graph.nodes:
            for name, shape in node.parameters.items():
                if name not in graph.frozen:
                    family = family_of(node.op, node.roles[name])
                    sizes = layout(shape, family)[1:]
                    before = largest.get(family, (1, 1, 1, 1))
                    largest[family] = tuple(map(max, sizes, before))
    return tuple((f, tuple(min(n, cap or n) for n in sizes)) for f, sizes in largest.items())


def grid(lay: Layout, tile: Tile) -> tuple[int, int, int, int, int]:
    """How many tiles a weight takes along each of extra, rows, columns and the kernel."""
    return (
        lay.extra,
        math.ceil(lay.rows / tile.rows),
        math.ceil(lay.columns / tile.columns),
        math.ceil(lay.height / tile.height),
        math.ceil(lay.width / tile.width),
    )


def used(lay: Layout, tile: Tile) -> tuple[slice, slice, slice, slice]:
    """The part of a tile that is computed: its first rows and columns, the middle of its kernel."""

    def middle(size: int, full: int) -> slice:
        start = max(0, (full - size) // 2)
        return slice(start, start + min(size, full))

    return (
        slice(0, min(lay.rows, tile.rows)),
        slice(0, min(lay.columns, tile.columns)),
        middle(lay.height, tile.height),
        middle(lay.width, tile.width),
    )


def assemble(tiles_NPRCYX: Tensor, lay: Layout, places: tuple[int, ...], shape: Shape) -> Tensor:
    """Weights of exactly `shape` from tiles; a single tile is repeated over all places.

    >>> tile = torch.tensor([[1, 2], [3, 4]]).reshape(1, 1, 2, 2, 1, 1)
    >>> assemble(tile, Layout(1, 3, 5, 1, 1), (1, 2, 3, 1, 1), (3, 5))[0]
    tensor([[1, 2, 1, 2, 1],
            [3, 4, 3, 4, 3],
            [1, 2, 1, 2, 1]])
    """
    num, _, *sizes = tiles_NPRCYX.shape
    tiles = tiles_NPRCYX.expand(-1, math.prod(places), *sizes).reshape(num, *places, *sizes)
    # places e r c y x come before a tile's own R C Y X: put each beside its own
    tiles = tiles.permute(0, 1, 2, 6, 3, 7, 4, 8, 5, 9)
    extra, *counts = places
    whole = tiles.reshape(num, extra, *(n * s for n, s in zip(counts, sizes, strict=True)))
    whole = whole[:, :, : lay.rows, : lay.columns, : lay.height, : lay.width]
    if extra > 1 and lay.height * lay.width > 1:  # 3-D kernels: the extra axis comes after columns
        whole = whole.permute(0, 2, 3, 1, 4, 5)
    return whole.reshape(num, *shape)


@lru_cache(maxsize=128)
def place_features(places: tuple[int, ...], number: int) -> Tensor:
    """Sinusoidal features of every place, shape (P, NUM_COORDINATES * PLACE_WIDTH)."""
    axes = [torch.arange(n) for n in places]
    coordinates_PK = torch.cartesian_prod(*axes).reshape(-1, len(places))
    number_P1 = torch.full((len(coordinates_PK), 1), number)
    return sinusoid(torch.cat([coordinates_PK, number_P1], 1), PLACE_WIDTH).flatten(1)


def sinusoid(positions: Tensor, width: int) -> Tensor:
    """Sine and cosine of positions at `width / 2` frequencies, as in the Transformer."""
    rates = torch.exp(torch.arange(0, width, 2) * (-math.log(10_000.0) / width))
    angles = positions.float().unsqueeze(-1) * rates
    return torch.cat([angles.sin(), angles.cos()], dim=-1)


class Decoders(nn.Module):
    """One decoder per operator type, and one for each kind of vector."""

    def __init__(self, config: GHNConfig, ops: tuple[str, ...]) -> None:
        super().__init__()
        width, hidden = config.width, config.decoder_width
        self.tiling = config.tiling
        self.tiles = {**FAMILIES, **{name: Tile(*shape) for name, shape in config.full_shapes}}
        self.first = nn.ModuleDict({key: nn.Linear(width, hidden) for key in (*ops, *VECTORS)})
        self.role = nn.Embedding(len(Role), hidden)
        self.place = nn.Linear(NUM_COORDINATES * PLACE_WIDTH, hidden, bias=False)
        self.output = nn.ModuleDict(
            {family: nn.Linear(hidden, math.prod(tile)) for family, tile in self.tiles.items()}
        )
        self._init()

    def _init(self) -> None:
        """Raw weights start with variance about 1; places differ as much as nodes do."""
        nn.init.normal_(self.role.weight, std=0.3)
        nn.init.normal_(self.place.weight, std=math.sqrt(2 / self.place.in_features))
        for family, layer in self.output.items():
            assert isinstance(layer, nn.Linear)
            nn.init.normal_(layer.weight, std=math.sqrt(1 / (0.7 * layer.in_features)))
            nn.init.zeros_(layer.bias)
            if self.tiling != "full":
                # Trained kernels are strong in their middle. A kernel larger than any that the
                # hypernetwork has learnt from then gets little noise at its rim.
                rim = _distance_from_middle(self.tiles[family]).clamp(min=1) - 1
                layer.weight.data.mul_(0.5 ** rim.unsqueeze(1))

    def forward(
        self,
        h_NH: Tensor,
        role_N: Tensor,
        client_ND: Tensor | None,
        *,
        op: str,
        family: str,
        number: int,
        shape: Shape,
    ) -> Tensor:
        """Raw weights of N parameters of one shape and one kind.

        Args:
            h_NH: embeddings of their nodes.
            role_N: index of each one's role.
            client_ND: what the client encoder says of each one's client.
            op: their operator's type; any for vectors.
            family: which output layer makes them.
            number: which of its node's parameters of this family each one is.
            shape: theirs.
        """
        tile = self.tiles[family]
        lay = layout(shape, family)
        places = grid(lay, tile)
        first = self.first[family if family in VECTORS else op]
        z_ND = first(h_NH) + self.role(role_N)
        if client_ND is not None:
            z_ND = z_ND + client_ND
        # Without positional tiles: one place for all, still told which parameter of its node.
        told = places if self.tiling == "positional" else (1, 1, 1, 1, 1)
        z_NPD = z_ND.unsqueeze(1) + self.place(place_features(told, number))
        part = used(lay, tile)
        output = self.output[family]
        assert isinstance(output, nn.Linear)
        weight_KD = output.weight.reshape(*tile, -1)[part].flatten(0, 3)
        bias_K = output.bias.reshape(tile)[part].flatten()
        tiles = torch.relu(z_NPD) @ weight_KD.T + bias_K
        sizes = [s.stop - s.start for s in part]
        return assemble(tiles.unflatten(2, sizes), lay, places, shape)


def _distance_from_middle(tile: Tile) -> Tensor:
    """For every output of a tile, in order, how far its place in the kernel is from the middle."""
    y = (torch.arange(tile.height) - tile.height // 2).abs()
    x = (torch.arange(tile.width) - tile.width // 2).abs()
    ring = torch.maximum(y[:, None], x[None, :])
    return ring.expand(tile.rows, tile.columns, -1, -1).flatten()


def normalise(raw: Tensor, *, op: str, role: Role, transposed: bool, shape: Shape) -> Tensor:
    """A raw weight brought to the scale that its place in a network needs.

    dim >= 2:   w * sqrt(b / fan_in), b = 2, but 1 for a convolution with one input channel or a
                kernel wider than high, and 1 where no rectifier follows (embeddings, recurrent
                weights, stand-alone tables)
    norm scale: 2 sigmoid(w / 2), so that 0 gives 1 (also stand-alone factors)
    1-D rest:   tanh(w / 5)
    """
    if role is Role.NORM_SCALE or (role is Role.STANDALONE and op == "scale"):
        return 2 * torch.sigmoid(0.5 * raw)
    rank = sum(n > 1 for n in shape) if role is Role.STANDALONE else len(shape)
    if rank < 2 or role in (Role.BIAS, Role.CLASSIFIER_BIAS, Role.NORM_BIAS):
        return torch.tanh(0.2 * raw)
    return raw * math.sqrt(_gain(op, role, shape) / _fan_in(op, role, shape, transposed))


def _gain(op: str, role: Role, shape: Shape) -> int:
    family = family_of(op, role)
    if family in _KERNEL_FAMILIES:
        height, width = (1, *shape[2:])[-2:] if len(shape) < 5 else shape[-2:]
        one_channel = shape[1] == 1
        return 1 if one_channel or (len(shape) > 3 and height < width) else 2
    return 2 if family == "matrix" else 1


def _fan_in(op: str, role: Role, shape: Shape, transposed: bool) -> int:
    """How many inputs are summed into one output."""
    family = family_of(op, role)
    if family in _KERNEL_FAMILIES:
        inputs = shape[0] if op == "conv_transpose" else shape[1]
        return inputs * math.prod(shape[2:])
    return shape[-2] if transposed else shape[-1]
