"""Sub-models in their parents: by hand, by symmetry, and by what they compute."""

import pytest
import torch
from torch import Tensor, nn

import zoo
from zoo import SpecError, slicing
from zoo.staged import Exit, StagedNet, named
from zoo.wiring import Layers, Segment, fixed, flattened, group


def toy() -> StagedNet:
    """Two channels of 2x2 after a 1x1 convolution, flattened into a dense layer of 3, 2 classes."""
    layers, conv, fc = Layers(), group("conv", 2), group("fc", 3)
    stage = layers.conv("stages.1", fixed(1), conv, 1)
    dense = layers.linear("exits.1.body.fc", flattened(conv, 4), fc)
    head = Exit(
        named(flatten=nn.Flatten(), fc=dense), layers.linear("exits.1.classifier", fc, fixed(2))
    )
    return StagedNet(nn.Identity(), {1: stage}, {1: head}, layers.wiring)


def test_dropping_a_channel_drops_its_block_of_the_dense_layer() -> None:
    model = toy()
    masks = {"conv": torch.tensor([False, True]), "fc": torch.tensor([True, False, True])}
    where = slicing.index_map(model, slicing.masked_units(model, masks))
    out, inp = where["exits.1.body.fc.weight"]
    assert out.tolist() == [0, 2]
    assert inp.tolist() == [4, 5, 6, 7]  # channel 1 of two channels of 2x2, channel first
    assert [i.tolist() for i in where["exits.1.classifier.weight"]] == [[0, 1], [0, 2]]
    assert where["stages.1.bias"][0].tolist() == [1]


def test_take_and_put_by_hand() -> None:
    #     parent  0 1 2      rows {0, 2}, columns {1, 2}:   1 2
    #             3 4 5                                     7 8
    #             6 7 8
    parent = {"w": torch.arange(9.0).reshape(3, 3), "other": torch.ones(1)}
    where = {"w": (torch.tensor([0, 2]), torch.tensor([1, 2]))}
    part = slicing.take(parent, where)
    assert part["w"].tolist() == [[1, 2], [7, 8]]
    put = slicing.put(parent, {"w": -part["w"]}, where)
    assert put["w"].tolist() == [[0, -1, -2], [3, 4, 5], [6, -7, -8]]
    assert parent["w"].tolist() == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]  # as it was
    assert put["other"].tolist() == [1]


def test_lstm_cells_go_from_all_four_gates() -> None:
    model = zoo.build("lstm")
    mask = torch.zeros(100, dtype=torch.bool)
    mask[[3, 50]] = True
    where = slicing.index_map(model, slicing.masked_units(model, {"cells0": mask}))
    gates = [3, 50, 103, 150, 203, 250, 303, 350]
    assert where["stages.1.lstm0.weight_ih_l0"][0].tolist() == gates
    assert where["stages.1.lstm0.bias_hh_l0"][0].tolist() == gates
    assert where["stages.1.lstm0.weight_hh_l0"][1].tolist() == [3, 50]
    assert where["stages.1.lstm1.weight_ih_l0"][1].tolist() == [3, 50]
    assert len(where["stages.1.lstm1.weight_hh_l0"][1]) == 100


def test_attention_keeps_the_first_features_of_every_head() -> None:
    parent, child = zoo.build("bert_tiny"), zoo.build("bert_tiny-w0.5")  # 2 heads of 64 -> 32
    where = slicing.index_map(parent, slicing.first_units(parent, child))
    rows = where["stages.1.query.weight"][0].tolist()
    assert rows == [*range(32), *range(64, 96)]


def test_concatenated_channels_are_cut_segment_by_segment() -> None:
    parent, child = zoo.build("densenet121-d1"), zoo.build("densenet121-d1-w0.5")
    keep = slicing.first_units(parent, child)
    # The second dense layer reads [12 new, 24 of the stem]; half of it is [6 new, 12 of the stem].
    name = "stages.1.block.1.conv1.weight"
    assert slicing.index_map(parent, keep)[name][1].tolist() == [*range(6), *range(12, 24)]
    whole = slicing.index_map(parent, keep, concat="topleft")[name][1]
    assert whole.tolist() == list(range(18))


def test_rolling_window_wraps_around() -> None:
    parent, child = zoo.build("heterofl_cnn"), zoo.build("heterofl_cnn-w0.5")
    keep = slicing.rolling_units(parent, child, offset=50)
    assert keep["conv1"].tolist() == [*range(50, 64), *range(18)]


