"""What `ghnfl compare` and `ghnfl tune` share: the settings of `ghnfl train`, and progress."""

from __future__ import annotations

import functools
import inspect
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ghn_fl.cli.train import train

if TYPE_CHECKING:
    from rich.console import Console

    from ghn_fl.engines.grid import Outcome
    from ghn_fl.simulation.grid import Cell

NOT_SHARED = ("method", "seed", "out", "resume", "set_", "workers", "tensorboard", "quiet")


def with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """The command with all flags of `ghnfl train` that a grid shares, in its argument `given`.

    `given` is a mapping of those that were given; each run's own (NOT_SHARED) are not among them.
    """
    own = {p.name: p for p in inspect.signature(command, eval_str=True).parameters.values()}
    del own["given"]
    flags = {
        p.name: p
        for p in inspect.signature(train, eval_str=True).parameters.values()
        if p.name not in NOT_SHARED
    }

    @functools.wraps(command)
    def wrapped(**values: Any) -> None:
        given = {name: values.pop(name) for name in flags}
        command(**values, given={k: v for k, v in given.items() if v is not None})

    order = sorted([*own.values(), *flags.values()], key=lambda p: p.default is not p.empty)
    parameters = [p.replace(kind=p.KEYWORD_ONLY) for p in order]
    wrapped.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    wrapped.__annotations__ = {p.name: p.annotation for p in parameters}
    return wrapped


def run_all(
    cells: Sequence[Cell], out: Path, *, data_dir: Path | None, workers: int | None, quiet: bool
) -> list[Outcome]:
    """Run the grid, with a bar on a terminal and a line for each run that ends."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    from ghn_fl.engines.grid import Advance, run_grid

    console = Console(quiet=quiet, soft_wrap=True)
    columns = (
        TextColumn("{task.fields[ended]} of {task.fields[runs]} runs"),
        BarColumn(),
        TextColumn("{task.fields[now]}"),
        TimeRemainingColumn(),
    )
    rounds = dict.fromkeys((cell.name for cell in cells), 0)
    outcomes: list[Outcome] = []
    said: dict[tuple[str, str], str] = {}  # method and reason -> the run that gave it first
    started = time.perf_counter()
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        whole = sum(cell.config.rounds for cell in cells)
        task = progress.add_task("", total=whole, ended=0, runs=len(cells), now="")
        for event in run_grid(cells, out, data_dir=data_dir, workers=workers):
            if isinstance(event, Advance):
                rounds[event.cell.name] = event.round
            else:
                outcomes.append(event)
                rounds[event.cell.name] = event.cell.config.rounds
                key = event.cell.config.method, event.reason
                first = said.setdefault(key, event.cell.name)
                _say(console, event, out, f"{len(outcomes)} of {len(cells)}", first)
            progress.update(
                task,
                completed=sum(rounds.values()),
                ended=len(outcomes),
                now=event.cell.name,
            )
    console.print(f"{time.perf_counter() - started:.0f} s", highlight=False)
    places = {cell.name: place for place, cell in enumerate(cells)}
    return sorted(outcomes, key=lambda outcome: places[outcome.cell.name])


def say_missing(outcomes: Sequence[Outcome]) -> None:
    """Why there are runs without a result, on stderr; those of one method and reason together."""
    names: dict[tuple[str, str, str], list[str]] = {}
    for o in outcomes:
        if not o.has_result:
            names.setdefault((o.cell.config.method, o.status, o.reason), []).append(o.cell.name)
    for (_, status, reason), runs in names.items():
        typer.echo(f"ghnfl: {', '.join(runs)} {status}: {reason}", err=True)


def _say(console: Console, outcome: Outcome, out: Path, count: str, first: str) -> None:
    """A line for a run that has ended; `first` is the run that ended so for the first time."""
    from rich.text import Text

    why = outcome.reason if first == outcome.cell.name else f"as {first}"
    words = f"{outcome.status}: {why}"
    if outcome.has_result:
        summary = json.loads((out / outcome.cell.name / "summary.json").read_text())
        scores = [f"{t} {100 * s['accuracy']:.1f} %" for t, s in summary["tiers"].items()]
        words = ", ".join(scores) + (" (kept)" if outcome.status == "kept" else "")
    console.print(Text(f"{count}  {outcome.cell.name}: {words}"))
