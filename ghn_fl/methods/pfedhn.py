"""pFedHN: a hypernetwork on the server turns each client's embedding into its weights.

"Personalized Federated Learning using Hypernetworks" (Shamsian et al.), Algorithm 1. The server
knows a hypernetwork phi for one architecture and an embedding e_m a client. A client receives
theta_m = h(e_m; phi), trains it for K mini-batches and sends it back. In pFedHN-PC its classifier
stays with it: the hypernetwork makes all other layers.

Differences from the paper: it takes one client a step; with several sampled clients we take one
step along the mean of their gradients, so that their order does not matter. The heads' biases start
from the model's usual initial weights, for a norm layer's scale must not start near 0 (the paper's
target has no norm layers). Local step size, momentum, weight decay and batch size are the run's
(5e-3, 0.9, 5e-5 and 64 in the authors' code). With pFedHN-PC the bytes of a round count the
classifier, too, though it needn't travel.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from ghn_fl import which_models
from ghn_fl.errors import ConfigError
from ghn_fl.methods.registry import METHODS
from ghn_fl.optim import clip_norm, momentum_sgd
from ghn_fl.random import torch_stream
from ghn_fl.types import (
    Client,
    Job,
    Method,
    MethodEntry,
    Recipe,
    Report,
    Setting,
    State,
    Train,
    Weights,
)
from graphs import Graph, Role


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of pFedHN; the defaults are those of the authors' code.

    Attributes:
        dim: size of an embedding; 0: int(1 + M/4) for M clients.
        hidden: units of a hidden layer.
        n_hidden: ReLU layers between embedding and heads; 0: theta = W e + b, the linear
            hypernetwork of the paper's analysis.
        lr: of the server's SGD. 0.01 is meant for thousands of steps; runs of some dozens of
            rounds want about 0.1.
        momentum: of the server's SGD.
        weight_decay: of the server's SGD, on embeddings too.
        clip: largest norm of the server's gradient; 0: no limit.
        steps: K, mini-batches of a client in a round; 0: the run's epochs.
        inner_clip: largest norm of a client's gradient; 0: no limit.
        personal_classifier: pFedHN-PC: the last layer stays with the client.
    """

    dim: int = 0
    hidden: int = 100
    n_hidden: int = 3
    lr: float = 0.01
    momentum: float = 0.9
    weight_decay: float = 1e-3
    clip: float = 50.0
    steps: int = 50
    inner_clip: float = 50.0
    personal_classifier: bool = False

    def __post_init__(self) -> None:
        if self.hidden < 1 or not self.lr > 0:
            raise ConfigError(
                f"hidden must be at least 1 and lr above 0, got {self.hidden} and {self.lr:g}"
            )
        for name in ("dim", "n_hidden", "weight_decay", "clip", "steps", "inner_clip"):
            if not getattr(self, name) >= 0:
                raise ConfigError(f"{name} must be at least 0, got {getattr(self, name):g}")
        if not 0 <= self.momentum < 1:
            raise ConfigError(f"momentum must be at least 0 and below 1, got {self.momentum:g}")


