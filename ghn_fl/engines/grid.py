"""Many runs at once: one process a run, one torch thread each; what is finished is kept.

A run that fails costs that run only. Each is an ordinary run folder, so that an interrupted grid
goes on where it stopped.
"""

from __future__ import annotations

import json
import os
import signal
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Literal

from ghn_fl.engines import children
from ghn_fl.engines.local import run
from ghn_fl.errors import FAILURES, USER_ERRORS, ConfigError, DataError, RunError
from ghn_fl.files import write_atomic
from ghn_fl.simulation.grid import Cell, is_finished


@dataclass(frozen=True, kw_only=True)
class Advance:
    """A run has ended a round."""

    cell: Cell
    round: int


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """A run has come to its end.

    Attributes:
        cell: which.
        status: `done`; `kept`, for it was done before; `refused`, for its method cannot serve the
            fleet; `failed`, for a reason that we know; `crashed`, for one that we don't.
        reason: why there is no result, in one line.
    """

    cell: Cell
    status: Literal["done", "kept", "refused", "failed", "crashed"]
    reason: str = ""

    @property
    def has_result(self) -> bool:
        return self.status in ("done", "kept")


def run_grid(
    cells: Sequence[Cell], out: Path, *, data_dir: Path | None = None, workers: int | None = None
) -> Iterator[Advance | Outcome]:
    """Run all cells, each in its folder of `out`; yields what happens, as it happens.

    Args:
        cells: the runs, in the order in which they are begun.
        out: has a folder for each; finished ones are left as they are, others go on.
        data_dir: where data sets are looked for.
        workers: runs at once; as many as there are cores if None.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as err:
        raise ConfigError(f"cannot make the folder {out}: {err.strerror}") from err
    most = workers or len(os.sched_getaffinity(0))
    waiting = []
    for cell in cells:
        try:
            if is_finished(out, cell):
                yield Outcome(cell=cell, status="kept")
            else:
                waiting.append(cell)
        except RunError as err:
            yield Outcome(cell=cell, status="failed", reason=_line(err))
    waiting.reverse()
    running: dict[Connection, tuple[Cell, Any]] = {}
    try:
        while waiting or running:
            while waiting and len(running) < most:
                cell = waiting.pop()
                process, connection = children.start(_run, cell, out, data_dir, name=cell.name)
                running[connection] = (cell, process)
            for ready in wait(list(running)):
                assert isinstance(ready, Connection)
                cell, process = running[ready]
                event = _event(cell, process, ready)
                if isinstance(event, Outcome):
                    del running[ready]
                    ready.close()
                    process.join()
                yield event
    finally:
        for connection, (_, process) in running.items():
            connection.close()
            process.terminate()
            process.join()


def _event(cell: Cell, process: Any, connection: Connection) -> Advance | Outcome:
    """What the run says; if it can say nothing any more, how its process ended."""
    try:
        message = json.loads(connection.recv_bytes())
    except EOFError:
        process.join()
        code = process.exitcode
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
        return Outcome(cell=cell, status="crashed", reason=f"its process {how}")
    if "round" in message:
        return Advance(cell=cell, round=message["round"])
    return Outcome(cell=cell, **message)


def _run(connection: Connection, cell: Cell, out: Path, data_dir: Path | None) -> None:
    """One run, in its own process; what went wrong beyond a line is written beside its folder."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who started the grid ends it
    begun = False

    def say(message: dict[str, Any]) -> None:
        connection.send_bytes(json.dumps(message).encode())

    def watch(record: dict[str, Any]) -> None:
        nonlocal begun
        begun = True
        say({"round": record["round"]})

    log = out / f"{cell.name}.log"
    log.unlink(missing_ok=True)
    try:
        run(
            cell.config,
            out=out / cell.name,
            data_dir=data_dir,
            workers=1,
            resume=True,
            watch=watch,
        )
        say({"status": "done"})
    except BrokenPipeError:
        pass  # nobody listens any more: the last round is on disk
    except USER_ERRORS as err:
        known = begun or isinstance(err, (*FAILURES, DataError))
        say({"status": "failed" if known else "refused", "reason": _line(err)})
    except Exception as err:
        write_atomic(log, traceback.format_exc())
        reason = f"{type(err).__name__}: {_line(err)} (see {log})"
        say({"status": "crashed", "reason": reason})


def _line(err: Exception) -> str:
    return " ".join(str(err).split())
