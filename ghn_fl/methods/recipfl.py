"""RecipFL with priors: a hypernetwork tells clients apart and hurries on what all of them share.

"How Few Davids Improve One Goliath: Federated Learning in Resource-Skew Edge Computing
Environments", Algorithm 1, with a prior for every architecture (`docs/decisions/0009`). The server
knows each client's architecture, its label histogram, and for every architecture a prior, the
weights of its mean client. A client receives weights for its models, trains them as any model, and
sends them back; a strong one trains its large model, then the small one with knowledge transfer
from the large (Eq. 9).

    theta~_m = prior_G + GHN(G, a_m; phi) - GHN(G, mean a; phi)       what client m is given
               class biases: + o log(a_m / mean a)
    phi' = Adam along sum_m (d theta~_m / d phi)^T (theta~_m - theta_m)                    Eq. (4)
    move_G  = sum_m p_m (theta_m - theta~_m),  p_m = n_m / sum n               G's answers
    speed_G <- beta speed_G + max(1, sum_m p_m |theta_m - theta~_m|^2 / (2 |move_G|^2)) move_G
    hop_G   = GHN(G, mean a; phi') - GHN(G, mean a; phi)       the hypernetwork's own step
    prior_G <- prior_G + speed_G + s max(0, cos(hop_G, move_G)) hop_G      tensor by tensor

A prior begins as its architecture's usual initial weights. FedAvg's step keeps what the
hypernetwork cannot say; it is longer where clients go apart, for then their mean is shorter than
each of their ways ("FedExP: Speeding Up Federated Averaging via Extrapolation"). The hypernetwork's
own step carries what clients of all architectures have in common, and goes further where little
data moves weights little; the prior follows it as far as its own clients went the same way. A prior
rests while nobody answers for its architecture. Class odds need no learning: by Bayes' rule they
are what a network for the mean mix lacks for another (`docs/decisions/0012`). A strong device has
two models and asks both. An architecture that nobody has trained is served its generation
(`GHN.generate`), and can then learn the priors' answers to images that the server made up
(`ghn_fl.study`).

Differences from the paper: the prior, class odds, the second model's answer, and q_v, which is the
prior instead of what each client last sent, so that nothing is kept by client. `recipfl_paper` is
the method as published.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

import zoo
from ghn_fl import which_models
from ghn_fl.aggregate import weighted_mean
from ghn_fl.errors import ConfigError
from ghn_fl.hypernet import GHN, Change, GHNConfig, Request, UpdateConfig, imitate, update
from ghn_fl.hypernet.served import descriptor, design_for, dropout, fresh, from_state, to_state
from ghn_fl.lessons import Lessons, Teacher, make_lessons, study
from ghn_fl.methods.registry import METHODS
from ghn_fl.optim import AdamState
from ghn_fl.random import torch_stream
from ghn_fl.types import (
    Client,
    Job,
    Method,
    MethodEntry,
    Opinion,
    Recipe,
    Report,
    Setting,
    State,
    Train,
    Weights,
)
from graphs import Graph, Role
from zoo import ModelSpec


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of RecipFL with priors.

    Attributes:
        ghn: the hypernetwork's design; its number of classes is the task's.
        update: how the hypernetwork learns.
        transfer: knowledge transfer on devices that train more than one model (Eq. 9).
        second: the small model's part of the answer on a device that trains it beside its own, 0
            to below 1, times the part of the small one's data that the own model has not seen: it
            knows what all devices know, and the device has it anyway. Where the device's own
            samples are likelier with more of it, it is more: a large model that was seldom
            trained knows less than the small one. 0: the own model alone.
        untuned: how much of the rest of such a device's answer is its own model's as it is served,
            before it is tuned, 0 to below 1.
        odds: o, how much of the logarithm of its class odds is added to a client's class biases.
        step: s, how much of the hypernetwork's own step a prior goes along, where its clients'
            move points the same way.
        stretch: whether FedAvg's step is longer where clients go apart.
        momentum: beta of FedAvg's step, once more than `settle` rounds are over.
        settle: rounds without momentum: the first steps are large enough.
        window: what is served for use is the mean of the prior over this last part of its steps;
            0: the prior itself.
        imitate: steps in which the hypernetwork that is kept at the end learns to make the priors
            by itself. In training it only says how clients differ; whoever asks it for weights of
            a new architecture needs all of them.
        lessons: images that the server imagines at the end and keeps with the priors' answers, for
            networks that nobody has trained (`ghn_fl.study`); 0: none.
    """

    ghn: GHNConfig = field(default_factory=GHNConfig)
    update: UpdateConfig = field(default_factory=UpdateConfig)
    transfer: bool = True
    second: float = 0.6
    untuned: float = 0.5
    odds: float = 1.0
    step: float = 1.0
    stretch: bool = True
    momentum: float = 0.6
    settle: int = 20
    window: float = 0.15
    imitate: int = 100
    lessons: int = 1500

    def __post_init__(self) -> None:
        parts = (self.second, self.untuned, self.momentum, self.window)
        if not all(0 <= value < 1 for value in parts):
            raise ConfigError(
                "second, untuned, momentum and window must be from 0 to below 1, "
                f"got {', '.join(map(str, parts))}"
            )
        least = (self.odds, self.step, self.settle, self.imitate, self.lessons)
        if not all(value >= 0 for value in least):
            raise ConfigError(
                "odds, step, settle, imitate and lessons must be at least 0, "
                f"got {', '.join(map(str, least))}"
            )
        if self.ghn.descriptor == "id":
            raise ConfigError(
                "a prior needs the mean of the clients' descriptors, and numbers have none; "
                "ghn.descriptor must be histogram or none, or take the method recipfl-paper"
            )


