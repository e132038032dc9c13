"""What a person sees while a run goes on: a line of progress, then the closing table."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from ghn_fl.simulation import RunConfig


def show(
    config: RunConfig,
    folder: Path,
    *,
    data_dir: Path | None,
    workers: int | None,
    resume: bool,
    tensorboard: bool,
    quiet: bool,
) -> None:
    """Run, with progress on a terminal and a line now and then elsewhere; write the report."""
    from ghn_fl.engines import run
    from ghn_fl.report import EventWriter, closing_table, parse_round, read_run, write_report

    console = Console(quiet=quiet)
    events: list[EventWriter] = []
    started = time.perf_counter()
    with _progress(console, config) as advance:

        def watch(record: dict[str, Any]) -> None:
            advance(record)
            if tensorboard:
                if not events:  # not before the run has made its folder
                    events.append(EventWriter(folder / "tensorboard"))
                events[0].add(parse_round(record))

        run(config, out=folder, data_dir=data_dir, workers=workers, resume=resume, watch=watch)
    report = write_report(folder)
    console.print(closing_table(read_run(folder)))
    console.print(f"{time.perf_counter() - started:.0f} s; report: {report}")


@contextlib.contextmanager
def _progress(console: Console, config: RunConfig) -> Any:
    """A function that takes a round's record and shows it."""
    if not console.is_terminal:
        yield lambda record: _line(console, record, config)
        return
    columns = (
        TextColumn("round"),
        MofNCompleteColumn(),
        BarColumn(),
        TextColumn("{task.fields[score]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=config.rounds, score="")

        def advance(record: dict[str, Any]) -> None:
            progress.update(task, completed=record["round"])
            if record["clients"]:
                progress.update(task, score=_score(record))

        yield advance


def _line(console: Console, record: dict[str, Any], config: RunConfig) -> None:
    if record["clients"]:
        console.print(f"round {record['round']} of {config.rounds}: {_score(record)}")


def _score(record: dict[str, Any]) -> str:
    return ", ".join(
        f"{name} {100 * tier['accuracy']:.1f} %" for name, tier in record["tiers"].items()
    )
