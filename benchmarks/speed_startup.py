"""How long `ghnfl --help` takes beside `import torch`: interleaved, in one run."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

from benchmarks.results_file import write

REPEATS = 9
COMMANDS = {
    "ghnfl --help": "from ghn_fl.cli import main; main()",
    "import ghn_fl": "import ghn_fl",
    "import torch": "import torch",
    "import zoo": "import zoo",
}


def main() -> None:
    seconds: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(REPEATS):
        for name, code in COMMANDS.items():
            start = time.perf_counter()
            subprocess.run([sys.executable, "-c", code, "--help"], check=True, capture_output=True)
            seconds[name].append(time.perf_counter() - start)
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    rows = [
        f"| `{name}` | {medians[name]:.2f} | {min(times):.2f} to {max(times):.2f} "
        f"| {medians[name] / medians['import torch']:.2f} |"
        for name, times in seconds.items()
    ]
    table = "\n".join(
        ["| process | median s | range | of `import torch` |", "|---|---|---|---|", *rows]
    )
    print(write("speed_startup", "Start-up time", f"{REPEATS} interleaved repeats.\n\n{table}"))
    print(table)


if __name__ == "__main__":
    main()