def build(config: Config, setting: Setting) -> Method:
    spec = which_models.the_only(setting, "pfedhn")
    initial = setting.initial[spec]
    own = classifier(setting.graphs[spec]) if config.personal_classifier else ()
    kept = {name: initial[name] for name in own}
    targets = {name: w for name, w in initial.items() if name not in kept}
    shapes = {name: tuple(w.shape) for name, w in targets.items()}
    rows = {client.id: row for row, client in enumerate(setting.clients)}
    # a pass over the data has one mini-batch at least, so K passes have K
    recipe = Recipe(clip=config.inner_clip, epochs=config.steps or None, steps=config.steps or None)

    def init() -> State:
        generator = torch_stream(setting.seed, "pfedhn")
        phi = initial_phi(config, len(rows), targets, generator)
        return {"phi": phi, "velocity": {}, "classifiers": {}}

    def run_round(state: State, sampled: Sequence[Client], train: Train) -> tuple[State, Report]:
        sent = personalize(state, sampled)  # Alg. 1, line 4: theta_m = h(e_m; phi)
        jobs = [
            Job(client=client, models=((spec, weights),), recipes=(recipe,))
            for client, weights in zip(sampled, sent, strict=True)
        ]
        back = [
            (client.id, weights, answer.weights[0])
            for client, weights, answer in zip(sampled, sent, train(jobs), strict=True)
            if not answer.failure
        ]
        if not back:
            return state, {}
        # theta_m - theta_m^K: downhill for the hypernetwork is where the client went
        deltas = [{n: given[n] - trained[n] for n in shapes} for _, given, trained in back]
        gradients = pull_back(state["phi"], [rows[i] for i, _, _ in back], deltas)
        norm = 0.0
        if config.clip:
            gradients, norm = clip_norm(gradients, config.clip)
        phi, velocity = momentum_sgd(
            state["phi"],
            gradients,
            state["velocity"],
            lr=config.lr,
            momentum=config.momentum,
            weight_decay=config.weight_decay,
        )
        learned = {str(i): {n: trained[n] for n in kept} for i, _, trained in back if kept}
        classifiers = state["classifiers"] | learned
        ordered = {key: classifiers[key] for key in sorted(classifiers, key=int)}
        return {"phi": phi, "velocity": velocity, "classifiers": ordered}, {"gradient_norm": norm}

    def personalize(state: State, clients: Sequence[Client]) -> list[Weights]:
        with torch.no_grad():
            theta = generate(state["phi"], [rows[c.id] for c in clients], shapes)
        found: list[Weights] = []
        for i, client in enumerate(clients):
            whole = {name: w[i] for name, w in theta.items()}
            whole |= state["classifiers"].get(str(client.id), kept)
            found.append({name: whole[name] for name in initial})
        return found

    return Method(init, run_round, personalize)


def generate(
    phi: Mapping[str, Tensor], rows: Sequence[int], shapes: Mapping[str, Sequence[int]]
) -> dict[str, Tensor]:
    """The weights theta = heads(h(e)) for some rows of embeddings: name -> (rows, *shape)."""
    x = phi["embedding"][list(rows)]
    for i in range(sum(name.startswith("mlp.") for name in phi) // 2):
        x = F.linear(x if i == 0 else x.relu(), phi[f"mlp.{i}.weight"], phi[f"mlp.{i}.bias"])
    return {
        name: F.linear(x, phi[f"head.{name}.weight"], phi[f"head.{name}.bias"]).reshape(-1, *shape)
        for name, shape in shapes.items()
    }


def pull_back(
    phi: Mapping[str, Tensor], rows: Sequence[int], deltas: Sequence[Weights]
) -> dict[str, Tensor]:
    """The mean over clients of (d theta_m / d phi)^T delta_m, embeddings included."""
    leaves = {name: p.detach().requires_grad_() for name, p in phi.items()}
    theta = generate(leaves, rows, {name: d.shape for name, d in deltas[0].items()})
    upstream = [torch.stack([d[name] for d in deltas]) / len(deltas) for name in theta]
    found = torch.autograd.grad(list(theta.values()), list(leaves.values()), upstream)
    return dict(zip(leaves, found, strict=True))


def initial_phi(
    config: Config,
    num_clients: int,
    targets: Weights,
    generator: torch.Generator,
) -> dict[str, Tensor]:
    """The hypernetwork before the first step, drawn as torch's own layers are; it makes `targets`.

    That is, up to what the embeddings add.
    """
    width = config.dim or int(1 + num_clients / 4)
    phi = {"embedding": torch.randn(num_clients, width, generator=generator)}

    def linear(name: str, inputs: int, outputs: int) -> None:
        for part, shape in (("weight", (outputs, inputs)), ("bias", (outputs,))):
            uniform = torch.rand(shape, generator=generator)
            phi[f"{name}.{part}"] = (2 * uniform - 1) / math.sqrt(inputs)

    for i in range(config.n_hidden + 1 if config.n_hidden else 0):
        linear(f"mlp.{i}", width, config.hidden)
        width = config.hidden
    for name, target in targets.items():
        linear(f"head.{name}", width, target.numel())
        phi[f"head.{name}.bias"] = target.flatten().clone()
    return phi


def classifier(graph: Graph) -> tuple[str, ...]:
    """The parameters of the layer that gives the logits."""
    roles = (Role.CLASSIFIER, Role.CLASSIFIER_BIAS)
    found = tuple(n for node in graph.nodes for n, role in node.roles.items() if role in roles)
    if not found:
        raise ConfigError(
            "personal_classifier needs a model that ends in a linear layer; leave it out"
        )
    return found


METHODS.register(
    "pfedhn",
    MethodEntry(
        summary="a hypernetwork makes personal weights of one architecture from embeddings",
        config=Config,
        build=build,
        models=which_models.own,
        scaling="one",
    ),
)
