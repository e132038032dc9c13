"""`ghnfl report`: what a run came to, and several runs side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def report(
    runs: Annotated[
        list[Path], typer.Argument(help="Run folders; several are put side by side.", metavar="RUN")
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            help="The page to write; RUN/report.html, or compare.html for several runs.",
            metavar="FILE",
        ),
    ] = None,
) -> None:
    """Rebuild the report of a run, or compare several runs on one page."""
    from rich.console import Console

    from ghn_fl.report import closing_table, read_run, write_comparison, write_report
    from ghn_fl.report.tables import comparison_table, markdown, run_labels

    console = Console()
    if len(runs) == 1:
        written = write_report(runs[0], out)
        console.print(closing_table(read_run(runs[0])))
    else:
        written = write_comparison(runs, "compare.html" if out is None else out)
        found = [read_run(folder) for folder in runs]
        typer.echo(markdown(comparison_table(found, run_labels(found))))
    typer.echo(f"written: {written}")
