"""The split: sizes, fairness and spread, by hand, by property and against a plain loop."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ghn_fl.data import ClientShare, PartitionTier, hold_out, partition
from ghn_fl.data.partition import _dealt, _fill, _rounded
from ghn_fl.errors import DataError

# How often the digits 0 to 9 come in MNIST.
MNIST_TRAIN = (5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949)
MNIST_TEST = (980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009)


def labels(counts: Sequence[int], seed: int = 0) -> Tensor:
    """Labels with that many of every class, in random order."""
    y = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    return y[torch.randperm(len(y), generator=torch.Generator().manual_seed(seed))]


def two_tiers(strong: int, weak: int, share: float = 0.5, alpha: float = 0.5) -> Any:
    return [
        PartitionTier(count=strong, share=share),
        PartitionTier(count=weak, share=1 - share, alpha=alpha),
    ]


def histogram(y: Tensor, index: Tensor, num_classes: int = 10) -> Tensor:
    return torch.bincount(y[index], minlength=num_classes)


def assert_disjoint(shares: Sequence[ClientShare], size: int, *, whole: bool) -> None:
    taken = torch.cat([s.train for s in shares])
    assert len(taken.unique()) == len(taken), "a sample went to two clients"
    assert 0 <= taken.min() <= taken.max() < size
    assert not whole or len(taken) == size
    tested = torch.cat([s.test for s in shares])
    assert len(tested.unique()) == len(tested)


# --- table 2 ------------------------------------------------------------------------------------


def test_sizes_of_mnist() -> None:
    y_train, y_test = labels(MNIST_TRAIN), labels(MNIST_TEST)
    shares = partition(y_train, y_test, two_tiers(2, 100), num_classes=10, seed=0)
    assert [len(s.train) for s in shares] == [15000] * 2 + [300] * 100
    # Strong: floor(980/102) + floor(1135/102) + ... = 9+11+10+9+9+8+9+10+9+9 = 93;
    # weak: the other 10000 - 186 = 9814 among 100.
    assert [len(s.test) for s in shares] == [93] * 2 + [98] * 100
    assert histogram(y_test, shares[0].test).tolist() == [9, 11, 10, 9, 9, 8, 9, 10, 9, 9]
    for share in shares[:2]:
        ideal = torch.tensor(MNIST_TRAIN) / 4
        assert ((histogram(y_train, share.train) - ideal).abs() < 1).all()
    assert_disjoint(shares, 60000, whole=True)


@pytest.mark.parametrize(
    ("classes", "weak", "train", "test"),
    [(10, 5, [25000, 5000], [1660, 1668]), (100, 50, [25000, 500], [100, 198])],
)
def test_sizes_of_cifar(classes: int, weak: int, train: list[int], test: list[int]) -> None:
    y_train, y_test = labels([50000 // classes] * classes), labels([10000 // classes] * classes)
    shares = partition(y_train, y_test, two_tiers(1, weak), num_classes=classes, seed=3)
    assert [len(s.train) for s in shares] == train[:1] + train[1:] * weak
    assert [len(s.test) for s in shares] == test[:1] + test[1:] * weak
    assert_disjoint(shares, 50000, whole=True)


def test_five_thousand_digits_still_test_the_strong() -> None:
    # 100 test images of a class among 102 clients: floor(100/102) would leave the strong none.
    y_train, y_test = labels([400] * 10), labels([100] * 10)
    shares = partition(y_train, y_test, two_tiers(2, 100), num_classes=10, seed=0)
    assert {len(s.test) for s in shares} == {9}  # floor(1000 / 102)
    for share in shares[:2]:
        assert histogram(y_test, share.test).max() == 1


@pytest.mark.parametrize("spill", ["next", "renormalise"])
def test_a_thousand_clients(spill: Any) -> None:
    y_train, y_test = labels(MNIST_TRAIN), labels(MNIST_TEST)
    shares = partition(y_train, y_test, two_tiers(2, 1000), num_classes=10, seed=0, spill=spill)
    assert [len(s.train) for s in shares] == [15000] * 2 + [30] * 1000


# --- properties ---------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    counts=st.lists(st.integers(20, 80), min_size=2, max_size=5),
    strong=st.integers(0, 4),
    weak=st.integers(0, 8),
    share=st.sampled_from([0.1, 0.5, 0.9]),
    alpha=st.sampled_from([0.01, 0.5, 100.0]),
    spill=st.sampled_from(["next", "renormalise"]),
    block=st.sampled_from([1, 5]),
    seed=st.integers(0, 2**32),
)
def test_sizes_are_exact_and_nothing_is_shared(
    counts: list[int],
    strong: int,
    weak: int,
    share: float,
    alpha: float,
    spill: Any,
    block: int,
    seed: int,
) -> None:
    total, num_classes = sum(counts), len(counts)
    if strong + weak == 0 or weak > (1 - share) * total or strong > share * total:
        return
    y_train = labels(counts, seed % 7)
    tiers = two_tiers(strong, weak, share, alpha)
    shares = partition(
        y_train, y_train, tiers, num_classes=num_classes, seed=seed, spill=spill, block=block
    )
    assert_disjoint(shares, total, whole=bool(strong and weak))
    sizes = [len(s.train) for s in shares]
    for got, count, part in ((sizes[:strong], strong, share), (sizes[strong:], weak, 1 - share)):
        if count:
            assert abs(sum(got) - part * total) <= 1
            assert max(got) - min(got) <= 1
    for s in shares[:strong]:
        ideal = torch.tensor(counts) * share / strong
        assert ((histogram(y_train, s.train, num_classes) - ideal).abs() < 1 + 1e-6).all()
    for s in shares:
        mix = histogram(y_train, s.train, num_classes) / len(s.train)
        assert torch.allclose(torch.tensor(s.mix), mix)
        assert sum(s.probabilities) == pytest.approx(1)
    tests = [len(s.test) for s in shares]
    assert min(tests) >= 1
    assert len(set(tests[strong:])) <= 1


def test_the_seed_decides_everything() -> None:
    y_train, y_test = labels([100] * 10), labels([40] * 10)

    def split(seed: int) -> tuple[ClientShare, ...]:
        return partition(y_train, y_test, two_tiers(2, 10), num_classes=10, seed=seed)

    torch.manual_seed(1)
    np.random.seed(1)
    first = split(5)
    torch.manual_seed(2)
    np.random.seed(2)
    for a, b in zip(first, split(5), strict=True):
        assert torch.equal(a.train, b.train)
        assert torch.equal(a.test, b.test)
        assert a.mix == b.mix
        assert a.probabilities == b.probabilities
    other = split(6)
    assert any(not torch.equal(a.train, b.train) for a, b in zip(first, other, strict=True))
    assert first[2].probabilities != other[2].probabilities


def test_large_alpha_is_uniform_and_small_alpha_is_not() -> None:
    y_train, y_test = labels([3000] * 10), labels([500] * 10)

    def spread(alpha: float) -> float:
        tiers = [PartitionTier(count=10, share=0.5, alpha=alpha)]
        shares = partition(y_train, y_test, tiers, num_classes=10, seed=1)
        return float((torch.tensor([s.mix for s in shares]) - 0.1).abs().max())

    # 1500 draws of a class at 0.1 deviate by sqrt(0.1 * 0.9 / 1500) = 0.008; four times that
    assert spread(1e6) < 0.032
    assert spread(0.1) > 0.2


def test_training_and_test_samples_come_from_the_same_probabilities() -> None:
    # Classes that are used up blur each client's mix, so look at all clients together.
    y_train, y_test = labels([5000] * 10), labels([2000] * 10)
    tiers = [PartitionTier(count=200, share=1.0, alpha=0.5)]
    shares = partition(y_train, y_test, tiers, num_classes=10, seed=2, spill="renormalise")
    q = np.array([s.probabilities for s in shares])
    train = np.array([s.mix for s in shares])
    test = np.array([(histogram(y_test, s.test) / len(s.test)).tolist() for s in shares])

    def correlation(a: Any, b: Any) -> float:
        return float(np.corrcoef(a.ravel(), b.ravel())[0, 1])

    assert correlation(train, q) > 0.9
    assert correlation(test, q) > 0.9
    assert abs(correlation(test, np.roll(q, 1, axis=0))) < 0.15  # another client's


def test_shares_below_one_leave_out_all_classes_alike() -> None:
    y_train, y_test = labels([1000, 3000]), labels([200, 600])
    tiers = [PartitionTier(count=1, share=0.25), PartitionTier(count=3, share=0.25, alpha=0.5)]
    shares = partition(y_train, y_test, tiers, num_classes=2, seed=0)
    assert [len(s.train) for s in shares] == [1000, 334, 333, 333]
    weak = sum(histogram(y_train, s.train, 2) for s in shares[1:])
    # 750 and 2250 are left after the strong client; a third of each is the weak clients' pool
    assert weak.tolist() == [250, 750]
    assert_disjoint(shares, 4000, whole=False)


def test_a_second_strong_tier_gets_its_share_of_the_original_counts() -> None:
    y = labels([1000, 3000])
    tiers = [PartitionTier(count=1, share=0.5), PartitionTier(count=2, share=0.25)]
    shares = partition(y, y, tiers, num_classes=2, seed=0)
    got = [histogram(y, s.train, 2).tolist() for s in shares]
    assert got == [[500, 1500], [125, 375], [125, 375]]


def test_three_tiers_and_an_empty_one() -> None:
    y_train, y_test = labels([500] * 4), labels([100] * 4)
    tiers = [
        PartitionTier(count=4, share=0.2, alpha=0.3),
        PartitionTier(count=2, share=0.5),
        PartitionTier(count=0, share=0.9),
        PartitionTier(count=1, share=0.3, alpha=5.0),
    ]
    shares = partition(y_train, y_test, tiers, num_classes=4, seed=0)
    assert [len(s.train) for s in shares] == [100] * 4 + [500] * 2 + [600]
    assert shares[4].probabilities == shares[5].mix == (0.25,) * 4
    assert_disjoint(shares, 2000, whole=True)


def test_few_classes_a_client() -> None:
    y_train, y_test = labels([500] * 10), labels([100] * 10)
    tiers = [PartitionTier(count=20, share=1.0, classes_per_client=5)]
    shares = partition(y_train, y_test, tiers, num_classes=10, seed=0)
    owners = torch.zeros(10)
    for share in shares:
        own = torch.tensor(share.probabilities) > 0
        assert int(own.sum()) == 5
        assert histogram(y_train, share.train)[~own].sum() == 0
        assert histogram(y_test, share.test)[~own].sum() == 0
        assert 0.8 * 250 < len(share.train) <= 250
        owners += own
    assert owners.tolist() == [10] * 10  # 20 clients * 5 classes, dealt evenly
    assert_disjoint(shares, 5000, whole=False)


# --- the pieces, by hand ------------------------------------------------------------------------


def test_rounded_respects_limits() -> None:
    # 2.6 has the largest remainder but no room above 2: 1.3 and 0.1 must take what is missing.
    got = _rounded(np.array([2.6, 1.3, 0.1]), 4, np.array([2, 9, 9]))
    assert got.tolist() == [2, 2, 0]
    assert _rounded(np.array([2.6, 1.3, 0.1]), 4).tolist() == [3, 1, 0]


@given(st.lists(st.integers(0, 50), min_size=1, max_size=8), st.integers(1, 9))
def test_dealt_is_even_in_rows_and_columns(total: list[int], clients: int) -> None:
    counts = _dealt(np.array(total), clients)
    assert counts.sum(axis=0).tolist() == total
    assert (counts.max(axis=0) - counts.min(axis=0)).max() <= 1
    assert np.ptp(counts.sum(axis=1)) <= 1


def test_a_used_up_class_spills_to_the_next_one() -> None:
    # Everyone wants class 1 only, of which there are 2; class 2 is next, then back to class 0.
    rng = np.random.default_rng(0)
    q = np.array([[1e-12, 1.0, 1e-12]] * 2)
    counts = _fill(np.array([3, 2, 4]), np.array([5, 4]), q, rng, "next", 1)
    assert counts.sum(axis=1).tolist() == [5, 4]
    assert counts.sum(axis=0).tolist() == [3, 2, 4]
    short = _fill(np.array([3, 2, 4]), np.array([3, 3]), q, rng, "next", 1)
    assert short.sum(axis=0).tolist() == [0, 2, 4]
    # In proportion to q, the other two classes are equally good.
    zeros = [
        int(_fill(np.array([9, 2, 9]), np.array([3, 3]), q, rng, "renormalise", 1)[:, 0].sum())
        for _ in range(300)
    ]
    assert np.mean(zeros) == pytest.approx(2.0, abs=0.25)  # 4 draws at 1/2; sd 1 / sqrt(300)


def plain_fill(
    pool: list[int], need: list[int], q: np.ndarray[Any, Any], rng: np.random.Generator
) -> np.ndarray[Any, Any]:
    """The allocation as it is described, sample by sample."""
    pool, need = list(pool), list(need)
    counts = np.zeros(q.shape, dtype=int)
    while any(need):
        m = rng.choice([i for i, n in enumerate(need) if n])
        while True:
            u = rng.random()
            fits = [c for c, edge in enumerate(np.cumsum(q[m])) if edge >= u and pool[c]]
            if fits:
                break
        counts[m, fits[0]] += 1
        pool[fits[0]] -= 1
        need[m] -= 1
    return counts


def test_the_fast_fill_has_the_distribution_of_the_described_one() -> None:
    pool, need = [3, 5, 4], [5, 2, 4]  # one sample stays
    q = np.array([[0.6, 0.3, 0.1], [0.1, 0.1, 0.8], [0.3, 0.3, 0.4]])
    rng = np.random.default_rng(7)
    runs = 1500
    plain = np.array([plain_fill(pool, need, q, rng) for _ in range(runs)])
    fast = np.array([_fill(np.array(pool), np.array(need), q, rng, "next", 1) for _ in range(runs)])
    tolerance = 4.5 * np.sqrt((plain.var(axis=0) + fast.var(axis=0)) / runs)
    assert (abs(plain.mean(axis=0) - fast.mean(axis=0)) <= tolerance).all()


# --- errors -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tiers", "says"),
    [
        ([], "at least one client"),
        ([PartitionTier(count=0, share=0.5)], "at least one client"),
        ([PartitionTier(count=-1, share=0.5)], "tier 1: the number of clients must be 0 or more"),
        ([PartitionTier(count=1, share=0.0)], r"share of the data must be in \(0, 1\], got 0.0"),
        ([PartitionTier(count=1, share=1.5)], r"share of the data must be in \(0, 1\], got 1.5"),
        (two_tiers(1, 1, 0.5)[:1] * 3, "shares of the data sum to 1.5, expected at most 1"),
        (two_tiers(1, 1, alpha=0.0), "tier 2: alpha must be above 0 and finite, got 0"),
        (two_tiers(1, 1, alpha=float("nan")), "tier 2: alpha must be above 0 and finite, got nan"),
        (two_tiers(1, 51), "tier 2: 51 clients cannot share 50 training samples"),
        (two_tiers(1, 40), "41 clients cannot have a test sample each: there are 40"),
        (
            [PartitionTier(count=1, share=1, classes_per_client=3)],
            "classes_per_client must be 1 to 2, got 3",
        ),
        (
            [PartitionTier(count=1, share=1, classes_per_client=1, alpha=1.0)],
            "alpha or classes_per_client, not both",
        ),
    ],
)
def test_impossible_splits_are_one_clear_line(tiers: Any, says: str) -> None:
    with pytest.raises(DataError, match=says) as caught:
        partition(labels([50, 50]), labels([20, 20]), tiers, num_classes=2, seed=0)
    assert "\n" not in str(caught.value)


def test_labels_and_seed_are_checked() -> None:
    y = labels([10, 10])
    with pytest.raises(DataError, match="labels must be from 0 to 0, got 0 to 1"):
        partition(y, y, two_tiers(1, 1), num_classes=1, seed=0)
    with pytest.raises(DataError, match="seed must be 0 or more, got -1"):
        partition(y, y, two_tiers(1, 1), num_classes=2, seed=-1)
    with pytest.raises(DataError, match="at least 1 sample, got block 0"):
        partition(y, y, two_tiers(1, 1), num_classes=2, seed=0, block=0)


def test_a_client_whose_few_classes_are_gone_is_named() -> None:
    # One class a client, but nobody can train on class 1: there is no sample of it.
    y_train, y_test = labels([20, 0]), labels([5, 5])
    tiers = [PartitionTier(count=2, share=1.0, classes_per_client=1)]
    with pytest.raises(DataError, match="no training sample is left for 1 of 2 clients"):
        partition(y_train, y_test, tiers, num_classes=2, seed=0)


def test_held_out_samples_come_from_the_clients_own_training_data() -> None:
    labels = torch.arange(400) % 4
    tiers = [PartitionTier(count=1, share=0.5), PartitionTier(count=4, share=0.5, alpha=0.5)]
    shares = partition(labels, labels[:80], tiers, num_classes=4, seed=3)
    for client, share in enumerate(shares):
        held = hold_out(share, 0.2, 3, client)
        assert len(held.test) == round(0.2 * len(share.train))
        both = torch.cat([held.train, held.test])
        assert torch.equal(both.sort().values, share.train.sort().values)
        assert torch.equal(held.test, hold_out(share, 0.2, 3, client).test)
    few = dataclasses.replace(shares[0], train=torch.tensor([5, 9]))
    assert len(hold_out(few, 0.01, 0, 0).test) == len(hold_out(few, 0.99, 0, 0).train) == 1
    with pytest.raises(DataError, match="client 7 has 1 training sample"):
        hold_out(dataclasses.replace(few, train=torch.tensor([5])), 0.5, 0, 7)
