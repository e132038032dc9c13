"""RunConfig: all that is needed to repeat a run; from defaults, a preset, a file and flags."""

from __future__ import annotations

import dataclasses
import math
import tomllib
import types
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from ghn_fl.errors import ConfigError
from ghn_fl.local import LocalConfig
from ghn_fl.methods import METHODS
from ghn_fl.simulation.public import held_part
from zoo.registry import unknown

T = TypeVar("T")


def _setting(default: Any, help: str) -> Any:
    return field(default=default, metadata={"help": help})


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """One run. Each field is a flag of `ghnfl train` and a key of its config file."""

    dataset: str = _setting("mnist5k", "Data set; `ghnfl datasets` lists them.")
    method: str = _setting("recipfl", "Method; `ghnfl methods` lists them.")
    skew: str = _setting("2:100", "Strong and weak devices, S:W.")
    large: str = _setting("", "Model of the strong devices; the data set's usual one if empty.")
    small: str = _setting("", "Model of the weak devices; the data set's usual one if empty.")
    fleet: str = _setting("", "A TOML file of tiers, instead of --skew.")
    elastic: str = _setting("", "A TOML file of changes: devices that get other models on the way.")
    strong_share: float = _setting(0.5, "Part of the training data that strong devices hold.")
    alpha: float = _setting(0.5, "Dirichlet concentration of a weak device's class mix.")
    classes_per_client: int = _setting(0, "Classes of every device, instead of alpha; 0: off.")
    validation: float = _setting(
        0.0, "Evaluate on this part of each device's training data, held out; 0: on its test data."
    )
    public: str = _setting(
        "", "Public data: a data set, or heldout:0.1, a tenth of the training data taken away."
    )
    rounds: int = _setting(30, "Communication rounds.")
    sample: int = _setting(10, "Clients sampled in a round.")
    stratified: bool = _setting(False, "Sample every tier in proportion to its size.")
    seed: int = _setting(0, "Everything random follows from it.")
    epochs: int = _setting(5, "Local epochs.")
    lr: float = _setting(0.3, "Local step size of SGD.")
    lr_decay: float = _setting(
        0.1, "Its part that is left in the last round, after equal factors; 1: constant."
    )
    batch_size: int = _setting(128, "Local batch size.")
    momentum: float = _setting(0.0, "Local momentum.")
    weight_decay: float = _setting(0.0, "Local weight decay.")
    clip: float = _setting(0.0, "Largest norm of a local step's gradient; 0: no limit.")
    kl: str = _setting("small_large", "Direction of Eq. 9's feature term; large_small: the code's.")
    transfer: bool = _setting(True, "Knowledge transfer on strong devices (Eq. 9).")
    eval_every: int = _setting(
        5, "Rounds between evaluations; the last fifth has all. 0: after the last round alone."
    )
    finetune: int = _setting(1, "Epochs that a device trains before it is evaluated; 0: none.")
    dropout: float = _setting(0.0, "Probability that a sampled client does not answer.")
    client_deadline: float = _setting(
        0.0, "Simulated seconds that a client may train, by its tier's speed; 0: no deadline."
    )
    options: dict[str, Any] = field(
        default_factory=dict,
        metadata={"help": "A setting of the method, as update.lr=0.003; can be repeated."},
    )

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise ConfigError(unknown("method", self.method, METHODS.names()))
        for name in ("rounds", "sample"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name, low, high in (("strong_share", 0, 1), ("dropout", 0, 1)):
            if not low <= getattr(self, name) <= high:
                raise ConfigError(f"{name} must be from 0 to 1, got {getattr(self, name)}")
        if not 0 <= self.validation < 1 or self.classes_per_client < 0:
            raise ConfigError(
                "validation must be from 0 to below 1 and classes_per_client at least 0, "
                f"got {self.validation} and {self.classes_per_client}"
            )
        for name in ("seed", "finetune", "client_deadline", "eval_every"):
            if not getattr(self, name) >= 0:
                raise ConfigError(f"{name} must be at least 0, got {getattr(self, name)}")
        if not self.alpha > 0:
            raise ConfigError(f"alpha must be above 0, got {self.alpha}")
        if not 0 < self.lr_decay <= 1:
            raise ConfigError(f"lr_decay must be above 0 and at most 1, got {self.lr_decay}")
        held_part(self.public)  # raises if impossible
        self.local()
        self.method_config()

    def local(self) -> LocalConfig:
        return LocalConfig(
            **{f.name: getattr(self, f.name) for f in dataclasses.fields(LocalConfig)}
        )

    def lr_in(self, number: int) -> float:
        """The local step size in a round.

        >>> config = RunConfig(lr=0.1, lr_decay=0.01, rounds=3)
        >>> [round(config.lr_in(number), 6) for number in (1, 2, 3)]
        [0.1, 0.01, 0.001]
        """
        passed = (number - 1) / max(1, self.rounds - 1)
        return self.lr * math.pow(self.lr_decay, passed)

    def method_config(self) -> Any:
        """The method's own settings: its defaults with what `options` and `transfer` say."""
        kind = METHODS[self.method].config
        options = dict(self.options)
        own = {f.name for f in dataclasses.fields(kind)}
        for key in options:
            if key not in own and key in {f.name for f in dataclasses.fields(self)}:
                raise ConfigError(
                    f"{key!r} is a setting of the run, no option of {self.method}; "
                    f"give it as --{key.replace('_', '-')}"
                )
        if "transfer" in own:
            options.setdefault("transfer", self.transfer)
        return from_mapping(kind, options, f"option of {self.method}")


def from_mapping(kind: type[T], values: Mapping[str, Any], what: str) -> T:
    """A config of class `kind`; keys of nested configs have dots, unknown ones are refused.

    >>> from_mapping(LocalConfig, {"lr": "0.1"}, "setting").lr
    0.1
    """
    fields = {f.name: f for f in dataclasses.fields(kind)}  # type: ignore[arg-type]
    hints = get_type_hints(kind)
    flat, nested = dict[str, Any](), dict[str, dict[str, Any]]()
    for key, value in values.items():
        head, _, rest = key.partition(".")
        if head not in fields:
            raise ConfigError(unknown(what, key, tuple(fields)))
        if rest:
            nested.setdefault(head, {})[rest] = value
        elif dataclasses.is_dataclass(hints[head]) and isinstance(value, Mapping):
            nested.setdefault(head, {}).update(value)
        elif dataclasses.is_dataclass(hints[head]) and not isinstance(value, hints[head]):
            first = dataclasses.fields(hints[head])[0].name
            raise ConfigError(f"{what} {key!r} has parts, as {key}.{first}; got {value!r}")
        else:
            flat[head] = _convert(value, hints[head], key, what)
    for head, part in nested.items():
        if not dataclasses.is_dataclass(hints[head]):
            raise ConfigError(f"{what} {head!r} has no parts, got {head}.{next(iter(part))}")
        flat[head] = from_mapping(hints[head], part, what)
    return kind(**flat)


def _convert(value: Any, hint: Any, key: str, what: str) -> Any:
    """The value as its field's type; texts, as flags bring them, are read."""
    if get_origin(hint) in (Union, types.UnionType):
        hint = next(h for h in get_args(hint) if h is not type(None))
    kind = str if get_origin(hint) is Literal else (get_origin(hint) or hint)
    if isinstance(value, str) and kind is bool and value.lower() in ("true", "false"):
        return value.lower() == "true"
    try:
        if isinstance(value, str) and kind in (int, float):
            return kind(value)
    except ValueError:
        pass
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:
        raise ConfigError(f"{what} {key!r} must be {kind.__name__}, got {value!r}")
    return value


def read_file(path: Path) -> dict[str, Any]:
    """The settings of a TOML file, unchecked."""
    try:
        return tomllib.loads(path.read_text())
    except OSError as err:
        raise ConfigError(f"cannot read {path}: {err.strerror}") from err
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as err:
        raise ConfigError(f"{path} is not TOML: {err}") from err
