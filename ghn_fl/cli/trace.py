"""`ghnfl trace`: a model as a graph, in the terminal or as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def trace(
    spec: Annotated[
        str, typer.Argument(help='a model, such as "resnet18" or "timm:convnext_atto"')
    ],
    draw: Annotated[
        Path | None, typer.Option(help="write a picture here; .svg or .png", metavar="FILE")
    ] = None,
    depth: Annotated[
        int | None,
        typer.Option(help="names of a module path to show; default: what stays readable", min=1),
    ] = None,
    json: Annotated[
        Path | None, typer.Option(help="write the graph here, as JSON", metavar="FILE")
    ] = None,
    quiet: Annotated[bool, typer.Option(help="print only the statistics")] = False,
) -> None:
    """Trace a model and print its graph as a tree.

    Example: ghnfl trace resnet18 --draw resnet18.svg
    """
    import graphs
    import zoo

    try:
        graph = graphs.trace(zoo.build(spec), zoo.example_input(spec))
        if draw is not None:
            graphs.draw(graph, draw, depth=depth, title=spec)
    except ValueError as err:  # an unknown model, one that cannot be traced, a wrong ending
        typer.echo(f"ghnfl trace: {err}", err=True)
        raise typer.Exit(1) from err
    if json is not None:
        json.write_text(graph.to_json() + "\n")
    if not quiet:
        typer.echo(graphs.tree(graph, depth))
        typer.echo()
    _echo_statistics(spec, graph)
    for path in (draw, json):
        if path is not None:
            typer.echo(f"written: {path}")


def _echo_statistics(spec: str, graph: object) -> None:
    import graphs

    assert isinstance(graph, graphs.Graph)
    facts = graphs.statistics(graph)
    typer.echo(
        f"{spec}: {facts.nodes} nodes, {facts.edges} edges, {facts.levels} levels, "
        f"{facts.parameters:,} parameters ({facts.trainable:,} trainable) in "
        f"{facts.tensors} tensors; front end {graph.front_end}"
    )
    typer.echo("operators: " + ", ".join(f"{op} {n}" for op, n in facts.ops.items()))
    report = graph.report
    if report.other:
        typer.echo("without a type: " + ", ".join(f"{f} {n}" for f, n in report.other.items()))
    if report.orphans:
        shown = ", ".join(report.orphans[:5]) + (", ..." if len(report.orphans) > 5 else "")
        typer.echo(f"not used by this pass: {len(report.orphans)} parameters ({shown})")
    if report.gradient_free:
        typer.echo(f"used without a gradient: {len(report.gradient_free)} parameters")
    for group in graph.ties:
        typer.echo("one tensor: " + " = ".join(group))
