"""The default engine: clients run in worker processes of this machine, one torch thread each.

Workers share the data's memory. Which worker does what changes nothing: everything random
depends on the run's seed, the round and the client. A worker that dies is replaced, and the client
that it worked for has failed in this round.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import torch

from ghn_fl.engines import children
from ghn_fl.engines.message import decode, encode
from ghn_fl.engines.work import Bench, perform
from ghn_fl.simulation.config import RunConfig
from ghn_fl.simulation.run import RunResult, Watch
from ghn_fl.simulation.run import run as run_on
from ghn_fl.simulation.world import World

DIED = "its worker process died"


def run(
    config: RunConfig,
    *,
    out: Path | None = None,
    data_dir: Path | None = None,
    workers: int | None = None,
    resume: bool = False,
    watch: Watch | None = None,
) -> RunResult:
    """Train a fleet on this machine: what `ghnfl train` does.

    Args:
        config: what to do; the result depends on it and the data alone.
        out: the run folder; nothing is written without one.
        data_dir: where data sets are looked for.
        workers: worker processes; as many as there are cores if None. Any number gives the
            same result.
        resume: go on from the folder's last complete round.
        watch: called with every round's record.
    """
    return run_on(
        config,
        lambda world: LocalEngine(world, workers),
        out=out,
        data_dir=data_dir,
        resume=resume,
        watch=watch,
    )


class LocalEngine:
    """A pool of workers; use it as a context, so that they end with it.

    With one worker everything runs in this process.
    """

    def __init__(self, world: World, workers: int | None = None) -> None:
        self._world = world
        self._size = workers or len(os.sched_getaffinity(0))
        self._workers: list[tuple[Any, Any]] = []

    def __enter__(self) -> LocalEngine:
        self._threads = torch.get_num_threads()
        torch.set_num_threads(1)
        if self._size > 1:
            data, public = self._world.dataset, self._world.public
            shared = () if public is None else (public.x, public.y)
            for tensor in (data.x_train, data.y_train, data.x_test, data.y_test, *shared):
                tensor.share_memory_()
            self._workers = [children.start(_work, self._world) for _ in range(self._size)]
        return self

    def __exit__(self, *_: object) -> None:
        torch.set_num_threads(self._threads)
        for process, connection in self._workers:
            connection.close()
            process.terminate()
        for process, _ in self._workers:
            process.join()
        self._workers = []

    def run(self, tasks: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """The result of every task, in their order; {"failure": why} where there is none.

        Large tasks should come first: they are handed out in order.
        """
        if not self._workers:
            bench = Bench(self._world)
            return [decode(encode(perform(bench, task))) for task in tasks]
        return self._run_in_workers(tasks)

    def _run_in_workers(self, tasks: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        results: list[dict[str, Any]] = [{} for _ in tasks]
        waiting = list(range(len(tasks)))[::-1]
        busy: dict[int, int] = {}  # worker -> task
        while waiting or busy:
            for worker, (_, connection) in enumerate(self._workers):
                if waiting and worker not in busy:
                    busy[worker] = waiting.pop()
                    with contextlib.suppress(OSError):  # if it has died, reading says so below
                        connection.send_bytes(encode(tasks[busy[worker]]))
            connections = {self._workers[worker][1]: worker for worker in busy}
            for ready in wait(list(connections)):
                worker = connections[ready]
                try:
                    result = decode(self._workers[worker][1].recv_bytes())
                except (EOFError, OSError):
                    result = {"failure": DIED}
                    self._workers[worker][0].join()
                    self._workers[worker] = children.start(_work, self._world)
                results[busy.pop(worker)] = result
        return results

    @property
    def process_ids(self) -> list[int]:
        return [process.pid for process, _ in self._workers]


def _work(connection: Any, world: World) -> None:
    bench = Bench(world)
    while True:
        try:
            message = connection.recv_bytes()
        except (EOFError, KeyboardInterrupt):
            return
        connection.send_bytes(encode(perform(bench, decode(message))))
