"""The last front end: `torch.export`, read into the same record as a recorded pass."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx, nn

from graphs.example import Arguments
from graphs.record import Step
from graphs.signature import describe


def export_steps(model: nn.Module, call: Arguments) -> tuple[list[Step], list[int]]:
    """The steps of the exported program, and those of its outputs.

    The program is decomposed once into its functional form: only there does a write into a view
    have an edge to later readers.
    """
    program = torch.export.export(model, call.args, call.kwargs, strict=False)
    program = program.run_decompositions({})
    signature = program.graph_signature
    canonical = {id(p): n for n, p in model.named_parameters()}
    every = dict(model.named_parameters(remove_duplicate=False))
    steps: list[Step] = []
    index: dict[fx.Node, int] = {}
    outputs: list[int] = []
    for node in program.graph.nodes:
        if node.op == "output":
            wanted = set(signature.user_outputs)
            outputs = [index[n] for n in node.all_input_nodes if n.name in wanted]
            continue
        index[node] = len(steps)
        values = [v for v in _leaves(node.meta.get("val")) if isinstance(v, Tensor)]
        if node.op == "call_function":
            inputs = [(key, index[n]) for key, n in _inputs(node)]
            args = fx.node.map_arg(node.args, lambda n: n.meta.get("val"))
            kwargs = fx.node.map_arg(node.kwargs, lambda n: n.meta.get("val"))
            steps.append(
                Step(
                    "call_function",
                    node.target,
                    values,
                    describe(node.target).name,
                    args,
                    kwargs,
                    inputs,
                )
            )
        elif node.name in signature.inputs_to_parameters:
            name = canonical[id(every[signature.inputs_to_parameters[node.name]])]
            steps.append(Step("get_attr", name, values))
        elif node.name in signature.user_inputs:
            steps.append(Step("placeholder", "input", values))
        else:
            index[node] = -1
    return steps, outputs


def _inputs(node: fx.Node) -> list[tuple[int | str, fx.Node]]:
    pairs: list[tuple[int | str, Any]] = [*enumerate(node.args), *node.kwargs.items()]
    return [(k, n) for k, v in pairs for n in _leaves(v) if isinstance(n, fx.Node)]


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, (tuple, list)):
        return [leaf for part in value for leaf in _leaves(part)]
    return [value]
