"""What kind of node a recorded call is: type, roles of its parameters, kind of pooling."""

from __future__ import annotations

from typing import Any

from graphs import ops
from graphs.graph import Role
from graphs.record import Step
from graphs.signature import describe

_NO_ARGUMENTS: dict[int | str, str] = {}
_positions: dict[Any, dict[int | str, str]] = {}


def weight_positions(step: Step) -> dict[int | str, str]:
    """Argument (position or keyword) -> its name, for the arguments of a layer that are weights."""
    if step.name not in ops.LAYERS:
        return _NO_ARGUMENTS
    arguments = describe(step.target).arguments
    known = _positions.get(arguments)
    if known is None:
        known = {}
        for position, argument in enumerate(arguments):
            if any(
                part in argument
                for part in ("weight", "bias", "params", "w_ih", "w_hh", "b_ih", "b_hh")
            ):
                known[position] = known[argument] = argument
        _positions[arguments] = known
    if (
        ops.LAYERS[step.name] in ops.RECURRENT
        and len(step.args) > 3
        and isinstance(step.args[3], (list, tuple))
    ):
        return {3: "params"}  # packed sequences have their batch sizes as a further argument
    return known


def argument(step: Step, name: str, default: Any) -> Any:
    if name in step.kwargs:
        return step.kwargs[name]
    arguments = describe(step.target).arguments
    position = arguments.index(name) if name in arguments else len(step.args)
    return step.args[position] if position < len(step.args) else default


def layer_type(step: Step, name: str) -> tuple[str, dict[str, int]]:
    op = ops.LAYERS.get(name, "")
    attributes: dict[str, int] = {}
    if op in ("conv", "conv_transpose"):
        groups = argument(step, "groups", 1)
        dilation = argument(step, "dilation", 1)
        dilation = max(dilation) if isinstance(dilation, (tuple, list)) else dilation
        if groups != 1:
            attributes["groups"] = int(groups)
        if dilation != 1:
            attributes["dilation"] = int(dilation)
        if op == "conv" and argument(step, "transposed", False) is True:
            op = "conv_transpose"
        if op == "conv":
            op = "sep_conv" if groups != 1 else "dil_conv" if dilation != 1 else "conv"
    return op, attributes


def layer_role(op: str, argument: str | None, dimensions: int) -> Role:
    if argument is None or op == "prelu" or argument in ("bias_k", "bias_v"):
        return Role.STANDALONE
    is_bias = "bias" in argument or argument.startswith("b_")
    if op in ops.NORMS:
        return Role.NORM_BIAS if is_bias else Role.NORM_SCALE
    if op == "embedding":
        return Role.EMBEDDING
    if op in ops.RECURRENT:
        is_bias = dimensions < 2
    elif not is_bias and dimensions < 2:
        return Role.STANDALONE  # the gain of a normalised weight
    return Role.BIAS if is_bias else Role.WEIGHT


def pool_type(step: Step, name: str) -> str | None:
    """The pooling a step does; None when it only averages or compares features."""
    if name in ("mean", "amax"):
        dims = argument(step, "dim", None)
        before = step.args[0].dim() if step.args else 0
        dims = (dims,) if isinstance(dims, int) else tuple(dims or ())
        over = {d % before for d in dims} if before else set()
        if (before, over) not in _SPATIAL:
            return None
        return "glob_avg" if name == "mean" else "max_pool"
    if name.lstrip("_").startswith("adaptive_avg"):
        size = argument(step, "output_size", None)
        sizes = size if isinstance(size, (tuple, list)) else (size,)
        if all(s == 1 for s in sizes):
            return "glob_avg"
    return ops.POOLS[name]


# (dimensions, averaged ones): channels first or last, or over the positions of a sequence
_SPATIAL = [(5, {2, 3, 4}), (5, {1, 2, 3}), (4, {2, 3}), (4, {1, 2}), (3, {1})]
