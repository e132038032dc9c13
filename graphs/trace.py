"""Any nn.Module -> Graph: a chain of front ends, each checked against autograd on the same pass.

The first that passes the check wins. Small models start on their own tensors, where a forward
pass is fastest; large ones start on the meta device, where it needs no memory and no arithmetic.
"""

from __future__ import annotations

import copy
import gc
import inspect
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.parameter import UninitializedBuffer

from graphs import example, frontends
from graphs.errors import GraphError
from graphs.frontends import Recording
from graphs.graph import Graph, Report, Shape
from graphs.inventory import Inventory, take_inventory
from graphs.orphans import orphan_nodes
from graphs.simplify import Compact, simplify


def trace(model: nn.Module, example_input: object) -> Graph:
    """The graph of a model, as one forward pass on `example_input` shows it.

    The model is unchanged afterwards: parameters, buffers, modes, hooks, caches, and the global
    random state too. The pass runs in evaluation mode on a copy.

    Args:
        model: any module; lazily initialised ones and ones on the meta device too.
        example_input: a tensor, a tuple of positional arguments, or a dict of named ones.

    Raises:
        GraphError: says what stands in the way; the model's own error is chained.

    >>> graph = trace(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), torch.ones(1, 3))
    >>> [node.op for node in graph.nodes], graph.edges
    (['input', 'linear', 'linear'], ((0, 1), (1, 2)))
    >>> graph.nodes[2].parameters, graph.nodes[2].role.value
    ({'2.weight': (2, 4), '2.bias': (2,)}, 'classifier')
    """
    return _first_that_passes(model, example_input)[0]


def record(model: nn.Module, example_input: object) -> Recording:
    """The recorded pass that `trace` makes its graph from.

    >>> recording = record(nn.Linear(3, 4), torch.ones(1, 3))
    >>> [node.op for node in recording.to_fx().nodes]
    ['placeholder', 'get_attr', 'get_attr', 'call_function', 'output']
    """
    return _first_that_passes(model, example_input)[1]


def _first_that_passes(model: nn.Module, example_input: object) -> tuple[Graph, Recording]:
    if not isinstance(model, nn.Module):
        raise GraphError(f"the model must be a torch.nn.Module, got {type(model).__name__}")
    call = example.arguments(example_input)
    with _kept_random_state(), _no_collection(), torch.inference_mode(False):
        model = _initialised(model, call)
        inventory = take_inventory(model)
        if not inventory.parameters:
            raise GraphError(
                f"{type(model).__name__} has no parameters: there is nothing to generate"
            )
        empty = [n for n, p in inventory.parameters.items() if p.numel() == 0]
        if empty:
            raise GraphError(f"{type(model).__name__}: parameter {empty[0]!r} is empty")
        call = _fitted(call, inventory)
        attempts: list[str] = []
        errors: list[Exception] = []
        inexact: tuple[Graph, Recording] | None = None
        for front_end in frontends.chain(inventory, call):
            try:
                recording = frontends.run(front_end, model, inventory, call)
            except GraphError:
                raise  # no other front end would do better
            except Exception as err:  # whatever the model's own code raises
                attempts.append(f"{front_end.name}: {_reason(err)}")
                errors.append(err)
                continue
            compact = simplify(recording.steps, recording.outputs, recording.side_outputs)
            graph = _graph(model, inventory, compact, recording, front_end.name, tuple(attempts))
            problem = _difference(graph, recording)
            if problem is None:
                return graph, recording
            attempts.append(f"{front_end.name}: {problem[1]}")
            if problem[0] == "excess" and inexact is None:
                inexact = graph, recording
    if inexact is not None:
        return inexact
    raise _failure(model, call, attempts, errors)


# --- before the pass ---------------------------------------------------------------------------


def _initialised(model: nn.Module, call: example.Arguments) -> nn.Module:
    """The model itself, or a copy with its lazy parameters made by one pass."""
    if not any(isinstance(m, LazyModuleMixin) for m in model.modules()):
        return model
    memo: dict[int, Any] = {}
    for buffer in model.buffers():
        if isinstance(buffer, UninitializedBuffer):  # has no copy protocol of its own
            make: Any = UninitializedBuffer
            memo[id(buffer)] = make(device=buffer.device, dtype=buffer.dtype)
    model = copy.deepcopy(model, memo)
    call = example.prepared(call, Tensor.clone)
    try:
        with torch.no_grad():
            model.eval()(*call.args, **call.kwargs)
    except Exception as err:
        raise GraphError(
            f"{type(model).__name__}: the pass to initialise its lazy modules failed: {err}"
        ) from err
    return model


