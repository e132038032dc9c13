"""Elastic devices: in the middle of a run some of a tier's devices change to another model.

The schedule is a TOML file:

    [[change]]
    round = 16          # the change takes place before this round
    tier = "weak"
    part = 0.33         # of the tier's devices, drawn from the run's seed; one at least
    model = "lenet5"

Only models change: data, sampling and all other randomness are those of the run without it. What
a device trains under a method follows from the fleet as it is now: where the smallest model of all
is another one after a change, it is another one for all.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import zoo
from ghn_fl.errors import ConfigError
from ghn_fl.methods import METHODS
from ghn_fl.random import numpy_stream
from ghn_fl.simulation.config import RunConfig, from_mapping, read_file
from ghn_fl.simulation.fleet import Tier
from ghn_fl.types import Client
from zoo import ModelSpec, SpecError
from zoo.registry import unknown


@dataclass(frozen=True, kw_only=True)
class Change:
    """One entry of a schedule: before `round`, a part of a tier's devices change to `model`."""

    round: int
    tier: str
    part: float
    model: ModelSpec


@dataclass(frozen=True, kw_only=True)
class Stage:
    """Rounds in which the fleet stays as it is.

    Attributes:
        since: the first of them.
        changed: ids of the devices whose own model changed before it.
        clients: all of the fleet, with the models that they train now.
    """

    since: int
    changed: tuple[int, ...]
    clients: tuple[Client, ...]


def changes_of(config: RunConfig, tiers: Sequence[Tier]) -> tuple[Change, ...]:
    """The run's schedule, earliest first; empty if it has none."""
    if not config.elastic:
        return ()
    path = Path(config.elastic)
    content = read_file(path)
    entries = content.get("change", [])
    if set(content) != {"change"} or not isinstance(entries, list) or not entries:
        raise ConfigError(f"{path} must consist of [[change]] tables, got {', '.join(content)}")
    changes = sorted((_change(path, entry) for entry in entries), key=lambda c: c.round)
    for change in changes:
        _check(path, change, config.rounds, tiers)
    for tier in tiers:
        for number in dict.fromkeys(c.round for c in changes):
            wanted = sum(_count(c, tier) for c in _at(changes, number, tier))
            if wanted > tier.count:
                raise ConfigError(
                    f"{path}: before round {number} {wanted} devices of the tier {tier.name!r} are "
                    f"to change, it has {tier.count}; the parts must sum to 1 or less"
                )
    return tuple(changes)


def stages_of(
    config: RunConfig, tiers: Sequence[Tier], clients: Sequence[Client]
) -> tuple[Stage, ...]:
    """The run's fleets one after the other: the first, and one for every round with changes."""
    stages = [Stage(since=1, changed=(), clients=tuple(clients))]
    changes, entry = changes_of(config, tiers), METHODS[config.method]
    if changes and not entry.elastic:
        able = ", ".join(name for name in METHODS.names() if METHODS[name].elastic)
        raise ConfigError(
            f"{config.method} cannot go on when devices change their models; these can: {able}"
        )
    settings = config.method_config()
    models = {tier.name: tier.model for tier in tiers}
    owned = {client.id: models[client.tier] for client in clients}
    for number in dict.fromkeys(change.round for change in changes):
        changed = _drawn(config, changes, number, tiers, owned)
        owned |= changed
        fleet = list(dict.fromkeys(owned.values()))
        now = tuple(
            dataclasses.replace(client, models=entry.models(settings, owned[client.id], fleet))
            for client in clients
        )
        stages.append(Stage(since=number, changed=tuple(sorted(changed)), clients=now))
    return tuple(stages)


def in_force(stages: Sequence[Stage], number: int) -> Stage:
    """The stage of round `number`."""
    return [stage for stage in stages if stage.since <= number][-1]


def describe(stages: Sequence[Stage]) -> list[dict[str, Any]]:
    """What config.json holds of the changes: who trains what from then on, where that is new."""
    return [
        {
            "round": stage.since,
            "clients": [
                {"id": c.id, "models": [str(spec) for spec in c.models]}
                for old, c in zip(before.clients, stage.clients, strict=True)
                if c.models != old.models
            ],
        }
        for before, stage in pairwise(stages)
    ]


def _change(path: Path, entry: Any) -> Change:
    known = tuple(f.name for f in dataclasses.fields(Change))
    if not isinstance(entry, Mapping):
        raise ConfigError(f"{path}: a change must be a table of {', '.join(known)}, got {entry!r}")
    for key in entry:
        if key not in known:
            raise ConfigError(f"{path}: {unknown('key of a change', key, known)}")
    if set(entry) != set(known) or not isinstance(entry["model"], str):
        raise ConfigError(
            f"{path}: a change needs {', '.join(known)}, the model as a text; got {dict(entry)}"
        )
    try:
        spec = ModelSpec.parse(entry["model"])
        zoo.num_parameters(spec)  # raises if there is no such model
        return from_mapping(Change, {**entry, "model": spec}, "key of a change")
    except (ConfigError, SpecError) as err:
        raise ConfigError(f"{path}: {err}") from err


def _check(path: Path, change: Change, rounds: int, tiers: Sequence[Tier]) -> None:
    if not 2 <= change.round <= rounds:
        raise ConfigError(
            f"{path}: the round of a change must be from 2 to the run's last, {rounds}, "
            f"got {change.round}"
        )
    if not 0 < change.part <= 1:
        raise ConfigError(
            f"{path}: the part of a change must be above 0 and at most 1, got {change.part:g}"
        )
    names = tuple(tier.name for tier in tiers)
    if change.tier not in names:
        raise ConfigError(f"{path}: {unknown('tier', change.tier, names)}")


def _at(changes: Sequence[Change], number: int, tier: Tier) -> list[Change]:
    return [c for c in changes if c.round == number and c.tier == tier.name]


def _count(change: Change, tier: Tier) -> int:
    """How many devices change."""
    return max(1, round(change.part * tier.count))


def _drawn(
    config: RunConfig,
    changes: Sequence[Change],
    number: int,
    tiers: Sequence[Tier],
    owned: Mapping[int, ModelSpec],
) -> dict[int, ModelSpec]:
    """Which devices change before round `number`, and to what; no device is drawn twice."""
    found: dict[int, ModelSpec] = {}
    start = 0
    for tier in tiers:
        ids = range(start, start + tier.count)
        stream = numpy_stream(config.seed, f"elastic {tier.name}", number)
        order = iter(int(i) for i in stream.permutation(ids))
        for change in _at(changes, number, tier):
            drawn = [next(order) for _ in range(_count(change, tier))]
            if all(owned[i] == change.model for i in drawn):
                raise ConfigError(
                    f"{config.elastic}: before round {number} nothing would change: every device "
                    f"drawn from the tier {tier.name!r} has {change.model} already"
                )
            found |= {i: change.model for i in drawn if owned[i] != change.model}
        start += tier.count
    return found
