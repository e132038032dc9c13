"""The methods, one file a paper; importing this registers all of them."""

from ghn_fl.methods import allsmall, depthfl, exclusivefl, inclusivefl, recipfl
from ghn_fl.methods.registry import METHODS

__all__ = ["METHODS", "allsmall", "depthfl", "exclusivefl", "inclusivefl", "recipfl"]
