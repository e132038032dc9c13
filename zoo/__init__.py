"""Model families, how they scale, what they cost, and how a small one sits in a large one."""

from zoo import cnn, densenet, hf_models, lenet, lstm, resnet, timm_models, transformer
from zoo.budget import Budget, Device, budget, fit
from zoo.build import Output, build, example_input, names, run
from zoo.errors import SpecError
from zoo.family import FAMILIES, Family
from zoo.layers import Layer, Part, layers
from zoo.registry import Registry
from zoo.scaling import num_parameters, scale_architecture, scale_depth, scale_width
from zoo.spec import ModelSpec
from zoo.torchvision_fix import install as _install_torchvision_fix

_install_torchvision_fix()
