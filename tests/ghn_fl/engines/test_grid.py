"""Runs in processes of their own: one that is killed costs one run, and goes on later."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import signal
import subprocess
import sys
from pathlib import Path

from ghn_fl.engines.grid import Advance, Outcome, run_grid
from ghn_fl.simulation.config import RunConfig
from ghn_fl.simulation.grid import Cell

ROUNDS = 150  # so many that it is killed in the midst of them, however busy the machine is


def cell(method: str, rounds: int) -> Cell:
    config = RunConfig(
        dataset="synthetic", method=method, skew="1:3", large="lenet5", small="lenet5-d1",
        rounds=rounds, sample=1, epochs=1, eval_every=rounds,
    )  # fmt: skip
    return Cell(name=f"{method}-0", config=config)


def contents(folder: Path) -> dict[Path, tuple[bytes, int]]:
    return {f: (f.read_bytes(), f.stat().st_mtime_ns) for f in folder.rglob("*") if f.is_file()}


def test_a_killed_run_costs_one_run_and_goes_on(tmp_path: Path) -> None:
    cells = [cell("allsmall", ROUNDS), cell("exclusivefl", 1)]
    outcomes = {}
    for event in run_grid(cells, tmp_path, workers=2):
        if isinstance(event, Outcome):
            outcomes[event.cell.name] = event
        elif event.cell.name == "allsmall-0" and event.round == 1:
            (process,) = [p for p in multiprocessing.active_children() if p.name == "allsmall-0"]
            assert process.pid is not None
            os.kill(process.pid, signal.SIGKILL)
    assert outcomes["allsmall-0"].status == "crashed"
    assert outcomes["allsmall-0"].reason == "its process was ended by SIGKILL"
    assert outcomes["exclusivefl-0"].status == "done"
    assert not multiprocessing.active_children()
    finished = contents(tmp_path / "exclusivefl-0")
    broken = tmp_path / "recipfl-0"  # as nothing of ours would leave it
    broken.mkdir()
    description = {"version": 1, "config": vars(cell("recipfl", 1).config)}
    (broken / "config.json").write_text(json.dumps(description))
    (broken / "rounds.jsonl").write_text("{}\n")
    again = list(run_grid([*cells, cell("recipfl", 1)], tmp_path, workers=2))
    assert contents(tmp_path / "exclusivefl-0") == finished
    ends = {e.cell.name: e for e in again if isinstance(e, Outcome)}
    assert {name: e.status for name, e in ends.items()} == {
        "exclusivefl-0": "kept", "allsmall-0": "done", "recipfl-0": "crashed",
    }  # fmt: skip
    rounds = [e.round for e in again if isinstance(e, Advance)]
    assert rounds[0] > 1 and rounds[-1] == ROUNDS  # it went on behind the rounds on disk
    assert ends["recipfl-0"].reason.startswith("KeyError: 'round' (see ")
    assert "Traceback" in (tmp_path / "recipfl-0.log").read_text()


def test_runs_end_with_a_comparison_that_is_killed(tmp_path: Path) -> None:
    words = "compare --dataset synthetic --skew 1:1 --rounds 1 --epochs 1 --seeds 0 --workers 2"
    # the second method's only round would take days
    words += " --methods allsmall,exclusivefl --set exclusivefl:epochs=100000000 --out grid"
    process = subprocess.Popen(
        [sys.executable, "-c", "from ghn_fl.cli import main; main()", *words.split()],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=tmp_path,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("1 of 2  allsmall-0: strong")
        process.kill()
        process.communicate(timeout=600)  # ends when nobody is left who could write
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert not (tmp_path / "grid" / "exclusivefl-0" / "summary.json").exists()
