"""The methods, one file a paper; importing this registers all of them."""

from ghn_fl.methods import (
    alllarge,
    allsmall,
    exclusivefl,
    fedadam,
    fedavg,
    fedprox,
    local,
    pfedhn,
    recipfl,
)
from ghn_fl.methods.registry import METHODS

__all__ = [
    "METHODS",
    "alllarge",
    "allsmall",
    "exclusivefl",
    "fedadam",
    "fedavg",
    "fedprox",
    "local",
    "pfedhn",
    "recipfl",
]
