"""The fleet: tiers of devices, and which models each of them trains."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zoo
from ghn_fl.errors import ConfigError
from ghn_fl.methods import METHODS
from ghn_fl.simulation.config import RunConfig, from_mapping, read_file
from ghn_fl.types import STRONG, WEAK
from zoo import Device, ModelSpec
from zoo.registry import unknown

# channels of a data set's images -> its usual large and small model, by how they are scaled
_USUAL = {
    1: {
        "depth": ("lenet5", "lenet5-d1"),
        "width": ("lenet5", "lenet5-w0.5"),
        "one": ("lenet5-d1", "lenet5-d1"),
    },
    3: {
        "depth": ("resnet18", "resnet18-d1"),
        "width": ("resnet18", "resnet18-w0.2"),
        "one": ("resnet18-d1", "resnet18-d1"),
    },
}


@dataclass(frozen=True, kw_only=True)
class Tier:
    """Devices of one kind.

    Attributes:
        name: `strong` and `weak` are what the records speak of; others are listed beside them.
        count: how many devices.
        model: what they train.
        share: their part of the training data, all together.
        alpha: concentration of their class mix; 0 for the global mix.
        classes: gives each device so many classes, equally likely, instead; 0: off.
        speed: samples a second in training, for the simulated deadline; 0: as fast as needed.
        availability: probability that a sampled device is there.
    """

    name: str
    count: int
    model: ModelSpec
    share: float
    alpha: float = 0.0
    classes: int = 0
    speed: float = 0.0
    availability: float = 1.0

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ConfigError(f"tier {self.name!r} must have 1 device or more, got {self.count}")
        if not 0 < self.share <= 1:
            raise ConfigError(f"tier {self.name!r}: share must be in (0, 1], got {self.share}")
        if self.classes < 0 or (self.classes and self.alpha):
            raise ConfigError(
                f"tier {self.name!r}: classes must be at least 0 and goes without alpha, "
                f"got classes {self.classes} and alpha {self.alpha}"
            )
        if self.alpha < 0 or self.speed < 0 or not 0 < self.availability <= 1:
            raise ConfigError(
                f"tier {self.name!r}: alpha and speed must be at least 0 and availability in "
                f"(0, 1], got {self.alpha}, {self.speed} and {self.availability}"
            )


def tiers_of(config: RunConfig, in_channels: int) -> tuple[Tier, ...]:
    """The run's tiers, strongest first."""
    if config.fleet:
        return _from_file(Path(config.fleet))
    strong, weak = parse_skew(config.skew)
    usual_large, usual_small = usual_pair(config.method, in_channels)
    large = ModelSpec.parse(config.large or usual_large)
    small = ModelSpec.parse(config.small or usual_small)
    classes = config.classes_per_client
    tiers = []
    if strong:
        share = config.strong_share if weak else 1.0
        tiers.append(Tier(name=STRONG, count=strong, model=large, share=share, classes=classes))
    if weak:
        share = 1 - config.strong_share if strong else 1.0
        alpha = 0.0 if classes else config.alpha
        tiers.append(
            Tier(name=WEAK, count=weak, model=small, share=share, alpha=alpha, classes=classes)
        )
    return tuple(tiers)


def usual_pair(method: str, in_channels: int) -> tuple[str, str]:
    """Large and small model of a fleet that trains with the method, if nobody names others."""
    return _USUAL.get(in_channels, _USUAL[1])[METHODS[method].scaling]


def parse_skew(text: str) -> tuple[int, int]:
    """Numbers of strong and weak devices.

    >>> parse_skew("2:100")
    (2, 100)
    """
    parts = text.split(":")
    if len(parts) != 2 or not all(part.isdecimal() for part in parts):
        raise ConfigError(f"skew must be S:W with whole numbers, for example 2:100, got {text!r}")
    strong, weak = map(int, parts)
    if strong + weak < 1:
        raise ConfigError(f"skew must name one device or more, got {text!r}")
    return strong, weak


def _from_file(path: Path) -> tuple[Tier, ...]:
    content = read_file(path)
    entries = content.get("tier", [])
    if set(content) != {"tier"} or not isinstance(entries, list) or not entries:
        found = ", ".join(content) or "nothing"
        raise ConfigError(f"{path} must consist of [[tier]] tables, got {found}")
    tiers = tuple(_tier(path, entry) for entry in entries)
    names = [tier.name for tier in tiers]
    if len(set(names)) < len(names):
        raise ConfigError(f"{path}: two tiers have one name: {', '.join(names)}")
    if sum(tier.share for tier in tiers) > 1 + 1e-9:
        raise ConfigError(f"{path}: the shares sum to {sum(t.share for t in tiers):g}, above 1")
    return tiers


def _tier(path: Path, entry: Any) -> Tier:
    if not isinstance(entry, dict):
        raise ConfigError(f"{path}: a tier must be a [[tier]] table, got {entry!r}")
    fields = dataclasses.fields(Tier)
    known = (*(f.name for f in fields), "fit")
    for key in entry:
        if key not in known:
            raise ConfigError(f"{path}: {unknown('key of a tier', key, known)}")
    if ("fit" in entry) == ("model" in entry):
        raise ConfigError(f"{path}: a tier needs either `model` or `fit`, got {sorted(entry)}")
    needed = [f.name for f in fields if f.default is dataclasses.MISSING and f.name != "model"]
    if lacking := [name for name in needed if name not in entry]:
        raise ConfigError(f"{path}: a tier lacks {', '.join(lacking)}; it has {sorted(entry)}")
    values = {key: value for key, value in entry.items() if key != "fit"}
    values["model"] = _fitting(path, entry["fit"]) if "fit" in entry else _model(path, entry)
    return from_mapping(Tier, values, f"{path}: key of a tier")


def _model(path: Path, entry: Mapping[str, Any]) -> ModelSpec:
    if not isinstance(entry["model"], str):
        raise ConfigError(f"{path}: model must be a text as 'lenet5', got {entry['model']!r}")
    return ModelSpec.parse(entry["model"])


def _fitting(path: Path, fit: Any) -> ModelSpec:
    """The largest model of a family that the device of a `fit` table can train."""
    try:
        device = {key: value for key, value in fit.items() if key != "family"}
        return zoo.fit(fit["family"], Device(**device))
    except (TypeError, KeyError, AttributeError) as err:
        raise ConfigError(
            f"{path}: fit must be a table of family, memory, flops and bandwidth, got {fit!r}"
        ) from err
