"""What tuning came to: tune.md with every combination tried, tuned.toml with the chosen ones."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ghn_fl.files import write_atomic
from ghn_fl.report.read import Run, mean
from ghn_fl.report.style import percent_text
from ghn_fl.report.tables import Table, markdown


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One combination of settings of a method.

    Attributes:
        method: whose.
        settings: run settings by name, and the method's own under `options`.
        words: the same by one name each.
        runs: those that have a result.
        reasons: why the others have none.
    """

    method: str
    settings: Mapping[str, Any]
    words: Mapping[str, Any]
    runs: tuple[Run, ...]
    reasons: tuple[str, ...]

    @property
    def score(self) -> float | None:
        """Mean over the seeds of `run_score`; None if a run is missing."""
        scores = [run_score(run) for run in self.runs]
        there = [score for score in scores if score is not None]
        complete = there and len(there) == len(scores) and not self.reasons
        return statistics.fmean(there) if complete else None


def run_score(run: Run) -> float | None:
    """The mean of the tiers' accuracies: strong and weak devices count alike, however many."""
    return mean(tier.accuracy for tier in run.summary.tiers.values())


def chosen(trials: Sequence[Trial]) -> dict[str, Trial]:
    """The best trial of every method that has one with a score; the first of equals."""
    best: dict[str, Trial] = {}
    for trial in trials:
        known = best.get(trial.method)
        if trial.score is not None and (
            known is None or known.score is None or trial.score > known.score
        ):
            best[trial.method] = trial
    return best


def write_tuned(trials: Sequence[Trial], title: str, out: Path) -> list[Path]:
    """Write tuned.toml and tune.md into `out` and return their paths."""
    contents = {"tuned.toml": tuned_toml(trials, title), "tune.md": tune_markdown(trials, title)}
    for name, content in contents.items():
        write_atomic(out / name, content)
    return [out / name for name in contents]


def tuned_toml(trials: Sequence[Trial], title: str) -> str:
    """The chosen settings, a table a method, for `ghnfl compare --tuned`."""
    lines = [f"# chosen by ghnfl tune on held-out training samples: {title}"]
    best = chosen(trials)
    for method in dict.fromkeys(trial.method for trial in trials):
        lines.append("")
        if method not in best:
            reason = next((r for t in trials if t.method == method for r in t.reasons), "")
            lines.append(f"# {method}: nothing to choose from; {reason}")
            continue
        lines += [f"[{method}]", f"# score {best[method].score:.6f}"]
        settings = dict(best[method].settings)
        options = settings.pop("options", {})
        lines += [f"{json.dumps(key)} = {json.dumps(value)}" for key, value in settings.items()]
        if options:
            lines.append(f"[{method}.options]")
            lines += [f"{json.dumps(key)} = {json.dumps(value)}" for key, value in options.items()]
    return "\n".join(lines) + "\n"


def tune_markdown(trials: Sequence[Trial], title: str) -> str:
    """Every combination and its score as Markdown."""
    table = tune_table(trials)
    caption = (
        "Accuracy on the devices' held-out training samples, mean over the devices of a tier and "
        "the last fifth of the rounds, then over the seeds. Score: mean of the tiers, which count "
        "alike. The highest score of a method is chosen; the first of equals."
    )
    notes = [f"- {note}" for note in edge_notes(trials)]
    parts = ["# Tuning", title, markdown(table), caption, *(["\n".join(notes)] if notes else [])]
    return "\n\n".join(parts) + "\n"


def tune_table(trials: Sequence[Trial]) -> Table:
    """A row a combination: its settings, the tiers' accuracies, its score, and the choice."""
    best = {id(trial) for trial in chosen(trials).values()}
    tiers = list(dict.fromkeys(tier for t in trials for run in t.runs for tier in run.tiers))
    rows = []
    for trial in trials:
        means = [mean(run.summary.tiers[tier].accuracy for run in trial.runs) for tier in tiers]
        what = "chosen" if id(trial) in best else "; ".join(dict.fromkeys(trial.reasons))
        rows.append(
            (
                trial.method,
                ", ".join(f"{k} {v}" for k, v in trial.words.items()) or "as it is",
                what,
                *(percent_text(value, 2) for value in means),
                percent_text(trial.score, 2),
            )
        )
    return Table(header=("method", "settings", "", *tiers, "score"), rows=tuple(rows), names=3)


def edge_notes(trials: Sequence[Trial]) -> list[str]:
    """Where the best number is the smallest or largest tried: a better one may lie beyond."""
    notes = []
    for method, best in chosen(trials).items():
        own = [trial for trial in trials if trial.method == method]
        for name, value in best.words.items():
            tried = {trial.words[name] for trial in own}
            if isinstance(value, bool) or not isinstance(value, int | float) or len(tried) < 2:
                continue
            for edge, word in ((min(tried), "smallest"), (max(tried), "largest")):
                if value == edge:
                    notes.append(f"{method}: {name} {value} is the {word} tried.")
    return notes
