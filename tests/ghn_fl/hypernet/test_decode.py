import math

import pytest
import torch
from torch import Tensor

from ghn_fl.hypernet.config import GHNConfig
from ghn_fl.hypernet.decode import (
    FAMILIES,
    Decoders,
    Layout,
    Tile,
    assemble,
    family_of,
    full_shapes,
    grid,
    layout,
    normalise,
    used,
)
from graphs import OPS, Role
from graphs.batch import ROLES
from tests.ghn_fl.hypernet.examples import request

SHAPES = [
    ("conv", Role.WEIGHT, (6, 1, 5, 5)),
    ("conv", Role.WEIGHT, (20, 9, 3)),
    ("conv", Role.WEIGHT, (9, 8, 2, 3, 3)),
    ("conv", Role.WEIGHT, (12, 3, 16, 16)),
    ("conv", Role.WEIGHT, (8, 8, 31, 31)),
    ("conv", Role.WEIGHT, (8, 8, 1, 13)),
    ("sep_conv", Role.WEIGHT, (70, 1, 7, 7)),
    ("sep_conv", Role.WEIGHT, (64, 5, 3, 3)),
    ("conv_transpose", Role.WEIGHT, (16, 8, 4, 4)),
    ("linear", Role.WEIGHT, (130, 70)),
    ("linear", Role.CLASSIFIER, (10, 84)),
    ("linear", Role.CLASSIFIER_BIAS, (10,)),
    ("matmul", Role.WEIGHT, (4, 30, 20)),
    ("bilinear", Role.WEIGHT, (3, 5, 7)),
    ("embedding", Role.EMBEDDING, (300, 96)),
    ("lstm", Role.WEIGHT, (400, 100)),
    ("lstm", Role.BIAS, (400,)),
    ("batch_norm", Role.NORM_SCALE, (200,)),
    ("layer_norm", Role.NORM_BIAS, (1,)),
    ("token", Role.STANDALONE, (1, 1, 192)),
    ("shift", Role.STANDALONE, (1, 197, 192)),
    ("scale", Role.STANDALONE, (192,)),
    ("scale", Role.STANDALONE, (7, 1, 1)),
    ("scale", Role.STANDALONE, ()),
    ("other", Role.STANDALONE, (2, 3, 4, 5)),
    ("prelu", Role.WEIGHT, (1,)),
]


def decode(
    decoders: Decoders, h: Tensor, op: str, role: Role, shape: tuple[int, ...], number: int = 0
) -> Tensor:
    roles = torch.full((len(h),), ROLES.index(role))
    family = family_of(op, role)
    return decoders(h, roles, None, op=op, family=family, number=number, shape=shape)


def decoders(**options: object) -> Decoders:
    torch.manual_seed(0)
    return Decoders(GHNConfig(width=8, decoder_width=16, **options), OPS)  # type: ignore[arg-type]


@pytest.mark.parametrize("tiling", ["positional", "repeat"])
@pytest.mark.parametrize(("op", "role", "shape"), SHAPES)
def test_any_shape_comes_out_exact(op: str, role: Role, shape: tuple, tiling: str) -> None:
    made = decode(decoders(tiling=tiling), torch.randn(3, 8), op, role, shape)
    assert made.shape == (3, *shape)
    fitted = normalise(made, op=op, role=role, transposed=False, shape=shape)
    assert fitted.shape == made.shape and torch.isfinite(fitted).all()


def test_tiles_are_repeated_and_cut_by_hand() -> None:
    tile = torch.tensor([[1, 2], [3, 4]]).reshape(1, 1, 2, 2, 1, 1)
    lay = Layout(1, 3, 5, 1, 1)
    made = assemble(tile, lay, grid(lay, Tile(2, 2, 1, 1)), (3, 5))[0]
    assert made.tolist() == [[1, 2, 1, 2, 1], [3, 4, 3, 4, 3], [1, 2, 1, 2, 1]]


def test_distinct_tiles_go_to_their_places_by_hand() -> None:
    # places row by row: tile 0 | tile 1      each tile 2 x 2, the weight 3 x 3
    #                    tile 2 | tile 3
    tiles = torch.arange(4).reshape(1, 4, 1, 1, 1, 1).expand(1, 4, 2, 2, 1, 1)
    lay = Layout(1, 3, 3, 1, 1)
    made = assemble(tiles, lay, grid(lay, Tile(2, 2, 1, 1)), (3, 3))[0]
    assert made.tolist() == [[0, 0, 1], [0, 0, 1], [2, 2, 3]]


def test_a_three_dimensional_kernel_keeps_its_axes() -> None:
    # extra (depth) 2, one row, one column, 2 x 2 kernel: tile e is filled with e
    tiles = torch.arange(2).reshape(1, 2, 1, 1, 1, 1).expand(1, 2, 1, 1, 2, 2)
    made = assemble(tiles, Layout(2, 1, 1, 2, 2), (2, 1, 1, 1, 1), (1, 1, 2, 2, 2))[0]
    assert made[0, 0].tolist() == [[[0, 0], [0, 0]], [[1, 1], [1, 1]]]


