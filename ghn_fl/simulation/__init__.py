"""Runs: a config, a fleet, the loop, and what it leaves on disk."""

from ghn_fl.simulation.config import RunConfig
from ghn_fl.simulation.run import RunResult, run

__all__ = ["RunConfig", "RunResult", "run"]
