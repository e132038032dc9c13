"""The pages are true: links resolve, and methods, options and fleets are the code's."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from ghn_fl.data import load
from ghn_fl.errors import ConfigError
from ghn_fl.methods import METHODS
from ghn_fl.simulation.build import build_world, setting_of
from ghn_fl.simulation.config import RunConfig
from ghn_fl.simulation.fleet import tiers_of

ROOT = Path(__file__).parent.parent
METHOD_PAGES = ROOT / "docs" / "methods"
NAIVE = ("alllarge", "allsmall", "exclusivefl", "local")  # share a page
PAGES = [*ROOT.glob("*.md"), *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\]\(([^)\s]+)\)")
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
# "| `name` | `value` | ..." of a table of options; a value without backticks is said in words
OPTION = re.compile(r"^\| `([\w.]+)` \| (`([^`]*)`|[^|]*) \|", re.MULTILINE)
FLEETS = {"depth": ("lenet5", "lenet5-d1"), "width": ("lenet5", "lenet5-w0.5")}
OTHER = ("lenet5", "fedmdp_mnist_1")


def page_of(method: str) -> Path:
    return METHOD_PAGES / ("naive.md" if method in NAIVE else f"{method}.md")


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", FENCED.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_link_and_picture_resolves(page: Path) -> None:
    for target in LINK.findall(FENCED.sub("", page.read_text())):
        if re.match(r"https?:|mailto:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{target} is not there"
        assert file.is_relative_to(ROOT), f"{target} leads out of the repository"
        assert not anchor or anchor in anchors(file), f"{target}: no such heading"


def test_every_page_and_picture_belongs_to_a_method() -> None:
    pages = {page_of(name) for name in METHODS.names()}
    assert set(METHOD_PAGES.glob("*.md")) == {*pages, METHOD_PAGES / "README.md"}
    assert {f.stem for f in (METHOD_PAGES / "img").iterdir()} == {p.stem for p in pages}


@pytest.mark.parametrize("svg", sorted((METHOD_PAGES / "img").iterdir()), ids=lambda p: p.name)
def test_a_picture_is_small_and_needs_nothing_from_elsewhere(svg: Path) -> None:
    text = svg.read_text()
    assert len(text) < 4096
    assert not re.search(r"href|url\((?!#)|@import|@font-face|<script", text)


@pytest.mark.parametrize("name", METHODS.names())
def test_a_method_has_its_page_with_every_option(name: str) -> None:
    text = page_of(name).read_text()
    assert f"{name.replace('-', '_')}.py" in text
    fields = {f.name for f in dataclasses.fields(METHODS[name].config)}
    named = {option.partition(".")[0] for option, *_ in OPTION.findall(text)}
    assert fields <= named, f"not in the table of options: {sorted(fields - named)}"
    if name not in NAIVE:
        assert named <= fields, f"no options: {sorted(named - fields)}"


@pytest.mark.parametrize("name", METHODS.names())
def test_options_have_the_defaults_that_the_page_says(name: str) -> None:
    config = METHODS[name].config()
    for option, words, value in OPTION.findall(page_of(name).read_text()):
        if name in NAIVE and not hasattr(config, option):
            continue
        default: Any = config
        for part in option.split("."):
            default = getattr(default, part)
        if words.startswith("see "):
            assert dataclasses.is_dataclass(default)
        else:
            assert (value or words) == shown(default), option


def shown(value: Any) -> str:
    """A default as the pages write it.

    >>> [shown(v) for v in (True, None, "", 1e-3, "mean")]
    ['true', 'none', 'empty', '0.001', 'mean']
    """
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    return "empty" if value == "" else str(value)


def test_both_tables_list_every_method_once() -> None:
    rows = re.findall(
        r"^\| (?:\[`([\w-]+)`\]\(([\w.-]+)\)|`([\w-]+)`) \|",
        (METHOD_PAGES / "README.md").read_text(),
        re.MULTILINE,
    )
    linked = {name: page for name, page, _ in rows if name}
    assert linked == {name: page_of(name).name for name in METHODS.names()}
    plain = [name for _, _, name in rows if name]
    assert sorted(plain) == sorted(METHODS.names())


@pytest.mark.parametrize("name", METHODS.names())
def test_a_method_serves_the_fleets_that_the_table_says(name: str) -> None:
    text = (METHOD_PAGES / "README.md").read_text()
    (row,) = [line for line in text.splitlines() if line.startswith(f"| [`{name}`]")]
    cells = [re.split(r"[ ,:]", cell.strip())[0] for cell in row.split("|")[3:6]]
    assert cells[0] == serves(name, *FLEETS["depth"])
    assert cells[1] == serves(name, *FLEETS["width"])
    # what is served in part depends on the architectures
    assert cells[2] in ("partly", serves(name, *OTHER))


def serves(method: str, large: str, small: str) -> str:
    config = RunConfig(dataset="synthetic", method=method, skew="1:1", large=large, small=small)
    dataset = load("synthetic", None)
    try:
        world, clients = build_world(config, dataset, tiers_of(config, dataset.in_channels))
        METHODS[method].build(config.method_config(), setting_of(config, world, clients))
    except ConfigError:
        return "no"
    return "yes"
