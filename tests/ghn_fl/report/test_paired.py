"""The paired tests and Holm's correction, worked by hand."""

import math

import pytest

from ghn_fl.report.paired import holm, paired_test, t_test_p, wilcoxon_p


def test_signed_rank_test_by_hand() -> None:
    # ranks 1 to 6, the sixth with the other sign: the smaller rank sum is 6. Subsets of {1..6} by
    # their sum: 0:1 1:1 2:1 3:2 4:2 5:3 6:4, so 14 of 64 have 6 or less; two-sided 28/64.
    assert wilcoxon_p([1, 2, 3, 4, 5, -6]) == pytest.approx(28 / 64)
    assert wilcoxon_p([-1, -2, -3, -4, -5, 6]) == pytest.approx(28 / 64)
    assert wilcoxon_p([0, 1, 2, 3, 4, 5, -6]) == pytest.approx(28 / 64)  # no change, no rank
    assert wilcoxon_p([0.0] * 8) == 1.0


def test_t_test_by_hand() -> None:
    # changes 1, 2, 3: mean 2, deviation 1, t = 2 sqrt 3; with two degrees of freedom the
    # two-sided p is 1 - t / sqrt(2 + t^2) = 1 - sqrt(12 / 14)
    assert t_test_p([1, 2, 3]) == pytest.approx(1 - math.sqrt(12 / 14))
    assert t_test_p([-1, -2, -3]) == pytest.approx(1 - math.sqrt(12 / 14))
    assert t_test_p([0.0, 0.0]) == 1.0
    assert t_test_p([0.1 + 0.2, 0.3]) is None  # equal but for rounding: no spread to judge by
    assert t_test_p([1.0]) is None and t_test_p([0.5, 0.5]) is None


def test_many_devices_are_ranked_and_few_are_averaged_by_seed() -> None:
    rises = [(0.0, 0.01), (0.0, 0.02), (0.0, 0.03), (0.0, 0.04), (0.0, 0.05)]
    six = paired_test({0: [*rises, (0.06, 0.0)]})
    assert six is not None and (six.pairs, six.over_seeds) == (6, False)
    assert six.difference == pytest.approx(0.09 / 6) == six.by_seed[0]
    assert six.p == pytest.approx(28 / 64) and six.p_seeds is None
    # four devices a seed on average: ranks 1 to 4 twice, all of one sign, 2 of 2^8 ways
    eight = paired_test({0: rises[:3], 1: [*rises[3:], *rises[:3]]})
    assert eight is not None and (eight.pairs, eight.over_seeds) == (8, False)
    assert eight.by_seed == pytest.approx((0.02, 0.03))
    # means 2 and 3 points: t = 2.5 / 0.5; with one degree of freedom p = 1 - 2 arctan(t) / pi
    assert eight.p_seeds == pytest.approx(1 - 2 * math.atan(5) / math.pi)
    # unequal numbers of devices: means of the seeds are 1, 2 and 3 points
    few = paired_test({0: [(0.5, 0.51)], 1: [(0.5, 0.53), (0.5, 0.51)], 2: [(0.4, 0.43)], 3: []})
    assert few is not None and (few.pairs, few.over_seeds) == (3, True)
    assert few.difference == pytest.approx(0.08 / 4)
    assert few.p == pytest.approx(1 - math.sqrt(12 / 14))
    # two strong devices and three seeds: six pairs, but three observations
    changes = {0: (1.5, 0.5), 1: (1.5, 2.5), 2: (3.0, 3.0)}
    two = paired_test({s: [(0.5, 0.5 + c / 100) for c in own] for s, own in changes.items()})
    assert two is not None and (two.pairs, two.over_seeds) == (3, True)
    assert two.by_seed == pytest.approx((0.01, 0.02, 0.03))
    assert two.p == two.p_seeds == pytest.approx(1 - math.sqrt(12 / 14))
    one = paired_test({0: [(0.5, 0.6)]})
    assert one is not None and one.p is None
    assert paired_test({}) is None and paired_test({0: []}) is None


def test_holm_by_hand() -> None:
    # sorted: 0.005 x 4, 0.01 x 3, 0.03 x 2, and 0.04 x 1 which must not fall below 0.06
    found = holm({"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.005, "e": None})
    assert found == pytest.approx({"a": 0.03, "b": 0.06, "c": 0.06, "d": 0.02, "e": None})
    assert holm({"a": 0.6, "b": 0.9}) == {"a": 1.0, "b": 1.0}
    assert holm({}) == {}
