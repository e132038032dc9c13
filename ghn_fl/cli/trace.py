"""`ghnfl trace`: a model as a graph, in the terminal or as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from graphs import Graph


def trace(
    spec: Annotated[str, typer.Argument(help="A model, for example resnet18 or timm:vgg11.")],
    draw: Annotated[
        Path | None, typer.Option(help="Write a picture here; .svg or .png.", metavar="FILE")
    ] = None,
    depth: Annotated[
        int | None,
        typer.Option(
            help="Names of a module path to show, the rest is one block; by default the tree "
            "shows all and the picture what stays readable.",
            min=1,
        ),
    ] = None,
    json: Annotated[
        Path | None, typer.Option(help="Write the graph here, as JSON.", metavar="FILE")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print no tree.")] = False,
) -> None:
    """Trace a model into a graph, show it as a tree, draw it."""
    import graphs
    import zoo
    from ghn_fl.files import write_atomic

    graph = graphs.trace(zoo.build(spec), zoo.example_input(spec))
    if draw is not None:
        graphs.draw(graph, draw, depth=depth, title=spec)
    if json is not None:
        write_atomic(json, graph.to_json() + "\n")
    if not quiet:
        typer.echo(graphs.tree(graph, depth) + "\n")
    for line in _facts(spec, graph):
        typer.echo(line)
    for path in (draw, json):
        if path is not None:
            typer.echo(f"written: {path}")


def _facts(spec: str, graph: Graph) -> list[str]:
    """What a person should know about the graph, a line each."""
    import graphs

    facts, report = graphs.statistics(graph), graph.report
    lines = [
        f"{spec}: {facts.nodes} nodes, {facts.edges} edges, {facts.levels} levels, "
        f"{facts.parameters:,} parameters ({facts.trainable:,} trainable) in "
        f"{facts.tensors} tensors; front end {graph.front_end}",
        "operators: " + ", ".join(f"{op} {n}" for op, n in facts.ops.items()),
    ]
    if report.other:
        lines.append("without a type: " + ", ".join(f"{f} {n}" for f, n in report.other.items()))
    if report.orphans:
        shown = ", ".join(report.orphans[:5]) + (", ..." if len(report.orphans) > 5 else "")
        lines.append(f"not used by this pass: {len(report.orphans)} tensors ({shown})")
    if report.gradient_free:
        lines.append(f"used without a gradient: {len(report.gradient_free)} tensors")
    return lines + ["one tensor: " + " = ".join(group) for group in graph.ties]
