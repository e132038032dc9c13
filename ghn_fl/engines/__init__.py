"""Where clients run."""

from ghn_fl.engines.local import LocalEngine

__all__ = ["LocalEngine"]
