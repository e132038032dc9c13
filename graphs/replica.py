"""A private copy of a model to run: whatever the forward pass does to it, the caller's is unchanged.

`copy.deepcopy` would do, but copies every weight and takes longer than the forward pass of a small
network. Here the modules are copied and their parameters are not: a parameter of the copy is a
new tensor over the same memory (or without memory, on the meta device). The recorder refuses to
let a forward pass write into that memory (see `record.py`); the pass is then repeated on a copy
with its own.
"""

from __future__ import annotations

import copy
import enum
import types
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn


class Memory(enum.Enum):
    """Where the parameters of a copy live."""

    SHARED = "shared"  # the same memory; for reading only
    OWN = "own"
    META = "meta"  # shapes only
    ZEROS = "zeros"  # for a model that has no values but needs some


@dataclass(frozen=True)
class Replica:
    """A copy of a model in evaluation mode, and the names of its parts.

    Attributes:
        parameters: id of a parameter of the copy -> its canonical name in the original.
        modules: id of a module of the copy -> its path.
    """

    model: nn.Module
    parameters: dict[int, str]
    modules: dict[int, str]
    memory: Memory


def replicate(model: nn.Module, memory: Memory) -> Replica:
    """A copy of `model`; what cannot be copied (a lock, an open file) is shared with it."""
    memo: dict[int, Any] = {}
    names: dict[int, str] = {}
    for name, parameter in model.named_parameters():
        twin = _parameter(parameter, memory)
        memo[id(parameter)] = twin
        names[id(twin)] = name
    originals = tuple(model.named_modules())
    if memory in (Memory.META, Memory.ZEROS):
        for buffer in model.buffers():
            memo[id(buffer)] = _moved(buffer, memory)

    plain = [(m, type(m).__new__(type(m))) for _, m in originals if _is_plain(type(m))]
    memo.update((id(m), twin) for m, twin in plain)
    for original, twin in plain:
        _fill(original, twin, memo)
    for _, original in originals:
        if id(original) not in memo:
            _copied(original, memo)
    twin = memo[id(model)]
    modules = {id(memo[id(m)]): path for path, m in originals if id(m) in memo}
    for _, original in originals:
        part = memo.get(id(original), original)
        if type(part).train is not nn.Module.train or not _is_plain(type(part)):
            # An own `train` often clears what the model cached in evaluation mode; such a cache
            # would hide the parameters that it was computed from.
            part.train()
            part.eval()
    return Replica(twin, names, modules, memory)


def _parameter(parameter: nn.Parameter, memory: Memory) -> nn.Parameter:
    if memory in (Memory.META, Memory.ZEROS):
        data = _moved(parameter, memory)
    elif memory is Memory.SHARED:
        data = parameter.detach()
    else:
        data = parameter.detach().clone()
    twin = nn.Parameter(data, requires_grad=parameter.requires_grad)
    if type(parameter) is not nn.Parameter:
        twin.__class__ = type(parameter)
    if parameter.__dict__:
        twin.__dict__.update(parameter.__dict__)
    return twin


def _moved(tensor: Tensor, memory: Memory) -> Tensor:
    if memory is Memory.META:
        return torch.empty_like(tensor, device="meta", requires_grad=False)
    return torch.zeros_like(tensor, device="cpu", requires_grad=False)


_COPY_PROTOCOL = (
    "__deepcopy__",
    "__reduce__",
    "__reduce_ex__",
    "__getstate__",
    "__setstate__",
    "__new__",
)
_plain_types: dict[type, bool] = {}


def _is_plain(kind: type) -> bool:
    """True when copying the attributes of such a module copies the module."""
    known = _plain_types.get(kind)
    if known is None:
        known = all(
            getattr(kind, name, None) is getattr(nn.Module, name, None) for name in _COPY_PROTOCOL
        ) and not issubclass(kind, torch.jit.ScriptModule)
        _plain_types[kind] = known
    return known


_IMMUTABLE = frozenset(
    {int, float, bool, str, type(None), complex, bytes, type, types.FunctionType}
    | {types.BuiltinFunctionType, torch.dtype, torch.device, torch.Size, types.ModuleType}
)


def _fill(original: nn.Module, twin: nn.Module, memo: dict[int, Any]) -> None:
    state = original.__dict__.copy()
    for name, value in original.__dict__.items():
        kind = type(value)
        if kind in _IMMUTABLE:
            continue
        if kind is OrderedDict and not value:  # the many tables of hooks
            state[name] = OrderedDict()
        elif kind is dict and not value:
            state[name] = {}
        elif kind is tuple and all(type(v) in _IMMUTABLE for v in value):
            continue
        elif name == "_parameters":
            state[name] = {k: None if v is None else memo[id(v)] for k, v in value.items()}
        elif name == "_modules":
            state[name] = {k: None if v is None else _copied(v, memo) for k, v in value.items()}
        elif name == "_buffers":
            state[name] = {k: _buffer(v, memo) for k, v in value.items()}
        else:
            state[name] = _copied(value, memo)
    state["training"] = False
    twin.__dict__ = state


def _buffer(value: Tensor | None, memo: dict[int, Any]) -> Tensor | None:
    if value is not None and id(value) not in memo:
        memo[id(value)] = value.detach().clone()
    return None if value is None else memo[id(value)]


def _copied(value: Any, memo: dict[int, Any]) -> Any:
    known = memo.get(id(value))
    if known is not None:
        return known
    if isinstance(value, Tensor):
        # A cached result that still has its history cannot be deep-copied.
        memo[id(value)] = value.detach().clone().requires_grad_(value.requires_grad)
        return memo[id(value)]
    try:
        return copy.deepcopy(value, memo)
    except Exception:  # whatever a class's copy protocol raises; sharing it is the way out
        return value
