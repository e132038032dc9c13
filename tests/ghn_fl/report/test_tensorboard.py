import sys
from pathlib import Path
from types import ModuleType

import pytest

from ghn_fl.errors import ReportError
from ghn_fl.report import EventWriter, read_run, write_events
from ghn_fl.report.tensorboard import scalars
from tests.ghn_fl.report.examples import write_run


class Recorder:
    """Stands for torch's SummaryWriter, which needs the tensorboard package."""

    made: "list[Recorder]" = []  # noqa: RUF012

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.scalars: list[tuple[str, float, int]] = []
        self.closed = False
        self.made.append(self)

    def add_scalar(self, tag: str, value: float, step: int) -> None:
        self.scalars.append((tag, value, step))

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True


def test_a_round_as_scalars(tmp_path: Path) -> None:
    first, last = (read_run(write_run(tmp_path, every=5)).rounds[i] for i in (0, -1))
    found = scalars(last)
    assert found["accuracy/weak"] == last.tiers["weak"].accuracy
    assert found["bytes/down"] == last.bytes_down
    assert found["seconds/train"] == last.seconds["train"]
    assert found["method/server_loss"] == last.metrics["server_loss"]
    assert "loss/strong" in found and "accuracy_full/strong" in found
    assert not [tag for tag in scalars(first) if tag.startswith(("accuracy", "loss"))]


def test_events_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = Recorder  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    run = read_run(write_run(tmp_path, rounds=3))
    write_events(run, tmp_path / "events")
    writer = Recorder.made[-1]
    assert writer.folder == str(tmp_path / "events") and writer.closed
    assert [step for tag, _, step in writer.scalars if tag == "bytes/up"] == [1, 2, 3]


def test_without_tensorboard_the_way_to_get_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ReportError, match=r'pip install "ghnfl\[tensorboard\]"'):
        EventWriter(tmp_path)
