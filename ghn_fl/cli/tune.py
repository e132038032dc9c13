"""`ghnfl tune`: the same settings tried for every method, on held-out training data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ghn_fl.cli.compare import Methods, Sets, Workers
from ghn_fl.cli.grid import run_all, say_missing, with_settings
from ghn_fl.cli.train import layered

if TYPE_CHECKING:
    from ghn_fl.engines.grid import Outcome
    from ghn_fl.report.tune import Trial


@with_settings
def tune(
    methods: Methods,
    grid: Annotated[
        list[str] | None,
        typer.Option(
            help="Values to try for all methods, as lr=0.03,0.1,0.3 (if left out), or for "
            "one, as fedprox:mu=0.01,0.1; repeatable."
        ),
    ] = None,
    seeds: Annotated[str, typer.Option(help="Seeds, one run each, as 0,1,2.")] = "0",
    set_: Sets = None,
    out: Annotated[Path, typer.Option(help="The folder; what it has already is kept.")] = Path(
        "tune"
    ),
    workers: Workers = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.")] = False,
    *,
    given: dict[str, Any],
) -> None:
    """Choose settings for each method, for ghnfl compare --tuned OUT/tuned.toml.

    Devices are scored on a part of their training data that is held out (--validation, 0.2 if
    left out); strong and weak devices count alike. No test data is looked at.
    """
    from ghn_fl.errors import ConfigError
    from ghn_fl.report.tables import markdown
    from ghn_fl.report.tune import chosen, edge_notes, tune_table, write_tuned
    from ghn_fl.simulation import grid as grids

    names, numbers = grids.parse_methods(methods), grids.parse_seeds(seeds)
    tried = grids.parse_tried(grid or ["lr=0.03,0.1,0.3"], names)
    own = grids.parse_own(set_ or (), names)
    data_dir = given.pop("data_dir", None)
    values = layered(given.pop("preset", None), given.pop("config", None), given)
    values.setdefault("validation", 0.2)
    base = grids.shared(values, names, grids.parse_against(None, names), data_dir)
    if not base.validation:
        raise ConfigError("validation must be above 0 to tune: test data is for the comparison")
    own = {name: grids.merge(grids.options_of(values, name), own.get(name, {})) for name in names}
    cells = grids.tuning_cells(base, names, numbers, own, tried)
    grids.check_folder(out, cells, data_dir)
    outcomes = run_all(cells, out, data_dir=data_dir, workers=workers, quiet=quiet)
    trials = trials_of(outcomes, out)
    title = (
        f"{base.dataset}, {base.fleet or f'skew {base.skew}'}, {base.rounds} rounds, "
        f"validation {base.validation}, seeds {', '.join(map(str, numbers))}"
    )
    written = write_tuned(trials, title, out)
    if not quiet:
        typer.echo(markdown(tune_table(trials)))
        for note in edge_notes(trials):
            typer.echo(note)
        typer.echo(f"written: {', '.join(map(str, written))}")
    say_missing(outcomes)
    broken = {o.cell.config.method for o in outcomes if o.status == "failed"} - set(chosen(trials))
    if broken or not chosen(trials) or any(o.status == "crashed" for o in outcomes):
        raise typer.Exit(1)


def trials_of(outcomes: Sequence[Outcome], out: Path) -> list[Trial]:
    """The seeds of a method and its settings together, method by method."""
    from ghn_fl.report.read import read_run
    from ghn_fl.report.tune import Trial
    from ghn_fl.simulation.grid import named

    groups: dict[str, dict[str, list[Outcome]]] = {}
    for o in outcomes:
        by_choice = groups.setdefault(o.cell.config.method, {})
        by_choice.setdefault(str(o.cell.choice), []).append(o)
    return [
        Trial(
            method=method,
            settings=same[0].cell.choice,
            words=named(same[0].cell.choice),
            runs=tuple(read_run(out / o.cell.name) for o in same if o.has_result),
            reasons=tuple(o.reason for o in same if not o.has_result),
        )
        for method, by_choice in groups.items()
        for same in by_choice.values()
    ]
