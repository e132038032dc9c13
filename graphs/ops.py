"""The table of operator types, and which torch function is which of them.

The index of an operator in `OPS` is part of every saved hypernetwork (it selects a row of the
operator embedding), so the tuple only ever grows at its end.
"""

from __future__ import annotations

from graphs.errors import GraphError

OPS: tuple[str, ...] = (
    "input",  # the model's inputs, one node for all of them
    "other",  # not in this table; counted in the graph's report
    # layers: operators with weights
    "conv",
    "sep_conv",  # groups > 1
    "dil_conv",  # dilation > 1
    "conv_transpose",
    "linear",
    "matmul",  # product of two sources, or with a stand-alone stack of matrices
    "bilinear",
    "embedding",
    "lstm",
    "gru",
    "rnn",
    "multi_head_attention",
    "batch_norm",
    "layer_norm",
    "group_norm",
    "rms_norm",
    "instance_norm",
    "prelu",
    # stand-alone parameters, by the way they enter
    "parameter",  # is itself a source: latents, learned queries
    "shift",  # added: position table, attention bias
    "scale",  # multiplied: layer scale, temperature
    "token",  # concatenated: class and register tokens
    "lookup",  # picked from by index
    # joins of two or more sources
    "sum",
    "mul",
    "concat",
    "attention",
    "select",  # where, masked_fill
    "index",  # gathered or scattered by another source
    "write",  # written into a part of a tensor
    # pooling
    "max_pool",
    "avg_pool",
    "glob_avg",
)

_INDEX = {name: i for i, name in enumerate(OPS)}


def op_index(name: str) -> int:
    """The index of an operator type in `OPS`.

    >>> op_index("input"), OPS[op_index("linear")]
    (0, 'linear')
    """
    if name not in _INDEX:
        raise GraphError(f"unknown operator type {name!r}; known: {', '.join(OPS)}")
    return _INDEX[name]


def is_op(name: object) -> bool:
    """True when `name` is an operator type of this table."""
    return name in _INDEX


# Operators whose named arguments are weights. Everything here that gets a parameter in one of its
# weight arguments is a layer, even when its input is a constant.
LAYERS: dict[str, str] = {
    **{f"conv{d}d": "conv" for d in (1, 2, 3)},
    **{f"conv_transpose{d}d": "conv_transpose" for d in (1, 2, 3)},
    "convolution": "conv",
    "_convolution": "conv",
    "conv_tbc": "conv",
    "linear": "linear",
    "bilinear": "bilinear",
    "_trilinear": "bilinear",
    "embedding": "embedding",
    "embedding_bag": "embedding",
    "_embedding_bag": "embedding",
    "_embedding_bag_forward_only": "embedding",
    "lstm": "lstm",
    "lstm_cell": "lstm",
    "mkldnn_rnn_layer": "lstm",
    "_thnn_fused_lstm_cell": "lstm",
    "gru": "gru",
    "gru_cell": "gru",
    "_thnn_fused_gru_cell": "gru",
    "rnn_tanh": "rnn",
    "rnn_relu": "rnn",
    "rnn_tanh_cell": "rnn",
    "rnn_relu_cell": "rnn",
    "multi_head_attention_forward": "multi_head_attention",
    "_native_multi_head_attention": "multi_head_attention",
    "_transformer_encoder_layer_fwd": "multi_head_attention",
    "batch_norm": "batch_norm",
    "native_batch_norm": "batch_norm",
    "_native_batch_norm_legit": "batch_norm",
    "_native_batch_norm_legit_no_training": "batch_norm",
    "_batch_norm_impl_index": "batch_norm",
    "_batch_norm_no_update": "batch_norm",
    "layer_norm": "layer_norm",
    "native_layer_norm": "layer_norm",
    "group_norm": "group_norm",
    "native_group_norm": "group_norm",
    "rms_norm": "rms_norm",
    "_fused_rms_norm": "rms_norm",
    "instance_norm": "instance_norm",
    "prelu": "prelu",
    "_prelu_kernel": "prelu",
}

NORMS = frozenset({"batch_norm", "layer_norm", "group_norm", "rms_norm", "instance_norm"})
CONVOLUTIONS = frozenset({"conv", "sep_conv", "dil_conv", "conv_transpose"})
RECURRENT = frozenset({"lstm", "gru", "rnn"})
# Operators whose last one before the output is a classifier.
HEADS = CONVOLUTIONS | {"linear", "matmul", "bilinear"}

