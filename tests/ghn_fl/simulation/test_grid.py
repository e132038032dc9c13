"""Which runs a grid consists of: one fleet for all, settings of each, and what is refused."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from ghn_fl import run
from ghn_fl.errors import ConfigError, DataError, RunError
from ghn_fl.methods import METHODS
from ghn_fl.simulation import grid
from ghn_fl.simulation.config import RunConfig
from tests.ghn_fl.report.examples import write_run
from zoo import SpecError

THREE = ("recipfl", "allsmall", "exclusivefl")


def shared(**values: Any) -> RunConfig:
    return grid.shared({"dataset": "synthetic", **values}, THREE, "recipfl", None)


def test_lists() -> None:
    assert grid.parse_methods("allsmall, recipfl") == ("allsmall", "recipfl")
    assert grid.parse_methods("all") == METHODS.names()
    assert grid.parse_seeds("3,0") == (3, 0)
    assert grid.parse_against(None, THREE) == "recipfl"
    assert grid.parse_against(None, THREE[1:]) == "allsmall"
    assert grid.parse_against("exclusivefl", THREE) == "exclusivefl"


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: grid.parse_methods("recipf"), "did you mean 'recipfl'"),
        (lambda: grid.parse_methods(" , "), "one method or more"),
        (lambda: grid.parse_methods("allsmall,allsmall"), "must differ, got allsmall twice"),
        (lambda: grid.parse_seeds("0,1,0"), "seeds must differ, got 0 twice"),
        (lambda: grid.parse_seeds(""), "seeds must be whole numbers"),
        (lambda: grid.parse_seeds("-1"), "seeds must be whole numbers"),
        (lambda: grid.parse_against("allsmall", ("recipfl",)), "one of the methods recipfl; got"),
        (lambda: grid.parse_own(["update.lr=1"], THREE), "set takes METHOD:NAME=VALUE"),
        (lambda: grid.parse_own(["recipfl:update.lr"], THREE), "expected METHOD:NAME=VALUE"),
        (lambda: grid.parse_own(["recip:lr=1"], THREE), "did you mean 'recipfl'"),
        (lambda: grid.parse_own(["recipfl:lr=1"], ("allsmall",)), "the grid has no 'recipfl'"),
        (lambda: grid.parse_own(["recipfl:rounds=3"], THREE), "give it as --rounds"),
        (lambda: grid.parse_own(["recipfl:strong_share=1"], THREE), "give it as --strong-share"),
        (lambda: grid.parse_own(["recipfl:upd=3"], THREE), "did you mean 'update'"),
        (lambda: grid.parse_tried(["lr="], THREE), "one value or more"),
        (lambda: grid.parse_tried(["lr=1,1"], THREE), "must differ"),
        (lambda: grid.parse_tried(["update.lr=1"], THREE), "as fedprox:mu=0.01,0.1"),
        (lambda: grid.parse_tried(["lr=1", "recipfl:lr=2"], THREE), "'lr' of recipfl twice"),
        (lambda: grid.parse_tried(["recipfl:lr=2"], ("allsmall",)), "the grid has no 'recipfl'"),
        (lambda: shared(rouns=3), "did you mean 'rounds'"),
        (lambda: shared(skew="2"), "skew must be S:W"),
    ],
)
def test_bad_input(call: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        call()


def test_what_would_fail_in_every_run_fails_before_the_first() -> None:
    with pytest.raises(DataError):
        shared(skew="1:5000")
    with pytest.raises(DataError, match="did you mean 'synthetic'"):
        shared(dataset="syntetic")
    with pytest.raises(SpecError, match="did you mean 'lenet5'"):
        shared(large="lenet6")


def test_all_methods_get_one_pair_of_models(monkeypatch: pytest.MonkeyPatch) -> None:
    narrow = dataclasses.replace(METHODS["allsmall"], scaling="width")
    monkeypatch.setitem(METHODS._entries, "allsmall", narrow)
    cells = grid.cells(shared(), THREE, (0, 1), {})
    assert [c.name for c in cells][:4] == ["recipfl-0", "allsmall-0", "exclusivefl-0", "recipfl-1"]
    assert {(c.config.large, c.config.small) for c in cells} == {("lenet5", "lenet5-d1")}
    by_width = grid.shared({"dataset": "synthetic", "large": "lenet5-d2"}, THREE, "allsmall", None)
    assert (by_width.large, by_width.small) == ("lenet5-d2", "lenet5-w0.5")
    assert {(c.config.method, c.config.seed) for c in cells} == {
        (m, s) for m in THREE for s in (0, 1)
    }


def test_settings_of_one_method_reach_its_runs_only() -> None:
    own = grid.parse_own(["recipfl:update.lr=0.003", "allsmall:lr=0.5"], THREE)
    recipfl, allsmall, exclusivefl = (
        c.config for c in grid.cells(shared(lr=0.1), THREE, (0,), own)
    )
    assert recipfl.options == {"update.lr": 0.003} and recipfl.lr == 0.1
    assert allsmall.options == {} and allsmall.lr == 0.5
    assert exclusivefl.options == {} and exclusivefl.lr == 0.1


def test_options_of_a_preset_are_one_methods() -> None:
    values = {"options": {"update": {"weighting": "share"}}}
    assert grid.options_of(values, "recipfl") == {"options": {"update.weighting": "share"}}
    assert grid.options_of(values, "allsmall") == {}
    assert grid.options_of(values | {"method": "allsmall"}, "recipfl") == {}
    assert grid.options_of({}, "recipfl") == {}


def test_tuned_files(tmp_path: Path) -> None:
    toml, text = tmp_path / "tuned.toml", tmp_path / "tuned.json"
    content = {"recipfl": {"lr": 0.1, "options": {"update.lr": 0.003}}, "allsmall": {"lr": 0.2}}
    toml.write_text('[recipfl]\nlr=0.1\noptions."update.lr"=0.003\n[allsmall]\nlr=0.2\n')
    text.write_text(json.dumps(content))
    assert grid.read_tuned(toml) == grid.read_tuned(text) == content
    for broken, says in (
        ("{", "is not JSON"),
        ("[]", "a table for each method"),
        ('{"recip": {}}', "did you mean 'recipfl'"),
        ('{"recipfl": 3}', "must be a table of settings"),
        ('{"recipfl": {"rounds": 3}}', "unknown setting of recipfl 'rounds'"),
    ):
        text.write_text(broken)
        with pytest.raises(ConfigError, match=says):
            grid.read_tuned(text)
    with pytest.raises(ConfigError, match="cannot read"):
        grid.read_tuned(tmp_path / "none.json")


def test_tuning_tries_every_combination() -> None:
    texts = ["lr=0.01,0.03", "recipfl:update.lr=0.001,0.003"]
    tried = grid.parse_tried(texts, ("recipfl", "allsmall"))
    cells = grid.tuning_cells(shared(), ("recipfl", "allsmall"), (0, 1), {}, tried)
    assert len(cells) == 2 * (4 + 2) and len({c.name for c in cells}) == len(cells)
    assert cells[0].name == "recipfl-lr=0.01,update.lr=0.001-0"
    assert cells[0].choice == {"lr": 0.01, "options": {"update.lr": 0.001}}
    assert cells[4].name == "allsmall-lr=0.01-0" and cells[4].config.lr == 0.01
    assert cells[1].config.method_config().update.lr == 0.003


def test_a_folder_of_another_grid_is_refused(tmp_path: Path) -> None:
    def store(name: str, config: RunConfig) -> None:
        content = {"version": 1, "config": dataclasses.asdict(config)}
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / "config.json").write_text(json.dumps(content))

    base = shared(rounds=3)
    cells = grid.cells(
        base, ("recipfl", "allsmall"), (0,), {"recipfl": {"options": {"update.lr": "0.1"}}}
    )
    grid.check_folder(tmp_path / "new", cells)
    for cell in cells:
        store(cell.name, cell.config)
    grid.check_folder(tmp_path, cells)
    grid.check_folder(tmp_path, cells[:1])  # methods and seeds may come and go
    with pytest.raises(ConfigError, match=r"allsmall-0 differs in rounds \(3 there, 4 now\)"):
        grid.check_folder(tmp_path, grid.cells(shared(rounds=4), ("recipfl",), (0,), {}))
    with pytest.raises(ConfigError, match=r"recipfl-0 differs in options .*give another --out"):
        grid.check_folder(tmp_path, grid.cells(base, ("recipfl",), (0,), {}))
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="is a file"):
        grid.check_folder(tmp_path / "file", cells)
    (tmp_path / "recipfl-0" / "config.json").write_text("{")
    grid.check_folder(tmp_path, cells)  # costs its own run only


def test_a_fleet_file_that_has_changed_is_refused(tmp_path: Path) -> None:
    fleet = tmp_path / "fleet.toml"

    def cells(weak: int) -> list[grid.Cell]:
        fleet.write_text(
            '[[tier]]\nname = "strong"\ncount = 1\nmodel = "lenet5"\nshare = 0.5\n'
            f'[[tier]]\nname = "weak"\ncount = {weak}\nmodel = "lenet5-d1"\nshare = 0.5\n'
        )
        base = RunConfig(dataset="synthetic", fleet=str(fleet), rounds=1, epochs=1)
        return grid.cells(base, ("local", "allsmall"), (0,), {})

    first = cells(2)
    run(first[0].config, out=tmp_path / "grid" / "local-0", workers=1)
    grid.check_folder(tmp_path / "grid", first)
    other = cells(3)
    assert first == other  # the path is the same
    with pytest.raises(ConfigError, match=r"another fleet than .*fleet.toml is now \(local-0\)"):
        grid.check_folder(tmp_path / "grid", other)
    with pytest.raises(ConfigError, match="started with another fleet"):
        run(other[0].config, out=tmp_path / "grid" / "local-0", workers=1, resume=True)


def test_equal_values_are_tried_once() -> None:
    tried = grid.parse_tried(["lr=0.1,0.10"], ["local"])
    with pytest.raises(ConfigError, match=r"tries lr=0\.1 of local twice"):
        grid.tuning_cells(shared(), ("local",), (0,), {}, tried)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("summary.json", "{}"),
        ("summary.json", '{"tie'),
        ("rounds.jsonl", ""),
        ("rounds.jsonl", '{"round": 1, "clients": [{}]}\n'),
        ("config.json", "[]"),
        ("config.json", None),
    ],
)
def test_a_damaged_run_is_not_taken_for_a_finished_one(
    file: str, content: str | None, tmp_path: Path
) -> None:
    folder = write_run(tmp_path / "local-0", rounds=5)
    cell = grid.Cell(name="local-0", config=RunConfig(rounds=5))
    assert grid.is_finished(tmp_path, cell)
    if content is None:
        (folder / file).unlink()
    else:
        (folder / file).write_text(content)
    with pytest.raises(RunError, match="local-0"):
        grid.is_finished(tmp_path, cell)
    assert not grid.is_finished(tmp_path, grid.Cell(name="local-1", config=RunConfig()))
