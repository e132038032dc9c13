"""The front ends: ways to run a model once and write down what it does, and their order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, fx, nn

from graphs import example, export
from graphs.errors import GraphError
from graphs.inventory import Inventory
from graphs.record import Step, Tape, WritesParameterError, listen, to_fx
from graphs.replica import Memory, Replica, replicate

# Multiplications, roughly, up to which a pass on real tensors is the faster one: on the meta device
# the kernels are Python and take the same time for every size.
_SMALL = 5e8


@dataclass(frozen=True)
class FrontEnd:
    """One way to run a model and write down what it does."""

    name: str
    memory: Memory
    operators: bool = False
    exporting: bool = False


_REAL = FrontEnd("functions", Memory.SHARED)
_REAL_OPERATORS = FrontEnd("operators", Memory.OWN, operators=True)
_META = FrontEnd("functions/meta", Memory.META)
_META_EXPORTING = FrontEnd("functions/meta/exporting", Memory.META, exporting=True)
_META_OPERATORS = FrontEnd("operators/meta", Memory.META, operators=True)
_ZEROS = FrontEnd("functions/zeros", Memory.ZEROS)
EXPORT = FrontEnd("export", Memory.OWN)


@dataclass(frozen=True)
class Recording:
    """A recorded forward pass, before simplification.

    Attributes:
        outputs: steps of the tensors the model returned in plain containers.
        side_outputs: steps of the tensors inside other returned objects, such as a cache.
        reached: trainable parameters that autograd finds behind the outputs.
    """

    steps: list[Step]
    outputs: list[int]
    side_outputs: list[int]
    reached: frozenset[str]

    def to_fx(self) -> fx.Graph:
        """The pass as a `torch.fx.Graph`."""
        return to_fx(self.steps, self.outputs + self.side_outputs)


def chain(inventory: Inventory, call: example.Arguments) -> tuple[FrontEnd, ...]:
    """The front ends for a model, the one that is likely to be fastest first."""
    parameters = inventory.parameters.values()
    if any(p.is_meta for p in parameters):
        return _META, _META_EXPORTING, _META_OPERATORS, _ZEROS
    places = max(_places(t) for t in example.tensors((call.args, call.kwargs)))
    if places * sum(p.numel() for p in parameters) <= _SMALL:
        # No meta device here: it would let pass what fails on the example's real values.
        return _REAL, _REAL_OPERATORS, EXPORT
    return _META, _META_EXPORTING, _REAL, _REAL_OPERATORS, EXPORT


def _places(tensor: Tensor) -> float:
    """How often a weight is used for this input, roughly: a guess, and only time depends on it."""
    if not tensor.is_floating_point():
        return tensor.numel()  # tokens
    if tensor.dim() < 4:
        return tensor.numel() / max(1, tensor.shape[-1] if tensor.dim() else 1)
    # Most weights of a network for images are used on a small fraction of its places.
    return tensor.numel() / max(1, tensor.shape[1]) / 500


def run(
    front_end: FrontEnd, model: nn.Module, inventory: Inventory, call: example.Arguments
) -> Recording:
    """One recorded pass of a copy of the model; raises whatever the model does."""
    if front_end is EXPORT:
        return _run_export(model, inventory, call)
    try:
        return _run_recorder(front_end, replicate(model, inventory, front_end.memory), call)
    except WritesParameterError:
        return _run_recorder(front_end, replicate(model, inventory, Memory.OWN), call)


def _run_recorder(front_end: FrontEnd, replica: Replica, call: example.Arguments) -> Recording:
    call = example.prepared(call, _mover(replica))
    tape = Tape(replica)
    for tensor in example.tensors((call.args, call.kwargs)):
        tape.add_input(tensor)
    listening = listen(tape, operators=front_end.operators)
    with torch.enable_grad(), _exporting(front_end.exporting), listening:
        result = replica.model(*call.args, **call.kwargs)
    main, side = example.outputs(result)
    if not main and not side:
        raise GraphError(
            f"{type(replica.model).__name__} returned no tensor but {type(result).__name__}: "
            "there is no output to trace back from"
        )
    return Recording(
        tape.steps,
        [tape.source(t) for t in main] or [tape.source(t) for t in side],
        [tape.source(t) for t in side] if main else [],
        _reached(main + side, replica.parameters),
    )


def _run_export(model: nn.Module, inventory: Inventory, call: example.Arguments) -> Recording:
    replica = replicate(model, inventory, Memory.OWN)
    moved = example.prepared(call, _mover(replica))
    steps, outputs = export.export_steps(replica.model, moved)
    with torch.enable_grad():
        main, side = example.outputs(replica.model(*moved.args, **moved.kwargs))
    return Recording(steps, outputs, [], _reached(main + side, replica.parameters))


def _mover(replica: Replica) -> Callable[[Tensor], Tensor]:
    """A copy of a tensor of the example, where the copy of the model is."""
    device = next(replica.model.parameters()).device
    memory = replica.memory

    def move(tensor: Tensor) -> Tensor:
        if memory is Memory.META:
            return tensor.detach().to("meta") if not tensor.is_meta else torch.empty_like(tensor)
        if memory is Memory.ZEROS and tensor.is_meta:
            return torch.zeros_like(tensor, device="cpu")
        return tensor.detach().to(device, copy=True)

    return move


@contextmanager
def _exporting(on: bool) -> Iterator[None]:
    """Lets the model believe it is being exported: many then skip checks of values."""
    before = torch.compiler._is_exporting_flag
    torch.compiler._is_exporting_flag = before or on
    try:
        yield
    finally:
        torch.compiler._is_exporting_flag = before


def _reached(outputs: list[Tensor], names: dict[int, str]) -> frozenset[str]:
    """The parameters that autograd finds behind the outputs."""
    found = {names[id(t)] for t in outputs if id(t) in names and t.requires_grad}
    todo = [t.grad_fn for t in outputs if t.grad_fn is not None]
    seen = set(todo)
    while todo:
        following = todo.pop().next_functions
        for function, _ in following:
            if function is None or function in seen:
                continue
            seen.add(function)
            variable = getattr(function, "variable", None)
            if variable is None:
                todo.append(function)
            elif id(variable) in names:
                found.add(names[id(variable)])
    return frozenset(found)
