"""One contract for every model of the zoo, and the papers' parameter counts."""

import math

import pytest
import torch
from torch import nn

import zoo
from zoo import Part
from zoo.family import scaled

COUNTS = {  # trainable parameters, methods' papers; DenseNet with 100 classes, FEMNIST with 62
    "resnet18": 11_173_962,
    "resnet18-d1": 450_890,
    "resnet18-w0.2": 444_218,
    "densenet121": 1_035_268,
    "densenet121-d1": 258_484,
    "densenet121-w0.5": 276_484,
    "lenet5": 44_470,
    "lenet5-d1": 5_593,
    "femnist_cnn": 6_603_710,
    "femnist_cnn-w0.5": 1_683_454,
    "heterofl_cnn": 1_556_874,
    "heterofl_cnn-w0.5": 391_370,
    "heterofl_cnn-w0.25": 98_922,
    "heterofl_cnn-w0.125": 25_274,
    "heterofl_cnn-w0.0625": 6_594,
}


@pytest.mark.parametrize(("spec", "count"), COUNTS.items())
def test_parameter_counts_of_the_papers(spec: str, count: int) -> None:
    assert zoo.num_parameters(spec) == count


def test_a_fifth_of_resnet_is_rounded_down() -> None:
    def resnet18(*widths: int) -> int:
        """Convolutions of 3x3, at a stage's gate of 1x1, each with a norm."""
        count, inp = 3 * 9 * widths[0] + 2 * widths[0], widths[0]
        for out in widths:
            count += 9 * inp * out + 3 * 9 * out * out + 4 * 2 * out
            count += inp * out + 2 * out if out != inp else 0
            inp = out
        return count + 10 * inp + 10

    full = (64, 128, 256, 512)
    assert resnet18(*full) == COUNTS["resnet18"]
    assert resnet18(*(scaled(n, 0.2, math.floor) for n in full)) == COUNTS["resnet18-w0.2"]
    assert resnet18(*(scaled(n, 0.2, math.ceil) for n in full)) == 457_578
    assert scaled(10, 0.3, math.ceil) == 3  # HeteroFL's own networks are rounded up


def test_densenets_with_ten_classes() -> None:
    counts = {"densenet121": 1_000_618, "densenet121-d1": 223_834, "densenet121-w0.5": 259_114}
    assert {s: zoo.num_parameters(s, num_classes=10) for s in counts} == counts


def test_fedmdp_has_ten_models_a_table() -> None:
    # Table 1, row 1: conv 3x3 1->128, conv 2x2 128->256, 13x13 places left of 28x28 pixels.
    convs = (9 * 1 * 128 + 128) + (4 * 128 * 256 + 256)
    norms = 2 * (128 + 256)
    assert zoo.num_parameters("fedmdp_mnist_1") == convs + norms + 256 * 13 * 13 * 10
    for table in ("mnist", "cifar"):
        assert len([n for n in zoo.names() if n.startswith(f"fedmdp_{table}_")]) == 10


def scaled_specs() -> list[str]:
    """Every family as it is, at its smallest depth, half as wide, and with exits."""
    specs = []
    for name in zoo.names():
        family = zoo.FAMILIES[name]
        specs += [name, *family.variants]
        specs += [f"{name}-d1"] * bool(family.depth) + [f"{name}-w0.5"] * family.width
        specs += [f"{name}-exits"] * family.exits
    return sorted(set(specs))


@pytest.mark.parametrize("spec", scaled_specs())
def test_contract(spec: str) -> None:
    with torch.device("meta"):
        model = zoo.build(spec, num_classes=7)
        inputs = zoo.example_input(spec, batch_size=3, num_classes=7)
        out = zoo.run(model, inputs)
    classifier = model.get_submodule(model.classifier_name)
    assert isinstance(classifier, nn.Linear)
    assert out.logits.shape == (3, 7)
    assert out.features.shape == (3, classifier.in_features)
    depth = len(model.stages)
    assert len(out.exits) == (depth if spec.endswith("-exits") else 1)
    assert all(logits.shape == (3, 7) for logits in out.exits)
    # ordered layers: every parameter once, stem before blocks before heads
    ordered = zoo.layers(model)
    named = {n: tuple(p.shape) for n, p in model.named_parameters()}
    assert {n: s for layer in ordered for n, s in layer.parameters.items()} == named
    parts = [(list(Part).index(layer.part), layer.block) for layer in ordered]
    assert parts == sorted(parts)
    assert {layer.block for layer in ordered if layer.part is Part.BLOCK} == set(
        range(1, depth + 1)
    )


