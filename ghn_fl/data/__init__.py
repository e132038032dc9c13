"""Image sets, and how they are shared out among clients."""

from ghn_fl.data import catalogue
from ghn_fl.data.datasets import DATASETS, Dataset, Entry, augment, available, load, normalise
from ghn_fl.data.partition import ClientShare, PartitionTier, hold_out, partition

__all__ = [
    "DATASETS",
    "ClientShare",
    "Dataset",
    "Entry",
    "PartitionTier",
    "augment",
    "available",
    "catalogue",
    "hold_out",
    "load",
    "normalise",
    "partition",
]
