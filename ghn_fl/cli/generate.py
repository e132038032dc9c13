"""`ghnfl generate`: weights for an architecture, from a trained hypernetwork."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from torch import Tensor


def generate(
    ghn: Annotated[Path, typer.Option(help="A run folder, or a hypernetwork's .safetensors file.")],
    out: Annotated[Path, typer.Option(help="The .safetensors file to write.")],
    model: Annotated[
        str | None, typer.Option(help="The architecture, for example resnet18-w0.2.")
    ] = None,
    graph: Annotated[
        Path | None, typer.Option(help="The architecture as a graph's JSON file, instead.")
    ] = None,
    histogram: Annotated[
        str | None,
        typer.Option(help="The client's share of every class: 0.5,0.5,0 ...; uniform if left out."),
    ] = None,
    study: Annotated[
        int, typer.Option(help="Steps in which the model learns the lessons of the run folder.")
    ] = 0,
    in_channels: Annotated[int | None, typer.Option(help="Channels of the model's input.")] = None,
    image_size: Annotated[int | None, typer.Option(help="Pixels of the model's input.")] = None,
) -> None:
    """Generate weights for a model that the hypernetwork need never have seen."""
    from safetensors.torch import save

    from ghn_fl.errors import GHNError
    from ghn_fl.files import write_atomic
    from ghn_fl.hypernet import GHN
    from ghn_fl.lessons import Lessons
    from ghn_fl.lessons import study as learn

    if study < 0:
        raise typer.BadParameter(f"--study takes 0 steps or more, got {study}")
    if study and graph is not None:
        raise typer.BadParameter("--study needs a --model, for a graph cannot run")
    if (model is None) == (graph is None):
        raise typer.BadParameter("give either --model or --graph")
    network = GHN.load(ghn)
    client = None if histogram is None else _numbers(histogram)
    if graph is not None:
        from graphs import Graph

        try:
            text = graph.read_bytes()
        except OSError as err:
            raise GHNError(f"cannot read {graph}: {err.strerror}") from err
        weights = network.generate(graph=Graph.from_json(text), client=client)
    else:
        assert model is not None
        import zoo

        built = zoo.build(
            model,
            num_classes=network.config.num_classes,
            in_channels=in_channels,
            image_size=image_size,
        )
        example = zoo.example_input(model, in_channels=in_channels, image_size=image_size)
        weights = network.generate(built, example, client=client)
        if study:
            weights = learn(built, weights, Lessons.load(ghn), steps=study)
    write_atomic(out, save(weights, {"format": "pt", "architecture": model or str(graph)}))
    typer.echo(_summary(weights, out))


def _numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError as err:
        raise typer.BadParameter(f"--histogram takes numbers like 0.5,0.3,0.2: {err}") from err


def _summary(weights: dict[str, Tensor], out: Path) -> str:
    count = sum(w.numel() for w in weights.values())
    return (
        f"{out}: {len(weights)} tensors, {count:,} parameters.\n"
        "BatchNorm statistics are not among them: ghn_fl.initialize(model, weights, data) loads\n"
        "the weights and recomputes the statistics on your data."
    )
