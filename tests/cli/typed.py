"""The command as a person types it, in this process: one of its own imports torch every time."""

from __future__ import annotations

import contextlib
import io
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

from ghn_fl.cli import main


@dataclass(frozen=True)
class Done:
    """How a command ended and what it said."""

    returncode: int
    stdout: str
    stderr: str


def ghnfl(folder: Path, *words: str) -> Done:
    """What `ghnfl WORDS` does in a folder; an error that it doesn't catch goes through."""
    out, err, code, before = io.StringIO(), io.StringIO(), 0, sys.argv
    sys.argv = ["ghnfl", *words]
    try:
        with contextlib.chdir(folder), redirect_stdout(out), redirect_stderr(err):
            main()
    except SystemExit as stop:
        code = 0 if stop.code is None else int(stop.code)
    finally:
        sys.argv = before
    return Done(code, out.getvalue(), err.getvalue())
