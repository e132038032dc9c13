"""Federated learning in which devices of very unequal size train together.

The names below are imported when they are first used, so that `import ghn_fl` and `ghnfl --help`
cost nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ghn_fl.engines import run
    from ghn_fl.hypernet import GHN, Change, GHNConfig, Request, UpdateConfig, initialize, update
    from ghn_fl.lessons import Lessons, study
    from ghn_fl.simulation import RunConfig, RunResult

__all__ = [
    "GHN",
    "Change",
    "GHNConfig",
    "Lessons",
    "Request",
    "RunConfig",
    "RunResult",
    "UpdateConfig",
    "initialize",
    "run",
    "study",
    "update",
]

_HOME = dict.fromkeys(__all__, "ghn_fl.hypernet") | {
    "Lessons": "ghn_fl.lessons",
    "study": "ghn_fl.lessons",
    "RunConfig": "ghn_fl.simulation",
    "RunResult": "ghn_fl.simulation",
    "run": "ghn_fl.engines",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'ghn_fl' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
