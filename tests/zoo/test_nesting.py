from dataclasses import replace

import pytest

import zoo
from zoo.nesting import fitting, nested

TEXT = {"num_classes": 2, "vocab_size": 7, "sequence_length": 4}


def test_encoder_layers_of_the_paper() -> None:
    # L = (4, 8, 12): each top layer fits layers 4..8, and 8..12, of the next larger model
    names = ("bert_base-d4-w0.02", "bert_base-d8-w0.02", "bert_base-w0.02")
    a, b, c = nested([names[1], names[2], names[0]], **TEXT)  # in any order
    assert (a.name, b.name, c.name) == names and (a.depth, b.depth, c.depth) == (4, 8, 12)
    assert fitting(a, b)["stages.4.query.weight"] == tuple(
        f"stages.{layer}.query.weight" for layer in (4, 5, 6, 7, 8)
    )
    assert all(len(found) == 5 for found in fitting(b, c).values())
    assert len(fitting(a, b)) == 16  # eight layers with weight and bias
    assert a.levels["stem.words.weight"] == 0 and "stem.words.weight" in a.below_top
    assert "stages.4.query.weight" not in a.below_top


def test_heads_are_nobody_elses() -> None:
    for model in nested(["resnet18", "resnet18-d2", "resnet18-d1"]):
        assert not any(name.startswith("exits") for name in model.levels)
        assert model.shapes == {
            n: tuple(p.shape) for n, p in zoo.build(model.spec).named_parameters()
        }


def test_layers_of_another_shape_do_not_fit() -> None:
    small, large = nested(["resnet18-d1", "resnet18"])
    fits = fitting(small, large)
    assert fits["stages.1.0.conv1.weight"] == ("stages.1.0.conv1.weight",)
    narrow, wide = nested(["resnet18-d1-w0.5", "resnet18"])
    assert not narrow.levels and not fitting(narrow, wide)


def test_a_tensor_for_which_nothing_fits() -> None:
    small, large = nested(["bert_mini-d1-w0.02", "bert_mini-d2-w0.02"], **TEXT)
    name = "stages.1.query.weight"
    shapes = dict(large.shapes) | {n: (3, 3) for n in (name, "stages.2.query.weight")}
    fits = fitting(small, replace(large, shapes=shapes))
    assert fits[name] == () and len(fits["stages.1.key.weight"]) == 2


@pytest.mark.parametrize("spec", ["lenet5", "resnet18-d1"])
def test_a_model_alone(spec: str) -> None:
    (model,) = nested([spec])
    assert model.depth == (2 if spec == "lenet5" else 1)
