"""The methods, one file a paper; importing this registers all of them."""

from ghn_fl.methods import (
    afd,
    allsmall,
    depthfl,
    exclusivefl,
    fedmd,
    fedmdp,
    flexifed,
    hasaas,
    heterofl,
    inclusivefl,
    recipfl,
    recipfl_paper,
)
from ghn_fl.methods.registry import METHODS

__all__ = [
    "METHODS",
    "afd",
    "allsmall",
    "depthfl",
    "exclusivefl",
    "fedmd",
    "fedmdp",
    "flexifed",
    "hasaas",
    "heterofl",
    "inclusivefl",
    "recipfl",
    "recipfl_paper",
]
