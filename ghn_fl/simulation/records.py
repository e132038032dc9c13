"""What a run leaves behind: config.json, a line a round, and the summary."""

from __future__ import annotations

import dataclasses
import json
import math
import platform
import resource
import statistics
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ghn_fl.errors import ConfigError, RunError, WriteError
from ghn_fl.files import write_atomic
from ghn_fl.simulation.config import RunConfig
from ghn_fl.types import STRONG, WEAK, Client

VERSION = 1
_PACKAGES = ("ghnfl", "torch", "torch-geometric", "numpy")


def describe(
    config: RunConfig,
    clients: Sequence[Client],
    tests: Sequence[int],
    changes: Sequence[dict[str, Any]] = (),
) -> dict[str, Any]:
    """What config.json holds; `clients` as they are at the start."""
    return {
        "version": VERSION,
        "config": dataclasses.asdict(config),
        "fleet": [
            {
                "id": c.id,
                "tier": c.tier,
                "models": [str(spec) for spec in c.models],
                "train_samples": c.samples,
                "test_samples": test,
                "mix": list(c.mix),
            }
            for c, test in zip(clients, tests, strict=True)
        ],
        **({"changes": list(changes)} if changes else {}),
        "versions": {p: version(p) for p in _PACKAGES} | {"python": platform.python_version()},
    }


def read_config(folder: Path) -> dict[str, Any]:
    try:
        content = json.loads((folder / "config.json").read_text())
    except (OSError, ValueError) as err:
        raise RunError(f"{folder} holds no readable config.json: {err}") from err
    if not isinstance(content, dict) or content.get("version") != VERSION:
        raise RunError(f"{folder}/config.json is not of version {VERSION}")
    if not isinstance(content.get("config"), dict):
        raise RunError(f"{folder}/config.json is damaged: it has no settings")
    # a setting that is younger than the run had no effect then, which mostly is its default
    known = dataclasses.asdict(RunConfig()) | {"lr_decay": 1.0}
    return content | {"config": known | content["config"]}


def differing(config: RunConfig, stored: Mapping[str, Any]) -> list[str]:
    """The settings that are not those of a stored config, each with both values."""
    values = dataclasses.asdict(config)
    if _same_options(config, stored):
        del values["options"]
    return [
        f"{name} ({stored.get(name)!r} there, {value!r} now)"
        for name, value in sorted(values.items())
        if stored.get(name) != value
    ]


def _same_options(config: RunConfig, stored: Mapping[str, Any]) -> bool:
    """Whether options come to the same; the command line's are texts, a file's have types."""
    try:
        other = dataclasses.replace(config, options=stored["options"])
    except (KeyError, TypeError, AttributeError, ConfigError):
        return False
    return bool(other.method_config() == config.method_config())


def keep_rounds(folder: Path, last: int) -> list[dict[str, Any]]:
    """The records up to round `last`; what a killed run wrote behind it is cut off."""
    file = folder / "rounds.jsonl"
    lines = file.read_text().splitlines(keepends=True) if file.exists() else []
    kept = []
    for line in lines:
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            break  # the line that the kill interrupted
        if record["round"] > last:
            break
        kept.append(line)
    if len(kept) != last:
        raise RunError(f"{file} has {len(kept)} whole rounds, the checkpoint {last}")
    write_atomic(file, "".join(kept))
    return [json.loads(line) for line in kept]


def check_finished(folder: Path, rounds: int) -> None:
    """Refuse a folder whose summary says that the run has ended, if the rest does not agree."""
    read_config(folder)
    try:
        summary = json.loads((folder / "summary.json").read_text())
        lines = (folder / "rounds.jsonl").read_text().splitlines()
        last = json.loads(lines[-1]) if lines else {}
        whole = isinstance(summary["tiers"], dict) and last.get("clients") and last["round"]
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as err:
        raise RunError(f"{folder} is damaged ({type(err).__name__}: {err}); remove it") from err
    if whole != rounds or len(lines) != rounds:
        raise RunError(f"{folder} is damaged: it has not all of its {rounds} rounds; remove it")


def append(folder: Path, record: dict[str, Any]) -> None:
    try:
        with (folder / "rounds.jsonl").open("a") as file:
            file.write(json.dumps(record) + "\n")
    except OSError as err:
        raise WriteError(f"cannot write {folder}/rounds.jsonl: {err.strerror}") from err


def by_tier(
    clients: Sequence[Client], results: Sequence[dict[str, Any]]
) -> dict[str, dict[str, float | None]]:
    """Mean accuracy and loss of every tier; None if a device has no finite loss."""
    tiers: dict[str, dict[str, float | None]] = {}
    for name in dict.fromkeys(c.tier for c in clients):
        own = [r for c, r in zip(clients, results, strict=True) if c.tier == name]
        keys = [k for k in ("accuracy", "loss", "accuracy_full") if own and k in own[0]]
        tiers[name] = {key: _of_all(statistics.fmean, [r[key] for r in own]) for key in keys}
    return tiers


def _of_all(
    figure: Callable[[Sequence[float]], float], values: Sequence[float | None]
) -> float | None:
    """A figure of all values; None if one of them is."""
    there = [value for value in values if value is not None]
    return figure(there) if len(there) == len(values) else None


def summarize(config: RunConfig, records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The summary: means over the last fifth of the rounds, sums over all of them."""
    window = [r for r in records[-math.ceil(0.2 * config.rounds) :] if r["clients"]]
    final = window[-1]
    summary: dict[str, Any] = {
        "method": config.method,
        "dataset": config.dataset,
        "skew": config.skew if not config.fleet else config.fleet,
        "rounds": config.rounds,
        "seed": config.seed,
    }
    tiers: dict[str, dict[str, float | None]] = {}
    for name in final["tiers"]:
        values = [r["tiers"][name]["accuracy"] for r in window]
        full = [r["tiers"][name].get("accuracy_full") for r in window]
        known = [f for f in full if f is not None]
        tiers[name] = {
            "accuracy": statistics.fmean(values),
            "accuracy_full": statistics.fmean(known) if known else None,
            "std": statistics.pstdev(values),
        }
    for name in (STRONG, WEAK):
        own = tiers.get(name, {})
        summary[f"{name}_accuracy"] = own.get("accuracy")
        summary[f"{name}_accuracy_full"] = own.get("accuracy_full")
        summary[f"{name}_std"] = own.get("std")
    summary |= {
        "tiers": tiers,
        "fairness_loss_std": _of_all(statistics.pstdev, [c["loss"] for c in final["clients"]]),
        "bytes_down": sum(r["bytes_down"] for r in records),
        "bytes_up": sum(r["bytes_up"] for r in records),
        "rejected": sum(len(r["rejected"]) for r in records),
        "seconds": sum(sum(r["seconds"].values()) for r in records),
        "seconds_by_phase": {
            phase: sum(r["seconds"][phase] for r in records) for phase in records[0]["seconds"]
        },
        "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    return summary
