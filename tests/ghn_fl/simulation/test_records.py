"""What a run leaves behind, read again."""

import dataclasses
import json
from pathlib import Path

import pytest

from ghn_fl.errors import RunError
from ghn_fl.simulation.config import RunConfig
from ghn_fl.simulation.records import VERSION, read_config


def test_settings_that_came_after_a_run_are_as_if_they_were_not(tmp_path: Path) -> None:
    settings = dataclasses.asdict(RunConfig(rounds=7))
    del settings["client_deadline"]
    (tmp_path / "config.json").write_text(json.dumps({"version": VERSION, "config": settings}))
    known = read_config(tmp_path)["config"]
    assert known["client_deadline"] == 0.0 and known["rounds"] == 7


@pytest.mark.parametrize("content", ['{"version": 0}', '{"version": 1, "config": 3}', "{"])
def test_a_config_that_is_none_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(RunError, match=r"config\.json"):
        read_config(tmp_path)
