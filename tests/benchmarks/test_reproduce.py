"""The papers' experiments: every section describes runs that exist, and can tell their results."""

import dataclasses
import doctest
import json
import re
from pathlib import Path

import pytest

from benchmarks import (
    experiments,
    reproduce_fedmdp,
    reproduce_hasaas,
    reproduce_inclusivefl,
    reproduce_recipfl,
)
from benchmarks.experiments import SCALES, Section
from ghn_fl import RunConfig, run
from ghn_fl.data import DATASETS
from ghn_fl.errors import ConfigError
from ghn_fl.simulation.fleet import tiers_of
from ghn_fl.simulation.grid import Cell
from ghn_fl.simulation.public import held_part

SCRIPTS = {
    "hasaas": reproduce_hasaas,
    "fedmdp": reproduce_fedmdp,
    "inclusivefl": reproduce_inclusivefl,
    "recipfl": reproduce_recipfl,
}
SECTIONS = {
    f"{script}-{name}": section
    for script, module in SCRIPTS.items()
    for name, section in module.SECTIONS.items()
}
# of sections, cases that are told beside each other
SHOWN = {
    "hasaas-tuned": ("90 %, hasaas, tuned", "90 %, fedprox, mu 1, tuned"),
    "hasaas-tune": ("hasaas, lr 0.05", "fedprox, lr 0.05, mu 0.1"),
    "hasaas-drop": ("90 %, hasaas", "90 %, fedavg"),
    "hasaas-fairness": ("0 %, fedprox", "90 %, afd"),
    "hasaas-ablation": ("90 %, hasaas", "90 %, serving hms"),
    "hasaas-clt": ("90 %, fedprox", "90 %, fedprox with clt"),
    "fedmdp-agents": ("fedmdp", "alone", "local"),
    "fedmdp-stragglers": ("non-iid, 90 %, fedmdp partial", "non-iid, 90 %, fedavg drop"),
    "inclusivefl-groups": ("7:2:1, inclusivefl", "7:2:1, exclusivefl"),
    "recipfl-table": ("recipfl", "allsmall"),
}


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", SECTIONS)
def test_every_case_is_a_run(name: str, scale: str, tmp_path: Path) -> None:
    cases = SECTIONS[name].cases(scale, tmp_path)
    cells = experiments.cells_of(cases, (0, 1))
    assert len({cell.name for cell in cells}) == 2 * len(cases)
    for cell in cells:
        tiers = tiers_of(cell.config, in_channels=1)
        assert sum(tier.count for tier in tiers) >= 1
        assert cell.config.dataset in DATASETS
        public = cell.config.public
        assert not public or public in DATASETS or held_part(public) is not None


@pytest.mark.slow
@pytest.mark.parametrize("name", SHOWN)
def test_section_tells_its_results(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reproduce_recipfl, "FOLDER", tmp_path)  # where its pictures go
    section = SECTIONS[name]
    cases = section.cases("small", tmp_path)
    found = {}
    for cell in experiments.cells_of([c for c in cases if c.name in SHOWN[name]], (0,)):
        folder = tmp_path / cell.name
        summary = run(_tiny(cell.config), out=folder, workers=1).summary
        found[cell.name] = summary | {"folder": str(folder)}
    results = experiments.by_case(cases, (0,), found)
    text = section.text(cases, results)
    assert len(found) == len(SHOWN[name])
    assert any(c.isdigit() for c in _figures(text))
    assert "nan" not in _figures(text)
    for picture in re.findall(r"!\[.*?\]\((.*?)\)", text):
        assert (tmp_path / picture).read_text().startswith("<svg")


def _tiny(config: RunConfig) -> RunConfig:
    """Two rounds of it on the synthetic set, with a small hypernetwork if there is one."""
    public = "heldout:0.05" if config.public else ""
    options = dict(config.options)
    if config.method.startswith("recipfl"):
        options |= {"ghn.width": 16, "ghn.decoder_width": 16}
    if "pretrain_epochs" in options:
        options |= {"pretrain_epochs": 1, "private_init_epochs": 1}
    return dataclasses.replace(
        config, dataset="synthetic", rounds=2, epochs=1, public=public, options=options
    )


def _figures(text: str) -> str:
    """The last columns of a text's tables."""
    rows = [line for line in text.splitlines() if line.startswith("|")]
    return " ".join(cell for row in rows for cell in row.split("|")[3:])


def test_perform_keeps_what_is_finished_and_refuses_other_settings(tmp_path: Path) -> None:
    config = RunConfig(dataset="synthetic", method="local", rounds=2)
    folder = tmp_path / "a-0"
    folder.mkdir()
    stored = {"version": 1, "config": dataclasses.asdict(config)}
    (folder / "config.json").write_text(json.dumps(stored))
    (folder / "summary.json").write_text(json.dumps({"seconds": 1.0, "tiers": {}}))
    rounds = [{"round": number, "clients": [{"id": 0}]} for number in (1, 2)]
    (folder / "rounds.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rounds))
    found = experiments.perform([Cell(name="a-0", config=config)], tmp_path, None)
    assert found == {"a-0": {"seconds": 1.0, "tiers": {}, "folder": str(folder)}}
    other = dataclasses.replace(config, rounds=3)
    with pytest.raises(ConfigError, match="rounds"):
        experiments.perform([Cell(name="a-0", config=other)], tmp_path, None)


def test_examples() -> None:
    assert doctest.testmod(experiments).failed == 0


def test_section_folder_names_another_section() -> None:
    for script in SCRIPTS.values():
        sections: dict[str, Section] = script.SECTIONS
        assert all(not s.folder or s.folder in sections for s in sections.values())
