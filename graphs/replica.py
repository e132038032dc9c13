"""A private copy of a model to run: whatever the pass does to it, the caller's is unchanged.

`copy.deepcopy` would do, but copies every weight and takes longer than the forward pass of a small
network. Here the modules are copied and their parameters are lent to the copy (or replaced by
tensors without memory, on the meta device). The recorder refuses to let a pass write into what is
only lent (see `record.py`); it is then repeated on a copy with parameters of its own.
"""

from __future__ import annotations

import copy
import enum
import io
import types
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from graphs.inventory import Inventory, take_inventory


class Memory(enum.Enum):
    """Where the parameters of a copy live."""

    SHARED = "shared"  # in the original; for reading only
    OWN = "own"
    META = "meta"  # shapes only
    ZEROS = "zeros"  # for a model that has no values but needs some


@dataclass(frozen=True)
class Replica:
    """A copy of a model in evaluation mode, and the names of its parts.

    Attributes:
        parameters: id of a parameter of the copy -> its canonical name in the original.
        modules: id of a module of the copy -> its path.
        borrowed: tensors of the original that are lent to the copy.
        held: keeps alive what the identities above belong to.
    """

    model: nn.Module
    parameters: dict[int, str]
    modules: dict[int, str]
    memory: Memory
    borrowed: tuple[Tensor, ...] = ()
    held: tuple[Any, ...] = ()


def replicate(model: nn.Module, inventory: Inventory, memory: Memory) -> Replica:
    """A copy of `model`; what cannot be copied (a lock, an open file) is shared with it."""
    memo: dict[int, Any] = {}
    names: dict[int, str] = {}
    for name, parameter in inventory.parameters.items():
        own = parameter if memory is Memory.SHARED else _parameter(parameter, memory)
        memo[id(parameter)] = own
        names[id(own)] = name
    if memory in (Memory.META, Memory.ZEROS):
        for buffer in model.buffers():
            memo[id(buffer)] = _moved(buffer, memory)

    modules = inventory.modules
    plain = [(m, type(m).__new__(type(m))) for m in modules.values() if _is_plain(type(m))]
    memo.update([(id(m), twin) for m, twin in plain])
    for original, copied in plain:
        _fill(original, copied, memory, memo)
    for original in modules.values():
        if not _is_plain(type(original)):
            _copied(original, memo).train(False)
    paths = {id(memo[id(m)]): path for path, m in modules.items() if id(m) in memo}
    for original in modules.values():
        if type(original).train is not nn.Module.train and id(original) in memo:
            # An own `train` often clears what the model cached in evaluation mode; such a cache
            # would hide the parameters that it was computed from.
            memo[id(original)].train(True)
            memo[id(original)].train(False)
    borrowed: tuple[Tensor, ...] = ()
    if memory is Memory.SHARED:
        statistics = [b for m in modules.values() if _lends(m) for b in m._buffers.values()]
        borrowed = (*inventory.parameters.values(), *[b for b in statistics if b is not None])
    twin = memo[id(model)]
    held = tuple(memo.values())
    if len(plain) < len(modules):
        # A copy protocol of its own (a scripted module's) need not use the parameters made above.
        found = take_inventory(twin).parameters
        names |= {id(parameter): name for name, parameter in found.items()}
        held += tuple(found.values())
    return Replica(twin, names, paths, memory, borrowed, held)


def _parameter(parameter: nn.Parameter, memory: Memory) -> nn.Parameter:
    if memory in (Memory.META, Memory.ZEROS):
        data = _moved(parameter, memory)
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


_COPY_PROTOCOL = ("__deepcopy__", "__reduce__", "__reduce_ex__", "__getstate__", "__new__")
_plain_types: dict[type, bool] = {}


def _is_plain(kind: type) -> bool:
    """True when copying the attributes of such a module copies the module."""
    known = _plain_types.get(kind)
    if known is None:
        known = all(getattr(kind, n, None) is getattr(nn.Module, n, None) for n in _COPY_PROTOCOL)
        # torch's own layers use it only to read old pickles.
        restore: Any = kind.__setstate__  # type: ignore[attr-defined]
        known = known and restore.__module__.startswith("torch.nn.modules.")
        known = known and not issubclass(kind, torch.jit.ScriptModule)
        _plain_types[kind] = known
    return known


_IMMUTABLE = frozenset(
    {int, float, bool, str, type(None), complex, bytes, type, types.FunctionType}
    | {types.BuiltinFunctionType, torch.dtype, torch.device, torch.Size, types.ModuleType}
)


def _fill(original: nn.Module, twin: nn.Module, memory: Memory, memo: dict[int, Any]) -> None:
    state = original.__dict__.copy()
    for name, value in original.__dict__.items():
        kind = type(value)
        if kind in _IMMUTABLE:
            continue
        if kind is OrderedDict and not value:  # the many tables of hooks
            state[name] = OrderedDict()
        elif kind in (dict, set, list) and not value:
            state[name] = kind()
        elif kind in (tuple, list) and _IMMUTABLE.issuperset(map(type, value)):
            if kind is list:
                state[name] = value.copy()
        elif name == "_parameters":
            state[name] = {k: memo.get(id(v)) for k, v in value.items()}
        elif name == "_modules":
            state[name] = {k: None if v is None else _copied(v, memo) for k, v in value.items()}
        elif name == "_buffers":
            # A norm's statistics are lent too: the one call that updates them is watched.
            lend = memory is Memory.SHARED and _lends(original)
            state[name] = dict(value) if lend else {k: _buffer(v, memo) for k, v in value.items()}
        else:
            state[name] = _copied(value, memo)
    state["training"] = False
    object.__setattr__(twin, "__dict__", state)  # past the slow bookkeeping of nn.Module


def _lends(module: nn.Module) -> bool:
    return isinstance(module, nn.modules.batchnorm._NormBase)


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
    if isinstance(value, torch.jit.ScriptModule):
        return _scripted(value, memo)
    try:
        return copy.deepcopy(value, memo)
    except Exception:  # whatever a class's copy protocol raises; sharing it is the way out
        return value


def _scripted(module: torch.jit.ScriptModule, memo: dict[int, Any]) -> Any:
    """A copy by way of the file format: a deep copy would go on running the original's code."""
    file = io.BytesIO()
    torch.jit.save(module, file)
    file.seek(0)
    twin = torch.jit.load(file)
    memo.update([(id(a), b) for a, b in zip(module.modules(), twin.modules(), strict=True)])
    return twin
