"""`ghnfl methods`: the methods that can train a fleet."""

from __future__ import annotations

import inspect
import re
from typing import Annotated, Any

import typer


def methods(
    name: Annotated[
        str | None, typer.Argument(help="A method, to see its settings; all of them if none.")
    ] = None,
) -> None:
    """Show the methods, or the settings of one."""
    from rich import box
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from ghn_fl.errors import ConfigError
    from ghn_fl.methods import METHODS
    from zoo.registry import unknown

    if name is None:
        table = Table(title="Methods", box=box.SIMPLE_HEAD)
        table.add_column("method", no_wrap=True)
        table.add_column("what it does")
        for known in METHODS.names():
            table.add_row(known, METHODS[known].summary)
        Console().print(table)
        typer.echo("Settings of a method: ghnfl methods NAME")
        return
    if name not in METHODS:
        raise ConfigError(unknown("method", name, METHODS.names()))
    table = Table(title=f"{name}: {METHODS[name].summary}", box=box.SIMPLE_HEAD)
    table.add_column("setting", no_wrap=True)
    table.add_column("default", no_wrap=True)
    table.add_column("what it says (--set NAME=VALUE)")
    rows = settings(METHODS[name].config)
    for row in rows:
        table.add_row(*map(escape, row))  # [l_v, q_v] is no markup
    Console().print(table if rows else f"{name} has no settings: {METHODS[name].summary}")
    Console().print(f"Try it: ghnfl train --method {name}; its page: docs/methods", soft_wrap=True)


def settings(config: type[Any], prefix: str = "") -> list[tuple[str, str, str]]:
    """Name, default and help of every setting; those of a part have its name before a dot."""
    import dataclasses

    rows: list[tuple[str, str, str]] = []
    found, default = help_of(config), config()
    for field in dataclasses.fields(config):
        value = getattr(default, field.name)
        if dataclasses.is_dataclass(value):
            rows += settings(type(value), f"{prefix}{field.name}.")
        else:
            shown = str(value).lower() if isinstance(value, bool) else str(value)
            shown = "none" if value is None else shown or "(empty)"
            rows.append((prefix + field.name, shown, found.get(field.name, "")))
    return rows


def help_of(config: type[Any]) -> dict[str, str]:
    """What the docstrings of a config and of those that it extends say of its attributes."""
    found: dict[str, str] = {}
    for part in reversed(config.__mro__):
        _, _, text = inspect.cleandoc(part.__doc__ or "").partition("Attributes:\n")
        for match in re.finditer(r"^ {4}(\w+): ((?:.*\n?)(?: {8}.*\n?)*)", text, re.MULTILINE):
            found[match[1]] = " ".join(match[2].split())
    return found
