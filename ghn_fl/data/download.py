"""Fetching a public file once, whole and checked, into a folder."""

from __future__ import annotations

import hashlib
import http.client
import os
import tempfile
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO
from urllib.error import HTTPError, URLError

from ghn_fl.errors import DataError

CHUNK = 1 << 20  # bytes


@dataclass(frozen=True, kw_only=True)
class Remote:
    """A public file: where it is, its size and its checksum, "sha256:..." or "md5:..."."""

    url: str
    checksum: str
    num_bytes: int

    @property
    def name(self) -> str:
        return self.url.rsplit("/", 1)[-1]


def cache_folder() -> Path:
    """The folder that downloads are kept in: $XDG_CACHE_HOME/ghnfl, or ~/.cache/ghnfl."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ghnfl"


def fetch(remote: Remote, folder: Path, *, timeout: float = 20.0) -> Path:
    """The path of `remote`'s copy in `folder`, downloaded unless it is there.

    Nobody ever sees half a file: it gets its name once it is whole and its checksum is right.
    `timeout` is in seconds, for the connection and for every read, not for the whole file.
    """
    target = folder / remote.name
    if target.is_file():
        return target
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=folder, prefix=f".{remote.name}.")
    except OSError as err:
        raise DataError(f"cannot write into {folder}: {err.strerror or err}") from err
    try:
        with os.fdopen(handle, "wb") as file:
            _check(remote, _copy(remote, file, timeout))
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise
    return target


def _copy(remote: Remote, file: BinaryIO, timeout: float) -> str:
    """The checksum of what came from the network and went into `file`."""
    digest = hashlib.new(remote.checksum.split(":")[0])
    left = remote.num_bytes
    try:
        with urllib.request.urlopen(remote.url, timeout=timeout) as answer:
            while chunk := answer.read(CHUNK):
                left -= len(chunk)
                if left < 0:  # an endless answer must not fill the disk
                    raise DataError(f"{remote.url} is larger than {remote.num_bytes} bytes")
                digest.update(chunk)
                file.write(chunk)
    except HTTPError as err:
        raise DataError(f"cannot download {remote.url}: {err.code} {err.reason}") from err
    except URLError as err:
        reason = err.reason
        text = reason.strerror if isinstance(reason, OSError) else None
        raise DataError(f"cannot download {remote.url}: {text or reason}") from err
    except (OSError, http.client.HTTPException) as err:  # time-outs, cut connections, full disks
        raise DataError(f"cannot download {remote.url}: {err or type(err).__name__}") from err
    return digest.hexdigest()


def _check(remote: Remote, got: str) -> None:
    kind, expected = remote.checksum.split(":")
    if got != expected:
        raise DataError(
            f"{remote.url} came with the wrong {kind} checksum: expected {expected}, got {got}; "
            "nothing was kept, try again"
        )
