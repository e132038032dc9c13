"""What a round costs with 100 and with 1000 weak devices, ten sampled: seconds and memory.

    python -m benchmarks.speed_clients --data-dir ../shared/data

Every run is a process of its own; fleets take turns. Rounds with a strong device are left out: they
last as long as that one trains.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.experiments import table
from benchmarks.results_file import write

SKEWS = ("2:100", "2:1000")
REPEATS = 2
ROUNDS = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", type=Path, required=True)
    data_dir = parser.parse_args().data_dir
    seconds: dict[str, list[float]] = {skew: [] for skew in SKEWS}
    memory: dict[str, list[float]] = {skew: [] for skew in SKEWS}
    for seed in range(REPEATS):
        for skew in SKEWS:
            rounds, megabytes = _measure(skew, seed, data_dir)
            seconds[skew] += rounds
            memory[skew].append(megabytes)
    rows = [
        (
            skew,
            str(len(seconds[skew])),
            f"{statistics.median(seconds[skew]):.2f}",
            f"{statistics.median(memory[skew]):.0f}",
        )
        for skew in SKEWS
    ]
    slower = statistics.median(seconds[SKEWS[1]]) / statistics.median(seconds[SKEWS[0]])
    larger = statistics.median(memory[SKEWS[1]]) / statistics.median(memory[SKEWS[0]])
    body = (
        f"RecipFL on MNIST, preset recipfl-mnist, one worker, {ROUNDS} rounds, seeds 0 to "
        f"{REPEATS - 1}, fleets in turn. Seconds: generate, train and update of rounds without a "
        "strong device (a weak one has 240 samples to train on, or 24; a fifth is held out for its "
        "evaluation). Memory: the process's peak, median "
        f"over the runs.\n\n{table(('skew', 'rounds', 'median s', 'peak MB'), rows)}\n\n"
        f"With 1000 weak devices a round takes {slower:.2f} times as long, and memory is "
        f"{larger:.3f} times as much."
    )
    print(write("speed_clients", "A thousand weak devices", body).read_text())


def _measure(skew: str, seed: int, data_dir: Path) -> tuple[list[float], float]:
    """Seconds of every round without a strong device, and the peak of memory in MB."""
    with tempfile.TemporaryDirectory() as folder:
        words = f"train --preset recipfl-mnist --skew {skew} --seed {seed} --rounds {ROUNDS}"
        words += f" --eval-every {ROUNDS} --validation 0.2 --workers 1 --quiet --out {folder}/run"
        command = [sys.executable, "-c", "from ghn_fl.cli import main; main()", *words.split()]
        subprocess.run([*command, "--data-dir", str(data_dir)], check=True)
        run = Path(folder, "run")
        records = [json.loads(line) for line in (run / "rounds.jsonl").read_text().splitlines()]
        summary = json.loads((run / "summary.json").read_text())
    seconds = [
        sum(record["seconds"][phase] for phase in ("generate", "train", "update"))
        for record in records
        if min(record["sampled"]) > 1  # 0 and 1 are the strong ones
    ]
    return seconds, summary["peak_rss_mb"]


if __name__ == "__main__":
    main()
