import pytest
import torch

from ghn_fl.hypernet.config import GHNConfig
from ghn_fl.hypernet.decode import sinusoid
from ghn_fl.hypernet.embed import (
    SPATIAL_BINS,
    NodeEncoder,
    ValueEncoder,
    channel_bins,
    nearest_bin,
    shape_bins,
    shorten,
)
from graphs import OPS

CONFIG = GHNConfig(width=16)


def test_channel_bins() -> None:
    bins = channel_bins(10)
    assert len(bins) == 391
    found = {n: bins[nearest_bin(n, bins)] for n in (1, 2, 3, 4, 7, 9, 10, 70, 72, 9999)}
    assert found == {
        1: 1, 2: 3, 3: 3, 4: 8, 7: 8, 9: 10, 10: 10, 70: 64, 72: 80, 9999: 8192
    }  # fmt: skip


def test_shape_bins() -> None:
    bins = channel_bins(10)
    assert shape_bins((0, 0, 0, 0), bins) == (391, 391, len(SPATIAL_BINS), len(SPATIAL_BINS))
    out, inp, height, width = shape_bins((64, 3, 2, 5), bins)
    assert (bins[out], bins[inp], SPATIAL_BINS[height], SPATIAL_BINS[width]) == (64, 3, 3, 5)


def test_chunk_means_by_hand() -> None:
    # 260 values: chunks of 2, the last 4 values are left out
    short = shorten(torch.arange(260.0), 128, "chunk")
    assert short.tolist() == [0.5 + 2 * i for i in range(128)]
    assert shorten(torch.arange(200.0), 128, "chunk").tolist() == list(range(128))
    assert shorten(torch.arange(100.0), 128, "chunk").tolist() == list(range(100))


def test_adaptive_pooling_counts_every_value() -> None:
    values = torch.zeros(260)
    values[-1] = 1.0
    assert shorten(values, 128, "adaptive")[-1] > 0
    assert shorten(values, 128, "chunk").abs().sum() == 0
    assert len(shorten(values, 128, "adaptive")) == 128


def test_encoding_a_sequence_does_not_depend_on_its_company() -> None:
    torch.manual_seed(0)
    encoder = ValueEncoder(CONFIG).eval()
    sequences = [torch.randn(n) for n in (1, 7, 8, 9, 100, 128, 40)]
    together = encoder(sequences)
    for sequence, encoded in zip(sequences, together, strict=True):
        torch.testing.assert_close(encoder([sequence])[0], encoded, rtol=1e-4, atol=1e-5)


def test_a_pad_is_not_a_value() -> None:
    # explicit lengths: a genuine -1 (or 0) at the end counts, a pad doesn't
    encoder = ValueEncoder(CONFIG).eval()
    short = torch.tensor([0.5, -0.5])
    for end in (-1.0, 0.0):
        longer = torch.cat([short, torch.tensor([end])])
        a, b = encoder([short, longer])
        assert not torch.allclose(a, b)


def test_the_layer_is_a_transformer_encoder_layer() -> None:
    torch.manual_seed(0)
    encoder = ValueEncoder(CONFIG)
    layer = torch.nn.TransformerEncoderLayer(16, 4, 64, dropout=0.0, batch_first=True)
    with torch.no_grad():
        layer.self_attn.in_proj_weight.copy_(encoder.qkv.weight)
        layer.self_attn.in_proj_bias.copy_(encoder.qkv.bias)
    for theirs, ours in (
        (layer.self_attn.out_proj, encoder.out),
        (layer.linear1, encoder.up),
        (layer.linear2, encoder.down),
    ):
        theirs.load_state_dict(ours.state_dict())
    # 32 values are 8 patches of 4; in a patch every value is followed by a 1 for "real"
    values = torch.randn(2, 32)
    pairs = torch.stack([values, torch.ones(2, 32)], -1).reshape(2, 8, 8)
    x = encoder.lift(pairs) + sinusoid(torch.arange(8), 16)
    expected = encoder.norm(layer(x)).mean(1)
    torch.testing.assert_close(encoder(list(values)), expected)


@pytest.mark.parametrize("features", ["sum", "concat"])
def test_nodes_without_values_have_features(features: str) -> None:
    encoder = NodeEncoder(GHNConfig(width=16, features=features)).eval()  # type: ignore[arg-type]
    bins = torch.tensor([shape_bins((0, 0, 0, 0), channel_bins(10))] * 2)
    op = torch.tensor([OPS.index("input"), OPS.index("sum")])
    none = torch.empty(0, dtype=torch.long)
    x = encoder(op, bins, [], none, none)
    assert x.shape == (2, 16)
    assert not torch.allclose(x[0], x[1])


def test_a_node_has_the_mean_of_its_parameters_encodings() -> None:
    torch.manual_seed(0)
    encoder = NodeEncoder(CONFIG).eval()
    bins = torch.tensor([shape_bins((4, 1, 1, 1), channel_bins(10))])
    op = torch.tensor([OPS.index("linear")])
    a, b = torch.randn(4), torch.randn(4)
    none = torch.empty(0, dtype=torch.long)

    def encode(values: list[torch.Tensor], roles: list[int]) -> torch.Tensor:
        index = torch.zeros(len(values), dtype=torch.long)
        return encoder(op, bins, values, index, torch.tensor(roles))[0]

    both, first, second = encode([a, b], [0, 1]), encode([a], [0]), encode([b], [1])
    torch.testing.assert_close(both, (first + second) / 2)
    assert not torch.allclose(encode([a], [0]), encode([a], [1]))  # the role is told
    assert encoder(op, bins, [], none, none).shape == (1, 16)
