"""Model families, how they scale, what they cost, and how a small one sits in a large one.

spec, build     a text such as "resnet18-w0.2" -> a model, its example input, its outputs
scaling         spec -> smaller spec, in depth, width or architecture
slicing         take a sub-model's weights out of its parent, and put them back
budget          parameters, FLOPs, bytes and memory of a spec; the largest that fits a device
layers          the ordered layers of a model
"""

from zoo import slicing, torchvision_fix
from zoo.budget import Budget, Device, budget, fit
from zoo.build import Output, build, example_input, names, run
from zoo.errors import SpecError
from zoo.families import FAMILIES, Family
from zoo.layers import Layer, Part, layers
from zoo.registry import Registry
from zoo.scaling import num_parameters, scale_architecture, scale_depth, scale_width
from zoo.spec import ModelSpec

__all__ = [
    "FAMILIES",
    "Budget",
    "Device",
    "Family",
    "Layer",
    "ModelSpec",
    "Output",
    "Part",
    "Registry",
    "SpecError",
    "budget",
    "build",
    "example_input",
    "fit",
    "layers",
    "names",
    "num_parameters",
    "run",
    "scale_architecture",
    "scale_depth",
    "scale_width",
    "slicing",
]

torchvision_fix.install()  # whoever imports timm or transformers after us needs it
