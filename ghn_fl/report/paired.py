"""Is one method better than another? Paired tests, and their correction for many comparisons."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

FEWEST = 6  # pairs of a signed-rank test: with five, p cannot fall below 1/16
DEVICES = 4  # of a seed: fewer are served by one server so much alike that they count as one

Pair = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Paired:
    """Two methods on the same devices.

    Attributes:
        difference: mean of the second minus the first.
        by_seed: the same within each seed.
        pairs: their number; seeds where `over_seeds`.
        over_seeds: a t-test over the means of each seed, for there are too few devices.
        p: of the two-sided test; None where there is nothing to test.
    """

    difference: float
    by_seed: tuple[float, ...]
    pairs: int
    over_seeds: bool
    p: float | None

    @property
    def p_seeds(self) -> float | None:
        """Of a t-test over the means of each seed: what speaks of other seeds than these."""
        return t_test_p(self.by_seed)


def paired_test(by_seed: Mapping[int, Sequence[Pair]]) -> Paired | None:
    """Compare the second of each pair with the first; None without any pair.

    Args:
        by_seed: for each seed a pair a device. With `FEWEST` or more pairs all together and
            `DEVICES` or more a seed, they are what a Wilcoxon signed-rank test takes; with fewer,
            a t-test takes each seed's means. It does not take the single devices: the two strong
            ones of a run get nearly one model, and a t-test over 2 x 3 of them would find a
            difference at 5 % in a quarter of the cases where there is none.
    """
    seeds = [pairs for pairs in by_seed.values() if pairs]
    changes = [b - a for pairs in seeds for a, b in pairs]
    if not changes:
        return None
    means = tuple(statistics.fmean(b - a for a, b in pairs) for pairs in seeds)
    few = len(changes) < max(FEWEST, DEVICES * len(seeds))
    return Paired(
        difference=statistics.fmean(changes),
        by_seed=means,
        pairs=len(seeds) if few else len(changes),
        over_seeds=few,
        p=t_test_p(means) if few else wilcoxon_p(changes),
    )


def wilcoxon_p(changes: Sequence[float]) -> float:
    """Two-sided p of Wilcoxon's signed-rank test; changes of 0 are left out.

    >>> wilcoxon_p([1, 2, 3, 4, 5, 6])  # all of one sign: 2 of 64 ways
    0.03125
    """
    from scipy.stats import wilcoxon

    found = [round(change, 12) for change in changes]  # equal but for rounding is equal
    there = [change for change in found if change]
    return float(wilcoxon(there).pvalue) if there else 1.0


def t_test_p(changes: Sequence[float]) -> float | None:
    """Two-sided p of a paired t-test; None for one change, or where all are one and not 0."""
    from scipy.stats import t

    if len(changes) < 2:
        return None
    mean, deviation = statistics.fmean(changes), statistics.stdev(changes)
    if deviation < 1e-12:  # equal but for rounding is equal
        return 1.0 if abs(mean) < 1e-12 else None
    value = abs(mean) / (deviation / math.sqrt(len(changes)))
    return float(2 * t.sf(value, len(changes) - 1))


def holm(ps: Mapping[str, float | None]) -> dict[str, float | None]:
    """Holm's correction: the smallest of n times n, the next times n-1, ...; never falling.

    >>> holm({"a": 0.04, "b": 0.01, "c": None})
    {'a': 0.04, 'b': 0.02, 'c': None}
    """
    there = sorted((p, name) for name, p in ps.items() if p is not None)
    corrected: dict[str, float | None] = dict.fromkeys(ps)
    highest = 0.0
    for rank, (p, name) in enumerate(there):
        highest = max(highest, min(1.0, p * (len(there) - rank)))
        corrected[name] = highest
    return corrected
