"""Example inputs and outputs: arguments of a forward pass, and the tensors inside any object."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from graphs.errors import GraphError


@dataclasses.dataclass(frozen=True)
class Arguments:
    """What a model is called with."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def arguments(example_input: object) -> Arguments:
    """The call that an example stands for: a tuple is positional, a dict goes by name.

    >>> arguments((torch.zeros(1), torch.ones(1))).args
    (tensor([0.]), tensor([1.]))
    >>> arguments({"x": torch.zeros(1)}).kwargs
    {'x': tensor([0.])}
    """
    if type(example_input) is tuple:
        call = Arguments(example_input, {})
    elif isinstance(example_input, Mapping) and all(isinstance(k, str) for k in example_input):
        call = Arguments((), dict(example_input))
    else:
        call = Arguments((example_input,), {})
    if not any(True for _ in tensors(call.args)) and not any(True for _ in tensors(call.kwargs)):
        raise GraphError(
            "the example input must be a tensor, a tuple of arguments or a dict of named arguments "
            f"with a tensor in it, got {type(example_input).__name__}"
        )
    return call


def prepared(call: Arguments, change: Callable[[Tensor], Tensor]) -> Arguments:
    """A copy of the arguments with every tensor changed; the caller's stay as they are."""
    args, kwargs = copy.copy(call.args), copy.copy(call.kwargs)
    return Arguments(
        tuple(_mapped(a, change) for a in args), {k: _mapped(v, change) for k, v in kwargs.items()}
    )


def _mapped(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
        return type(value)(_mapped(v, change) for v in value)
    if type(value) is dict:
        return {k: _mapped(v, change) for k, v in value.items()}
    memo: dict[int, Any] = {}
    for tensor in tensors(value):
        memo[id(tensor)] = change(tensor)
    try:
        return copy.deepcopy(value, memo) if memo else value
    except Exception:  # an object without a working copy protocol is handed over as it is
        return value


def tensors(value: object) -> Iterator[Tensor]:
    """All tensors in a value, however nested: containers, data classes, objects with attributes."""
    for tensor, _ in _walk(value, True, set()):
        yield tensor


def outputs(value: object) -> tuple[list[Tensor], list[Tensor]]:
    """The tensors a model returned: those in plain containers, and those inside other objects.

    The second kind is by-products such as a key-value cache: they keep parameters alive, but
    what leads to them is no classifier.
    """
    main: list[Tensor] = []
    side: list[Tensor] = []
    for tensor, plain in _walk(value, True, set()):
        (main if plain else side).append(tensor)
    return main, side


def _walk(value: object, plain: bool, seen: set[int]) -> Iterator[tuple[Tensor, bool]]:
    if isinstance(value, Tensor):
        yield value, plain
        return
    if (
        isinstance(value, (str, bytes, int, float, type(None), torch.nn.Module))
        or id(value) in seen
    ):
        return
    seen.add(id(value))
    if isinstance(value, Mapping):
        parts, inside = list(value.values()), plain
    elif isinstance(value, (list, tuple, set)):
        parts, inside = list(value), plain
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts, inside = [getattr(value, f.name, None) for f in dataclasses.fields(value)], plain
    elif hasattr(value, "__dict__") and not callable(value):
        parts, inside = list(vars(value).values()), False
    else:
        return
    for part in parts:
        yield from _walk(part, inside, seen)
