"""What a decoder is told about the client whose weights it makes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import torch
from torch import Tensor, nn

from ghn_fl.errors import GHNError
from ghn_fl.hypernet.config import GHNConfig

Client: TypeAlias = Tensor | Sequence[float] | int | None  # histogram, client number, or nothing


def check_client(client: Client, config: GHNConfig) -> Tensor:
    """The descriptor as a tensor: a histogram (C), a client's number (), or empty.

    A histogram may be left out: the uniform one stands in for a client that said nothing.
    """
    if config.descriptor == "none":
        if client is not None:
            raise GHNError("this hypernetwork takes no client descriptor; leave `client` out")
        return torch.empty(0)
    if config.descriptor == "id":
        if isinstance(client, bool) or not isinstance(client, int):
            raise GHNError(f"client must be a client's number, got {client!r}")
        if not 0 <= client < config.num_clients:
            raise GHNError(f"client must be from 0 to {config.num_clients - 1}, got {client}")
        return torch.tensor(client)
    if client is None:
        return torch.full((config.num_classes,), 1 / config.num_classes)
    if isinstance(client, int):
        raise GHNError(f"client must be a label histogram, got the number {client}")
    histogram = torch.as_tensor(client, dtype=torch.float32)
    if histogram.shape != (config.num_classes,):
        raise GHNError(
            f"the label histogram must have {config.num_classes} entries, "
            f"got shape {tuple(histogram.shape)}"
        )
    if not torch.isfinite(histogram).all() or (histogram < 0).any():
        raise GHNError("the label histogram must hold finite numbers from 0, got others")
    if abs(float(histogram.sum()) - 1) > 1e-3:
        raise GHNError(f"the label histogram must sum to 1, got {float(histogram.sum()):g}")
    return histogram


class ClientEncoder(nn.Module):
    """Descriptors to what is added in the decoders' hidden layer; None where there is none."""

    def __init__(self, config: GHNConfig) -> None:
        super().__init__()
        self.kind = config.descriptor
        self.table = nn.Embedding(config.num_clients, config.width) if self.kind == "id" else None
        inputs = config.width if self.kind == "id" else config.num_classes
        self.mlp = None
        if self.kind != "none":
            self.mlp = nn.Sequential(
                nn.Linear(inputs, config.width),
                nn.ReLU(),
                nn.Linear(config.width, config.decoder_width),
            )

    def forward(self, clients: Sequence[Tensor]) -> Tensor | None:
        if self.mlp is None:
            return None
        stacked = torch.stack(list(clients))
        return self.mlp(self.table(stacked) if self.table is not None else stacked)  # type: ignore[no-any-return]
