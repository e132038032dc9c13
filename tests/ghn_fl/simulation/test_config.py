import dataclasses
import inspect
from pathlib import Path

import pytest

from ghn_fl import which_models
from ghn_fl.cli.train import _NOT_SETTINGS, train
from ghn_fl.errors import ConfigError, GHNError
from ghn_fl.hypernet import GHNConfig
from ghn_fl.simulation.config import RunConfig, from_mapping, read_file
from ghn_fl.simulation.fleet import Tier, parse_skew, tiers_of
from ghn_fl.simulation.presets import PRESETS
from zoo import ModelSpec, SpecError


def test_every_setting_has_its_flag_and_every_flag_its_setting() -> None:
    flags = set(inspect.signature(train).parameters) - set(_NOT_SETTINGS)
    settings = {field.name for field in dataclasses.fields(RunConfig)} - {"options"}
    assert flags == settings
    assert all(field.metadata["help"] for field in dataclasses.fields(RunConfig))


@pytest.mark.parametrize("name", PRESETS.names())
def test_presets_are_configs(name: str) -> None:
    config = from_mapping(RunConfig, PRESETS[name](), "setting")
    assert config.method == "recipfl" and config.alpha == 0.5 and config.epochs == 5


def test_options_reach_the_methods_settings() -> None:
    config = RunConfig(options={"update.lr": "0.003", "ghn.tiling": "repeat"}, transfer=False)
    method = config.method_config()
    assert method.update.lr == 0.003 and method.ghn.tiling == "repeat" and not method.transfer
    assert method.ghn.width == GHNConfig().width


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"rouns": 3}, "unknown setting 'rouns'; did you mean 'rounds'"),
        ({"rounds": 0}, "rounds must be at least 1, got 0"),
        ({"rounds": "many"}, "'rounds' must be int, got 'many'"),
        ({"rounds": 2.5}, "'rounds' must be int, got 2.5"),
        ({"method": "fedavgg"}, "unknown method 'fedavgg'"),
        ({"dropout": 1.5}, "dropout must be from 0 to 1, got 1.5"),
        ({"strong_share": -1.0}, "strong_share must be from 0 to 1"),
        ({"alpha": 0.0}, "alpha must be above 0"),
        ({"seed": -1}, "seed must be at least 0, got -1"),
        ({"finetune": -1}, "finetune must be at least 0, got -1"),
        ({"client_deadline": float("nan")}, "client_deadline must be at least 0, got nan"),
        ({"lr": 0.0}, "lr must be above 0"),
        ({"lr": float("inf")}, "lr must be above 0"),
        ({"lr_decay": 0.0}, "lr_decay must be above 0 and at most 1, got 0.0"),
        ({"lr_decay": 1.5}, "lr_decay must be above 0 and at most 1, got 1.5"),
        ({"lr_decay": float("nan")}, "lr_decay must be above 0"),
        ({"clip": -1.0}, "clip must be at least 0"),
        ({"momentum": 1.0}, "momentum must be from 0 to below 1, got 1.0"),
        ({"options": {"lr": 1}}, "'lr' is a setting of the run, no option of recipfl; .* --lr"),
        ({"options": {"ghn": 3}}, r"'ghn' has parts, as ghn.num_classes; got 3"),
        ({"options": {"update.lrr": 1}}, "unknown option of recipfl 'lrr'; did you mean 'lr'"),
        ({"options": {"transfer.x": 1}}, "'transfer' has no parts"),
        ({"rounds.x": 1}, "'rounds' has no parts"),
    ],
)
def test_bad_settings(values: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        from_mapping(RunConfig, values, "setting")


def test_bad_options_of_the_hypernetwork() -> None:
    with pytest.raises(GHNError, match="tiling must be one of"):
        RunConfig(options={"ghn.tiling": "tiles"})


def test_config_files(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text('rounds = 7\n[options]\n"update.lr" = 0.01\n')
    config = from_mapping(RunConfig, read_file(file), "setting")
    assert config.rounds == 7 and config.method_config().update.lr == 0.01
    file.write_text("rounds = ")
    with pytest.raises(ConfigError, match=r"run\.toml is not TOML"):
        read_file(file)
    with pytest.raises(ConfigError, match="cannot read"):
        read_file(tmp_path / "missing.toml")


@pytest.mark.parametrize("text", ["2", "-1:5", "2:100:3", "a:b", "", "2:1.5"])
def test_bad_skews(text: str) -> None:
    with pytest.raises(ConfigError, match="skew must be S:W with whole numbers"):
        parse_skew(text)


def test_nobody_is_no_fleet() -> None:
    with pytest.raises(ConfigError, match="one device or more, got '0:0'"):
        parse_skew("0:0")


def test_two_tiers_of_a_skew() -> None:
    strong, weak = tiers_of(RunConfig(skew="2:100", strong_share=0.3), 1)
    assert (strong.count, str(strong.model), strong.share, strong.alpha) == (2, "lenet5", 0.3, 0)
    assert (weak.count, str(weak.model), weak.share, weak.alpha) == (100, "lenet5-d1", 0.7, 0.5)
    (only,) = tiers_of(RunConfig(skew="0:3"), 3)
    assert (only.name, only.share, str(only.model)) == ("weak", 1.0, "resnet18-d1")


def test_a_fleet_file(tmp_path: Path) -> None:
    file = tmp_path / "fleet.toml"
    file.write_text(
        """
        [[tier]]
        name = "strong"
        count = 1
        model = "lenet5"
        share = 0.5
        [[tier]]
        name = "gateway"
        count = 3
        share = 0.3
        alpha = 1.0
        speed = 100
        fit = { family = "lenet5", memory = 1.5e6, flops = 1e9, bandwidth = 1e6 }
        """
    )
    strong, gateway = tiers_of(RunConfig(fleet=str(file)), 1)
    assert strong.model == ModelSpec(family="lenet5")
    assert gateway.model.family == "lenet5" and gateway.model.width < 1
    assert gateway.alpha == 1.0 and gateway.speed == 100


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "must consist of .* got nothing"),
        ("tier = [1, 2]", r"a tier must be a \[\[tier\]\] table, got 1"),
        ("rounds = 3", "must consist of"),
        ("[[tier]]\nname='a'\ncount=1\nshare=0.5", "needs either `model` or `fit`"),
        ("[[tier]]\nname='a'\ncount=0\nshare=0.5\nmodel='lenet5'", "1 device or more, got 0"),
        ("[[tier]]\nname='a'\ncount=1\nshare=2.0\nmodel='lenet5'", r"share must be in \(0, 1\]"),
        ("[[tier]]\nname='a'\ncuont=1\nshare=1.0\nmodel='lenet5'", "did you mean 'count'"),
        ("[[tier]]\nname='a'\nmodel='lenet5'", "a tier lacks count, share; it has"),
        ("[[tier]]\nname='a'\ncount='b'\nshare=1\nmodel='lenet5'", "'count' must be int, got 'b'"),
        (
            "[[tier]]\nname='a'\ncount=1\nshare=1\nmodel=5",
            "model must be a text as 'lenet5', got 5",
        ),
        ("[[tier]]\nname='a'\ncount=1\nshare=1\nfit='lenet5'", "fit must be a table of family"),
        ("[[tier]]\nname='a'\ncount=1\nshare=0.6\nmodel='lenet5'\n" * 2, "two tiers have one name"),
    ],
)
def test_bad_fleet_files(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "fleet.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=says):
        tiers_of(RunConfig(fleet=str(file)), 1)


def test_an_unknown_model_of_a_tier(tmp_path: Path) -> None:
    file = tmp_path / "fleet.toml"
    file.write_text("[[tier]]\nname='a'\ncount=1\nshare=1.0\nmodel='lenet5-w2'")
    with pytest.raises(SpecError, match="width must be"):
        tiers_of(RunConfig(fleet=str(file)), 1)


def test_which_models_a_device_trains() -> None:
    large, small = ModelSpec(family="lenet5"), ModelSpec(family="lenet5", depth=1)
    fleet = [large, small]
    assert which_models.own(None, large, fleet) == (large,)
    assert which_models.own_and_smallest(None, large, fleet) == (large, small)
    assert which_models.own_and_smallest(None, small, fleet) == (small,)
    assert which_models.smallest(None, large, fleet) == (small,)
    assert which_models.largest(None, small, fleet) == (large,)


def test_few_classes_go_without_alpha(tmp_path: Path) -> None:
    strong, weak = tiers_of(RunConfig(classes_per_client=5), 1)
    assert (strong.classes, weak.classes, weak.alpha) == (5, 5, 0)
    with pytest.raises(ConfigError, match="goes without alpha"):
        Tier(name="weak", count=1, model=strong.model, share=1, alpha=0.5, classes=2)