@pytest.mark.parametrize("spec", ["lenet5", "resnet18-w0.05", "bert_tiny", "lstm"])
def test_logits_are_the_classifier_on_the_features(spec: str) -> None:
    model = zoo.build(spec).eval()
    inputs = zoo.example_input(spec, batch_size=2)
    out = zoo.run(model, inputs)
    torch.testing.assert_close(model.get_submodule(model.classifier_name)(out.features), out.logits)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_run_uses_the_given_weights_and_leaves_the_model_alone() -> None:
    model = zoo.build("lenet5").eval()
    before = {n: t.clone() for n, t in model.state_dict().items()}
    bias = f"{model.classifier_name}.bias"
    zeros = {n: torch.zeros_like(p) for n, p in model.named_parameters()}
    zeros[bias] = torch.arange(10.0) - 5
    out = zoo.run(model, torch.randn(2, 1, 28, 28), zeros)
    torch.testing.assert_close(out.logits, (torch.arange(10.0) - 5).expand(2, 10))
    assert all(torch.equal(t, before[n]) for n, t in model.state_dict().items())


def test_several_exits_are_averaged() -> None:
    model = zoo.build("lenet5-exits").eval()
    out = zoo.run(model, torch.randn(2, 1, 28, 28))
    torch.testing.assert_close(out.logits, (out.exits[0] + out.exits[1]) / 2)


def test_models_of_different_depth_share_names_where_they_share_layers() -> None:
    large, small = zoo.build("resnet18"), zoo.build("resnet18-d1")
    shared = set(dict(large.named_parameters())) & set(dict(small.named_parameters()))
    assert {name.split(".")[0] for name in shared} == {"stem", "stages"}
    with_exits = dict(zoo.build("resnet18-exits").named_parameters())
    assert set(dict(small.named_parameters())) < set(with_exits)
    for name, p in small.named_parameters():
        assert p.shape == with_exits[name].shape


def test_lstm_reads_the_last_real_word() -> None:
    model = zoo.build("lstm").eval()
    ids = torch.randint(1, 100, (2, 25))
    mask = torch.ones(2, 25, dtype=torch.long)
    mask[0, 10:] = 0
    other = ids.clone()
    other[0, 10:] = 7  # behind the end of text 0: must not matter
    same = [model(input_ids=i, attention_mask=mask) for i in (ids, other)]
    torch.testing.assert_close(*same)
    torch.testing.assert_close(same[0][1:], model(input_ids=ids)[1:])


def test_encoder_does_not_look_at_masked_tokens() -> None:
    model = zoo.build("bert_tiny").eval()
    ids = torch.randint(1, 100, (1, 16))
    mask = (torch.arange(16) < 9).long()[None]
    other = torch.where(mask.bool(), ids, 5)
    full = torch.ones_like(mask)
    torch.testing.assert_close(model(ids, mask), model(other, mask))
    assert not torch.allclose(model(ids, full), model(other, full))


@pytest.mark.parametrize(
    "name", ["resnet18", "vit_tiny_patch16_224", "mobilenetv3_small_050", "mixer_s32_224"]
)
def test_timm_models(name: str) -> None:
    spec = f"timm:{name}"
    model = zoo.build(spec, num_classes=7, in_channels=1, image_size=64).eval()
    out = zoo.run(model, zoo.example_input(spec, in_channels=1, image_size=64))
    assert out.logits.shape == (1, 7)
    classifier = model.get_submodule(model.classifier_name)
    torch.testing.assert_close(classifier(out.features), out.logits)


def test_timm_feature_extractor_is_refused() -> None:
    with torch.device("meta"), pytest.raises(zoo.SpecError, match="no classifier"):
        zoo.build("timm:qwen3_vit_88m_enc")


def test_run_needs_a_zoo_model() -> None:
    with pytest.raises(zoo.SpecError, match=r"does not come from zoo\.build"):
        zoo.run(nn.Linear(2, 2), torch.zeros(1, 2))
