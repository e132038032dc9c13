"""LSTM text classifier in the shape of LEAF's Sent140 model (Hasaas): two layers of 100 cells.

Its embedding table is trained with it; LEAF's is frozen GloVe.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from zoo.family import FAMILIES, Family, scaled, tokens
from zoo.spec import ModelSpec
from zoo.staged import Exit, StagedNet, named
from zoo.wiring import Layers, Wire, fixed, group

_EMBEDDING, _CELLS, _DENSE, _NUM_LAYERS = 300, 100, 30, 2


def lstm(spec: ModelSpec, *, num_classes: int, vocab_size: int, sequence_length: int) -> nn.Module:
    width = spec.width
    words = fixed(_EMBEDDING)  # pretrained vectors keep their size in every sub-model
    fc = group("fc", scaled(_DENSE, width, math.floor))
    layers, recurrent = Layers(), Recurrent(scaled(_CELLS, width, math.floor))
    for i in range(_NUM_LAYERS):
        inp = words if i == 0 else group(f"cells{i - 1}", recurrent.cells)
        layers.wiring[f"stages.1.lstm{i}"] = Wire(inp, group(f"cells{i}", recurrent.cells))
    last = group(f"cells{_NUM_LAYERS - 1}", recurrent.cells)
    body = named(fc=layers.linear("exits.1.body.fc", last, fc), relu=nn.ReLU())
    exits = {1: Exit(body, layers.linear("exits.1.classifier", fc, fixed(num_classes)))}
    stem = WordEmbedding(layers, vocab_size)
    return StagedNet(stem, {1: recurrent}, exits, layers.wiring)


class WordEmbedding(nn.Module):
    """Token ids to vectors; hands the mask on beside them."""

    def __init__(self, layers: Layers, vocab_size: int) -> None:
        super().__init__()
        self.words = layers.embedding("stem.words", vocab_size, fixed(_EMBEDDING))

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Any:
        return self.words(input_ids), attention_mask


class Recurrent(nn.Module):
    """LSTM layers one after another; gives the hidden state at the last word of each text.

    Layers are modules of their own (not num_layers=2) so that each has its own cells to drop.
    """

    def __init__(self, cells: int) -> None:
        super().__init__()
        self.cells = cells
        self.lstm0 = nn.LSTM(_EMBEDDING, cells, batch_first=True)
        self.lstm1 = nn.LSTM(cells, cells, batch_first=True)

    def forward(self, h_and_mask: tuple[Tensor, Tensor | None]) -> Tensor:
        words_BTD, mask_BT = h_and_mask
        h_BTD: Tensor = self.lstm1(self.lstm0(words_BTD)[0])[0]
        if mask_BT is None:
            return h_BTD[:, -1]
        last_B = mask_BT.sum(1).clamp(min=1) - 1
        return h_BTD[torch.arange(h_BTD.shape[0], device=h_BTD.device), last_B]


FAMILIES.register(
    "lstm",
    Family(
        summary="two LSTM layers of 100 cells for short texts (Hasaas, Sent140)",
        make=lstm,
        example=tokens,
        task={"num_classes": 2, "vocab_size": 10_000, "sequence_length": 25},
        width=True,
        variants=("lstm-w0.5",),
    ),
)
