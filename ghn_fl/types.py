"""What passes between a method, the loop and the engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Literal, Protocol, TypeAlias, TypeVar

from torch import Tensor

from graphs import Graph
from zoo import ModelSpec

Weights: TypeAlias = Mapping[str, Tensor]
State: TypeAlias = dict[str, Any]  # nested dicts and lists of tensors, numbers, texts and None
STRONG, WEAK = "strong", "weak"  # the tiers of a skew; a weak client is also called slow


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
class Recipe:
    """How a client trains one model, where that is more than SGD on cross entropy.

    Attributes:
        epochs: passes over its data instead of the run's; a slow client may do fewer, even none.
        steps: stop after so many mini-batches, where that is earlier; None: no limit.
        clip: largest norm of a step's gradient; 0: the run's.
        prox: mu of a term mu/2 |w - w_t|^2, w_t the weights that it was given.
        linear: h of a term -<h, w> (FedDyn).
        teacher: place in the job of another of its models to learn from as well (Eq. 9 of
            RecipFL): as that stands by then, trained if it came before, else as given.
        own_classes: logits of classes that the client doesn't have are taken as 0 (HeteroFL).
        rate: in training, outputs of hidden convolutions and dense layers are divided by this
            (HeteroFL's scaler).
        exits: trains every exit, with this weight omega on what they learn from each other
            (DepthFL); None: the model's own logits only.
        activations: also report the mean activation of every hidden dense unit (Hasaas).
        pretrain: passes over the public data with its labels, before anything else (FedMD).
        digest: then, what the model is to answer on public data (FedMD): `indices` of samples,
            `targets` for them, `epochs`, `batch` (its size) and whether they are `probabilities`.
        scores: indices of public samples on which the trained model's logits are wanted, too.
    """

    epochs: int | None = None
    steps: int | None = None
    clip: float = 0.0
    prox: float = 0.0
    linear: Weights | None = None
    teacher: int | None = None
    own_classes: bool = False
    rate: float = 1.0
    exits: float | None = None
    activations: bool = False
    pretrain: int = 0
    digest: Mapping[str, Any] | None = None
    scores: Tensor | None = None


@dataclass(frozen=True, kw_only=True)
class Job:
    """What a client is asked to train: some of its models, one after the other.

    Attributes:
        client: whose data.
        models: pairs of spec and initial weights.
        recipes: how each model is trained, in their order; left out: all of them plainly.
        stays: the weights are the client's own and do not travel; only a simulation sees them.
    """

    client: Client
    models: tuple[tuple[ModelSpec, Weights], ...]
    recipes: tuple[Recipe, ...] = ()
    stays: bool = False

    def __post_init__(self) -> None:
        assert len(self.recipes) in (0, len(self.models)), "one recipe a model, or none"


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a client sent back; `weights` is empty and `failure` says why if nothing usable came.

    Attributes:
        client: whose.
        weights: trained weights of each model of the job, in its order.
        samples: how many samples they were trained on.
        metrics: what else was measured: `loss` of the first model in its last epoch, `loss_2` of
            the second, and so on.
        extras: tensors that a recipe asks for beside weights, such as `activation/GROUP`
            or `scores`.
        failure: why the answer was rejected; empty if it was not.
    """

    client: Client
    weights: tuple[Weights, ...] = ()
    samples: int = 0
    metrics: Mapping[str, float] = field(default_factory=dict)
    extras: Mapping[str, Tensor] = field(default_factory=dict)
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
        task: what models are built for: num_classes, in_channels, image_size.
        seed: for a method's own randomness.
        epochs: E, the run's local epochs.
        public_labels: the public samples' labels; None where there is no public data.
    """

    clients: tuple[Client, ...]
    num_classes: int
    initial: Mapping[ModelSpec, Weights]
    graphs: Mapping[ModelSpec, Graph]
    task: Mapping[str, int]
    seed: int
    epochs: int
    public_labels: Tensor | None = None


class Saveable(Protocol):
    """Something that can write itself into a file."""

    def save(self, path: Path) -> None: ...


Report: TypeAlias = dict[str, float]  # what a method wants to show of a round


@dataclass(frozen=True, kw_only=True)
class Opinion:
    """Another model that a client asks beside the one it uses, as it is served.

    Attributes:
        spec: of the model.
        weights: of the model.
        part: how much of the client's answer is its at the least, above 0 and below 1; of
            probabilities. More where the client's own samples say so (`local.likeliest_part`).
        untuned: how much of the rest is the client's own model's as it was served, before it was
            tuned, 0 to below 1.
    """

    spec: ModelSpec
    weights: Weights
    part: float
    untuned: float = 0.0


@dataclass(frozen=True)
class Method:
    """A method, as three pure functions over a state.

    Attributes:
        init: the state before the first round.
        run_round: the state after a round with the sampled clients, and a report. The state that
            goes in is left as it is; everything needed to go on is in the one that comes out.
        personalize: the weights with which each client would be served now, for its first model.
        hypernetwork: the hypernetwork in a state, where the method has one worth keeping.
        lessons: what a network of any architecture can learn from, made from a state alone.
        static_norm: before a client is evaluated, its BatchNorm statistics are collected anew
            with its final weights (HeteroFL); else they are those of its fine-tune epoch.
        second: what each client is served besides, if it asks a second model, too.
        join: the state of a fleet that has changed, from the one before: what was there is kept,
            architectures that are new get what the method can give them. This method is built
            for the fleet as it is now. None: the method cannot go on with another fleet.
    """

    init: Callable[[], State]
    run_round: Callable[[State, Sequence[Client], Train], tuple[State, Report]]
    personalize: Callable[[State, Sequence[Client]], list[Weights]]
    hypernetwork: Callable[[State], Saveable] | None = None
    lessons: Callable[[State], Saveable] | None = None
    static_norm: bool = False
    second: Callable[[State, Sequence[Client]], list[Opinion | None]] | None = None
    join: Callable[[State], State] | None = None


C = TypeVar("C")
ModelPolicy: TypeAlias = Callable[[Any, ModelSpec, Sequence[ModelSpec]], tuple[ModelSpec, ...]]


@dataclass(frozen=True)
class MethodEntry(Generic[C]):
    """A registered method.

    Attributes:
        summary: one line for people.
        config: the class of its settings.
        build: makes the method from its settings and the run's setting; raises ConfigError, and
            says why, if it cannot serve that fleet.
        models: (settings, a device's own model, all tiers' models) -> the models that the device
            trains; the first is the one that it uses. See `which_models`.
        scaling: how a fleet's small model is made from its large one if nobody says: `depth`,
            `width`, or `one` where all devices must have one model.
        public: it needs public data; a tenth of the training set is held out if nobody says which.
        elastic: it goes on when devices change their models in the middle of a run (`join`).
    """

    summary: str
    config: type[C]
    build: Callable[[C, Setting], Method]
    models: ModelPolicy
    scaling: Literal["depth", "width", "one"] = "depth"
    public: bool = False
    elastic: bool = False
