"""One forward pass, written down: every torch call with the calls its tensors came from.

Two recorders write the same kind of record. `record_functions` listens where Python calls torch
(`TorchFunctionMode`): a layer is one call, whatever it does inside. `record_operators` listens at
the dispatcher: it also sees into scripted and vmapped code, at the price of finer operators.

A tensor is known by its identity, and every tensor seen is kept alive until the end, so that an
identity is never used twice. A write in place makes the writing call the source of all tensors
that share the memory; readers then depend on it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from graphs import ops
from graphs.replica import Memory, Replica
from graphs.signature import describe

# Calls whose module path is wanted although they have no parameter to tell it: joins and pools.
_PLACED = ops.JOINS.keys() | ops.POOLS.keys() | ops.PRODUCTS


class WritesParameterError(Exception):
    """The forward pass wants to write into a parameter or buffer that is only lent to it."""


class BlindSpotError(Exception):
    """A tensor with a gradient history appeared that no recorded call had made."""


@dataclass(slots=True)
class Step:
    """One line of a recording, in the vocabulary of `torch.fx`.

    Attributes:
        kind: "placeholder" (an input), "get_attr" (a parameter, `target` is its name),
            "constant" (any other tensor from outside) or "call_function".
        inputs: (argument, step): which step the tensor in an argument came from. An argument is
            a position or a keyword; those of a list have the list's.
        values: the tensors it made.
    """

    kind: str
    target: Any
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    inputs: list[tuple[int | str, int]] = field(default_factory=list)
    values: list[Tensor] = field(default_factory=list)
    module: str | None = None

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The shape of the first tensor it made."""
        return tuple(self.values[0].shape) if self.values else None

    @property
    def has_gradient(self) -> bool:
        return any(v.requires_grad for v in self.values)


