"""Small but realistic run folders, for the tests of this folder."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

PHASES = {"generate": 0.3, "train": 4.0, "update": 0.9, "evaluate": 2.5, "record": 0.02}
CEILING = {"strong": 0.99, "gateway": 0.985, "weak": 0.98}


def write_run(
    folder: Path,
    *,
    tiers: dict[str, int] | None = None,
    rounds: int = 10,
    seed: int = 0,
    method: str = "recipfl",
    classes: int = 10,
    every: int = 1,
    finished: bool = True,
    gain: float = 0.0,
) -> Path:
    """Write a run of a fleet such as {"strong": 2, "weak": 100} and return its folder."""
    tiers = {"strong": 2, "weak": 6} if tiers is None else tiers
    rng = random.Random(seed)
    folder.mkdir(parents=True, exist_ok=True)
    fleet = make_fleet(rng, tiers, classes)
    settings = {
        "dataset": "mnist",
        "method": method,
        "skew": f"{tiers.get('strong', 0)}:{tiers.get('weak', 0)}",
        "rounds": rounds,
        "seed": seed,
        "strong_share": 0.5,
        "transfer": False,
        "out": "runs/a",
        "deadline": None,
    }
    config = {
        "version": 1,
        "config": settings,
        "fleet": fleet,
        "versions": {"ghnfl": "0.1.0", "torch": "2.13.0"},
    }
    write_json(folder / "config.json", config)
    records = [
        make_round(rng, n, rounds, fleet, gain, n % every == 0 or n > 0.8 * rounds)
        for n in range(1, rounds + 1)
    ]
    lines = "".join(json.dumps(record) + "\n" for record in records)
    (folder / "rounds.jsonl").write_text(lines)
    if finished:
        write_json(folder / "summary.json", make_summary(settings, records, tiers))
    return folder


def write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n")


def change(path: Path, *keys: Any, to: object) -> None:
    """Put `to` at the place that `keys` lead to in a JSON file."""
    whole = value = json.loads(path.read_text())
    for key in keys[:-1]:
        value = value[key]
    value[keys[-1]] = to
    write_json(path, whole)


def change_round(folder: Path, number: int, *keys: Any, to: object) -> None:
    """Put `to` at the place that `keys` lead to in a line of rounds.jsonl."""
    path = folder / "rounds.jsonl"
    lines = path.read_text().splitlines()
    whole = value = json.loads(lines[number - 1])
    for key in keys[:-1]:
        value = value[key]
    value[keys[-1]] = to
    lines[number - 1] = json.dumps(whole)
    path.write_text("\n".join(lines) + "\n")


def make_fleet(rng: random.Random, tiers: dict[str, int], classes: int) -> list[dict[str, Any]]:
    fleet: list[dict[str, Any]] = []
    for tier, count in tiers.items():
        for _ in range(count):
            strong = tier == "strong"
            alpha = 50.0 if strong else 0.5
            draw = [rng.gammavariate(alpha, 1.0) + 1e-9 for _ in range(classes)]
            fleet.append(
                {
                    "id": len(fleet),
                    "tier": tier,
                    "models": ["lenet5", "lenet5-d1"] if strong else ["lenet5-d1"],
                    "train_samples": 30000 // max(count, 1),
                    "test_samples": 98,
                    "mix": [part / sum(draw) for part in draw],
                }
            )
    return fleet


def make_round(
    rng: random.Random,
    number: int,
    rounds: int,
    fleet: list[dict[str, Any]],
    gain: float,
    evaluated: bool,
) -> dict[str, Any]:
    sampled = sorted(rng.sample(range(len(fleet)), min(10, len(fleet))))
    missing = [sampled[0]] if number % 4 == 0 else []
    clients = [make_client(rng, number, rounds, d, gain) for d in fleet] if evaluated else []
    tiers = {tier: tier_mean(clients, fleet, tier) for tier in ("strong", "weak")}
    tiers |= {d["tier"]: tier_mean(clients, fleet, d["tier"]) for d in fleet}
    return {
        "round": number,
        "sampled": sampled,
        "rejected": [{"client": c, "reason": "dropped out"} for c in missing],
        **{f"{t}_{k}": v for t in ("strong", "weak") for k, v in tiers[t].items()},
        "tiers": tiers,
        "clients": clients,
        "bytes_down": 250_000 * len(sampled),
        "bytes_up": 250_000 * (len(sampled) - len(missing)),
        "seconds": {
            phase: mean * rng.uniform(0.9, 1.2) * (evaluated or phase != "evaluate")
            for phase, mean in PHASES.items()
        },
        "metrics": {"server_loss": 2.3 / number, "transfer_loss": 1.1 / number},
    }


def make_client(
    rng: random.Random, number: int, rounds: int, device: dict[str, Any], gain: float
) -> dict[str, Any]:
    top = CEILING.get(device["tier"], 0.95) + gain
    reached = top - (0.7 if device["tier"] == "weak" else 0.5) * 0.002 ** (number / rounds)
    accuracy = min(1.0, max(0.0, reached + rng.gauss(0, 0.012)))
    full = min(1.0, max(0.0, reached + rng.gauss(0, 0.004)))
    return {"id": device["id"], "accuracy": accuracy, "loss": 1 - full, "accuracy_full": full}


def tier_mean(
    clients: list[dict[str, Any]], fleet: list[dict[str, Any]], tier: str
) -> dict[str, float | None]:
    own = [c for c in clients if fleet[c["id"]]["tier"] == tier]
    keys = ("accuracy", "loss", "accuracy_full")
    return {key: sum(c[key] for c in own) / len(own) if own else None for key in keys}


def make_summary(
    settings: dict[str, Any], records: list[dict[str, Any]], tiers: dict[str, int]
) -> dict[str, Any]:
    last = records[-max(1, -(-len(records) // 5)) :]
    summary: dict[str, Any] = {k: settings[k] for k in ("method", "dataset", "skew", "seed")}
    summary |= {"rounds": len(records), "tiers": {}}
    for tier in {**tiers, "strong": 0, "weak": 0}:
        scores = [r["tiers"][tier] for r in last if r["tiers"][tier]["accuracy"] is not None]
        keys = ("accuracy", "accuracy_full")
        found = {k: sum(s[k] for s in scores) / len(scores) if scores else None for k in keys}
        summary["tiers"][tier] = {**found, "std": 0.01}
    for tier in ("strong", "weak"):
        summary |= {f"{tier}_{key}": v for key, v in summary["tiers"][tier].items()}
    return summary | {
        "fairness_loss_std": 0.05,
        "bytes_down": sum(r["bytes_down"] for r in records),
        "bytes_up": sum(r["bytes_up"] for r in records),
        "seconds": sum(sum(r["seconds"].values()) for r in records),
        "peak_rss_mb": 812.5,
        "rejected": sum(len(r["rejected"]) for r in records),
    }