SLICEABLE = [
    "lenet5",
    "lenet5-d1",
    "lenet5-exits",
    "resnet18-d2",
    "resnet18-d2-exits",
    "densenet121-d2",
    "densenet121-d2-exits",
    "femnist_cnn",
    "heterofl_cnn",
    "lstm",
    "bert_tiny",
]


def random_keep(parent: nn.Module, child: nn.Module) -> dict[str, Tensor]:
    full, small = slicing.groups(parent), slicing.groups(child)
    return {g: torch.randperm(n)[: small[g]].sort().values for g, n in full.items()}


@pytest.mark.parametrize("spec", SLICEABLE)
def test_a_slice_has_exactly_the_childs_tensors(spec: str) -> None:
    parent, child = zoo.build(spec), zoo.build(zoo.scale_width(spec, 0.5))
    where = slicing.index_map(parent, random_keep(parent, child))
    part = slicing.take(parent.state_dict(), where)
    assert {n: t.shape for n, t in part.items()} == {
        n: t.shape for n, t in child.state_dict().items()
    }
    assert all(
        torch.equal(t, parent.state_dict()[n])
        for n, t in slicing.put(parent.state_dict(), part, where).items()
    )


@pytest.mark.parametrize("spec", [s for s in SLICEABLE if not s.startswith("bert")])
def test_a_slice_computes_what_the_parent_does_without_the_other_units(spec: str) -> None:
    # LayerNorm averages over units, so the encoder is not among these.
    torch.manual_seed(0)
    parent, child = zoo.build(spec).eval(), zoo.build(zoo.scale_width(spec, 0.5)).eval()
    weights = {  # both signs in every weight, positive variances
        n: torch.rand_like(t) + 0.5 if n.endswith("running_var") else t + torch.randn_like(t) / 10
        for n, t in parent.state_dict().items()
        if t.ndim
    }
    where = slicing.index_map(parent, random_keep(parent, child))
    where = {n: i for n, i in where.items() if n in weights}
    part = slicing.take(weights, where)
    silenced = slicing.put({n: torch.zeros_like(w) for n, w in weights.items()}, part, where)
    inputs = zoo.example_input(spec, batch_size=2)
    if isinstance(inputs, Tensor):
        inputs = torch.rand_like(inputs)
    expected = zoo.run(parent, inputs, silenced).logits
    got = zoo.run(child, inputs, part).logits
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)


def test_a_shallower_child_takes_only_its_layers() -> None:
    parent, child = zoo.build("resnet18-exits"), zoo.build("resnet18-d1-w0.5")
    where = slicing.index_map(parent, slicing.first_units(parent, child), child)
    part = slicing.take(parent.state_dict(), where)
    assert {n: t.shape for n, t in part.items()} == {
        n: t.shape for n, t in child.state_dict().items()
    }


@pytest.mark.parametrize(
    ("masks", "says"),
    [
        ({"conv": torch.tensor([False, False])}, "keeps no unit"),
        ({"conv": torch.tensor([True])}, r"must be 2 booleans, got torch.bool of shape \(1,\)"),
        ({"cnov": torch.tensor([True, True])}, "no group 'cnov' to mask; groups: conv, fc"),
    ],
)
def test_bad_masks(masks: dict[str, Tensor], says: str) -> None:
    with pytest.raises(SpecError, match=says):
        slicing.masked_units(toy(), masks)


def test_bad_slices() -> None:
    model = toy()
    with pytest.raises(SpecError, match="group 'fc' has 3 units, got index 3"):
        slicing.index_map(model, {"fc": torch.tensor([0, 3])})
    with pytest.raises(SpecError, match="'segment' or 'topleft', got 'left'"):
        slicing.index_map(model, {}, concat="left")
    with pytest.raises(SpecError, match="Linear does not say which units belong together"):
        slicing.groups(nn.Linear(2, 2))
    with pytest.raises(SpecError, match="has 64 units in 'conv1', its parent 32"):
        slicing.first_units(zoo.build("heterofl_cnn-w0.5"), zoo.build("heterofl_cnn"))
    where = {"w": (torch.tensor([0]),)}
    with pytest.raises(SpecError, match=r"w must have shape \(1,\), got \(2,\)"):
        slicing.put({"w": torch.zeros(3)}, {"w": torch.zeros(2)}, where)
    with pytest.raises(SpecError, match=r"missing \['w'\], unexpected \['v'\]"):
        slicing.put({"w": torch.zeros(3)}, {"v": torch.zeros(1)}, where)
    with pytest.raises(SpecError, match="the parent's weights lack 'w'"):
        slicing.take({}, where)


def test_segments_know_their_size() -> None:
    assert Segment("g", 3, block=4, copies=2).size == 24
