"""`ghnfl models`: the models that devices can train, and what they cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from zoo import Budget


def models(
    specs: Annotated[
        list[str] | None,
        typer.Argument(help="Models to show, for example resnet18-d1; all families if none."),
    ] = None,
    batch_size: Annotated[int, typer.Option(help="Samples in a training step.", min=1)] = 32,
) -> None:
    """Show models, their size and what it takes to train them."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    import zoo

    table = Table(
        title=f"Models, and the cost of a training step with {batch_size} samples",
        box=box.SIMPLE_HEAD,
    )
    table.add_column("model", no_wrap=True)
    for column in ("parameters", "weights\nMB", "forward\nGFLOP", "step\nGFLOP", "memory\nMB"):
        table.add_column(column, justify="right", no_wrap=True)
    for spec in specs or _all_specs():
        table.add_row(spec, *_row(zoo.budget(spec, batch_size)))
    console = Console()
    console.print(table)
    console.print(_LEGEND)


_LEGEND = """\
Memory: the estimated peak of a step of plain SGD, with weights and gradients.
Scaling: -dN keeps the first N blocks, -wX that share of the width, -exits gives
every block an exit. Any timm:NAME and hf:FOLDER_OR_ID is a model, too."""


def _all_specs() -> list[str]:
    import zoo

    return [spec for name in zoo.names() for spec in (name, *sorted(zoo.FAMILIES[name].variants))]


def _row(cost: Budget) -> tuple[str, ...]:
    return (
        f"{cost.parameters:,}",
        f"{cost.weight_bytes / 1e6:.2f}",
        f"{cost.forward_flops / 1e9:.3f}",
        f"{cost.step_flops / 1e9:.3f}",
        f"{cost.training_bytes / 1e6:.1f}",
    )
