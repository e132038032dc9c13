"""What a model is made of, listed once: modules, parameters, and which names are one tensor."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import nn


@dataclass(frozen=True)
class Inventory:
    """The parts of a model.

    Attributes:
        modules: path -> module; a module in several places has the first path.
        parameters: name -> parameter, exactly as `model.named_parameters()` lists them.
        ties: groups of names that are one parameter, the name in `parameters` first.
    """

    modules: dict[str, nn.Module]
    parameters: dict[str, nn.Parameter]
    ties: tuple[tuple[str, ...], ...]


def take_inventory(model: nn.Module) -> Inventory:
    """The parts of a model.

    Walks the tables of the modules itself: the generators of `nn.Module` take several times as
    long, and each list here would need a walk of its own.

    >>> inventory = take_inventory(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))
    >>> list(inventory.modules), list(inventory.parameters)
    (['', '0', '1'], ['0.weight', '0.bias'])
    """
    modules: dict[str, nn.Module] = {}
    parameters: dict[str, nn.Parameter] = {}
    seen: set[int] = set()
    names: dict[int, list[str]] = {}
    for path, module in _walk("", model, ()):
        if id(module) not in seen:
            seen.add(id(module))
            modules[path] = module
        for key, parameter in module._parameters.items():
            if parameter is None:
                continue
            name = f"{path}.{key}" if path else key
            known = names.get(id(parameter))
            if known is None:
                names[id(parameter)] = [name]
                parameters[name] = parameter
            else:
                known.append(name)
    return Inventory(modules, parameters, tuple(tuple(g) for g in names.values() if len(g) > 1))


def _walk(path: str, module: nn.Module, above: tuple[int, ...]) -> Iterator[tuple[str, nn.Module]]:
    stack = [(path, module, above)]
    while stack:
        path, module, above = stack.pop()
        yield path, module
        children = module._modules
        if children:
            inside = (*above, id(module))
            # The last child is pushed first: the walk visits them in order.
            for key, child in reversed(list(children.items())):
                if child is not None and id(child) not in inside:
                    stack.append((f"{path}.{key}" if path else key, child, inside))