def test_a_small_kernel_is_the_middle_of_a_large_one() -> None:
    made, h = decoders(), torch.randn(1, 8)
    large, small = (decode(made, h, "conv", Role.WEIGHT, (8, 8, k, k))[0] for k in (7, 3))
    torch.testing.assert_close(large[:, :, 2:5, 2:5], small)


def test_positional_tiles_differ_and_repeated_ones_don_t() -> None:
    tile = FAMILIES["matrix"]
    shape = (2 * tile.rows, tile.columns)
    for tiling, same in (("positional", False), ("repeat", True)):
        made = decode(decoders(tiling=tiling), torch.randn(1, 8), "linear", Role.WEIGHT, shape)[0]
        assert torch.allclose(made[: tile.rows], made[tile.rows :]) == same


def test_two_parameters_of_one_node_differ() -> None:
    made, h = decoders(tiling="repeat"), torch.randn(1, 8)
    ih, hh = (decode(made, h, "lstm", Role.WEIGHT, (40, 10), number) for number in (0, 1))
    assert not torch.allclose(ih, hh)


def test_full_tiling_emits_the_largest_shape_and_cuts_it() -> None:
    made = decoders(tiling="full", full_shapes=(("matrix", (100, 120, 1, 1)),))
    assert made.output["matrix"].out_features == 100 * 120
    h = torch.randn(1, 8)
    large = decode(made, h, "linear", Role.WEIGHT, (100, 120))[0]
    small = decode(made, h, "linear", Role.WEIGHT, (10, 20))[0]
    torch.testing.assert_close(large[:10, :20], small)


def test_full_shapes_are_the_largest_of_the_fleet() -> None:
    shapes = dict(full_shapes([request("lenet5").graph, request("lenet5-d1").graph]))
    # convolutions 6x1x5x5, 16x6x5x5, 3x6x5x5; dense 120x256, 84x120, 10x84, 84x48
    assert shapes["conv"] == (16, 6, 5, 5)
    assert shapes["matrix"] == (120, 256, 1, 1)
    assert shapes["bias"] == (120, 1, 1, 1)
    assert dict(full_shapes([request("lenet5").graph], cap=64))["matrix"] == (64, 64, 1, 1)


def test_normalisation_by_hand() -> None:
    def factor(op: str, role: Role, shape: tuple[int, ...], transposed: bool = False) -> float:
        raw = torch.ones(1, *shape)
        return float(
            normalise(raw, op=op, role=role, transposed=transposed, shape=shape).flatten()[0]
        )

    assert factor("conv", Role.WEIGHT, (8, 3, 3, 3)) == pytest.approx(0.272166, abs=1e-6)
    assert factor("linear", Role.CLASSIFIER, (10, 84)) == pytest.approx(0.154303, abs=1e-6)
    assert factor("sep_conv", Role.WEIGHT, (8, 1, 3, 3)) == pytest.approx(1 / 3)
    assert factor("conv", Role.WEIGHT, (6, 1, 5, 5)) == pytest.approx(0.2)
    assert factor("conv", Role.WEIGHT, (6, 2, 1, 3)) == pytest.approx(math.sqrt(1 / 6))
    assert factor("conv_transpose", Role.WEIGHT, (4, 8, 1, 1)) == pytest.approx(math.sqrt(2 / 4))
    assert factor("linear", Role.WEIGHT, (4, 9), transposed=True) == pytest.approx(math.sqrt(2 / 4))
    assert factor("embedding", Role.EMBEDDING, (50, 16)) == pytest.approx(0.25)
    assert factor("linear", Role.BIAS, (5,)) == pytest.approx(0.197375, abs=1e-6)
    zero = torch.zeros(1, 3)
    scale = normalise(zero, op="batch_norm", role=Role.NORM_SCALE, transposed=False, shape=(3,))
    assert scale.tolist() == [[1, 1, 1]]


def test_raw_weights_start_with_variance_about_one() -> None:
    torch.manual_seed(0)
    made_by = Decoders(GHNConfig(), OPS)
    h = torch.randn(20, 128)
    for op, shape in (("conv", (64, 64, 3, 3)), ("linear", (256, 128))):
        made = decode(made_by, h, op, Role.WEIGHT, shape)
        assert 0.5 < made.var() < 2
        first, second = made[0].flatten(), made[1].flatten()
        correlation = torch.corrcoef(torch.stack([first, second]))[0, 1]
        assert correlation < 0.9


def test_layouts_cover_every_element() -> None:
    for op, role, shape in SHAPES:
        lay = layout(shape, family_of(op, role))
        assert math.prod(lay) == math.prod(shape)
        part = used(lay, FAMILIES[family_of(op, role)])
        assert all(s.stop > s.start for s in part)
