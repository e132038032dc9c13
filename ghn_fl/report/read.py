"""A run folder as it was written: config.json, rounds.jsonl and, at the end, summary.json."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ghn_fl.errors import ReportError
from ghn_fl.report.fields import Fields, is_whole, parse

VERSION = 1
SCORED_SHARE = 0.2  # a run's score is the mean over this last part of its rounds


@dataclass(frozen=True, kw_only=True)
class Device:
    """A client of the fleet; `mix` is its share of every class."""

    id: int
    tier: str
    models: tuple[str, ...]
    train_samples: int
    test_samples: int
    mix: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Score:
    """What one client, or the mean of a tier, reached in a round; None: not evaluated.

    `accuracy` and `loss` are on the client's own test samples, `accuracy_full` on the whole test
    set weighted by the client's label mix.
    """

    accuracy: float | None
    loss: float | None
    accuracy_full: float | None


@dataclass(frozen=True, kw_only=True)
class Rejection:
    client: int
    reason: str


@dataclass(frozen=True, kw_only=True)
class Round:
    """A line of rounds.jsonl; `changed`: devices that got another model before this round."""

    number: int
    sampled: tuple[int, ...]
    rejected: tuple[Rejection, ...]
    tiers: Mapping[str, Score]
    clients: Mapping[int, Score]
    bytes_down: int
    bytes_up: int
    seconds: Mapping[str, float]
    metrics: Mapping[str, float]
    changed: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class TierSummary:
    accuracy: float | None
    accuracy_full: float | None
    std: float | None


@dataclass(frozen=True, kw_only=True)
class Summary:
    rounds: int
    tiers: Mapping[str, TierSummary]
    fairness_loss_std: float | None
    bytes_down: int
    bytes_up: int
    seconds: float
    peak_rss_mb: float | None
    rejected: int


@dataclass(frozen=True, kw_only=True)
class Run:
    """All that a report shows; `finished` runs have a summary of their own."""

    folder: Path
    settings: Mapping[str, Any]
    fleet: tuple[Device, ...]
    versions: Mapping[str, str]
    rounds: tuple[Round, ...]
    summary: Summary
    finished: bool
    notes: tuple[str, ...]

    @property
    def tiers(self) -> dict[str, tuple[Device, ...]]:
        """The devices of every tier; tiers in the order of the fleet."""
        names = dict.fromkeys(device.tier for device in self.fleet)
        return {name: tuple(d for d in self.fleet if d.tier == name) for name in names}

    @property
    def tested(self) -> str:
        """How its devices are tested, a sentence's beginning."""
        own = "held-out training samples" if self.settings.get("validation") else "own test samples"
        epochs = int(self.settings.get("finetune", 1))
        long = "one epoch" if epochs == 1 else f"{epochs} epochs"
        tuned = f"every device tunes the model that it is served for {long} on a copy, then"
        as_served = "every device, with the model that it is served,"
        return f"{tuned if epochs else as_served} is tested on its {own}"

    def setting(self, name: str) -> str:
        """A setting as text; "?" if the run does not have it."""
        value = self.settings.get(name)
        return "?" if value is None else str(value)


def read_run(folder: str | Path) -> Run:
    """The run of a folder; raises ReportError that names the file, the line and what is wrong."""
    folder = Path(folder)
    if not folder.is_dir():
        raise ReportError(f"there is no folder {folder}; give one that `ghnfl train --out` wrote")
    config = _config(folder / "config.json")
    fleet = tuple(_device(fields) for fields in config.children("fleet"))
    _check_fleet(fleet, config.where)
    rounds, notes = _rounds(folder / "rounds.jsonl", {device.id for device in fleet})
    tiers = list(dict.fromkeys(device.tier for device in fleet))
    summary = _summary(folder / "summary.json", tiers)
    if summary is None:
        notes.append("The run has not finished: the figures are those of the rounds so far.")
    elif summary.rounds != len(rounds):
        notes.append(
            f"summary.json speaks of {summary.rounds} rounds, rounds.jsonl holds {len(rounds)}."
        )
    return Run(
        folder=folder,
        settings=config.child("config").raw,
        fleet=fleet,
        versions={k: str(v) for k, v in config.child("versions").raw.items()},
        rounds=rounds,
        summary=summarize(rounds, tiers) if summary is None else summary,
        finished=summary is not None,
        notes=tuple(notes),
    )


