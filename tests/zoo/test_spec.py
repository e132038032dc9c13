import pytest
from hypothesis import given
from hypothesis import strategies as st

import zoo
from zoo import ModelSpec, SpecError

specs = st.builds(
    ModelSpec,
    family=st.sampled_from([*zoo.names(), "timm:vit_tiny_patch16_224", "hf:models/bert-tiny"]),
    depth=st.none() | st.integers(1, 9999),
    width=st.floats(0.001, 1),
    exits=st.booleans(),
)


@given(specs)
def test_text_form_parses_back(spec: ModelSpec) -> None:
    assert ModelSpec.parse(str(spec)) == spec
    assert hash(ModelSpec.parse(str(spec))) == hash(spec)


def test_suffixes_in_any_order() -> None:
    spec = ModelSpec(family="resnet18", depth=2, width=0.5, exits=True)
    assert ModelSpec.parse("resnet18-exits-w.5-d2") == spec
    assert str(spec) == "resnet18-d2-w0.5-exits"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("resnet81", "did you mean 'resnet18'"),
        ("resnet18-w1.5", r"width must be from 0.001 to 1, got 1.5 for resnet18"),
        ("resnet18-w0", "got 0 for resnet18"),
        ("resnet18-d9", "has depths 1 to 4, got 9"),
        ("resnet18-d0", "depth must be at least 1, got 0"),
        ("resnet18-wide", r"cannot read '-wide' after 'resnet18'"),
        ("resnet18-d1-d2", "gives depth twice"),
        ("femnist_cnn-d1", "cannot be scaled in depth"),
        ("fedmdp_mnist_1-w0.5", "cannot be scaled in width"),
        ("femnist_cnn-exits", "has no exits"),
        ("", "cannot read the model ''"),
        ("ResNet 18", "cannot read the model 'ResNet 18'"),
        ("timm:resnet81", "unknown timm model 'resnet81'; did you mean"),
        ("keras:resnet18", "unknown model library 'keras'"),
    ],
)
def test_bad_specs_say_what_is_wrong(text: str, says: str) -> None:
    with pytest.raises(SpecError, match=says) as caught:
        zoo.build(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("task", "says"),
    [
        ({"num_classes": 0}, "num_classes must be a whole number from 1, got 0 for lenet5"),
        ({"num_classes": True}, "got True"),
        ({"in_channels": -1}, "in_channels must be"),
        ({"vocab_size": 5}, "takes num_classes, in_channels, image_size; got vocab_size=5"),
        ({"image_size": 12}, "16 pixels or more, got 12"),
    ],
)
def test_bad_tasks_say_what_is_wrong(task: dict[str, int], says: str) -> None:
    with pytest.raises(SpecError, match=says):
        zoo.build("lenet5", **task)


def test_a_family_that_reads_as_a_suffix_is_refused() -> None:
    with pytest.raises(SpecError, match="ends like a scaling suffix"):
        ModelSpec(family="hf:models/bert-d3")
