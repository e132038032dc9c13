"""The registry of methods."""

from __future__ import annotations

from typing import Any

from ghn_fl.errors import ConfigError
from ghn_fl.types import MethodEntry
from zoo import Registry

METHODS: Registry[MethodEntry[Any]] = Registry("method", ConfigError)