def scored(rounds: tuple[Round, ...]) -> tuple[Round, ...]:
    """The rounds over which a run's score is the mean: the last fifth, rounded up."""
    return rounds[len(rounds) - math.ceil(SCORED_SHARE * len(rounds)) :]


def client_scores(run: Run) -> dict[int, Score]:
    """Every client's mean over the scored rounds; clients without an evaluation are left out."""
    scores: dict[int, list[Score]] = {}
    for record in scored(run.rounds):
        for client, score in record.clients.items():
            scores.setdefault(client, []).append(score)
    return {client: _mean_score(values) for client, values in scores.items()}


def summarize(rounds: tuple[Round, ...], tiers: Iterable[str]) -> Summary:
    """The figures of the rounds so far, for a run that has not written its own."""
    means = {tier: _mean_score(_of_tier(scored(rounds), tier)) for tier in tiers}
    return Summary(
        rounds=len(rounds),
        tiers={
            tier: TierSummary(accuracy=mean.accuracy, accuracy_full=mean.accuracy_full, std=None)
            for tier, mean in means.items()
        },
        fairness_loss_std=None,
        bytes_down=sum(r.bytes_down for r in rounds),
        bytes_up=sum(r.bytes_up for r in rounds),
        seconds=sum(sum(r.seconds.values()) for r in rounds),
        peak_rss_mb=None,
        rejected=sum(len(r.rejected) for r in rounds),
    )


def common_tiers(runs: Sequence[Run]) -> list[str]:
    """The tiers of all runs, in the order of the run that has the most."""
    ordered = sorted(runs, key=lambda run: -len(run.tiers))
    return list(dict.fromkeys(tier for run in ordered for tier in run.tiers))


def mean(values: Iterable[float | None]) -> float | None:
    """The mean of the values that are there.

    >>> mean([0.5, None, 1.0])
    0.75
    """
    there = [value for value in values if value is not None]
    return math.fsum(there) / len(there) if there else None


def parse_round(raw: object, where: str = "round") -> Round:
    """A round from the object that a line of rounds.jsonl holds; `where` is for errors."""
    fields = Fields(raw, where)
    clients = {c.whole("id"): _score(c) for c in fields.children("clients")}
    if len(clients) != len(fields.children("clients")):
        raise ReportError(f"{fields.where}: a client is named twice in 'clients'")
    return Round(
        number=fields.whole("round"),
        sampled=fields.wholes("sampled"),
        rejected=tuple(
            Rejection(client=r.whole("client"), reason=r.text("reason"))
            for r in fields.children("rejected")
        ),
        tiers=_tier_scores(fields),
        clients=clients,
        bytes_down=fields.whole("bytes_down"),
        bytes_up=fields.whole("bytes_up"),
        seconds=fields.numbers("seconds"),
        metrics=fields.numbers("metrics"),
        changed=fields.wholes("changed") if fields.has("changed") else (),
    )


def _config(path: Path) -> Fields:
    if not path.is_file():
        raise ReportError(
            f"{path.parent} is no run folder: it holds no config.json; "
            "give a folder that `ghnfl train --out` wrote"
        )
    config = parse(_content(path), str(path))
    if config.raw.get("version") != VERSION:
        raise ReportError(
            f"{path} is of version {config.raw.get('version')!r}, this ghnfl reads {VERSION}; "
            "use the ghnfl that wrote it, or a newer one"
        )
    return config


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as err:
        raise ReportError(f"cannot read {path}: {err.strerror or err}") from err


def _device(fields: Fields) -> Device:
    return Device(
        id=fields.whole("id"),
        tier=fields.text("tier"),
        models=fields.texts("models"),
        train_samples=fields.whole("train_samples"),
        test_samples=fields.whole("test_samples"),
        mix=fields.shares("mix"),
    )


def _check_fleet(fleet: tuple[Device, ...], where: str) -> None:
    if not fleet:
        raise ReportError(f"{where}: 'fleet' must name at least one device, got none")
    seen: set[int] = set()
    for device in fleet:
        if device.id in seen:
            raise ReportError(f"{where}: two devices of the fleet have the id {device.id}")
        seen.add(device.id)
        if len(device.mix) != len(fleet[0].mix):
            raise ReportError(
                f"{where}: 'mix' of device {device.id} must have {len(fleet[0].mix)} classes as "
                f"that of device {fleet[0].id}, got {len(device.mix)}"
            )


