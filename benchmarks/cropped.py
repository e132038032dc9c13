"""The nearest trained model, cut and padded to another architecture's shapes: a baseline."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from torch import Tensor

from graphs import Graph, Role

Trained = tuple[Graph, Mapping[str, Tensor]]
Place = tuple[str, Role, int]
_HEADS = (Role.CLASSIFIER, Role.CLASSIFIER_BIAS)


def cropped(
    graph: Graph, fresh: Mapping[str, Tensor], trained: Sequence[Trained]
) -> dict[str, Tensor]:
    """Weights for `graph` from the trained model nearest to it.

    Tensors correspond by role and order: the second convolution's weight is made from the second
    convolution's weight, the classifier from the classifier. Nearest is the model that fills most
    of the newcomer's weights. Channels are the first ones, kernels are matched at their middle.
    What a tensor has more of: new outputs keep their `fresh` weights, but weights from new inputs
    to old outputs are 0, so that a wider network computes what the trained one does. Tensors
    without a counterpart are `fresh`.

    Args:
        graph: the newcomer's architecture.
        fresh: random initial weights of it.
        trained: graphs and weights of the trained models.
    """
    best = max(trained, key=lambda one: _filled(graph, fresh, one))
    pairs = _pairs(graph, fresh, best)
    return {name: fit(pairs[name], w) if name in pairs else w for name, w in fresh.items()}


def _filled(graph: Graph, fresh: Mapping[str, Tensor], trained: Trained) -> int:
    """How many of the newcomer's weights a trained model gives."""
    pairs = _pairs(graph, fresh, trained)
    return sum(math.prod(map(min, old.shape, fresh[n].shape)) for n, old in pairs.items())


def _pairs(graph: Graph, fresh: Mapping[str, Tensor], trained: Trained) -> dict[str, Tensor]:
    """The trained tensor that corresponds to a name of the newcomer, where there is one."""
    source, weights = trained
    by_place = {place: weights[name] for name, place in places(source).items() if name in weights}
    return {
        name: by_place[place]
        for name, place in places(graph).items()
        if name in fresh and place in by_place and by_place[place].ndim == fresh[name].ndim
    }


def places(graph: Graph) -> dict[str, Place]:
    """For every parameter its operator, its role, and the how manieth of those it is."""
    count: dict[tuple[str, Role], int] = {}
    found: dict[str, Place] = {}
    for node in graph.nodes:
        for name in node.parameters:
            role = node.roles[name]
            op = "" if role in _HEADS else node.op  # whatever operator makes the logits
            number = count[op, role] = count.get((op, role), -1) + 1
            found.setdefault(name, (op, role, number))
    return found


def fit(old: Tensor, fresh: Tensor) -> Tensor:
    """A trained tensor in the shape of a fresh one of the same rank.

    >>> import torch
    >>> fit(torch.tensor([[1.0, 2], [3, 4]]), torch.full((3, 3), 9.0))
    tensor([[1., 2., 0.],
            [3., 4., 0.],
            [9., 9., 9.]])
    """
    result, source, target = fresh.clone(), [], []
    for dimension, (have, want) in enumerate(zip(old.shape, fresh.shape, strict=True)):
        size = min(have, want)
        a, b = ((have - size) // 2, (want - size) // 2) if dimension > 1 else (0, 0)
        source.append(slice(a, a + size))
        target.append(slice(b, b + size))
    result[target[0]] = 0
    result[tuple(target)] = old[tuple(source)]
    return result