def build(config: Config, setting: Setting) -> Method:
    design = design_for(config.ghn, setting)
    mean = _mean_clients(design, setting)
    biases = {
        spec: _class_biases(setting.graphs[spec], setting.num_classes)
        if config.odds and design.descriptor == "histogram"
        else ()
        for spec in mean
    }
    behind = {
        str(spec): sum(c.samples for c in setting.clients if spec in c.models) for spec in mean
    }
    # Eq. (9): what a strong device trains after its large model learns from that one, too
    recipes = (Recipe(), Recipe(teacher=0 if config.transfer else None))

    def init() -> State:
        prior = {str(spec): dict(setting.initial[spec]) for spec in mean}
        still = {spec: {n: torch.zeros_like(w) for n, w in p.items()} for spec, p in prior.items()}
        return to_state(fresh(design, setting.seed), AdamState()) | {
            "t": 0,
            "prior": prior,
            "speed": still,
            "mean": prior,
            "steps": dict.fromkeys(prior, 0),
            "behind": behind,
        }

    def run_round(state: State, sampled: Sequence[Client], train: Train) -> tuple[State, Report]:
        ghn, adam = from_state(design, state)
        sampled = sorted(sampled, key=lambda client: client.id)  # as dropout meets them
        asked = [(client, spec) for client in sampled for spec in client.models]
        with dropout(setting.seed, state["t"], 0):
            given = serve(ghn, state, state["prior"], asked)
        ready = iter(given)
        jobs = [
            Job(
                client=client,
                models=tuple((spec, next(ready)) for spec in client.models),
                recipes=recipes[: len(client.models)],
            )
            for client in sampled
        ]
        answers = train(jobs)  # theta_m = ClientUpdate(m, theta~_m)
        came = [w for job, a in zip(jobs, answers, strict=True) for w in _each(job, a.weights)]
        exchanged = [
            (client, spec, sent, trained)
            for (client, spec), sent, trained in zip(asked, given, came, strict=True)
            if trained is not None
        ]
        if not exchanged:
            return state, {}
        changes = [
            Change(request=request(state, c, spec), sent=sent, trained=trained, share=c.share)
            for c, spec, sent, trained in exchanged
        ]
        specs = list(dict.fromkeys(spec for _, spec, *_ in exchanged))
        before = middle(ghn.eval(), state["prior"], specs)
        with dropout(setting.seed, state["t"], 1):
            ghn, adam, norm = update(ghn.train(), changes, adam, config.update)  # Eq. (4)
        after = middle(ghn.eval(), state["prior"], specs)
        new = to_state(ghn, adam) | {"t": state["t"] + 1, "behind": state["behind"]}
        new |= {key: dict(state[key]) for key in ("prior", "speed", "mean", "steps")}
        for spec in specs:
            own = [(c.samples, sent, w) for c, s, sent, w in exchanged if s == spec]
            moves = [{n: w[n] - sent[n] for n in sent} for _, sent, w in own]
            samples = [n for n, *_ in own]
            move = weighted_mean(moves, samples)
            longer = _stretch(moves, samples, move) if config.stretch else 1.0
            hop = {n: after[spec][n] - before[spec][n] for n in move}
            glide = {n: config.step * _agreement(hop[n], move[n]) * hop[n] for n in move}
            _advance(new, str(spec), {n: longer * m for n, m in move.items()}, glide, config)
        return new, {"gradient_norm": norm}

    def personalize(state: State, clients: Sequence[Client]) -> list[Weights]:
        ghn, served = from_state(design, state)[0].eval(), list[Weights]()
        for start in range(0, len(clients), config.update.chunk):
            part = [(c, c.models[0]) for c in clients[start : start + config.update.chunk]]
            served += serve(ghn, state, state["mean"], part)
        return served

    def second(state: State, clients: Sequence[Client]) -> list[Opinion | None]:
        both = [(c, c.models[1]) for c in clients if len(c.models) > 1]
        ghn = from_state(design, state)[0].eval()
        served = serve(ghn, state, state["mean"], both) if both else []
        opinions = {
            client.id: Opinion(
                spec=spec, weights=weights, part=part(client, spec), untuned=config.untuned
            )
            for (client, spec), weights in zip(both, served, strict=True)
        }
        return [opinions.get(client.id) for client in clients]

    def part(client: Client, spec: ModelSpec) -> float:
        """The small model's part at the least: the more, the more data it alone has seen."""
        return config.second * (1 - behind[str(client.models[0])] / behind[str(spec)])

    def serve(
        ghn: GHN,
        state: State,
        priors: Mapping[str, Weights],
        asked: Sequence[tuple[Client, ModelSpec]],
    ) -> list[Weights]:
        """prior_G + GHN(G, a_m) - GHN(G, mean a), and class odds, for all that are asked for."""
        made = ghn.generate_many([request(state, client, spec) for client, spec in asked])
        of_mean = middle(ghn, state["prior"], list(dict.fromkeys(spec for _, spec in asked)))
        served = list[Weights]()
        for (client, spec), weights in zip(asked, made, strict=True):
            prior = priors[str(spec)]
            odds = {n: config.odds * _log_odds(client, mean[spec]) for n in biases[spec]}
            served.append(
                {n: prior[n] + (w - of_mean[spec][n]) + odds.get(n, 0) for n, w in weights.items()}
            )
        return served

    def request(state: State, client: Client, spec: ModelSpec) -> Request:
        """Graph, descriptor, and the prior as the parameters q_v at the current round."""
        return Request(
            graph=setting.graphs[spec],
            client=descriptor(design, client),
            current=state["prior"][str(spec)],
        )

    def middle(
        ghn: GHN, current: Mapping[str, Weights], specs: Sequence[ModelSpec]
    ) -> dict[ModelSpec, dict[str, Tensor]]:
        """GHN(G, mean a) for some architectures."""
        asked = [
            Request(graph=setting.graphs[s], client=mean[s], current=current[str(s)]) for s in specs
        ]
        return dict(zip(specs, ghn.generate_many(asked), strict=True))

    def hypernetwork(state: State) -> GHN:
        """One that makes the priors by itself, for those who ask it for whole weights."""
        targets = [
            (Request(graph=setting.graphs[spec], client=mean[spec], current=current), prior)
            for spec in mean
            if str(spec) in state["mean"]
            for prior in (state["mean"][str(spec)],)
            for current in (prior, None)
        ]
        ghn, _ = from_state(design, state)
        with dropout(setting.seed, state["t"], 2):
            return imitate(ghn, targets, config.imitate, config.update).eval()

    def lessons(state: State) -> Lessons:
        """What the priors that somebody trains answer to images that the server makes up."""
        with torch.random.fork_rng(devices=[]):  # a fresh model draws weights that nobody uses
            teachers = [
                Teacher(zoo.build(ModelSpec.parse(spec), **setting.task), weights, samples)
                for spec, weights in state["mean"].items()
                if (samples := state["behind"].get(spec))
            ]
        size, stream = setting.task["image_size"], torch_stream(setting.seed, "lessons")
        shape = (setting.task["in_channels"], size, size)
        return make_lessons(teachers, shape, setting.num_classes, config.lessons, stream)

    def join(state: State) -> State:
        """A new architecture's prior: its initial weights, taught what the known priors answer."""
        new = [spec for spec in mean if str(spec) not in state["prior"]]
        made = {str(spec): dict(setting.initial[spec]) for spec in new}
        if new and config.lessons:
            known = lessons(state)  # of the fleet as it was
            for spec in new:
                model = zoo.build(spec, **setting.task)
                made[str(spec)] = study(model, setting.initial[spec], known)
        still = {spec: {n: torch.zeros_like(w) for n, w in p.items()} for spec, p in made.items()}
        begun = {"prior": made, "speed": still, "mean": made, "steps": dict.fromkeys(made, 0)}
        grown = {key: state[key] | values for key, values in begun.items()}
        return state | grown | {"behind": behind}

    return Method(
        init,
        run_round,
        personalize,
        hypernetwork,
        lessons=lessons if config.lessons else None,
        second=second if config.second else None,
        join=join,
    )


