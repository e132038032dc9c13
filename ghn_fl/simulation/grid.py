"""A grid of runs: methods by seeds on one fleet, each method with settings of its own.

What the devices are and hold is the same in all runs: the pair of models is fixed once, not by
each method. How a client trains may differ, and so may a method's options.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import product
from pathlib import Path
from typing import Any

import zoo
from ghn_fl.data import load
from ghn_fl.errors import ConfigError, RunError
from ghn_fl.local import LocalConfig
from ghn_fl.methods import METHODS
from ghn_fl.simulation import records
from ghn_fl.simulation.build import build_world
from ghn_fl.simulation.config import RunConfig, from_mapping, read_file
from ghn_fl.simulation.elastic import changes_of
from ghn_fl.simulation.fleet import tiers_of, usual_pair
from ghn_fl.simulation.public import HELDOUT
from zoo.registry import unknown

# settings that a method of a grid may have for itself, beside its options
OWN = (*(f.name for f in dataclasses.fields(LocalConfig)), "transfer")
Settings = dict[str, Any]  # run settings by name, and the method's under "options"


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One run of a grid.

    Attributes:
        name: of its folder.
        config: what it does.
        choice: what it tries, where settings are tuned.
    """

    name: str
    config: RunConfig
    choice: Mapping[str, Any] = field(default_factory=dict)


def parse_methods(text: str) -> tuple[str, ...]:
    """The methods of a list with commas, or all of them.

    >>> parse_methods("recipfl,allsmall")
    ('recipfl', 'allsmall')
    """
    names = METHODS.names() if text.strip() == "all" else _words(text)
    if not names:
        raise ConfigError("methods must name one method or more, as recipfl,allsmall; got none")
    for name in names:
        if name not in METHODS:
            raise ConfigError(unknown("method", name, METHODS.names()))
    _refuse_doubles("methods", names)
    return names


def parse_seeds(text: str) -> tuple[int, ...]:
    """The seeds of a list with commas.

    >>> parse_seeds("0,1,2")
    (0, 1, 2)
    """
    words = _words(text)
    if not words or not all(word.isdecimal() for word in words):
        raise ConfigError(f"seeds must be whole numbers, as 0,1,2; got {text!r}")
    seeds = tuple(map(int, words))
    _refuse_doubles("seeds", seeds)
    return seeds


def parse_against(text: str | None, methods: Sequence[str]) -> str:
    """The method that the others are compared with: the one named, else recipfl, else the first."""
    if text is None:
        return "recipfl" if "recipfl" in methods else methods[0]
    if text not in methods:
        raise ConfigError(f"against must be one of the methods {', '.join(methods)}; got {text!r}")
    return text


def parse_own(texts: Sequence[str], methods: Sequence[str]) -> dict[str, Settings]:
    """Settings of single methods from texts such as "fedprox:mu=0.1"; of a doubled one the last.

    >>> parse_own(["recipfl:update.lr=0.003", "recipfl:lr=0.1"], ["recipfl"])
    {'recipfl': {'options': {'update.lr': '0.003'}, 'lr': '0.1'}}
    """
    own: dict[str, Settings] = {}
    for text in texts:
        method, key, value = _split(text)
        if not method:
            raise ConfigError(f"set takes METHOD:NAME=VALUE in a grid, got {text!r}")
        if method not in methods:
            raise ConfigError(f"set {text!r}: the grid has no {method!r}, but {', '.join(methods)}")
        own[method] = merge(own.get(method, {}), place(method, key, value))
    return own


def parse_tried(texts: Sequence[str], methods: Sequence[str]) -> dict[str, list[Settings]]:
    """Every combination of settings that tuning tries, by method.

    Args:
        texts: such as "lr=0.01,0.03", for all methods, and "fedprox:mu=0.1,1", for one.
        methods: of the grid.

    >>> parse_tried(["lr=1,2"], ["recipfl"])
    {'recipfl': [{'lr': '1'}, {'lr': '2'}]}
    """
    axes: dict[str, dict[str, list[Settings]]] = {method: {} for method in methods}
    for text in texts:
        prefix, key, values = _split(text)
        words = _words(values)
        if not words:
            raise ConfigError(f"grid {text!r} must name one value or more, as lr=0.01,0.03")
        _refuse_doubles(f"values of grid {key}", words)
        if prefix and prefix not in methods:
            raise ConfigError(
                f"grid {text!r}: the grid has no {prefix!r}, but {', '.join(methods)}"
            )
        if not prefix and key not in OWN:
            raise ConfigError(
                f"{unknown('setting of all methods', key, OWN)}; one method's own has its name "
                "before it, as fedprox:mu=0.01,0.1"
            )
        for method in [prefix] if prefix else methods:
            steps = [place(method, key, word) if prefix else {key: word} for word in words]
            (name,) = named(steps[0])
            if name in axes[method]:
                raise ConfigError(f"grid names {key!r} of {method} twice")
            axes[method][name] = steps
    return {m: [merge(*c) for c in product(*own.values())] for m, own in axes.items()}


