"""The methods, one file a paper; importing this registers all of them."""

from ghn_fl.methods import afd, allsmall, exclusivefl, hasaas, recipfl
from ghn_fl.methods.registry import METHODS

__all__ = ["METHODS", "afd", "allsmall", "exclusivefl", "hasaas", "recipfl"]
