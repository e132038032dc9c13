"""The command `ghnfl`: one small file a command; nothing heavy is imported before one runs."""

from ghn_fl.cli.app import main

__all__ = ["main"]
