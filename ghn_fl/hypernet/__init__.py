"""The graph hypernetwork on the server."""

from ghn_fl.hypernet.config import GHNConfig
from ghn_fl.hypernet.ghn import GHN, Request
from ghn_fl.hypernet.initialize import initialize
from ghn_fl.hypernet.update import Change, UpdateConfig, imitate, update

__all__ = [
    "GHN",
    "Change",
    "GHNConfig",
    "Request",
    "UpdateConfig",
    "imitate",
    "initialize",
    "update",
]
