"""`ghnfl datasets`: the data sets, and whether they can be had here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def datasets(
    data_dir: Annotated[
        Path | None,
        typer.Option(help="The folder with data files.", envvar="GHNFL_DATA"),
    ] = None,
) -> None:
    """Show the data sets, and where each comes from or what to do to have it."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from ghn_fl.data import DATASETS, available

    table = Table(title="Data sets", box=box.SIMPLE_HEAD)
    table.add_column("name", no_wrap=True)
    for column in ("train", "test", "classes", "image"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("here", overflow="fold")
    missing = []
    for name in DATASETS:
        entry = DATASETS[name]
        here, where = available(name, data_dir)
        channels, height, width = entry.shape
        table.add_row(
            name,
            f"{entry.num_train:,}",
            f"{entry.num_test:,}",
            str(entry.num_classes),
            f"{height}x{width}" + (f"x{channels}" if channels > 1 else ""),
            Path(where).name if here else "no, see below",
        )
        if not here:
            missing.append(f"{name}: {where}")
    Console().print(table)
    typer.echo(f"Data folder: {data_dir or 'none; name one with --data-dir or GHNFL_DATA'}")
    for line in missing:
        typer.echo(line)
