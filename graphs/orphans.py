"""Nodes for parameters that the recorded pass did not use: auxiliary heads, untaken branches."""

from __future__ import annotations

from collections.abc import Mapping

from torch import nn

from graphs import ops
from graphs.graph import Node, Role, Shape

_MODULES: tuple[tuple[type | tuple[type, ...], str], ...] = (
    ((nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d), "conv_transpose"),
    ((nn.Conv1d, nn.Conv2d, nn.Conv3d), "conv"),
    (nn.Linear, "linear"),
    (nn.Bilinear, "bilinear"),
    ((nn.Embedding, nn.EmbeddingBag), "embedding"),
    ((nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d), "instance_norm"),
    (nn.modules.batchnorm._BatchNorm, "batch_norm"),
    (nn.LayerNorm, "layer_norm"),
    (nn.GroupNorm, "group_norm"),
    (nn.RMSNorm, "rms_norm"),
    ((nn.LSTM, nn.LSTMCell), "lstm"),
    ((nn.GRU, nn.GRUCell), "gru"),
    ((nn.RNN, nn.RNNCell), "rnn"),
    (nn.MultiheadAttention, "multi_head_attention"),
    (nn.PReLU, "prelu"),
)


def orphan_nodes(model: nn.Module, shapes: Mapping[str, Shape]) -> tuple[Node, ...]:
    """One node per module that owns unused parameters, without edges, in the module's order.

    With no call to look at, the type and the roles come from the kind of module.
    """
    owners: dict[str, dict[str, Shape]] = {}
    for name, shape in shapes.items():
        owners.setdefault(name.rpartition(".")[0], {})[name] = shape
    return tuple(_orphan(model, path, found) for path, found in owners.items())


def _orphan(model: nn.Module, path: str, shapes: dict[str, Shape]) -> Node:
    module = model.get_submodule(path)
    op = next((op for kinds, op in _MODULES if isinstance(module, kinds)), "parameter")
    attributes = {}
    if op == "conv":
        groups, dilation = int(getattr(module, "groups", 1)), max(getattr(module, "dilation", (1,)))
        op = "sep_conv" if groups > 1 else "dil_conv" if dilation > 1 else op
        attributes = {k: v for k, v in (("groups", groups), ("dilation", dilation)) if v != 1}
    return Node(
        op=op,
        parameters=shapes,
        roles={n: _role(op, n.rpartition(".")[2], s) for n, s in shapes.items()},
        module=path,
        attributes=attributes,
        orphan=True,
    )


def _role(op: str, attribute: str, shape: Shape) -> Role:
    """The role by the attribute names of torch's own modules; there is no other evidence."""
    is_bias = attribute.startswith("bias") or attribute.endswith("bias")
    if op in ("parameter", "prelu"):
        return Role.STANDALONE
    if op == "embedding":
        return Role.EMBEDDING
    if op in ops.NORMS:
        return Role.NORM_BIAS if is_bias else Role.NORM_SCALE
    return Role.BIAS if is_bias or len(shape) < 2 else Role.WEIGHT