def _rounds(path: Path, known: set[int]) -> tuple[tuple[Round, ...], list[str]]:
    """The rounds and notes on what was left out: a killed run may leave half a last line."""
    if not path.exists():
        return (), []
    *lines, last = _content(path).split(b"\n")
    notes = []
    if last and is_whole(last):  # only its end of line is missing
        lines.append(last)
    elif last:
        notes.append(f"Line {len(lines) + 1}, the last of rounds.jsonl, is cut off and left out.")
    rounds = []
    for number, line in enumerate(lines, start=1):
        where = f"{path}, line {number}"
        record = parse_round(parse(line, where).raw, where)
        _check_round(record, number, known, where)
        rounds.append(record)
    return tuple(rounds), notes


def _check_round(record: Round, expected: int, known: set[int], where: str) -> None:
    if record.number != expected:
        raise ReportError(f"{where}: expected round {expected}, got round {record.number}")
    named = {
        *record.sampled,
        *record.changed,
        *record.clients,
        *(r.client for r in record.rejected),
    }
    if unknown := sorted(named - known):
        raise ReportError(f"{where}: client {unknown[0]} is not in the fleet of config.json")


def _tier_scores(fields: Fields) -> dict[str, Score]:
    scores = {
        tier: Score(
            accuracy=fields.accuracy_or_none(f"{tier}_accuracy"),
            loss=fields.number_or_none(f"{tier}_loss"),
            accuracy_full=fields.accuracy_or_none(f"{tier}_accuracy_full"),
        )
        for tier in ("strong", "weak")
    }
    if fields.has("tiers"):
        tiers = fields.child("tiers")
        scores |= {tier: _score(tiers.child(tier)) for tier in tiers.raw if tiers.has(tier)}
    return scores


def _score(fields: Fields) -> Score:
    return Score(
        accuracy=fields.accuracy_or_none("accuracy"),
        loss=fields.number_or_none("loss"),
        accuracy_full=fields.accuracy_or_none("accuracy_full"),
    )


def _mean_score(scores: Iterable[Score]) -> Score:
    scores = list(scores)
    return Score(
        accuracy=mean(s.accuracy for s in scores),
        loss=mean(s.loss for s in scores),
        accuracy_full=mean(s.accuracy_full for s in scores),
    )


def _of_tier(rounds: Iterable[Round], tier: str) -> list[Score]:
    return [r.tiers[tier] for r in rounds if tier in r.tiers]


def _summary(path: Path, tiers: list[str]) -> Summary | None:
    if not path.exists():
        return None
    fields = parse(_content(path), str(path))
    return Summary(
        rounds=fields.whole("rounds"),
        tiers={tier: _tier_summary(fields, tier) for tier in tiers},
        fairness_loss_std=fields.number_or_none("fairness_loss_std"),
        bytes_down=fields.whole("bytes_down"),
        bytes_up=fields.whole("bytes_up"),
        seconds=_total_seconds(fields),
        peak_rss_mb=fields.number_or_none("peak_rss_mb"),
        rejected=fields.whole("rejected"),
    )


def _tier_summary(fields: Fields, tier: str) -> TierSummary:
    """The figures under tiers, if the tier is there, else those of `strong_...` and `weak_...`."""
    tiers = fields.child("tiers") if fields.has("tiers") else Fields({}, fields.where)
    inner, prefix = (tiers.child(tier), "") if tiers.has(tier) else (fields, f"{tier}_")
    std = inner if inner.has(f"{prefix}std") else fields
    return TierSummary(
        accuracy=inner.accuracy_or_none(f"{prefix}accuracy"),
        accuracy_full=inner.accuracy_or_none(f"{prefix}accuracy_full"),
        std=std.number_or_none(f"{prefix}std" if std is inner else f"{tier}_std"),
    )


def _total_seconds(fields: Fields) -> float:
    if isinstance(fields.raw.get("seconds"), dict):
        return sum(fields.numbers("seconds").values())
    return fields.number("seconds")
