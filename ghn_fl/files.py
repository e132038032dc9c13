"""Writing files so that nobody ever sees half of one."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from ghn_fl.errors import WriteError


def write_atomic(path: str | Path, content: bytes | str) -> None:
    """Put `content` at `path` in one step: a reader sees the old file or the whole new one."""
    path = Path(path)
    data = content.encode() if isinstance(content, str) else content
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(temporary, 0o666 & ~_umask())  # mkstemp makes it for the owner alone
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as err:
        raise WriteError(f"cannot write {path}: {err.strerror or err}") from err


def _umask() -> int:
    """The process's umask; reading it means setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
