"""The loop: the only one. Read it from top to bottom to know what `ghnfl train` does."""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ghn_fl.data import load
from ghn_fl.errors import ConfigError, RunError
from ghn_fl.files import write_atomic
from ghn_fl.methods import METHODS
from ghn_fl.simulation import checkpoint, elastic, records
from ghn_fl.simulation.build import build_world, setting_of
from ghn_fl.simulation.config import RunConfig
from ghn_fl.simulation.fleet import Tier, tiers_of
from ghn_fl.simulation.sample import missing, sample
from ghn_fl.simulation.world import Engine, World
from ghn_fl.tree import all_finite
from ghn_fl.types import (
    STRONG,
    WEAK,
    Answer,
    Client,
    Job,
    Method,
    Recipe,
    State,
    Weights,
)

log = logging.getLogger("ghn_fl")
Watch = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class RunResult:
    """A finished run: its summary, the record of every round, and the method's last state."""

    summary: dict[str, Any]
    rounds: tuple[dict[str, Any], ...]
    state: State


def run(
    config: RunConfig,
    start_engine: Callable[[World], Engine],
    *,
    out: Path | None = None,
    data_dir: Path | None = None,
    resume: bool = False,
    watch: Watch | None = None,
) -> RunResult:
    """Train a fleet.

    Args:
        config: what to do; the result depends on it and the data alone.
        start_engine: makes the engine that the clients run on.
        out: the run folder; nothing is written without one.
        data_dir: where data sets are looked for.
        resume: go on from the folder's last complete round.
        watch: called with every round's record.
    """
    dataset = load(config.dataset, data_dir)
    tiers = tiers_of(config, dataset.in_channels)
    world, clients = build_world(config, dataset, tiers, data_dir)
    stages = elastic.stages_of(config, tiers, clients)
    methods = {
        stage.since: METHODS[config.method].build(
            config.method_config(), setting_of(config, world, stage.clients)
        )
        for stage in stages
    }
    tests = [len(share.test) for share in world.shares]
    description = records.describe(config, clients, tests, elastic.describe(stages))
    recording = 0.0
    with _held(out):
        done, history, state = _begin(config, out, resume, description)
        state = methods[1].init() if state is None else state
        with start_engine(world) as engine:
            for number in range(done + 1, config.rounds + 1):
                stage = elastic.in_force(stages, number)
                method = methods[stage.since]
                state, record = _round(number, state, method, engine, config, tiers, stage)
                record["seconds"]["record"] = recording  # of the round before
                started = time.perf_counter()
                if out is not None:
                    records.append(out, record)
                    checkpoint.save(out, number, state)
                recording = time.perf_counter() - started
                history.append(record)
                if watch is not None:
                    watch(record)
        summary = records.summarize(config, history)
        if out is not None:
            last = methods[stages[-1].since]
            if last.hypernetwork is not None:
                last.hypernetwork(state).save(out / "ghn.safetensors")
            if last.lessons is not None:
                last.lessons(state).save(out / "lessons.safetensors")
            write_atomic(out / "summary.json", json.dumps(summary, indent=1) + "\n")
    return RunResult(summary, tuple(history), state)


@contextlib.contextmanager
def _held(out: Path | None) -> Iterator[None]:
    """The run folder for this process alone; one that is made here and stays empty is removed."""
    if out is None or (out.exists() and not out.is_dir()):
        yield
        return
    made = not out.exists()
    try:
        out.mkdir(parents=True, exist_ok=True)
        handle = os.open(out, os.O_RDONLY)
    except OSError as err:
        raise ConfigError(f"cannot make the folder {out}: {err.strerror}") from err
    try:
        try:  # the lock ends with the process, however that ends
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as err:
            raise RunError(f"{out} is in use by another run; wait for its end") from err
        yield
    finally:
        os.close(handle)
        if made and not any(out.iterdir()):
            out.rmdir()


