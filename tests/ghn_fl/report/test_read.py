import json
from collections.abc import Callable
from pathlib import Path

import pytest

from ghn_fl.errors import ReportError
from ghn_fl.report import parse_round, read_run
from ghn_fl.report.read import client_scores, common_tiers, scored
from tests.ghn_fl.report.examples import change, change_round, write_run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run")


def cut(path: Path, keep: int) -> None:
    path.write_bytes(path.read_bytes()[:keep])


def test_a_run_is_read_as_it_was_written(folder: Path) -> None:
    run = read_run(folder)
    lines = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    summary = json.loads((folder / "summary.json").read_text())
    assert run.finished and run.notes == ()
    assert [len(devices) for devices in run.tiers.values()] == [2, 6]
    assert run.fleet[0].models == ("lenet5", "lenet5-d1")
    assert [r.number for r in run.rounds] == list(range(1, 11))
    assert [r.tiers["weak"].accuracy for r in run.rounds] == [x["weak_accuracy"] for x in lines]
    assert run.rounds[3].rejected[0].reason == "dropped out"
    assert run.summary.tiers["strong"].accuracy == summary["strong_accuracy"]
    assert run.summary.tiers["strong"].accuracy_full == summary["strong_accuracy_full"]
    assert run.summary.bytes_up == summary["bytes_up"]
    assert run.setting("method") == "recipfl" and run.setting("deadline") == "?"


def test_an_unfinished_run_is_summed_up_from_its_rounds(folder: Path) -> None:
    written = read_run(folder).summary
    (folder / "summary.json").unlink()
    run = read_run(folder)
    assert not run.finished and "not finished" in run.notes[0]
    assert run.summary.tiers["weak"].accuracy == pytest.approx(written.tiers["weak"].accuracy)
    assert run.summary.bytes_down == written.bytes_down
    assert run.summary.rejected == written.rejected == 2
    assert run.summary.peak_rss_mb is None


def test_a_run_without_rounds_yet(folder: Path) -> None:
    (folder / "summary.json").unlink()
    (folder / "rounds.jsonl").unlink()
    run = read_run(folder)
    assert run.rounds == () and run.summary.tiers["weak"].accuracy is None


@pytest.mark.parametrize("missing", [1, 2, 40, 400])
def test_a_cut_last_line_is_left_out_with_a_note(folder: Path, missing: int) -> None:
    (folder / "summary.json").unlink()
    path = folder / "rounds.jsonl"
    cut(path, len(path.read_bytes()) - missing)
    run = read_run(folder)
    whole = missing == 1  # only the end of line is gone
    assert len(run.rounds) == (10 if whole else 9)
    assert any("Line 10" in note and "cut off" in note for note in run.notes) != whole


def test_a_last_line_cut_behind_a_brace_is_left_out(folder: Path) -> None:
    path = folder / "rounds.jsonl"
    text = path.read_text()
    path.write_text(text[: text.rindex("}, ") + 1])
    assert len(read_run(folder).rounds) == 9


def test_the_score_is_over_the_last_fifth_rounded_up(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "run", rounds=11))
    assert [r.number for r in scored(run.rounds)] == [9, 10, 11]
    assert scored(()) == ()
    accuracies = [r.clients[0].accuracy or 0.0 for r in run.rounds[-3:]]
    assert client_scores(run)[0].accuracy == pytest.approx(sum(accuracies) / 3)


def test_more_tiers_and_rounds_without_evaluation(tmp_path: Path) -> None:
    tiers = {"strong": 1, "gateway": 2, "weak": 3}
    run = read_run(write_run(tmp_path / "run", tiers=tiers, every=5))
    assert list(run.tiers) == ["strong", "gateway", "weak"]
    assert run.rounds[0].tiers["gateway"].accuracy is None
    assert run.rounds[4].tiers["gateway"].accuracy is not None
    two = read_run(write_run(tmp_path / "two"))
    assert common_tiers([two, run]) == ["strong", "gateway", "weak"]


def test_names_cannot_steer_the_terminal(folder: Path) -> None:
    change(folder / "config.json", "fleet", 0, "models", to=["\x1b[31mred\n"])
    assert read_run(folder).fleet[0].models == (" [31mred ",)


def _config(*keys: object, to: object) -> Callable[[Path], None]:
    return lambda folder: change(folder / "config.json", *keys, to=to)


def _round(*keys: object, to: object) -> Callable[[Path], None]:
    return lambda folder: change_round(folder, 3, *keys, to=to)


def _summary(*keys: object, to: object) -> Callable[[Path], None]:
    return lambda folder: change(folder / "summary.json", *keys, to=to)


