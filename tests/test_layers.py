"""The house rules that a machine can check: import direction, tables of contents, registration."""

import ast
import importlib
import pkgutil
from pathlib import Path

import pytest

import ghn_fl
import graphs
import zoo

ROOT = Path(__file__).parent.parent
PACKAGES = ("zoo", "graphs", "ghn_fl")

# A module may import from its own room and from rooms before it.
ROOMS = (
    ("zoo",),
    ("graphs",),
    ("ghn_fl.errors",),
    ("ghn_fl.types", "ghn_fl.files", "ghn_fl.random", "ghn_fl.tree", "ghn_fl.optim"),
    ("ghn_fl.losses", "ghn_fl.which_models"),
    ("ghn_fl.local", "ghn_fl.aggregate", "ghn_fl.masks", "ghn_fl.hypernet", "ghn_fl.bound"),
    ("ghn_fl.grouped", "ghn_fl.public", "ghn_fl.distillation", "ghn_fl.lessons"),
    ("ghn_fl.methods", "ghn_fl.data"),
    ("ghn_fl.simulation",),
    ("ghn_fl.engines",),
    ("ghn_fl.report",),
    ("ghn_fl.cli",),
)


def modules() -> list[str]:
    found = list(PACKAGES)
    for package in (zoo, graphs, ghn_fl):
        found += [m.name for m in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")]
    return found


def room_of(module: str) -> int | None:
    for rank, prefixes in enumerate(ROOMS):
        if any(module == p or module.startswith(f"{p}.") for p in prefixes):
            return rank
    return None


def imports(module: str, *, top_level_only: bool = False) -> set[str]:
    path = ROOT / Path(*module.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    tree = ast.parse(file.read_text())
    nodes = tree.body if top_level_only else ast.walk(tree)
    found = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{module} imports relatively"
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


@pytest.mark.parametrize("module", modules())
def test_imports_go_one_way(module: str) -> None:
    if module == "ghn_fl":
        return  # the table of contents names all rooms
    rank = room_of(module)
    assert rank is not None, f"{module} is in no room: give it one in ROOMS"
    for imported in imports(module):
        other = room_of(imported)
        assert other is None or other <= rank, f"{module} must not import {imported}"


@pytest.mark.parametrize("module", [m for m in modules() if m.startswith("zoo")])
def test_zoo_needs_torch_only(module: str) -> None:
    heavy = {"timm", "transformers", "torchvision", "torch_geometric", "scipy", "numpy"}
    assert not heavy & {name.split(".")[0] for name in imports(module, top_level_only=True)}


@pytest.mark.parametrize("package", PACKAGES)
def test_table_of_contents_is_true(package: str) -> None:
    module = importlib.import_module(package)
    listed = getattr(module, "__all__", [])
    assert len(set(listed)) == len(listed)
    for name in listed:
        assert getattr(module, name) is not None
    submodules = {m.name for m in pkgutil.iter_modules(module.__path__)}
    tools = {"annotations", "import_module", "TYPE_CHECKING", "Any"}
    public = {n for n in vars(module) if not n.startswith("_")} - submodules - tools
    assert public <= set(listed), "a public name is missing from __all__"


def test_every_family_file_registers() -> None:
    from zoo import families

    source = [f.stem for f in (ROOT / "zoo").glob("*.py") if "ister(" in f.read_text()]
    registering = set(source) - {"registry"}
    assert registering <= set(families.__all__), "name the file in zoo/families.py"


def test_every_method_file_registers_a_method_of_its_name() -> None:
    from ghn_fl.methods import METHODS

    files = {f.stem for f in (ROOT / "ghn_fl" / "methods").glob("*.py")}
    names = {name.replace("-", "_") for name in METHODS.names()}
    assert files - {"__init__", "registry"} == names