def _advance(state: State, spec: str, move: Weights, glide: Weights, config: Config) -> None:
    """Move one architecture's prior, in a state that is ours to change."""
    beta = config.momentum if state["t"] > config.settle else 0.0
    speed = {n: beta * v + move[n] for n, v in state["speed"][spec].items()}
    prior = {n: p + speed[n] + glide[n] for n, p in state["prior"][spec].items()}
    steps = state["steps"][spec] + 1
    last = max(1.0, config.window * steps)  # how many values the mean is over
    state["mean"][spec] = {n: m + (prior[n] - m) / last for n, m in state["mean"][spec].items()}
    state["prior"][spec], state["speed"][spec], state["steps"][spec] = prior, speed, steps


def _stretch(moves: Sequence[Weights], samples: Sequence[int], mean: Weights) -> float:
    """FedExP's factor of the server's step: at least 1, at most what moves at right angles give.

    Of M clients with as many samples: 1 if they go the same way, M / 2 if at right angles.
    """
    parts = [n / sum(samples) for n in samples]
    length = sum(p * _square(move) for p, move in zip(parts, moves, strict=True))
    most = 0.5 / sum(p * p for p in parts)
    return max(1.0, min(most, 0.5 * length / max(_square(mean), 1e-12)))


def _square(weights: Weights) -> float:
    return sum(float(w.square().sum()) for w in weights.values())


