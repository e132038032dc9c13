"""A small hypernetwork and requests to it, for the tests of this folder."""

from __future__ import annotations

import torch

import graphs
import zoo
from ghn_fl import GHN, GHNConfig, Request
from ghn_fl.hypernet.client import Client

SMALL = {"width": 16, "decoder_width": 32}


def make(**options: object) -> GHN:
    torch.manual_seed(0)
    return GHN(GHNConfig(**SMALL | options)).eval()  # type: ignore[arg-type]


def request(spec: str = "lenet5-d1", client: Client = None, seed: int = 0) -> Request:
    torch.manual_seed(seed)
    model = zoo.build(spec)
    graph = graphs.trace(model, zoo.example_input(spec))
    current = {name: p.detach() for name, p in model.named_parameters()}
    return Request(graph=graph, client=client, current=current)
