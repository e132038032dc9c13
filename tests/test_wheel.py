"""What an installed ghnfl consists of."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_wheel_has_the_three_packages_and_nothing_else(tmp_path: Path) -> None:
    source = tmp_path / "source"
    skip = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "dist", "runs")
    shutil.copytree(ROOT, source, ignore=skip)
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path, source],
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata_name,) = (n for n in names if n.endswith("/METADATA"))
        metadata = archive.read(metadata_name).decode()
        (entry_name,) = (n for n in names if n.endswith("/entry_points.txt"))
        entries = archive.read(entry_name).decode()
    expected = {
        str(file.relative_to(ROOT))
        for package in ("zoo", "graphs", "ghn_fl")
        for file in (ROOT / package).rglob("*")
        if file.suffix == ".py" or file.name == "py.typed"
    }
    assert {n for n in names if ".dist-info/" not in n} == expected
    assert {f"{package}/py.typed" for package in ("zoo", "graphs", "ghn_fl")} <= expected
    assert "ghnfl = ghn_fl.cli:main" in entries
    for extra in ("flower", "text", "tensorboard", "hub", "dev"):
        assert f"Provides-Extra: {extra}" in metadata
