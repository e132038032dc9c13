"""The last complete round on disk: the method's state, all or nothing, no pickle."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes

from ghn_fl.errors import RunError, WriteError
from ghn_fl.files import write_atomic
from ghn_fl.tree import flatten, unflatten, unshared

VERSION = 1
FILE = Path("checkpoint") / "state.safetensors"


def save(folder: Path, number: int, state: Any) -> None:
    """Write the state after round `number`; one file, so that it is there whole or not at all."""
    skeleton, tensors = flatten(state)
    metadata = {
        "version": str(VERSION),
        "round": str(number),
        "skeleton": json.dumps(skeleton),
    }
    try:
        (folder / FILE).parent.mkdir(exist_ok=True)
    except OSError as err:
        raise WriteError(f"cannot write {folder / FILE}: {err.strerror}") from err
    write_atomic(folder / FILE, to_bytes(unshared(tensors), metadata))


def load(folder: Path) -> tuple[int, Any] | None:
    """Round and state of the checkpoint; None if there is none."""
    file = folder / FILE
    if not file.exists():
        return None
    try:
        with safe_open(file, framework="pt") as opened:
            metadata = opened.metadata() or {}
            if metadata.get("version") != str(VERSION):
                raise RunError(f"{file} is of another version: {metadata.get('version')!r}")
            names = opened.keys()
            tensors = {name: opened.get_tensor(name).clone() for name in names}
        return int(metadata["round"]), unflatten(json.loads(metadata["skeleton"]), tensors)
    except (SafetensorError, KeyError, ValueError) as err:
        raise RunError(f"{file} is damaged: {err}") from err
