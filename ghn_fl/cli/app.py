"""Puts the commands together and turns errors for people into one line and an exit code."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from ghn_fl.cli.bound import bound
from ghn_fl.cli.compare import compare
from ghn_fl.cli.datasets import datasets
from ghn_fl.cli.generate import generate
from ghn_fl.cli.methods import methods
from ghn_fl.cli.models import models
from ghn_fl.cli.report import report
from ghn_fl.cli.trace import trace
from ghn_fl.cli.train import train
from ghn_fl.cli.tune import tune

app = typer.Typer(
    name="ghnfl",
    help="Federated learning in which devices of very unequal size train together.",
    epilog="Exit codes: 0 done, 1 failed, 2 wrong usage. More: ghnfl COMMAND --help",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
for command, example in (
    (train, "ghnfl train --skew 2:100"),
    (compare, "ghnfl compare --skew 2:100 --methods recipfl,allsmall,exclusivefl --seeds 0,1,2"),
    (tune, "ghnfl tune --skew 2:100 --methods recipfl,allsmall --grid lr=0.03,0.1,0.3"),
    (generate, "ghnfl generate --ghn runs/mnist --model lenet5-w0.5 --out weights.safetensors"),
    (trace, "ghnfl trace resnet18 --draw resnet18.svg"),
    (report, "ghnfl report runs/recipfl-mnist5k-0"),
    (models, "ghnfl models resnet18-w0.2 timm:vit_tiny_patch16_224"),
    (methods, "ghnfl methods fedprox"),
    (datasets, "ghnfl datasets"),
    (bound, "ghnfl bound --parameters 1000 --epsilon 0.1 --weak 100 --strong 2 --ratio 50"),
):
    app.command(epilog=f"Example: {example}")(command)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"ghnfl {version('ghnfl')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say which.")
    ] = False,
) -> None:
    pass


def main() -> None:
    try:
        app()
    except Exception as err:
        from ghn_fl.errors import FAILURES, USER_ERRORS  # after the fact: it imports torch

        if not isinstance(err, USER_ERRORS):
            raise
        typer.echo(f"ghnfl: {err}", err=True)
        sys.exit(1 if isinstance(err, FAILURES) else 2)