class Tape:
    """The growing record of a pass."""

    def __init__(self, replica: Replica) -> None:
        self.steps: list[Step] = []
        self._modules = replica.modules
        self._names = replica.parameters
        self._source: dict[int, int] = {}  # id of a tensor -> step that made it
        self._written: dict[int, int] = {}  # memory -> step that last wrote into it
        self._lent: set[int] = set()
        if replica.memory is Memory.SHARED:
            self._lent = {_memory(p) for p in replica.model.parameters()}

    def add_input(self, tensor: Tensor) -> None:
        self._add(Step("placeholder", "input", values=[tensor]))

    def add_call(
        self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
    ) -> None:
        """Write down a call that was made."""
        name, writes, _ = describe(target)
        if isinstance(result, Tensor):
            values = [result]
        elif isinstance(result, (tuple, list)):
            values = list(_tensors(result))
        else:
            values = []
        written = _written_tensors(name, writes, args, kwargs, values)
        if not (values or written):
            return
        inputs = [(key, self.source(t)) for key, t in _inputs(args, kwargs)]
        if not written and values and any(values[0] is t for _, t in _inputs(args, kwargs)):
            return  # handed its input through: `contiguous`, `to`, dropout in evaluation mode
        index = self._add(Step("call_function", target, args, kwargs, inputs, values or written))
        if name in _PLACED:
            self.steps[index].module = self._current_module()
        for tensor in written:
            self._source[id(tensor)] = index
            self._written[_memory(tensor)] = index

    def refuse_write(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Raise before a call writes into memory that is only lent to the copy."""
        if not self._lent:
            return
        name, writes, _ = describe(target)
        if writes or "out" in kwargs or kwargs.get("inplace") or name in _MAY_WRITE:
            for tensor in _written_tensors(name, writes, args, kwargs, list(args[:1])):
                if _memory(tensor) in self._lent:
                    raise WritesParameterError(name)

    def source(self, tensor: Tensor) -> int:
        """The step a tensor's present value came from."""
        step = self._source.get(id(tensor))
        if step is None:
            step = self._add_outside(tensor)
        if self._written:
            step = max(step, self._written.get(_memory(tensor), -1))
        return step

    def _add_outside(self, tensor: Tensor) -> int:
        name = self._names.get(id(tensor))
        if name is not None:
            return self._add(Step("get_attr", name, values=[tensor]))
        if tensor.grad_fn is not None:
            raise BlindSpotError(
                f"tensor of shape {tuple(tensor.shape)} by {tensor.grad_fn.name()}"
            )
        return self._add(Step("constant", "constant", values=[tensor]))

    def _add(self, step: Step) -> int:
        index = len(self.steps)
        self.steps.append(step)
        for value in step.values:
            self._source[id(value)] = index
        return index

    def _current_module(self) -> str | None:
        frame = sys._getframe(3)
        while frame is not None:
            if frame.f_code.co_name.startswith("forward"):
                path = self._modules.get(id(frame.f_locals.get("self")))
                if path is not None:
                    return path
            frame = frame.f_back  # type: ignore[assignment]
        return None


class _Functions(TorchFunctionMode):
    def __init__(self, tape: Tape) -> None:
        super().__init__()
        self._tape = tape

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        self._tape.refuse_write(func, args, kwargs)
        result = func(*args, **kwargs)
        self._tape.add_call(func, args, kwargs, result)
        return result


class _Operators(TorchDispatchMode):
    def __init__(self, tape: Tape) -> None:
        super().__init__()
        self._tape = tape

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        self._tape.refuse_write(func, args, kwargs)
        result = func(*args, **kwargs)
        self._tape.add_call(func, args, kwargs, result)
        return result


def listen(tape: Tape, *, operators: bool) -> _Functions | _Operators:
    """A context in which every torch call goes onto the tape."""
    return _Operators(tape) if operators else _Functions(tape)


def to_fx(steps: list[Step], outputs: list[int]) -> fx.Graph:
    """The record as a `torch.fx.Graph`, to look at or to run fx passes on.

    Constants become `get_attr` nodes without a module behind them, and what a call was given
    besides tensors stays in its arguments; the graph is for reading, not for execution.
    """
    graph = fx.Graph()
    nodes: list[fx.Node] = []
    for step in steps:
        if step.kind == "call_function":
            sources = iter([nodes[i] for _, i in step.inputs])
            args = tuple(_replaced(a, sources) for a in step.args)
            kwargs = {k: _replaced(v, sources) for k, v in step.kwargs.items()}
            target = step.target if isinstance(step.target, torch._ops.OpOverload) else step.target
            node = graph.create_node("call_function", target, args, kwargs, describe(target)[0])
        else:
            kind = "placeholder" if step.kind == "placeholder" else "get_attr"
            node = graph.create_node(kind, step.target, name=step.target.replace(".", "_"))
        node.meta["shape"] = step.shape
        nodes.append(node)
    graph.output(tuple(nodes[i] for i in outputs))
    return graph


# F.relu(x, True) and its like: no underscore in the name, yet they may write.
_MAY_WRITE = frozenset(
    ["relu", "relu6", "hardtanh", "hardswish", "hardsigmoid", "leaky_relu", "elu", "celu", "selu", "silu", "mish", "threshold", "dropout", "rrelu", "alpha_dropout", "dropout1d", "dropout2d", "dropout3d", "feature_alpha_dropout"]
)


def _written_tensors(
    name: str, writes: bool, args: tuple[Any, ...], kwargs: dict[str, Any], values: list[Tensor]
) -> list[Tensor]:
    if writes and args and isinstance(args[0], Tensor):
        return [args[0]]
    if writes:
        return [t for t in _tensors(args[:1])] or [t for t in _tensors(list(kwargs.values())[:1])]
    if kwargs.get("out") is not None:
        return list(_tensors([kwargs["out"]]))
    if name in _MAY_WRITE and (kwargs.get("inplace") or any(a is True for a in args)):
        return [v for v in values if isinstance(v, Tensor) and args and v is args[0]]
    return []


def _inputs(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[tuple[int | str, Tensor]]:
    for position, value in enumerate(args):
        if isinstance(value, Tensor):
            yield position, value
        elif isinstance(value, (tuple, list, dict)):
            for tensor in _tensors(value):
                yield position, tensor
    for key, value in kwargs.items():
        if isinstance(value, Tensor):
            yield key, value
        elif isinstance(value, (tuple, list, dict)):
            for tensor in _tensors(value):
                yield key, tensor


def _tensors(value: Any) -> Iterator[Tensor]:
    for part in value.values() if isinstance(value, dict) else value:
        if isinstance(part, Tensor):
            yield part
        elif isinstance(part, (tuple, list, dict)):
            yield from _tensors(part)


def _replaced(value: Any, nodes: Iterator[fx.Node]) -> Any:
    if isinstance(value, Tensor):
        return next(nodes)
    if isinstance(value, dict):
        return {k: _replaced(v, nodes) for k, v in value.items()}
    if isinstance(value, (tuple, list)):
        parts = [_replaced(v, nodes) for v in value]
        return parts if isinstance(value, list) else tuple(parts)
    return value


def _memory(tensor: Tensor) -> int:
    try:
        return int(tensor.untyped_storage()._cdata)
    except (NotImplementedError, RuntimeError):  # sparse tensors have none
        return -id(tensor)
