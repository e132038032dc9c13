"""A hypernetwork in a method's state, and what it is told about a client of the fleet."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace

import torch

from ghn_fl.hypernet.client import Client as Descriptor
from ghn_fl.hypernet.config import GHNConfig
from ghn_fl.hypernet.decode import full_shapes
from ghn_fl.hypernet.ghn import GHN
from ghn_fl.optim import AdamState
from ghn_fl.random import numpy_stream
from ghn_fl.types import Client, Setting, State


def design_for(design: GHNConfig, setting: Setting) -> GHNConfig:
    """The design with what the fleet tells: classes, and clients or shapes if it asks for them."""
    shapes = design.full_shapes
    if design.tiling == "full" and not shapes:
        shapes = full_shapes(setting.graphs.values())
    return replace(
        design,
        num_classes=setting.num_classes,
        num_clients=len(setting.clients) if design.descriptor == "id" else 0,
        full_shapes=shapes,
    )


def fresh(design: GHNConfig, seed: int) -> GHN:
    """A hypernetwork with random parameters that depend on the seed alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return GHN(design)


@contextlib.contextmanager
def dropout(seed: int, *numbers: int) -> Iterator[None]:
    """What the hypernetwork drops inside, if anything, depends on these numbers alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(numpy_stream(seed, "dropout", *numbers).integers(2**31)))
        yield


def to_state(ghn: GHN, adam: AdamState) -> State:
    """The hypernetwork and its optimizer as plain data and tensors."""
    moments = {"step": adam.step, "first": dict(adam.first), "second": dict(adam.second)}
    return {"ghn": dict(ghn.state_dict()), "adam": moments}


def from_state(design: GHNConfig, state: State) -> tuple[GHN, AdamState]:
    """What `to_state` took apart."""
    with torch.device("meta"):
        ghn = GHN(design)
    ghn.load_state_dict(state["ghn"], assign=True)
    adam = state["adam"]
    return ghn.requires_grad_().train(), AdamState(adam["step"], adam["first"], adam["second"])


def descriptor(design: GHNConfig, client: Client) -> Descriptor:
    """What tells a client apart under this design."""
    if design.descriptor == "histogram":
        return torch.tensor(client.mix)
    return client.id if design.descriptor == "id" else None
