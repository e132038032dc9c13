"""A BERT-like text encoder in the sizes of BERT's published miniatures, scaled in depth or width.

Post-norm encoder layers, GELU, learned positions; the head is BERT's: tanh pooler on the first
token, then the classifier. In width, every head keeps the first part of its features.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zoo.errors import SpecError
from zoo.family import FAMILIES, Family, scaled, tokens
from zoo.spec import ModelSpec
from zoo.staged import Exit, StagedNet, named, owned_exits
from zoo.wiring import Axis, Layers, fixed, group, size

# name: layers, hidden size, heads
_SIZES = {
    "bert_tiny": (2, 128, 2),
    "bert_mini": (4, 256, 4),
    "bert_small": (4, 512, 8),
    "bert_medium": (8, 512, 8),
    "bert_base": (12, 768, 12),
}
_MAX_POSITIONS = 512
_EPS = 1e-12
_DROPOUT = 0.1
_INIT_STD = 0.02

# B texts, T tokens, D hidden size, H heads, K features of a head


def bert(
    spec: ModelSpec,
    *,
    num_layers: int,
    hidden_size: int,
    num_heads: int,
    num_classes: int,
    vocab_size: int,
    sequence_length: int,
) -> nn.Module:
    if sequence_length > _MAX_POSITIONS:
        raise SpecError(f"{spec} reads at most {_MAX_POSITIONS} tokens, got {sequence_length}")
    head_size = scaled(hidden_size // num_heads, spec.width, math.ceil)
    # The residual stream is laid out as the heads are, so that both are cut alike.
    hidden = group("hidden", head_size, copies=num_heads)
    inner = scaled(4 * hidden_size, spec.width, math.ceil)
    depth = spec.depth or num_layers
    layers = Layers()
    stem = Embeddings(layers, "stem", hidden, vocab_size)
    stages = {
        d: EncoderLayer(layers, f"stages.{d}", hidden, num_heads, inner)
        for d in range(1, depth + 1)
    }
    exits = {d: _exit(layers, d, hidden, num_classes) for d in owned_exits(spec, depth)}
    net = StagedNet(stem, stages, exits, layers.wiring)
    net.apply(_init)
    return net


def _exit(layers: Layers, d: int, hidden: Axis, num_classes: int) -> Exit:
    pooled = group(f"exit{d}.pooler", size(hidden))
    body = named(
        first=FirstToken(),
        pooler=layers.linear(f"exits.{d}.body.pooler", hidden, pooled),
        tanh=nn.Tanh(),
        dropout=nn.Dropout(_DROPOUT),
    )
    return Exit(body, layers.linear(f"exits.{d}.classifier", pooled, fixed(num_classes)))


def _init(module: nn.Module) -> None:
    """BERT's initialisation: normal with standard deviation 0.02, no bias."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=_INIT_STD)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)


class Embeddings(nn.Module):
    """Word + position embedding, normalised; hands the mask of real tokens on beside it."""

    def __init__(self, layers: Layers, path: str, hidden: Axis, vocab_size: int) -> None:
        super().__init__()
        self.words = layers.embedding(f"{path}.words", vocab_size, hidden)
        self.positions = layers.embedding(f"{path}.positions", _MAX_POSITIONS, hidden)
        self.norm = layers.layer_norm(f"{path}.norm", hidden, _EPS)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Any:
        positions_T = torch.arange(input_ids.shape[1], device=input_ids.device)
        h_BTD = self.norm(self.words(input_ids) + self.positions(positions_T))
        mask_B11T = None if attention_mask is None else attention_mask[:, None, None, :].bool()
        return F.dropout(h_BTD, _DROPOUT, self.training), mask_B11T


class EncoderLayer(nn.Module):
    """Attention and feed-forward, each added to its input and normalised after."""

    def __init__(self, layers: Layers, path: str, hidden: Axis, num_heads: int, inner: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        inside = group(f"{path}.heads", hidden[0].units, copies=num_heads)
        middle = group(f"{path}.middle", inner)
        self.query = layers.linear(f"{path}.query", hidden, inside)
        self.key = layers.linear(f"{path}.key", hidden, inside)
        self.value = layers.linear(f"{path}.value", hidden, inside)
        self.out = layers.linear(f"{path}.out", inside, hidden)
        self.norm1 = layers.layer_norm(f"{path}.norm1", hidden, _EPS)
        self.up = layers.linear(f"{path}.up", hidden, middle)
        self.down = layers.linear(f"{path}.down", middle, hidden)
        self.norm2 = layers.layer_norm(f"{path}.norm2", hidden, _EPS)

    def forward(self, h_and_mask: tuple[Tensor, Tensor | None]) -> Any:
        h_BTD, mask_B11T = h_and_mask
        h_BTD = self.norm1(h_BTD + self._drop(self._attend(h_BTD, mask_B11T)))
        h_BTD = self.norm2(h_BTD + self._drop(self.down(F.gelu(self.up(h_BTD)))))
        return h_BTD, mask_B11T

    def _attend(self, h_BTD: Tensor, mask_B11T: Tensor | None) -> Tensor:
        q_BHTK, k_BHTK, v_BHTK = (
            part(h_BTD).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for part in (self.query, self.key, self.value)
        )
        dropout = _DROPOUT if self.training else 0.0
        a_BHTK = F.scaled_dot_product_attention(
            q_BHTK, k_BHTK, v_BHTK, attn_mask=mask_B11T, dropout_p=dropout
        )
        mixed: Tensor = self.out(a_BHTK.transpose(1, 2).flatten(2))
        return mixed

    def _drop(self, h: Tensor) -> Tensor:
        return F.dropout(h, _DROPOUT, self.training)


class FirstToken(nn.Module):
    """The hidden state of the first token of every text."""

    def forward(self, h_and_mask: tuple[Tensor, Tensor | None]) -> Tensor:
        return h_and_mask[0][:, 0]


for _name, (_layers, _hidden, _heads) in _SIZES.items():
    FAMILIES.register(
        _name,
        Family(
            summary=f"BERT-like encoder, {_layers} layers of {_hidden} (InclusiveFL)",
            make=partial(bert, num_layers=_layers, hidden_size=_hidden, num_heads=_heads),
            example=tokens,
            task={"num_classes": 2, "vocab_size": 30_522, "sequence_length": 128},
            depth=_layers,
            width=True,
            exits=True,
            variants=("bert_base-d4", "bert_base-d8") if _name == "bert_base" else (),
        ),
    )