def named(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by one name each; an option that is called like a run setting gets a prefix.

    >>> named({"lr": 0.1, "options": {"mu": 1, "lr": 2}})
    {'lr': 0.1, 'mu': 1, 'options.lr': 2}
    """
    found = {key: value for key, value in settings.items() if key != "options"}
    for key, value in settings.get("options", {}).items():
        found[f"options.{key}" if key in OWN else key] = value
    return found


def read_tuned(path: Path) -> dict[str, Settings]:
    """What tuning chose: a TOML or JSON file with a table a method, its options under `options`."""
    if path.suffix == ".json":
        try:
            content = json.loads(path.read_text())
        except OSError as err:
            raise ConfigError(f"cannot read {path}: {err.strerror}") from err
        except ValueError as err:
            raise ConfigError(f"{path} is not JSON: {err}") from err
    else:
        content = read_file(path)
    if not isinstance(content, dict):
        raise ConfigError(f"{path} must hold a table for each method, got {content!r}")
    for method, settings in content.items():
        if method not in METHODS:
            raise ConfigError(f"{path}: {unknown('method', method, METHODS.names())}")
        if not isinstance(settings, dict) or not isinstance(settings.get("options", {}), dict):
            raise ConfigError(f"{path}: {method} must be a table of settings, got {settings!r}")
        for key in settings:
            if key not in (*OWN, "options"):
                raise ConfigError(f"{path}: {unknown(f'setting of {method}', key, OWN)}")
    return content


def place(method: str, key: str, value: Any) -> Settings:
    """A setting of one method: its option if it has one of that name, else how its clients train.

    >>> place("recipfl", "update.lr", 0.1), place("recipfl", "lr", 0.1)
    ({'options': {'update.lr': 0.1}}, {'lr': 0.1})
    >>> place("fedadam", "lr", 0.1) == place("fedadam", "options.lr", 0.1)  # as `named` has it
    True
    """
    options = tuple(f.name for f in dataclasses.fields(METHODS[method].config))
    name = key.removeprefix("options.")
    if name.split(".")[0] in options:
        return {"options": {name: value}}
    if key in OWN:
        return {key: value}
    if key in {f.name for f in dataclasses.fields(RunConfig)}:
        flag = key.replace("_", "-")
        raise ConfigError(f"{key} is the same for all methods of a grid: give it as --{flag}")
    known = tuple(dict.fromkeys((*options, *OWN)))
    raise ConfigError(unknown(f"setting of {method}", key, known))


def merge(*parts: Mapping[str, Any]) -> Settings:
    """Settings put together; of a doubled one the last counts."""
    merged: Settings = {}
    for part in parts:
        options = merged.get("options", {}) | dict(part.get("options", {}))
        merged |= part
        if options:
            merged["options"] = options
    return merged


def options_of(values: Mapping[str, Any], method: str) -> Settings:
    """The options that a preset or a file gives, if they are this method's.

    They are of the method that is named beside them, or of the one that a run has by default.
    """
    owner = values.get("method", RunConfig().method)
    return {"options": flat(values["options"])} if owner == method and "options" in values else {}


def shared(
    values: Mapping[str, Any], methods: Sequence[str], against: str, data_dir: Path | None
) -> RunConfig:
    """The settings that all runs of a grid have in common, as a config of the method `against`.

    The models of the fleet are those of `values`, else that method's usual pair. What would fail
    in every run fails here: data that cannot be had or shared out, models that do not exist.

    Args:
        values: as a person gave them, unchecked.
        methods: of the grid; what one of them needs of the data, all of them get.
        against: one of them.
        data_dir: where data sets are looked for.
    """
    plain = {k: v for k, v in values.items() if k not in ("method", "seed", "options")}
    if any(METHODS[method].public for method in methods):
        plain = {"public": HELDOUT} | plain  # all have the same private data
    config = from_mapping(RunConfig, plain | {"method": against}, "setting")
    dataset = load(config.dataset, data_dir)  # once before all: a set may have to be fetched
    if not config.fleet:
        large, small = usual_pair(against, dataset.in_channels)
        config = dataclasses.replace(
            config, large=config.large or large, small=config.small or small
        )
    tiers = tiers_of(config, dataset.in_channels)
    for tier in tiers:
        zoo.num_parameters(tier.model)
    changes_of(config, tiers)
    with contextlib.suppress(ConfigError):  # a method that cannot serve the fleet is a cell's end
        build_world(config, dataset, tiers, data_dir)
    return config


def cells(
    base: RunConfig,
    methods: Sequence[str],
    seeds: Sequence[int],
    own: Mapping[str, Mapping[str, Any]],
) -> list[Cell]:
    """All runs, seed by seed, so that a part of the grid compares all methods already."""
    return [
        Cell(name=f"{method}-{seed}", config=cell_config(base, method, seed, own.get(method, {})))
        for seed in seeds
        for method in methods
    ]


def tuning_cells(
    base: RunConfig,
    methods: Sequence[str],
    seeds: Sequence[int],
    own: Mapping[str, Mapping[str, Any]],
    tried: Mapping[str, Sequence[Settings]],
) -> list[Cell]:
    """A run for every method, combination of settings and seed."""
    found: list[Cell] = []
    for seed, method in product(seeds, methods):
        for settings in tried[method]:
            config = cell_config(base, method, seed, merge(own.get(method, {}), settings))
            choice: Settings = {k: getattr(config, k) for k in settings if k != "options"}
            if "options" in settings:
                choice["options"] = {k: config.options[k] for k in settings["options"]}
            words = ",".join(f"{k}={v}".replace("/", "_") for k, v in named(choice).items())
            name = f"{method}-{words}-{seed}" if words else f"{method}-{seed}"
            if name in {cell.name for cell in found}:
                raise ConfigError(f"the grid tries {words} of {method} twice")
            found.append(Cell(name=name, config=config, choice=choice))
    return found


def cell_config(base: RunConfig, method: str, seed: int, own: Mapping[str, Any]) -> RunConfig:
    """The config of one run, its options under full names and with their types."""
    values = merge(dataclasses.asdict(base), {"method": method, "seed": seed}, own)
    values["options"] = flat(own.get("options", {}))
    config = from_mapping(RunConfig, values, "setting")
    method_config = config.method_config()
    typed = {key: reduce(getattr, key.split("."), method_config) for key in config.options}
    return dataclasses.replace(config, options=typed)


def flat(options: Mapping[str, Any]) -> dict[str, Any]:
    """Nested options under names with dots.

    >>> flat({"update": {"lr": 0.1}, "q": 1})
    {'update.lr': 0.1, 'q': 1}
    """
    found: dict[str, Any] = {}
    for key, value in options.items():
        if isinstance(value, Mapping):
            found |= {f"{key}.{rest}": v for rest, v in flat(value).items()}
        else:
            found[key] = value
    return found


def check_folder(out: Path, wanted: Sequence[Cell], data_dir: Path | None = None) -> None:
    """Refuse a folder with runs of another grid; methods and seeds may come and go.

    What is damaged is passed over: it costs its own run, not the others.
    """
    if out.exists() and not out.is_dir():
        raise ConfigError(f"{out} is a file, not a folder")
    known = {cell.name: cell.config for cell in wanted}
    common = {f.name for f in dataclasses.fields(RunConfig)} - {"method", "seed", "options", *OWN}
    fleets: dict[int, list[Any]] = {}
    for path in sorted(out.glob("*/config.json")):
        try:
            whole = records.read_config(path.parent)
        except RunError:
            continue
        stored = whole["config"]
        config = known.get(path.parent.name)
        names = common if config is None else {f.name for f in dataclasses.fields(RunConfig)}
        expected = dataclasses.asdict(wanted[0].config if config is None else config)
        differing = [
            f"{name} ({stored.get(name)!r} there, {expected[name]!r} now)"
            for name in sorted(names)
            if stored.get(name) != expected[name]
        ]
        if differing:
            raise ConfigError(
                f"{out} holds a grid of other settings: {path.parent.name} differs in "
                f"{', '.join(differing)}; give another --out"
            )
        if wanted[0].config.fleet:  # the file may be another by now
            seed = int(stored["seed"])
            if seed not in fleets:
                fleets[seed] = _devices(dataclasses.replace(wanted[0].config, seed=seed), data_dir)
            found = [[d["tier"], d["train_samples"], d["mix"]] for d in whole.get("fleet", ())]
            if found != fleets[seed]:
                raise ConfigError(
                    f"{out} holds a grid of another fleet than {wanted[0].config.fleet} is now "
                    f"({path.parent.name}); give another --out"
                )


def _devices(config: RunConfig, data_dir: Path | None) -> list[Any]:
    """Tier, samples and class mix of every device."""
    dataset = load(config.dataset, data_dir)
    tiers = tiers_of(config, dataset.in_channels)
    _, clients = build_world(config, dataset, tiers, data_dir)
    return [[c.tier, c.samples, list(c.mix)] for c in clients]


def is_finished(out: Path, cell: Cell) -> bool:
    """Whether the cell's run is there whole; `check_folder` has made sure that it is this one.

    Raises RunError for what is there and of no use.
    """
    folder = out / cell.name
    if not folder.exists():
        return False
    if not folder.is_dir() or (any(folder.iterdir()) and not (folder / "config.json").exists()):
        raise RunError(f"{folder} is no run folder; remove it")
    if not (folder / "summary.json").exists():
        return False
    records.check_finished(folder, cell.config.rounds)
    return True


def _split(text: str) -> tuple[str, str, str]:
    """METHOD, NAME and VALUE of METHOD:NAME=VALUE; METHOD may be missing."""
    name, equals, value = text.partition("=")
    method, colon, key = name.rpartition(":")
    if not equals or not key or (colon and not method):
        raise ConfigError(f"expected METHOD:NAME=VALUE, for example fedprox:mu=0.1; got {text!r}")
    if method and method not in METHODS:
        raise ConfigError(unknown("method", method, METHODS.names()))
    return method, key, value


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _refuse_doubles(what: str, values: Sequence[Any]) -> None:
    doubled = sorted({value for value in values if values.count(value) > 1})
    if doubled:
        raise ConfigError(f"{what} must differ, got {', '.join(map(str, doubled))} twice")
