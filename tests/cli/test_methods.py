"""`ghnfl methods`: a list of names, and one method's settings with what they mean."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from typer.testing import CliRunner

from ghn_fl.cli.app import app
from ghn_fl.cli.methods import settings
from ghn_fl.errors import ConfigError
from ghn_fl.methods import METHODS


@dataclass(frozen=True, kw_only=True)
class Part:
    """A part.

    Attributes:
        size: how large it is;
            very large if 0.
    """

    size: int = 3


@dataclass(frozen=True, kw_only=True)
class Whole(Part):
    """A whole.

    Attributes:
        part: of it.
        fast: whether it is.
        name: what it is called.
    """

    part: Part = field(default_factory=Part)
    fast: bool = True
    name: str = ""


def test_settings_of_parts_and_of_what_is_extended() -> None:
    size = "how large it is; very large if 0."
    assert settings(Whole) == [
        ("size", "3", size),
        ("part.size", "3", size),
        ("fast", "true", "whether it is."),
        ("name", "(empty)", "what it is called."),
    ]


@pytest.mark.parametrize("name", METHODS.names())
def test_every_setting_of_every_method_is_explained(name: str) -> None:
    for setting, default, says in settings(METHODS[name].config):
        assert says and default, setting


def test_output_fits_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    listed = CliRunner().invoke(app, ["methods"]).output
    assert all(f" {name} " in listed for name in METHODS.names())
    shown = CliRunner().invoke(app, ["methods", "fedprox"]).output
    assert "mu" in shown and "0.01" in shown and "proximal term" in shown
    assert "has no settings" in CliRunner().invoke(app, ["methods", "local"]).output
    assert all(len(line) <= 100 for line in (listed + shown).splitlines())


def test_an_unknown_method() -> None:
    found = CliRunner().invoke(app, ["methods", "fedprx"])
    assert isinstance(found.exception, ConfigError) and "fedprox" in str(found.exception)