def _begin(
    config: RunConfig, out: Path | None, resume: bool, description: dict[str, Any]
) -> tuple[int, list[dict[str, Any]], State | None]:
    """Rounds done, their records and the state: of a fresh folder or of one to go on with."""
    if out is None:
        return 0, [], None
    if out.exists() and not out.is_dir():
        raise ConfigError(f"{out} is a file, not a folder")
    if (out / "config.json").exists():
        stored = records.read_config(out)
        known = stored["config"]
        if not resume:
            raise ConfigError(f"{out} holds a run already; --resume goes on with it")
        differing = records.differing(config, known)
        if differing:
            raise ConfigError(
                f"{out} was started with other settings: {', '.join(differing)}; "
                "give the same, or another --out"
            )
        if stored.get("changes") != description.get("changes"):
            raise ConfigError(f"{out} was started with another schedule than {config.elastic} is")
        if config.fleet and stored.get("fleet") != description["fleet"]:
            raise ConfigError(f"{out} was started with another fleet than {config.fleet} is")
    elif resume and out.exists() and any(out.iterdir()):
        raise ConfigError(f"{out} is no run folder: it has no config.json")
    elif not resume and out.exists() and any(out.iterdir()):
        raise ConfigError(f"{out} is not empty, and no run of ours")
    else:
        write_atomic(out / "config.json", json.dumps(description, indent=1) + "\n")
    saved = checkpoint.load(out)
    if saved is None:
        records.keep_rounds(out, 0)
        return 0, [], None
    done, state = saved
    return done, records.keep_rounds(out, done), state


def _round(
    number: int,
    state: State,
    method: Method,
    engine: Engine,
    config: RunConfig,
    tiers: Sequence[Tier],
    stage: elastic.Stage,
) -> tuple[State, dict[str, Any]]:
    """One round: sample, train through the method, evaluate if it is time; state and record."""
    spent = dict.fromkeys(("generate", "train", "update", "evaluate", "record"), 0.0)
    clients = stage.clients
    changed = stage.changed if stage.since == number else ()
    sampled = sample(clients, config, number)
    answers: list[Answer] = []
    jobs: list[Job] = []
    marks = [time.perf_counter()]
    if changed:
        assert method.join is not None, "an entry that says elastic builds methods with it"
        state = method.join(state)

    def train(asked: Sequence[Job]) -> Sequence[Answer]:
        marks.append(time.perf_counter())
        jobs.extend(asked)
        answers.extend(_train(number, asked, engine, config, {t.name: t for t in tiers}))
        marks.append(time.perf_counter())
        return answers[-len(asked) :] if asked else []

    state, report = method.run_round(state, sampled, train)
    broken = all_finite(state)
    if broken:
        raise RunError(
            f"round {number}: the server's state at {broken} is no longer finite; "
            f"the run stopped, and round {number - 1} is kept"
        )
    marks.append(time.perf_counter())
    spent["generate"], spent["train"], spent["update"] = _phases(marks)
    results = _evaluate(number, state, method, engine, config, clients)
    spent["evaluate"] = time.perf_counter() - marks[-1]
    tier_means = records.by_tier(clients, results) if results else {}
    record = {
        "round": number,
        **({"changed": list(changed)} if changed else {}),
        "sampled": [client.id for client in sampled],
        "rejected": [{"client": a.client.id, "reason": a.failure} for a in answers if a.failure],
        **_headline(tier_means),
        "tiers": tier_means,
        "clients": [{"id": c.id, **r} for c, r in zip(clients, results, strict=True)]
        if results
        else [],
        "bytes_down": sum(_down(job) for job in jobs),
        "bytes_up": sum(_up(job, a) for job, a in zip(jobs, answers, strict=True)),
        "seconds": spent,
        "metrics": report,
    }
    return state, record


def _phases(marks: Sequence[float]) -> tuple[float, float, float]:
    """Seconds before, in and after training; a method may train in several steps."""
    gaps = [b - a for a, b in pairwise(marks)]
    inside = sum(gaps[1::2])
    return gaps[0], inside, sum(gaps) - gaps[0] - inside


def _train(
    number: int,
    jobs: Sequence[Job],
    engine: Engine,
    config: RunConfig,
    tiers: Mapping[str, Tier],
) -> list[Answer]:
    """The answers to some jobs, in their order; what cannot be used is rejected with a reason."""
    answers = {
        i: Answer(client=job.client, failure=reason)
        for i, job in enumerate(jobs)
        if (reason := missing(job, tiers[job.client.tier], config, number))
    }
    # the longest first, so that no worker waits for a strong client at the end
    order = sorted(
        (i for i in range(len(jobs)) if i not in answers),
        key=lambda i: -jobs[i].client.samples * len(jobs[i].models),
    )
    tasks = [
        {
            "kind": "train",
            "round": number,
            "client": jobs[i].client.id,
            "lr": config.lr_in(number),
            **describe(jobs[i]),
        }
        for i in order
    ]
    for i, result in zip(order, engine.run(tasks), strict=True):
        answers[i] = _answer(jobs[i], result)
    return [answers[i] for i in range(len(jobs))]


