"""`ghnfl compare`: methods by seeds on one fleet, with tests and pictures."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from ghn_fl.cli.grid import run_all, say_missing, with_settings
from ghn_fl.cli.train import layered

Methods = Annotated[str, typer.Option(help="Methods, as recipfl,allsmall; or all.")]
Workers = Annotated[
    int | None, typer.Option(help="Runs at once; as many as cores if left out.", min=1)
]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", help="A method's own setting, as recipfl:update.lr=0.003; repeatable."),
]


@with_settings
def compare(
    methods: Methods,
    seeds: Annotated[str, typer.Option(help="Seeds, one run each, as 0,1,2.")] = "0,1,2",
    against: Annotated[
        str | None,
        typer.Option(help="Compare the others with this one; recipfl, else the first."),
    ] = None,
    tuned: Annotated[
        Path | None,
        typer.Option(help="The methods' own settings, as ghnfl tune chose them.", metavar="FILE"),
    ] = None,
    set_: Sets = None,
    out: Annotated[Path, typer.Option(help="The folder; what it has already is kept.")] = Path(
        "compare"
    ),
    workers: Workers = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.")] = False,
    *,
    given: dict[str, Any],
) -> None:
    """Compare methods: all of them on the same devices, data and seeds.

    The models are those of --large and --small or of --fleet, else the usual ones of the method
    that is compared with. Options in --preset or --config are recipfl's, or the method's that is
    named there. Runs that are finished are kept, others go on.
    """
    from rich.console import Console

    from ghn_fl.errors import ConfigError
    from ghn_fl.report.grid import Missing, accuracy_table, read_grid, write_grid
    from ghn_fl.report.tables import markdown
    from ghn_fl.simulation import grid

    names, numbers = grid.parse_methods(methods), grid.parse_seeds(seeds)
    rival = grid.parse_against(against, names)
    own = grid.parse_own(set_ or (), names)
    chosen = grid.read_tuned(tuned) if tuned is not None else {}
    untuned = [name for name in names if name not in chosen]
    if tuned is not None and len(untuned) == len(names):
        raise ConfigError(f"{tuned} has nothing for {', '.join(names)}, but for {_listed(chosen)}")
    data_dir = given.pop("data_dir", None)
    values = layered(given.pop("preset", None), given.pop("config", None), given)
    base = grid.shared(values, names, rival, data_dir)
    own = {
        name: grid.merge(grid.options_of(values, name), chosen.get(name, {}), own.get(name, {}))
        for name in names
    }
    cells = grid.cells(base, names, numbers, own)
    grid.check_folder(out, cells, data_dir)
    outcomes = run_all(cells, out, data_dir=data_dir, workers=workers, quiet=quiet)
    folders = [out / o.cell.name for o in outcomes if o.has_result]
    missing = [
        Missing(
            method=o.cell.config.method, seed=o.cell.config.seed, status=o.status, reason=o.reason
        )
        for o in outcomes
        if not o.has_result
    ]
    found = read_grid(folders, missing, rival)
    written = write_grid(found, out)
    if not quiet:
        Console().print()
        typer.echo(markdown(accuracy_table(found)))
        typer.echo(f"written: {', '.join(map(str, written))}")
    say_missing(outcomes)
    if tuned is not None and untuned and folders:
        typer.echo(f"ghnfl: not in {tuned}, with usual settings: {', '.join(untuned)}", err=True)
    if not folders or any(o.status != "refused" for o in missing):
        raise typer.Exit(1)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "no method"
