import re
import stat
from html.parser import HTMLParser
from pathlib import Path

import pytest

from ghn_fl.errors import GhnFlError, ReportError
from ghn_fl.report import compare_runs, read_run, report_html, write_comparison, write_report
from ghn_fl.report.html import (
    accuracy_words,
    command,
    course_words,
    fleet_words,
    seconds_words,
    spread_words,
)
from tests.ghn_fl.report.examples import change, change_round, write_run

VOID = {"meta", "br", "img", "hr", "link", "input"}


class WellFormed(HTMLParser):
    """Fails on a tag that is closed in the wrong place; keeps tags, headings and text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.headings: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)
        if tag in ("h1", "h2"):
            self.headings.append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag, f"</{tag}> closes nothing"

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("h1", "h2"):
            self.headings[-1] += data.replace("\xa0", " ")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = write_run(tmp_path / "run")
    change(folder / "summary.json", "tiers", "strong", "accuracy", to=0.9904)
    change(folder / "summary.json", "tiers", "weak", "accuracy", to=0.9841)
    return folder


def check_page(text: str) -> WellFormed:
    page = WellFormed(text)
    assert not re.search(r"https?:|src=|<script|<link|@import|javascript:", text, re.IGNORECASE)
    links = [v for name, v in page.attributes if name in ("href", "xlink:href")]
    assert all(v.startswith(("#", "data:image/png")) for v in links)
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    ids = [value for name, value in page.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    return page


def test_report_says_in_words_what_the_reader_sees(folder: Path) -> None:
    text = report_html(read_run(folder))
    page = check_page(text)
    assert page.tags.count("svg") == 6
    assert page.headings[0] == "Strong devices reach 99.0 %, weak devices 98.4 %"
    assert "2 strong devices hold 50 % of the training samples, 6 weak devices 50 %" in (
        page.headings
    )
    assert "Devices receive 20 MB and send 19.5 MB" in page.headings
    assert "2 updates were rejected, most for: dropped out" in page.headings
    # settings, the command and versions
    assert "--skew 2:6 --rounds 10 --seed 0" in text and "--no-transfer" in text
    assert "--out" not in text and "--deadline" not in text
    assert "<td>torch</td><td>2.13.0</td>" in text
    assert "<td>strong_share</td><td>0.5</td>" in text


def test_report_is_written_whole_and_the_same_twice(folder: Path) -> None:
    path = write_report(folder)
    first = path.read_bytes()
    assert path == folder / "report.html"
    assert not [p for p in folder.iterdir() if p.name.startswith(".")]
    out = folder.parent / "elsewhere.html"
    assert write_report(folder, out) == out and out.read_bytes() == first


def test_report_that_cannot_be_written(folder: Path) -> None:
    (folder / "taken").mkdir()
    with pytest.raises(GhnFlError, match=r"cannot write .*taken"):
        write_report(folder, folder / "taken")
    assert stat.S_ISDIR((folder / "taken").stat().st_mode)


def test_text_from_files_is_escaped(folder: Path) -> None:
    bad = "<script>alert(1)</script>\"'&$x$"
    config = folder / "config.json"
    for keys in (("config", "method"), ("config", bad), ("versions", bad)):
        change(config, *keys, to=bad)
    change(config, "fleet", 0, "models", to=[bad])
    for index in range(2):
        change(config, "fleet", index, "tier", to=bad)
    change_round(folder, 1, "rejected", to=[{"client": 0, "reason": bad}])
    change_round(folder, 2, "metrics", to={bad: 1.0})
    change_round(folder, 2, "tiers", bad, to={"accuracy": 0.5})
    other = write_run(folder.parent / "other", method="<b>")
    for text in (report_html(read_run(folder)), compare_runs([folder, other])):
        page = check_page(text)
        assert "script" not in page.tags and "b" not in page.tags
        assert "&lt;script&gt;" in text


def test_unfinished_and_empty_runs_say_so(folder: Path) -> None:
    (folder / "summary.json").unlink()
    text = report_html(read_run(folder))
    check_page(text)
    assert "The run has not finished" in text and "10 so far" in text
    (folder / "rounds.jsonl").write_text("")
    page = check_page(report_html(read_run(folder)))
    assert page.headings[0] == "Nothing is evaluated yet"
    assert page.headings[2] == "No update was rejected"


def test_runs_without_label_mix_or_second_protocol(folder: Path) -> None:
    for index in range(8):
        change(folder / "config.json", "fleet", index, "mix", to=[])
    for number in range(1, 11):
        for tier in ("strong", "weak"):
            change_round(folder, number, "tiers", tier, "accuracy_full", to=None)
    assert check_page(report_html(read_run(folder))).tags.count("image") == 0


def test_words(tmp_path: Path) -> None:
    tiers = {"strong": 1, "gateway": 3, "weak": 20}
    run = read_run(write_run(tmp_path, tiers=tiers))
    assert re.fullmatch(
        r"Strong devices reach [\d.]+ %, gateway devices [\d.]+ %, weak devices [\d.]+ %",
        accuracy_words(run),
    )
    assert fleet_words(run) == (
        "1 strong device holds 33 % of the training samples, 3 gateway devices 33 %, "
        "20 weak devices 33 %"
    )
    assert re.fullmatch(r"The rounds take 1 min \d+ s, 5\d % of it to train", seconds_words(run))
    assert "come within a point of their score by round" in course_words(run)
    # 18 of 20 are nine in ten: the third lowest is the bound
    found = sorted(
        sum(r.clients[c].accuracy or 0.0 for r in run.rounds[-2:]) / 2 for c in range(4, 24)
    )
    assert spread_words(run) == (
        f"Nine in ten weak devices reach {100 * found[2]:.1f} % or more, "
        f"the lowest {100 * found[0]:.1f} %"
    )


def test_command_can_be_pasted() -> None:
    settings = {"skew": "2:100", "data_dir": "my data", "nested": {"a": 1}, "transfer": True}
    assert command(settings) == "ghnfl train --skew 2:100 --data-dir 'my data' --transfer"
    long = command({f"some_setting_{i}": i for i in range(9)})
    assert all(len(line) <= 90 for line in long.splitlines())
    assert all(line.endswith(" \\") for line in long.splitlines()[:-1])


def test_comparison_names_the_best_and_the_differences(folder: Path) -> None:
    other = write_run(folder.parent / "other", method="allsmall", gain=-0.1, finished=False)
    text = compare_runs([folder, other])
    page = check_page(text)
    best = "recipfl is best for strong devices (99.0 %) and weak devices (98.4 %)"
    assert page.headings[0] == best
    assert page.tags.count("svg") == 1
    assert "<strong>99.04 %</strong>" in text
    assert "<td>method</td><td>recipfl</td><td>allsmall</td>" in text
    assert "allsmall: The run has not finished" in text
    path = write_comparison([folder, other], folder.parent / "compare.html")
    assert path.read_text() == text


def test_comparison_of_equal_and_of_no_runs(folder: Path) -> None:
    text = compare_runs([folder, folder])
    assert "The runs have the same settings" in text
    with pytest.raises(ReportError, match="at least one run folder"):
        compare_runs([])
