"""A run's figures for TensorBoard, round by round or all at once."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

from ghn_fl.errors import ReportError
from ghn_fl.report.read import Round, Run


class EventWriter:
    """Writes the scalars of rounds, as they end, into a folder that TensorBoard reads."""

    def __init__(self, folder: str | Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as err:
            raise ReportError(
                'TensorBoard is not installed; get it with: pip install "ghnfl[tensorboard]"'
            ) from err
        try:
            self._writer = SummaryWriter(str(folder))
        except OSError as err:
            raise ReportError(f"cannot write to {folder}: {err.strerror or err}") from err

    def add(self, record: Round) -> None:
        for tag, value in scalars(record).items():
            self._writer.add_scalar(tag, value, record.number)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()

    def __enter__(self) -> EventWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def write_events(run: Run, folder: str | Path) -> None:
    """Write all rounds of a run."""
    with EventWriter(folder) as writer:
        for record in run.rounds:
            writer.add(record)


def scalars(record: Round) -> dict[str, float]:
    """The figures of a round by tag; what was not evaluated is left out."""
    found: dict[str, float | None] = {}
    for tier, score in record.tiers.items():
        found[f"accuracy/{tier}"] = score.accuracy
        found[f"accuracy_full/{tier}"] = score.accuracy_full
        found[f"loss/{tier}"] = score.loss
    found |= {"bytes/down": record.bytes_down, "bytes/up": record.bytes_up}
    found |= {f"seconds/{phase}": seconds for phase, seconds in record.seconds.items()}
    found |= {f"method/{name}": value for name, value in record.metrics.items()}
    found |= {"clients/sampled": len(record.sampled), "clients/rejected": len(record.rejected)}
    return {tag: value for tag, value in found.items() if value is not None}
