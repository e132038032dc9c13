"""Where clients run."""

from ghn_fl.engines.local import LocalEngine, run

__all__ = ["LocalEngine", "run"]
