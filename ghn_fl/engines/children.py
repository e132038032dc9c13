"""Processes of our own, which end with the one that started them, whatever ended it."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from typing import Any

import torch
import torch.multiprocessing as processes


def start(
    target: Callable[..., None], *args: Any, name: str | None = None
) -> tuple[Any, Connection]:
    """A process that calls target(connection, *args), and our end of the connection.

    It has one torch thread. Keep the process as long as it is to run: a forgotten one ends.
    """
    context = processes.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_run, args=(target, theirs, *args), name=name, daemon=True)
    process.start()
    theirs.close()
    return process, ours


def _run(target: Callable[..., None], *args: Any) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(1)
    target(*args)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)  # as a kill would; every file is written whole or not at all