def _fitted(call: example.Arguments, inventory: Inventory) -> example.Arguments:
    """The example in the model's precision, if it has one; else as it is."""
    kinds = {p.dtype for p in inventory.parameters.values() if p.is_floating_point()}
    if len(kinds) != 1 or kinds == {torch.float32}:
        return call
    kind = kinds.pop()
    return example.prepared(call, lambda t: t.to(kind) if t.is_floating_point() else t)


@contextmanager
def _kept_random_state() -> Iterator[None]:
    """Runs a pass that may draw numbers: always the same ones, and the caller's stay in place."""
    cuda = torch.cuda.is_initialized()
    state = torch.get_rng_state(), random.getstate(), np.random.get_state()
    cuda_states = torch.cuda.get_rng_state_all() if cuda else []
    torch.default_generator.manual_seed(0)
    random.seed(0)
    np.random.seed(0)
    if cuda:
        torch.cuda.manual_seed_all(0)
    try:
        yield
    finally:
        torch.set_rng_state(state[0])
        random.setstate(state[1])
        np.random.set_state(state[2])
        if cuda:
            torch.cuda.set_rng_state_all(cuda_states)


@contextmanager
def _no_collection() -> Iterator[None]:
    """Keeps the garbage collector from walking a big process again and again meanwhile."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


# --- after the pass ----------------------------------------------------------------------------


def _graph(
    model: nn.Module,
    inventory: Inventory,
    compact: Compact,
    recording: Recording,
    front_end: str,
    attempts: tuple[str, ...],
) -> Graph:
    shapes: dict[str, Shape] = {}
    frozen = set()
    for name, parameter in inventory.parameters.items():
        shapes[name] = tuple(parameter.shape)
        if not parameter.requires_grad:
            frozen.add(name)
    used = {name for node in compact.nodes for name in node.parameters}
    orphans = orphan_nodes(model, {n: s for n, s in shapes.items() if n not in used})
    report = Report(
        other=compact.other,
        orphans=tuple(n for n in shapes if n not in used),
        gradient_free=tuple(n for n in shapes if n in used - recording.reached - frozen),
        attempts=attempts,
    )
    return Graph(
        nodes=tuple(compact.nodes) + orphans,
        edges=tuple(compact.edges),
        frozen=frozenset(frozen),
        ties=inventory.ties,
        front_end=front_end,
        report=report,
    )


def _difference(graph: Graph, recording: Recording) -> tuple[str, str] | None:
    """What is wrong with a graph by autograd's account of the same pass; None: it is exact."""
    used = {n for node in graph.nodes if not node.orphan for n in node.parameters}
    missing = sorted(recording.reached - used)
    if missing:
        return (
            "missing",
            f"lost {len(missing)} parameters that autograd reaches, first {missing[0]!r}",
        )
    if not graph.report.gradient_free:
        return None
    excess = sorted(_gradient_paths(recording).intersection(graph.report.gradient_free))
    if excess:
        return "excess", f"attached {len(excess)} that autograd does not reach, first {excess[0]!r}"
    return None


def _gradient_paths(recording: Recording) -> set[str]:
    """The parameters from which a path of tensors that require a gradient leads to an output."""
    steps = recording.steps
    live = [False] * len(steps)
    for i in recording.outputs + recording.side_outputs:
        live[i] = i >= 0 and steps[i].has_gradient
    for i in range(len(steps) - 1, -1, -1):
        if live[i]:
            for _, source in steps[i].inputs:
                if source >= 0 and not live[source]:
                    live[source] = steps[source].has_gradient
    return {s.target for s, on in zip(steps, live, strict=True) if on and s.kind == "get_attr"}


def _failure(
    model: nn.Module, call: example.Arguments, attempts: list[str], errors: list[Exception]
) -> GraphError:
    name = type(model).__name__
    cause = errors[0] if errors else None
    for err in errors:
        if "meta" not in str(err).lower():  # the model's own complaint, not the device's
            cause = err
            break
    try:
        signature = inspect.signature(model.forward)
        signature.bind(*call.args, **call.kwargs)
    except TypeError as err:
        failure = GraphError(f"{name} takes other arguments: forward{signature}, but {err}")
    except ValueError:
        failure = GraphError(f"{name}: no front end could trace it; {'; '.join(attempts)}")
    else:
        if cause is None:
            failure = GraphError(f"{name}: no front end could trace it; {'; '.join(attempts)}")
        else:
            failure = GraphError(
                f"{name}: the forward pass failed on the example input: {_reason(cause)} "
                f"(tried: {', '.join(a.split(':')[0] for a in attempts)})"
            )
    failure.__cause__ = cause
    return failure


def _reason(err: Exception) -> str:
    lines = str(err).strip().splitlines()
    return f"{type(err).__name__}: {lines[0][:200]}" if lines else type(err).__name__
