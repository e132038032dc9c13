"""The graph hypernetwork: (graphs, current parameters, clients) -> weights, in four stages.

    features (embed) -> GatedGNN -> decoders with the client's descriptor -> normalisation

One hypernetwork serves any mix of architectures, those it has never seen too.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ghn_fl.errors import GHNError
from ghn_fl.hypernet import store
from ghn_fl.hypernet.client import Client, ClientEncoder, check_client
from ghn_fl.hypernet.config import GHNConfig
from ghn_fl.hypernet.decode import VECTORS, Decoders, normalise
from ghn_fl.hypernet.embed import NodeEncoder, shorten
from ghn_fl.hypernet.gatedgnn import GatedGNN
from ghn_fl.hypernet.plan import Joined, join, plan
from graphs import OPS, Graph, Role, trace
from graphs.batch import ROLES

MAX_PARAMETERS = 500_000_000  # per generated model; 2 GB in float32
_HEADS = (Role.CLASSIFIER, Role.CLASSIFIER_BIAS)


@dataclass(frozen=True, kw_only=True)
class Request:
    """Whose weights to generate.

    Attributes:
        graph: the architecture.
        client: label histogram, client's number, or None; as the config's `descriptor` says.
        current: the client's current parameters by name; None where nobody has any.
    """

    graph: Graph
    client: Client = None
    current: Mapping[str, Tensor] | None = None


class GHN(nn.Module):
    """A graph hypernetwork.

    >>> import graphs, zoo
    >>> _ = torch.manual_seed(0)
    >>> ghn = GHN(GHNConfig(num_classes=10)).eval()
    >>> model = zoo.build("lenet5")
    >>> weights = ghn.generate(model, zoo.example_input("lenet5"))
    >>> weights.keys() == dict(model.named_parameters()).keys()
    True
    """

    def __init__(self, config: GHNConfig) -> None:
        super().__init__()
        config.check_complete()
        self.config = config
        self.nodes = NodeEncoder(config)
        self.gnn = GatedGNN(config)
        self.client = ClientEncoder(config)
        self.decoders = Decoders(config, OPS)

    def generate(
        self,
        model: nn.Module | None = None,
        example_input: Any = None,
        *,
        graph: Graph | None = None,
        client: Client = None,
        current: Mapping[str, Tensor] | None = None,
        grad: bool = False,
    ) -> dict[str, Tensor]:
        """Weights for an architecture: exactly its trainable parameters, in float32.

        Args:
            model: the network, with `example_input`; its parameters are taken as current.
            example_input: a tensor, tuple or dict that the model accepts.
            graph: the architecture alone, instead of a model.
            client: whose weights: a label histogram by default.
            current: current parameters by name, with a graph; None if there are none.
            grad: keep the result differentiable with respect to the hypernetwork.
        """
        if (model is None) == (graph is None):
            raise GHNError("give either a model with an example input, or a graph")
        if graph is not None:
            return self.generate_many(
                [Request(graph=graph, client=client, current=current)], grad=grad
            )[0]
        assert model is not None
        if current is not None:
            raise GHNError("a model brings its current parameters itself; leave `current` out")
        request = Request(
            graph=trace(model, example_input),
            client=client,
            current={name: p.detach() for name, p in model.named_parameters()},
        )
        weights = self.generate_many([request], grad=grad)[0]
        return {name: weights[name] for name, p in model.named_parameters() if p.requires_grad}

    def generate_many(
        self, requests: Sequence[Request], *, grad: bool = False
    ) -> list[dict[str, Tensor]]:
        """Weights for several clients at once, each with an architecture of its own."""
        with torch.set_grad_enabled(grad):
            return self(requests)  # type: ignore[no-any-return]

    def forward(self, requests: Sequence[Request]) -> list[dict[str, Tensor]]:
        if not requests:
            return []
        joined = join(tuple(_checked_size(r.graph) for r in requests), self.config)
        clients = [check_client(r.client, self.config) for r in requests]
        x_NH = self.nodes(joined.op_N, joined.bins_N4, *self._values(requests, joined))
        h_NH = self.gnn(x_NH, joined.sweeps)
        weights = self._decode(h_NH, self.client(clients), joined)
        for request, made in zip(requests, weights, strict=True):
            made.update(_passed_through(request, made))
        return weights

    def _values(
        self, requests: Sequence[Request], joined: Joined
    ) -> tuple[list[Tensor], Tensor, Tensor]:
        """The clients' current parameters, shortened, with the node and the role of each."""
        values, nodes, roles = [], [], []
        for request, start in zip(requests, joined.start, strict=True):
            current = request.current or {}
            _check_current(request.graph, current)
            for name, node, role in plan(request.graph, self.config).values:
                if name in current:
                    length, pooling = self.config.value_length, self.config.pooling
                    values.append(shorten(current[name], length, pooling))
                    nodes.append(start + node)
                    roles.append(ROLES.index(role))
        long = torch.long
        return values, torch.tensor(nodes, dtype=long), torch.tensor(roles, dtype=long)

    def _decode(
        self, h_NH: Tensor, client_BD: Tensor | None, joined: Joined
    ) -> list[dict[str, Tensor]]:
        weights: list[dict[str, Tensor]] = [{} for _ in joined.start]
        for (op, family, number, shape, transposed), members in joined.kinds.items():
            slots = [slot for _, slot in members]
            nodes = torch.tensor([joined.start[b] + slot.node for b, slot in members])
            roles = torch.tensor([ROLES.index(slot.role) for slot in slots])
            client_ND = None
            if client_BD is not None:
                client_ND = client_BD[torch.tensor([b for b, _ in members])]
                if self.config.descriptor_in == "classifier":
                    heads = torch.tensor([slot.role in _HEADS for slot in slots])
                    client_ND = client_ND * heads.unsqueeze(1)
            raw = self.decoders(
                h_NH[nodes],
                roles,
                client_ND,
                op=op,
                family=family,
                number=number,
                shape=shape,
            )
            made = normalise(
                raw, op=op, role=slots[0].role, transposed=transposed, shape=slots[0].shape
            )
            for (b, slot), weight in zip(members, made.unbind(0), strict=True):
                if family in VECTORS:  # as many tiles as the longest of them takes
                    weight = weight[: math.prod(slot.shape)].reshape(slot.shape)
                weights[b][slot.name] = weight
        return weights

    def with_parameters(self, parameters: Mapping[str, Tensor]) -> GHN:
        """A hypernetwork of the same config and mode that has these parameters."""
        # deepcopy takes what it finds in its memo instead of copying it
        memo: dict[int, Any] = {
            id(p): nn.Parameter(parameters[name]) for name, p in self.named_parameters()
        }
        return copy.deepcopy(self, memo)

    def save(self, path: str | Path) -> None:
        """Write the hypernetwork and its config into one safetensors file, all or nothing."""
        store.save(path, self.config, self.state_dict())

    @classmethod
    def load(cls, path: str | Path) -> GHN:
        """The hypernetwork of a .safetensors file or of a run folder, ready to generate."""
        config, tensors = store.load(path)
        with torch.device("meta"):
            ghn = cls(config)
        store.check_tensors(path, tensors, ghn.state_dict())
        ghn.load_state_dict(tensors, assign=True)
        return ghn.requires_grad_().eval()


def _checked_size(graph: Graph) -> Graph:
    count = graph.num_parameters
    if count > MAX_PARAMETERS:
        raise GHNError(
            f"the graph asks for {count:,} parameters; at most {MAX_PARAMETERS:,} are generated"
        )
    return graph


def _check_current(graph: Graph, current: Mapping[str, Tensor]) -> None:
    shapes = graph.parameters(frozen=True) if current else {}
    for name, value in current.items():
        if name not in shapes:
            raise GHNError(f"current parameter {name!r} is not in the graph")
        if tuple(value.shape) != shapes[name]:
            raise GHNError(
                f"current parameter {name!r} must have shape {shapes[name]}, "
                f"got {tuple(value.shape)}"
            )
        # A finite sum has finite terms; only if it isn't, each of them is looked at.
        if not math.isfinite(float(value.sum())) and not torch.isfinite(value).all():
            raise GHNError(f"current parameter {name!r} holds values that are not finite")


def _passed_through(request: Request, made: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What is not generated (norm biases, if so configured): the client's own value, or zero."""
    current = request.current or {}
    return {
        name: current[name].detach().float() if name in current else torch.zeros(shape)
        for name, shape in request.graph.parameters().items()
        if name not in made
    }
