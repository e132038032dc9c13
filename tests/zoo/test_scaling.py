import pytest

import zoo
from zoo import ModelSpec, SpecError


def test_scaling_leaves_its_argument_alone() -> None:
    spec = ModelSpec(family="resnet18", depth=3)
    assert str(zoo.scale_width(zoo.scale_depth(spec, 2), 0.5)) == "resnet18-d2-w0.5"
    assert spec == ModelSpec(family="resnet18", depth=3)


@pytest.mark.parametrize("name", zoo.names())
def test_a_smaller_scale_has_fewer_parameters(name: str) -> None:
    family, full = zoo.FAMILIES[name], zoo.num_parameters(name)
    if family.width:
        assert zoo.num_parameters(zoo.scale_width(name, 0.5)) < full
    if family.depth:
        assert zoo.num_parameters(zoo.scale_depth(name, 1)) < full
        assert zoo.num_parameters(zoo.scale_depth(name, family.depth)) == full


@pytest.mark.parametrize(
    ("scale", "says"),
    [
        (lambda: zoo.scale_depth("resnet18-d2", 3), "resnet18-d2 has 2 blocks"),
        (lambda: zoo.scale_depth("resnet18", 5), "has depths 1 to 4, got 5"),
        (lambda: zoo.scale_width("resnet18", 1.5), "above 0 and at most 1, got 1.5"),
        (lambda: zoo.scale_width("fedmdp_mnist_1", 0.5), "cannot be scaled in width"),
        (
            lambda: zoo.scale_architecture("lenet5", "resnet18"),
            "resnet18 has 11,173,962 parameters, no fewer than lenet5's 44,470",
        ),
    ],
)
def test_impossible_scalings_say_why(scale, says: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(SpecError, match=says):
        scale()
