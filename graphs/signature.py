"""Names: of a torch function, whatever form it comes in, and of its arguments."""

from __future__ import annotations

import inspect
from typing import Any, NamedTuple

import torch


class Description(NamedTuple):
    """What there is to know of a torch function without calling it.

    Attributes:
        name: without underscores, prefix or overload.
        writes: it writes into its first argument.
        arguments: their names, as far as they can be known.
        may_write: it writes, or does so if an argument says so.
        decider: position and name of the argument that says so.
    """

    name: str
    writes: bool
    arguments: tuple[str, ...]
    may_write: bool = False
    decider: tuple[int, str] | None = None


# They write into their input if the argument `inplace` says so.
MAYBE_INPLACE = frozenset(
    {"relu", "relu6", "hardtanh", "hardswish", "hardsigmoid", "leaky_relu", "elu", "celu", "selu"}
    | {"silu", "mish", "threshold", "rrelu", "dropout", "alpha_dropout", "feature_alpha_dropout"}
    | {"dropout1d", "dropout2d", "dropout3d"}
)
# They write into their statistics when training.
UPDATING_NORMS = frozenset({"batch_norm", "instance_norm"})


_known: dict[Any, Description] = {}


def describe(target: Any) -> Description:
    """The plain name of a torch function, whether it writes in place, and its arguments' names.

    >>> describe(torch.Tensor.add_)[:2]
    ('add', True)
    >>> describe(torch.nn.functional.conv2d).arguments[:3]
    ('input', 'weight', 'bias')
    >>> describe(torch.ops.aten.mul.Tensor)[:3]
    ('mul', False, ('self', 'other'))
    """
    try:
        return _known[target]
    except (KeyError, TypeError):  # TypeError: something unhashable
        pass
    description = _described(target)
    if description.writes:
        description = description._replace(may_write=True)
    elif description.name in MAYBE_INPLACE | UPDATING_NORMS:
        names = description.arguments
        for name in ("inplace", "training", "use_input_stats"):
            if name in names:
                decider = names.index(name), name
                description = description._replace(may_write=True, decider=decider)
                break
    try:
        _known[target] = description
    except TypeError:
        return description
    return description


_OPERATORS = {
    **{n: n for n in ("add", "sub", "mul", "matmul", "pow", "getitem", "setitem")},
    **{"truediv": "div", "floordiv": "floor_divide", "div": "div", "mod": "remainder"},
    **{"and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor"},
}


def _described(target: Any) -> Description:
    if isinstance(target, torch._ops.OpOverload):
        schema = target._schema
        name = schema.name.split("::")[-1]
        plain = name.rstrip("_") if schema.is_mutable else name
        return Description(plain, schema.is_mutable, tuple(a.name for a in schema.arguments))
    name = getattr(target, "__name__", type(target).__name__)
    if name in ("__get__", "__set__"):
        owner = getattr(getattr(target, "__self__", None), "__name__", "")
        if name == "__get__":
            return Description(owner, False, ("self",))
        return Description(f"set_{owner}", True, ("self", "value"))
    if name.startswith("__") and name.endswith("__"):
        core = name.strip("_")
        for prefix in ("", "r", "i"):
            if core.startswith(prefix) and core[len(prefix) :] in _OPERATORS:
                plain = _OPERATORS[core[len(prefix) :]]
                names = ("other", "self") if prefix == "r" else ("self", "other")
                return Description(plain, prefix == "i" or plain == "setitem", names)
        return Description(core, False, ("self",))
    writes = name.endswith("_") and not name.startswith("__")
    plain = name.rstrip("_") if writes else name
    return Description(plain, writes, _argument_names(target, plain))


def _argument_names(target: Any, name: str) -> tuple[str, ...]:
    try:
        return tuple(inspect.signature(target).parameters)
    except (ValueError, TypeError):  # a built-in; its operator has the same order of arguments
        schemas = torch._C._jit_get_schemas_for_operator(f"aten::{name}")
        if not schemas:
            return ()
        return tuple(a.name for a in max(schemas, key=lambda s: len(s.arguments)).arguments)
