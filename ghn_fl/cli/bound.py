"""`ghnfl bound`: how many samples a guarantee takes, and what a number of samples guarantees."""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Annotated

import typer


class Round(StrEnum):
    none = "none"
    ceil = "ceil"
    strict = "strict"


def bound(
    parameters: Annotated[int, typer.Option(help="Parameters of the hypernetwork, d.")],
    weak: Annotated[int, typer.Option(help="Weak clients, with N samples each.")],
    strong: Annotated[int, typer.Option(help="Strong clients.")] = 0,
    ratio: Annotated[float, typer.Option(help="A strong client's samples, in N.")] = 1.0,
    epsilon: Annotated[
        float | None, typer.Option(help="Distance of true and training loss that is allowed.")
    ] = None,
    samples: Annotated[
        float | None,
        typer.Option(help="Samples N of a weak client: prints their epsilon, instead."),
    ] = None,
    delta: Annotated[float, typer.Option(help="Probability that it fails.")] = 0.05,
    radius: Annotated[float, typer.Option(help="All parameters are within ±R.")] = 1.0,
    lipschitz: Annotated[float, typer.Option(help="Lipschitz constant of the loss, K.")] = 1.0,
    rounding: Annotated[
        Round, typer.Option(help="Of the covering number: strict is what the proof needs.")
    ] = Round.none,
) -> None:
    """Say how many samples a client needs so that training and true loss agree (theorem 4.1)."""
    from ghn_fl.bound import epsilon_for, weak_threshold

    if (epsilon is None) == (samples is None):
        raise typer.BadParameter("give either --epsilon or --samples")
    if epsilon is None:
        assert samples is not None
        epsilon = epsilon_for(
            samples=samples,
            delta=delta,
            parameters=parameters,
            clients=weak + strong * ratio,
            radius=radius,
            lipschitz=lipschitz,
            rounding=rounding.value,
        )
        needed = samples
    else:
        needed = weak_threshold(
            epsilon=epsilon,
            delta=delta,
            parameters=parameters,
            weak=weak,
            strong=strong,
            ratio=ratio,
            radius=radius,
            lipschitz=lipschitz,
            rounding=rounding.value,
        )
    typer.echo(f"weak client    {math.ceil(needed):,} samples ({needed:.4f})")
    if strong:
        typer.echo(f"strong client  {math.ceil(needed * ratio):,} samples ({needed * ratio:.4f})")
    typer.echo(
        f"guarantee      true loss <= training loss + {epsilon:.6g}, "
        f"with probability {1 - delta:.6g} or more"
    )
