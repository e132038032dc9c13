"""Finished runs in the repository: what reports read of them, so that a panel can grow over time.

A panel is hours of work. What its runs wrote as text, config.json, rounds.jsonl and summary.json,
is packed into one file for each of its settings; whoever goes on with it unpacks that first.
"""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

from ghn_fl.files import write_atomic

FILES = ("config.json", "rounds.jsonl", "summary.json")


def keep(runs: Path, archive: Path) -> None:
    """Pack all finished runs below a folder; equal runs make equal files."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:xz") as tar:
        for summary in sorted(runs.glob("*/summary.json")):
            for name in FILES:
                content = (summary.parent / name).read_bytes()
                entry = tarfile.TarInfo(f"{summary.parent.name}/{name}")
                entry.size = len(content)
                tar.addfile(entry, io.BytesIO(content))
    archive.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(archive, packed.getvalue())


def restore(archive: Path, runs: Path) -> None:
    """Unpack the runs of an archive, if there is one, that `runs` does not have."""
    if not archive.exists():
        return
    with tarfile.open(archive) as tar:
        names = {Path(entry.name).parts[0] for entry in tar}
        missing = {name for name in names if not (runs / name).exists()}
        members = [entry for entry in tar if Path(entry.name).parts[0] in missing]
        tar.extractall(runs, members=members, filter="data")