# Products of matrices: with a parameter a layer, with two sources a join.
PRODUCTS = frozenset(
    {
        "matmul",
        "mm",
        "bmm",
        "addmm",
        "baddbmm",
        "addmv",
        "mv",
        "einsum",
        "tensordot",
        "dot",
        "chain_matmul",
    }
    | {
        "_grouped_mm",
        "grouped_mm",
        "_scaled_mm",
        "inner",
        "outer",
        "addbmm",
        "kron",
        "multi_dot",
        "linalg_matmul",
    }
    | {"segment_matmul", "addr", "ger"}
)

# (type of a join of sources, type when a parameter enters)
JOINS: dict[str, tuple[str, str]] = {
    **dict.fromkeys(("add", "sub", "rsub", "sum", "logaddexp", "subtract"), ("sum", "shift")),
    **dict.fromkeys(("mul", "div", "multiply", "divide", "true_divide", "pow"), ("mul", "scale")),
    **dict.fromkeys(("addcmul", "addcdiv", "lerp", "floor_divide", "remainder"), ("mul", "scale")),
    **dict.fromkeys(
        ("cat", "concat", "stack", "hstack", "vstack", "concatenate"), ("concat", "token")
    ),
    **dict.fromkeys(("where", "masked_fill", "masked_scatter"), ("select", "select")),
    **dict.fromkeys(("maximum", "minimum", "max", "min"), ("select", "select")),
    **dict.fromkeys(
        ("getitem", "index", "index_select", "gather", "take_along_dim"), ("index", "lookup")
    ),
    **dict.fromkeys(("take", "index_add", "scatter", "scatter_add"), ("index", "lookup")),
    **dict.fromkeys(
        ("scatter_reduce", "index_put", "index_copy", "grid_sample"), ("index", "lookup")
    ),
    **dict.fromkeys(("_unsafe_index", "masked_select", "index_reduce"), ("index", "lookup")),
    **dict.fromkeys(
        ("repeat_interleave", "sparse_mm", "spmm", "segment_reduce"), ("index", "lookup")
    ),
    **dict.fromkeys(
        ("setitem", "copy", "slice_scatter", "select_scatter", "fill"), ("write", "token")
    ),
    **dict.fromkeys(("index_fill", "as_strided_scatter", "set_data"), ("write", "token")),
    "scaled_dot_product_attention": ("attention", "attention"),
    "_scaled_dot_product_flash_attention_for_cpu": ("attention", "attention"),
    "_scaled_dot_product_fused_attention_overrideable": ("attention", "attention"),
    "flex_attention": ("attention", "attention"),
    **dict.fromkeys(("lt", "le", "gt", "ge", "eq", "ne"), ("select", "select")),
    **dict.fromkeys(("bitwise_and", "bitwise_or", "bitwise_xor"), ("select", "select")),
    **dict.fromkeys(("logical_and", "logical_or", "logical_xor"), ("select", "select")),
    "sparse_csr_tensor": ("index", "index"),
    "sparse_coo_tensor": ("index", "index"),
    "_pad_packed_sequence": ("index", "index"),
    "cdist": ("matmul", "matmul"),
    "cosine_similarity": ("matmul", "matmul"),
    "conv_depthwise2d": ("matmul", "matmul"),
}

POOLS: dict[str, str] = {
    **{f"max_pool{d}d": "max_pool" for d in (1, 2, 3)},
    **{f"max_pool{d}d_with_indices": "max_pool" for d in (1, 2, 3)},
    **{f"adaptive_max_pool{d}d": "max_pool" for d in (1, 2, 3)},
    **{f"fractional_max_pool{d}d": "max_pool" for d in (2, 3)},
    **{f"avg_pool{d}d": "avg_pool" for d in (1, 2, 3)},
    **{f"adaptive_avg_pool{d}d": "avg_pool" for d in (1, 2, 3)},
    **{f"_adaptive_avg_pool{d}d": "avg_pool" for d in (2, 3)},
    **{f"lp_pool{d}d": "avg_pool" for d in (1, 2, 3)},
    "amax": "max_pool",
    "mean": "avg_pool",
}

# Functions that read only shape, type or device of (further) tensors -> inputs that do flow.
SHAPE_ONLY: dict[str, int] = {
    **dict.fromkeys(("expand_as", "view_as", "reshape_as", "type_as", "narrow", "view"), 1),
    **dict.fromkeys((f"{n}_like" for n in ("zeros", "ones", "full", "empty", "rand", "randn")), 0),
    **dict.fromkeys((f"new_{n}" for n in ("zeros", "ones", "full", "empty", "tensor")), 0),
}