BROKEN: dict[str, tuple[Callable[[Path], None], str]] = {
    "no config": (lambda f: (f / "config.json").unlink(), "holds no config.json"),
    "cut config": (lambda f: cut(f / "config.json", 200), "config.json is not whole JSON"),
    "config is a list": (lambda f: (f / "config.json").write_text("[]"), "expected an object"),
    "deep config": (lambda f: (f / "config.json").write_text("[" * 100_000), "not whole JSON"),
    "not text": (lambda f: (f / "config.json").write_bytes(b"\xff\xfe\x00"), "not whole JSON"),
    "version": (_config("version", to=2), "is of version 2, this ghnfl reads 1"),
    "no fleet": (_config("fleet", to=[]), "at least one device"),
    "fleet of numbers": (_config("fleet", to=[1]), r"fleet\[0\]: expected an object"),
    "same id twice": (_config("fleet", 1, "id", to=0), "two devices .* id 0"),
    "classes differ": (_config("fleet", 1, "mix", to=[1.0]), "must have 10 classes .* got 1"),
    "negative share": (_config("fleet", 1, "mix", 0, to=-0.1), "no negative number"),
    "tier is a number": (_config("fleet", 0, "tier", to=3), "'tier' must be a text, got 3"),
    "half a sample": (_config("fleet", 0, "train_samples", to=1.5), "whole number"),
    "true samples": (_config("fleet", 0, "train_samples", to=True), "whole number"),
    "settings": (_config("config", to="x"), "config: expected an object"),
    "NaN": (_round("weak_loss", to=float("nan")), "line 3 .*NaN is not a number"),
    "infinity": (_round("metrics", "server_loss", to=float("inf")), "Infinity is not a number"),
    "huge": (_round("seconds", "train", to=10**400), "'train' must be a finite number"),
    "huge bytes": (_round("bytes_up", to=2**63), "'bytes_up' must be a whole number"),
    "percent": (_round("tiers", "weak", "accuracy", to=97.0), "a fraction such as 0.97, got 97.0"),
    "text for a number": (_round("clients", 0, "loss", to="low"), "'loss' must be a number"),
    "out of order": (_round("round", to=5), "line 3: expected round 3, got round 5"),
    "stranger": (_round("sampled", to=[0, 77]), "client 77 is not in the fleet"),
    "stranger rejected": (_round("rejected", to=[{"client": 9, "reason": ""}]), "client 9 is not"),
    "client twice": (_round("clients", 1, "id", to=0), "named twice"),
    "no list": (_round("clients", to={}), "'clients' must be a list"),
    "bytes missing": (_round("bytes_down", to=None), "'bytes_down' must be a whole number"),
    "broken inner line": (
        lambda f: (f / "rounds.jsonl").write_text('{"round": 1\n{}\n'),
        "line 1 is not whole JSON",
    ),
    "empty line": (lambda f: (f / "rounds.jsonl").write_text("\n"), "line 1 is not whole JSON"),
    "field missing": (lambda f: (f / "rounds.jsonl").write_text("{}\n"), "there is no 'clients'"),
    "rounds is a folder": (
        lambda f: ((f / "rounds.jsonl").unlink(), (f / "rounds.jsonl").mkdir())[0],
        "cannot read .*rounds.jsonl",
    ),
    "cut summary": (lambda f: cut(f / "summary.json", 30), "summary.json is not whole JSON"),
    "summary percent": (_summary("tiers", "weak", "accuracy", to=98.4), "a fraction"),
    "summary count": (_summary("rejected", to=-1), "'rejected' must be a whole number"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_what_is_broken_is_said(folder: Path, kind: str) -> None:
    damage, words = BROKEN[kind]
    damage(folder)
    with pytest.raises(ReportError, match=words) as caught:
        read_run(folder)
    assert len(str(caught.value).splitlines()) == 1
    assert len(str(caught.value)) < 300 + len(str(folder))


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match="there is no folder"):
        read_run(tmp_path / "nothing")


def test_a_summary_of_other_rounds_is_noted(folder: Path) -> None:
    change(folder / "summary.json", "rounds", to=12)
    assert read_run(folder).notes == ("summary.json speaks of 12 rounds, rounds.jsonl holds 10.",)


def test_a_summary_may_hold_flat_figures_and_seconds_by_phase(folder: Path) -> None:
    change(folder / "summary.json", "tiers", to=None)
    change(folder / "summary.json", "weak_accuracy", to=0.5)
    change(folder / "summary.json", "seconds", to={"train": 2.0, "update": 0.5})
    summary = read_run(folder).summary
    assert summary.tiers["weak"].accuracy == 0.5 and summary.tiers["weak"].std == 0.01
    assert summary.seconds == 2.5


def test_one_round_without_a_file(folder: Path) -> None:
    raw = json.loads((folder / "rounds.jsonl").read_text().splitlines()[0])
    assert parse_round(raw) == read_run(folder).rounds[0]
    with pytest.raises(ReportError, match="round: expected an object"):
        parse_round(None)
