"""The default engine: clients run in worker processes of this machine, one torch thread each.

Workers share the data's memory. Which worker does what changes nothing: everything random
depends on the run's seed, the round and the client. A worker that dies is replaced, and the client
that it worked for has failed in this round.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

import torch
import torch.multiprocessing as processes

from ghn_fl.engines.message import decode, encode
from ghn_fl.engines.work import Bench, World, perform

DIED = "its worker process died"


class LocalEngine:
    """A pool of workers; use it as a context, so that they end with it.

    With one worker everything runs in this process.
    """

    def __init__(self, world: World, workers: int | None = None) -> None:
        self._world = world
        self._size = workers or len(os.sched_getaffinity(0))
        self._workers: list[tuple[Any, Connection]] = []

    def __enter__(self) -> LocalEngine:
        self._threads = torch.get_num_threads()
        torch.set_num_threads(1)
        if self._size > 1:
            for tensor in (self._world.dataset.x_train, self._world.dataset.y_train):
                tensor.share_memory_()
            for tensor in (self._world.dataset.x_test, self._world.dataset.y_test):
                tensor.share_memory_()
            self._workers = [self._start() for _ in range(self._size)]
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
                    try:
                        connection.send_bytes(encode(tasks[busy[worker]]))
                    except OSError:
                        pass  # it has died; reading from it says so below
            connections = {self._workers[worker][1]: worker for worker in busy}
            for connection in wait(list(connections)):
                worker = connections[connection]  # type: ignore[index]
                try:
                    result = decode(connection.recv_bytes())  # type: ignore[union-attr]
                except (EOFError, OSError):
                    result = {"failure": DIED}
                    self._workers[worker][0].join()
                    self._workers[worker] = self._start()
                results[busy.pop(worker)] = result
        return results

    def _start(self) -> tuple[Any, Connection]:
        context = processes.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_work, args=(theirs, self._world), daemon=True)
        process.start()
        theirs.close()
        return process, ours

    @property
    def process_ids(self) -> list[int]:
        return [process.pid for process, _ in self._workers]


def _work(connection: Connection, world: World) -> None:
    torch.set_num_threads(1)
    bench = Bench(world)
    while True:
        try:
            message = connection.recv_bytes()
        except (EOFError, KeyboardInterrupt):
            return
        connection.send_bytes(encode(perform(bench, decode(message))))
