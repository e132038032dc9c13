"""The graph hypernetwork on the server."""

from ghn_fl.hypernet.config import GHNConfig
from ghn_fl.hypernet.ghn import GHN, Request
from ghn_fl.hypernet.initialize import initialize
from ghn_fl.hypernet.update import Change, UpdateConfig, update

__all__ = ["GHN", "Change", "GHNConfig", "Request", "UpdateConfig", "initialize", "update"]
