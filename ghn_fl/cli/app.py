"""Puts the commands together and turns errors for people into one line and an exit code."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from ghn_fl.cli.generate import generate
from ghn_fl.cli.models import models

app = typer.Typer(
    name="ghnfl",
    help="Federated learning in which devices of very unequal size train together.",
    epilog="Exit codes: 0 done, 1 failed, 2 wrong usage. More: ghnfl COMMAND --help",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command(epilog="Example: ghnfl models resnet18-w0.2 timm:vit_tiny_patch16_224")(models)

app.command(
    epilog="Example: ghnfl generate --ghn runs/mnist --model lenet5-w0.5 --out weights.safetensors"
)(generate)


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
        from ghn_fl.errors import USER_ERRORS  # after the fact: it imports torch

        if not isinstance(err, USER_ERRORS):
            raise
        typer.echo(f"ghnfl: {err}", err=True)
        sys.exit(2)
