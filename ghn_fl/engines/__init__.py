"""Where clients run, and where many runs do."""

from ghn_fl.engines.grid import Advance, Outcome, run_grid
from ghn_fl.engines.local import LocalEngine, run

__all__ = ["Advance", "LocalEngine", "Outcome", "run", "run_grid"]
