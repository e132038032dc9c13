"""What passes between a method, the loop and the engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from torch import Tensor

from graphs import Graph
from zoo import ModelSpec

Weights: TypeAlias = Mapping[str, Tensor]
State: TypeAlias = dict[str, Any]  # nested dicts and lists of tensors, numbers, texts and None


@dataclass(frozen=True, kw_only=True)
class Client:
    """What the server knows of a client.

    Attributes:
        id: its number, from 0.
        tier: name of its tier: `strong`, `weak`, or another.
        models: the models that it can train; the first is the one that it wants to use.
        samples: number of its training samples.
        share: its part of all clients' training samples.
        mix: label histogram of its training samples; private information, see the README.
    """

    id: int
    tier: str
    models: tuple[ModelSpec, ...]
    samples: int
    share: float
    mix: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Job:
    """What a client is asked to train: some of its models, one after the other.

    Attributes:
        client: whose data.
        models: pairs of spec and initial weights.
        transfer: the second and later models also learn from the first one's answers (Eq. 9).
    """

    client: Client
    models: tuple[tuple[ModelSpec, Weights], ...]
    transfer: bool = False


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a client sent back; `weights` is empty and `failure` says why if nothing usable came.

    Attributes:
        client: whose.
        weights: trained weights of each model of the job, in its order.
        samples: how many samples they were trained on.
        metrics: what else was measured, such as the training loss.
        failure: why the answer was rejected; empty if it was not.
    """

    client: Client
    weights: tuple[Weights, ...] = ()
    samples: int = 0
    metrics: Mapping[str, float] = field(default_factory=dict)
    failure: str = ""


Train: TypeAlias = Callable[[Sequence[Job]], Sequence[Answer]]


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Everything that a method may know before the first round.

    Attributes:
        clients: all of them.
        num_classes: of the task.
        initial: the initial weights of every distinct model, drawn from the run's seed.
        graphs: the traced graph of every distinct model.
        seed: for a method's own randomness.
    """

    clients: tuple[Client, ...]
    num_classes: int
    initial: Mapping[ModelSpec, Weights]
    graphs: Mapping[ModelSpec, Graph]
    seed: int


class Saveable(Protocol):
    """Something that can write itself into a file."""

    def save(self, path: Path) -> None: ...


Report: TypeAlias = dict[str, float]  # what a method wants to show of a round


@dataclass(frozen=True)
class Method:
    """A method, as three pure functions over a state.

    Attributes:
        init: the state before the first round.
        run_round: the state after a round with the sampled clients, and a report. The state that
            goes in is left as it is; everything needed to go on is in the one that comes out.
        personalize: the weights with which each client would be served now, for its first model.
        hypernetwork: the hypernetwork in a state, where the method has one worth keeping.
    """

    init: Callable[[], State]
    run_round: Callable[[State, Sequence[Client], Train], tuple[State, Report]]
    personalize: Callable[[State, Sequence[Client]], list[Weights]]
    hypernetwork: Callable[[State], Saveable] | None = None


C = TypeVar("C")


@dataclass(frozen=True)
class MethodEntry(Generic[C]):
    """A registered method.

    Attributes:
        summary: one line for people.
        config: the class of its settings.
        build: makes the method from its settings and the run's setting.
        models: which models each tier is given: `own` (each its own), `own_and_small` (devices
            larger than the smallest also train the smallest), `small` (everybody the smallest).
    """

    summary: str
    config: type[C]
    build: Callable[[C, Setting], Method]
    models: str = "own"