def describe(job: Job) -> dict[str, Any]:
    """A job's models and recipes as plain data and tensors."""
    recipes = job.recipes or (Recipe(),) * len(job.models)
    return {
        "models": [[str(spec), weights] for spec, weights in job.models],
        "recipes": [vars(recipe) for recipe in recipes],
    }


def _answer(job: Job, result: dict[str, Any]) -> Answer:
    failure = result.get("failure") or _unusable(job, result["weights"])
    if not failure and (broken := all_finite(result["extras"])):
        failure = f"its {broken[1:]} are not finite"
    if failure:
        return Answer(client=job.client, failure=failure)
    return Answer(
        client=job.client,
        weights=tuple(result["weights"]),
        samples=result["samples"],
        metrics=result["metrics"],
        extras=result["extras"],
    )


def _unusable(job: Job, answers: Sequence[Mapping[str, Tensor]]) -> str:
    """Why weights that came back cannot be used; empty if they can."""
    if len(answers) != len(job.models):
        return f"sent {len(answers)} models instead of {len(job.models)}"
    for (spec, given), trained in zip(job.models, answers, strict=True):
        if trained.keys() != given.keys():
            return f"{spec}: other names than it was given"
        for name, weight in trained.items():
            if weight.shape != given[name].shape:
                return f"{spec}: {name} has shape {tuple(weight.shape)}"
            if not torch.isfinite(weight).all():
                return f"{spec}: {name} is not finite"
    return ""


def _evaluate(
    number: int,
    state: State,
    method: Method,
    engine: Engine,
    config: RunConfig,
    clients: Sequence[Client],
) -> list[dict[str, Any]]:
    """Every client's score with what it would be served now; empty if it is not time."""
    if not _is_evaluated(number, config):
        return []
    served = method.personalize(state, clients)
    for client, weights in zip(clients, served, strict=True):
        if broken := all_finite(weights):
            raise RunError(
                f"round {number}: the weights for client {client.id} are not finite at {broken}; "
                f"the run stopped, and round {number - 1} is kept"
            )
    seconds = [None] * len(clients) if method.second is None else method.second(state, clients)
    tasks = [
        {
            "kind": "evaluate",
            "round": number,
            "client": client.id,
            "lr": config.lr_in(number),
            "spec": str(client.models[0]),
            "weights": weights,
            "epochs": config.finetune,
            "full": number == config.rounds and not config.validation,
            "static_norm": method.static_norm,
            "second": second and [str(second.spec), second.weights, second.part, second.untuned],
        }
        for client, weights, second in zip(clients, served, seconds, strict=True)
    ]
    order = sorted(range(len(tasks)), key=lambda i: -clients[i].samples)
    found = dict(zip(order, engine.run([tasks[i] for i in order]), strict=True))
    results = [found[i] for i in range(len(tasks))]
    for client, result in zip(clients, results, strict=True):
        if "failure" in result:
            raise RunError(f"client {client.id} could not be evaluated: {result['failure']}")
    return results


def _is_evaluated(number: int, config: RunConfig) -> bool:
    if not config.eval_every:
        return number == config.rounds
    last_fifth = number > config.rounds - math.ceil(0.2 * config.rounds)
    return last_fifth or number % config.eval_every == 0


def _headline(tiers: Mapping[str, Mapping[str, float | None]]) -> dict[str, float | None]:
    return {
        f"{name}_{key}": tiers.get(name, {}).get(key)
        for key in ("accuracy", "loss", "accuracy_full")
        for name in (STRONG, WEAK)
    }


def _down(job: Job) -> int:
    """Bytes that a client is sent: weights, unless they stay with it, and what it is to digest."""
    digests = sum(_bytes({"": r.digest["targets"]}) for r in job.recipes if r.digest is not None)
    return digests + sum(_bytes(w) for _, w in job.models if not job.stays)


def _up(job: Job, answer: Answer) -> int:
    """Bytes that it sends back: weights, unless they stay with it, and what else was asked for."""
    return _bytes(answer.extras) + sum(_bytes(w) for w in answer.weights if not job.stays)


def _bytes(weights: Weights) -> int:
    return sum(w.numel() * w.element_size() for w in weights.values())
