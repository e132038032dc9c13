"""The table of families: importing a family's file registers it."""

from zoo import cnn, densenet, hf_models, lenet, lstm, resnet, timm_models, transformer
from zoo.family import FAMILIES, Family

__all__ = [
    "FAMILIES",
    "Family",
    "cnn",
    "densenet",
    "hf_models",
    "lenet",
    "lstm",
    "resnet",
    "timm_models",
    "transformer",
]
