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
from collections.abc import Iterator, Mapping, Sequence
from types import FrameType
from typing import Any

from torch import Tensor, fx
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from graphs import ops
from graphs.replica import Replica
from graphs.signature import UPDATING_NORMS, Description, describe

# Calls whose module path is wanted although they have no parameter to tell it: joins and pools.
_NONE: Mapping[str, Any] = {}
_PLACED = ops.JOINS.keys() | ops.POOLS.keys() | ops.PRODUCTS


class WritesParameterError(Exception):
    """The forward pass wants to write into a parameter or buffer that is only lent to it."""


class BlindSpotError(Exception):
    """A tensor with a gradient history appeared that no recorded call had made."""


class Step:
    """One line of a recording, in the vocabulary of `torch.fx`.

    Attributes:
        kind: "placeholder" (an input), "get_attr" (a parameter, `target` is its name) or
            "call_function".
        name: the plain name of the function that was called.
        inputs: (argument, step): which step the tensor in an argument came from; -1 for any other
            tensor from outside, such as a buffer. An argument is a position or a keyword; those
            of a list have the list's.
        values: the tensors it made.
    """

    __slots__ = ("args", "inputs", "kind", "kwargs", "module", "name", "target", "values")

    def __init__(
        self,
        kind: str,
        target: Any,
        values: Sequence[Tensor],
        name: str = "",
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] = _NONE,
        inputs: Sequence[tuple[int | str, int]] = (),
        module: str | None = None,
    ) -> None:
        self.kind = kind
        self.target = target
        self.values = values
        self.name = name
        self.args = args
        self.kwargs = kwargs
        self.inputs = inputs
        self.module = module

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
        self._constants: list[Tensor] = []  # kept alive, so that their identity stays theirs
        self._lent = {_memory(t) for t in replica.borrowed}

    def add_input(self, tensor: Tensor) -> None:
        self._add(Step("placeholder", "input", (tensor,)))

    def call(self, target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Make a call and write it down; the result is what the caller gets."""
        description = describe(target)
        written: Sequence[Tensor] = ()
        if description.may_write or "out" in kwargs:
            written = _written_tensors(description, args, kwargs)
            for tensor in written:
                if _memory(tensor) in self._lent:
                    raise WritesParameterError(description.name)
                self.source(tensor)  # seen now: after the write it has a history
        result = target(*args, **kwargs)
        if isinstance(result, Tensor):
            self._add_call(description, target, args, kwargs, (result,), written)
        elif isinstance(result, (tuple, list)):
            values = list(_tensors(result))
            if values:
                self._add_call(description, target, args, kwargs, values, written)
        elif written:
            self._add_call(description, target, args, kwargs, written, written)
        return result

    # Runs once per torch call: plain loops instead of helpers are a third of a trace's time.
    def _add_call(
        self,
        description: Description,
        target: Any,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        values: Sequence[Tensor],
        written: Sequence[Tensor],
    ) -> None:
        source = self.source
        inputs: list[tuple[int | str, int]] = []
        first = values[0]
        for key, value in enumerate(args):
            if isinstance(value, Tensor):
                if value is first and not written:
                    return  # handed its input through: `contiguous`, `to`, dropout when evaluating
                inputs.append((key, source(value)))
            elif isinstance(value, (list, tuple, dict)):
                inputs += [(key, source(tensor)) for tensor in _tensors(value)]
        for keyword, value in kwargs.items():
            if isinstance(value, Tensor):
                inputs.append((keyword, source(value)))
            elif isinstance(value, (list, tuple, dict)):
                inputs += [(keyword, source(tensor)) for tensor in _tensors(value)]
        name = description.name
        module = self._current_module() if name in _PLACED else None
        index = len(self.steps)
        self.steps.append(Step("call_function", target, values, name, args, kwargs, inputs, module))
        for tensor in values:
            self._source[id(tensor)] = index
        for tensor in written:
            self._source[id(tensor)] = index
            self._written[_memory(tensor)] = index

    def source(self, tensor: Tensor) -> int:
        """The step a tensor's present value came from."""
        step = self._source.get(id(tensor))
        if step is None:
            step = self._add_outside(tensor)
        if self._written:
            write = self._written.get(_memory(tensor), -1)
            return write if write > step else step
        return step

    def _add_outside(self, tensor: Tensor) -> int:
        name = self._names.get(id(tensor))
        if name is not None:
            return self._add(Step("get_attr", name, (tensor,)))
        if tensor.grad_fn is not None:
            raise BlindSpotError(
                f"{tensor.grad_fn.name()} made a tensor of shape {tuple(tensor.shape)} unseen"
            )
        self._source[id(tensor)] = -1
        self._constants.append(tensor)
        return -1

    def _add(self, step: Step) -> int:
        index = len(self.steps)
        self.steps.append(step)
        self._source[id(step.values[0])] = index
        return index

    def _current_module(self) -> str | None:
        frame: FrameType | None = sys._getframe(3)
        while frame is not None:
            if frame.f_code.co_name.startswith("forward"):
                path = self._modules.get(id(frame.f_locals.get("self")))
                if path is not None:
                    return path
            frame = frame.f_back
        return None


class _Functions(TorchFunctionMode):
    def __init__(self, tape: Tape) -> None:
        super().__init__()
        self._tape = tape

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._tape.call(func, args, kwargs or _NONE)


class _Operators(TorchDispatchMode):
    def __init__(self, tape: Tape) -> None:
        super().__init__()
        self._tape = tape

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._tape.call(func, args, kwargs or _NONE)


def listen(tape: Tape, *, operators: bool) -> _Functions | _Operators:
    """A context in which every torch call goes onto the tape."""
    return _Operators(tape) if operators else _Functions(tape)


def to_fx(steps: list[Step], outputs: list[int]) -> fx.Graph:
    """The record as a `torch.fx.Graph`, to look at or to run fx passes on.

    Constants become `get_attr` nodes of the name "constant", and what a call was given
    besides tensors stays in its arguments; the graph is for reading, not for execution.
    """
    graph = fx.Graph()
    nodes: list[fx.Node] = []
    for step in steps:
        if step.kind == "call_function":
            sources = iter([nodes[i] if i >= 0 else _constant(graph) for _, i in step.inputs])
            args = tuple(_replaced(a, sources) for a in step.args)
            kwargs = {k: _replaced(v, sources) for k, v in step.kwargs.items()}
            target = step.target
            node = graph.create_node("call_function", target, args, kwargs, step.name)
        else:
            node = graph.create_node(step.kind, step.target, name=step.target.replace(".", "_"))
        node.meta["shape"] = step.shape
        nodes.append(node)
    graph.output(tuple(nodes[i] if i >= 0 else _constant(graph) for i in outputs))
    return graph


def _constant(graph: fx.Graph) -> fx.Node:
    return graph.create_node("get_attr", "constant")


def _written_tensors(
    description: Description, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> list[Tensor]:
    """The tensors that a call writes into."""
    if kwargs.get("out") is not None:
        return list(_tensors([kwargs["out"]]))
    first = args[:1] or tuple(kwargs.values())[:1]
    if description.writes:
        return list(_tensors(first))
    decider = description.decider
    if decider is None or not (
        args[decider[0]] if decider[0] < len(args) else kwargs.get(decider[1])
    ):
        return []
    if description.name in UPDATING_NORMS:
        given = dict(zip(description.arguments, args, strict=False)) | dict(kwargs)
        return list(_tensors([given.get("running_mean"), given.get("running_var")]))
    return list(_tensors(first))


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
        return tensor.untyped_storage()._cdata  # type: ignore[no-any-return]
    except (NotImplementedError, RuntimeError):  # sparse tensors have none
        return -id(tensor)
