"""`ghnfl methods`: the methods that can train a fleet."""

from __future__ import annotations


def methods() -> None:
    """Show the methods, and the settings of each."""
    import dataclasses

    from rich import box
    from rich.console import Console
    from rich.table import Table

    from ghn_fl.methods import METHODS

    table = Table(title="Methods", box=box.SIMPLE_HEAD)
    for column in ("method", "what it does", "settings (--set NAME=VALUE)"):
        table.add_column(column)
    for name in METHODS.names():
        entry = METHODS[name]
        fields = ", ".join(f.name for f in dataclasses.fields(entry.config))
        table.add_row(name, entry.summary, fields or "none")
    Console().print(table)