def _agreement(hop: Tensor, move: Tensor) -> float:
    """The cosine between two steps of one tensor; 0 where they point apart."""
    return max(0.0, float(torch.cosine_similarity(hop.flatten(), move.flatten(), dim=0)))


def _mean_clients(design: GHNConfig, setting: Setting) -> dict[ModelSpec, Tensor | None]:
    """For every architecture the mean descriptor of those who train it, by samples."""
    found: dict[ModelSpec, Tensor | None] = {}
    for spec in sorted({s for client in setting.clients for s in client.models}, key=str):
        own = [client for client in setting.clients if spec in client.models]
        found[spec] = None
        if design.descriptor == "histogram":
            mixes = [{"mix": torch.tensor(client.mix)} for client in own]
            found[spec] = weighted_mean(mixes, [client.samples for client in own])["mix"]
    return found


def _class_biases(graph: Graph, classes: int) -> tuple[str, ...]:
    """The parameters that are added to the logits."""
    return tuple(
        name
        for node in graph.nodes
        for name, role in node.roles.items()
        if role is Role.CLASSIFIER_BIAS and node.parameters[name] == (classes,)
    )


def _log_odds(client: Client, mean: Tensor | None) -> Tensor:
    """How much more often a client has each class than the mean client, as a logarithm.

    By a sample of every class more than it has, for what it has not may come yet.
    """
    assert mean is not None, "there are histograms"
    counts = client.samples * torch.tensor(client.mix) + 1
    return (counts / counts.sum()).log() - mean.clamp(min=1e-4).log()


def _each(job: Job, weights: Sequence[Weights]) -> Sequence[Weights | None]:
    """The weights of every model of a job; None for each if nothing usable came."""
    return weights or (None,) * len(job.models)


METHODS.register(
    "recipfl",
    MethodEntry(
        summary="a graph hypernetwork generates personal weights for any architecture",
        config=Config,
        build=build,
        models=which_models.own_and_smallest,
        elastic=True,
    ),
)
