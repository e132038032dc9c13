"""Finished runs in the repository: what reports read of them, so that a panel can grow over time.

A panel is hours of work. What its runs wrote as text, config.json, rounds.jsonl and summary.json,
is packed into one file for each of its settings; whoever goes on with it unpacks that first. The
path of the runs' folder, which is another one on every machine, is not packed.
"""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

from ghn_fl.files import write_atomic

FILES = ("config.json", "rounds.jsonl", "summary.json")
HERE = "{runs}"  # stands for the folder of the runs, as in the path of a fleet's file beside them


def keep(runs: Path, archive: Path) -> None:
    """Pack all finished runs below a folder; equal runs make equal files."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:xz") as tar:
        for summary in sorted(runs.glob("*/summary.json")):
            for name in FILES:
                text = (summary.parent / name).read_text()
                content = text.replace(f"{runs}/", f"{HERE}/").encode()
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
    for path in (runs / name / file for name in missing for file in FILES):
        path.write_text(path.read_text().replace(f"{HERE}/", f"{runs}/"))
