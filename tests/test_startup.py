"""What must not be imported before it is needed."""

import subprocess
import sys


def loaded_after(code: str) -> set[str]:
    script = f"import sys\n{code}\nprint(*sorted({{m.split('.')[0] for m in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split("\n")[-2].split())


def test_help_does_not_import_torch() -> None:
    code = """
from ghn_fl.cli import main
sys.argv = ["ghnfl", "--help"]
try:
    main()
except SystemExit as stop:
    assert not stop.code
"""
    loaded = loaded_after(code)
    assert "typer" in loaded
    assert not {"torch", "numpy", "zoo", "matplotlib"} & loaded


def test_packages_do_not_import_timm_or_transformers() -> None:
    loaded = loaded_after("import ghn_fl, graphs, zoo")
    assert not {"timm", "transformers", "torchvision"} & loaded


def test_a_process_of_a_run_imports_torch_geometric_only_to_batch_graphs() -> None:
    # every worker and every run of a grid is a process that imports this
    loaded = loaded_after("import ghn_fl.engines.grid, ghn_fl.hypernet")
    assert "torch" in loaded
    assert not {"torch_geometric", "transformers", "matplotlib"} & loaded
