"""Nested states as flat tensors and JSON, and back: how a checkpoint is stored without pickle."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

_TENSOR = "__tensor__"
_PLAIN = (str, int, float, bool, type(None))


def flatten(state: Any, path: str = "") -> tuple[Any, dict[str, Tensor]]:
    """The state with a reference in place of each tensor, and the tensors by path.

    >>> skeleton, tensors = flatten({"a": [1, torch.zeros(2)]})
    >>> skeleton, list(tensors)
    ({'a': [1, {'__tensor__': '/a/1'}]}, ['/a/1'])
    """
    if isinstance(state, Tensor):
        return {_TENSOR: path}, {path: state.detach()}
    if isinstance(state, _PLAIN):
        return state, {}
    tensors: dict[str, Tensor] = {}
    if isinstance(state, Mapping):
        skeleton: Any = {}
        for key, value in state.items():
            if not isinstance(key, str) or key == _TENSOR:
                raise TypeError(f"a state's keys are texts, got {key!r} at {path or '/'}")
            skeleton[key], found = flatten(value, f"{path}/{key}")
            tensors |= found
        return skeleton, tensors
    if isinstance(state, list | tuple):
        skeleton = []
        for i, value in enumerate(state):
            part, found = flatten(value, f"{path}/{i}")
            skeleton.append(part)
            tensors |= found
        return skeleton, tensors
    raise TypeError(f"a state holds tensors and plain data, got {type(state)} at {path or '/'}")


def unshared(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors, each in memory of its own, as safetensors wants them.

    >>> a = torch.zeros(2)
    >>> b = unshared({"a": a, "same": a, "part": a[:1]})
    >>> len({t.untyped_storage().data_ptr() for t in b.values()})
    3
    """
    seen: set[int] = set()
    separate = {}
    for name, tensor in tensors.items():
        place = tensor.untyped_storage().data_ptr()
        whole = tensor.untyped_storage().nbytes() == tensor.nbytes
        fresh = whole and place not in seen
        separate[name] = tensor.contiguous() if fresh else tensor.clone().contiguous()
        seen.add(place)
    return separate


def unflatten(skeleton: Any, tensors: Mapping[str, Tensor]) -> Any:
    """The state that `flatten` took apart; tuples come back as lists."""
    if isinstance(skeleton, dict):
        if skeleton.keys() == {_TENSOR}:
            return tensors[skeleton[_TENSOR]]
        return {key: unflatten(value, tensors) for key, value in skeleton.items()}
    if isinstance(skeleton, list):
        return [unflatten(value, tensors) for value in skeleton]
    return skeleton


def equal(a: Any, b: Any) -> bool:
    """True when two states are the same, bit for bit."""
    (skeleton_a, tensors_a), (skeleton_b, tensors_b) = flatten(a), flatten(b)
    return (
        skeleton_a == skeleton_b
        and tensors_a.keys() == tensors_b.keys()
        and all(torch.equal(t, tensors_b[path]) for path, t in tensors_a.items())
    )


def all_finite(state: Any) -> str:
    """The path of a tensor that holds a value that is not finite; empty if all are."""
    for path, tensor in flatten(state)[1].items():
        if tensor.is_floating_point() and not torch.isfinite(tensor).all():
            return path
    return ""
