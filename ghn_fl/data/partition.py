"""Who gets which samples: the resource-skew split of RecipFL, for any number of tiers.

Strong clients follow the class mix of the whole set. Every other client draws class probabilities
q of its own, and its training and test samples are drawn with the same q. No sample goes to two
clients. Everything comes from one seed, on streams of its own.

Legend: M clients, C classes; counts_MC[m, c] is how many samples of class c client m gets.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ghn_fl.errors import DataError

Ints: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float64]
Spill: TypeAlias = Literal["next", "renormalise"]

STREAM = 0x5041_5254  # sets these draws apart from others that start from the same seed
TINY = 1e-12  # the least probability of a class under a Dirichlet draw: no class is impossible


@dataclass(frozen=True, kw_only=True)
class PartitionTier:
    """Clients of one kind: how many, and how they draw.

    Attributes:
        share: of the whole training set, for all clients of the tier together.
        alpha: of the Dirichlet distribution that a client's class probabilities come from; None
            for clients that follow the mix of the whole set.
        classes_per_client: gives a client that many classes, all equally likely, and no other one;
            instead of `alpha`. Its size is then a target: it has less if its classes run out.
    """

    count: int
    share: float
    alpha: float | None = None
    classes_per_client: int | None = None

    @property
    def follows_the_mix(self) -> bool:
        return self.alpha is None and self.classes_per_client is None


@dataclass(frozen=True, kw_only=True, eq=False)
class ClientShare:
    """What one client has: indices into the training and the test set.

    Attributes:
        mix: the share of every class among the training samples.
        probabilities: the class probabilities that the samples were drawn with.
    """

    train: Tensor
    test: Tensor
    mix: tuple[float, ...]
    probabilities: tuple[float, ...]


def partition(
    y_train: Tensor,
    y_test: Tensor,
    tiers: Sequence[PartitionTier],
    *,
    num_classes: int,
    seed: int,
    spill: Spill = "next",
    block: int = 1,
) -> tuple[ClientShare, ...]:
    """The shares of all clients, tier by tier in the order given.

    Training sizes are exact up to one sample; shares that sum to less than 1 leave samples out, of
    all classes alike. All clients have about the same number of test samples.

    Args:
        y_train: labels of the training set.
        y_test: labels of the test set.
        tiers: who is there.
        num_classes: how many classes the labels may name.
        seed: 0 or more; the same seed gives the same split.
        spill: where a draw goes whose class is used up: to the next class that has samples, as in
            the paper's experiments, or to the others in proportion to q.
        block: samples that one draw moves.

    >>> labels = torch.arange(1000) % 10
    >>> tiers = [PartitionTier(count=1, share=0.5), PartitionTier(count=5, share=0.5, alpha=0.5)]
    >>> shares = partition(labels, labels[:120], tiers, num_classes=10, seed=0)
    >>> [len(s.train) for s in shares], [len(s.test) for s in shares]
    ([500, 100, 100, 100, 100, 100], [20, 20, 20, 20, 20, 20])
    >>> shares[0].mix == shares[0].probabilities == (0.1,) * 10
    True
    """
    train, test = y_train.numpy(), y_test.numpy()
    _check(train, test, tiers, num_classes, seed, block)
    root = np.random.SeedSequence(seed, spawn_key=(STREAM,))
    for_q, for_train, for_test = (np.random.Generator(np.random.PCG64(s)) for s in root.spawn(3))

    sizes_C = np.bincount(train, minlength=num_classes)
    q_MC = _probabilities(tiers, sizes_C / sizes_C.sum(), for_q)
    strong_M = np.concatenate([np.full(t.count, t.follows_the_mix) for t in tiers])
    train_MC = _train_counts(sizes_C, tiers, strong_M, q_MC, for_train, spill, block)
    tests_C = np.bincount(test, minlength=num_classes)
    test_MC = _test_counts(tests_C, strong_M, q_MC, for_test, spill, block)

    _check_nobody_is_empty(train_MC, "training")
    _check_nobody_is_empty(test_MC, "test")
    trains, tests = _deal(train, train_MC, for_train), _deal(test, test_MC, for_test)
    return tuple(
        ClientShare(
            train=own_train,
            test=own_test,
            mix=tuple((counts_C / counts_C.sum()).tolist()),
            probabilities=tuple(q_C.tolist()),
        )
        for own_train, own_test, counts_C, q_C in zip(trains, tests, train_MC, q_MC, strict=True)
    )


def hold_out(share: ClientShare, part: float, seed: int, client: int) -> ClientShare:
    """The share with `part` of its training samples, at random, in place of its test samples.

    At least one sample stays on either side where there are two.
    """
    count = len(share.train)
    held = min(max(1, round(part * count)), count - 1)
    if held < 1:
        raise DataError(f"client {client} has {count} training sample; none can be held out")
    root = np.random.SeedSequence(seed, spawn_key=(STREAM, 1, client))
    order = torch.from_numpy(np.random.Generator(np.random.PCG64(root)).permutation(count))
    return replace(share, train=share.train[order[held:]], test=share.train[order[:held]])


def _check(
    train: Ints,
    test: Ints,
    tiers: Sequence[PartitionTier],
    num_classes: int,
    seed: int,
    block: int,
) -> None:
    if seed < 0:
        raise DataError(f"the seed must be 0 or more, got {seed}")
    if block < 1:
        raise DataError(f"a draw must move at least 1 sample, got block {block}")
    for labels in (train, test):
        if len(labels) and not 0 <= labels.min() <= labels.max() < num_classes:
            raise DataError(
                f"labels must be from 0 to {num_classes - 1}, got {labels.min()} to {labels.max()}"
            )
    for number, tier in enumerate(tiers, 1):
        _check_tier(tier, f"tier {number}", num_classes, len(train))
    clients = sum(tier.count for tier in tiers)
    if clients == 0:
        raise DataError("there must be at least one client")
    total = sum(tier.share for tier in tiers if tier.count)
    if total > 1 + 1e-9:
        raise DataError(f"the tiers' shares of the data sum to {total:g}, expected at most 1")
    if clients > len(test):
        raise DataError(f"{clients} clients cannot have a test sample each: there are {len(test)}")


def _check_tier(tier: PartitionTier, name: str, num_classes: int, samples: int) -> None:
    if tier.count < 0:
        raise DataError(f"{name}: the number of clients must be 0 or more, got {tier.count}")
    if tier.count and not 0 < tier.share <= 1:
        raise DataError(f"{name}: the share of the data must be in (0, 1], got {tier.share}")
    if tier.alpha is not None and not 0 < tier.alpha < np.inf:
        raise DataError(f"{name}: alpha must be above 0 and finite, got {tier.alpha}")
    k = tier.classes_per_client
    if k is not None and tier.alpha is not None:
        raise DataError(f"{name}: give alpha or classes_per_client, not both")
    if k is not None and not 1 <= k <= num_classes:
        raise DataError(f"{name}: classes_per_client must be 1 to {num_classes}, got {k}")
    if tier.count > round(tier.share * samples):
        raise DataError(
            f"{name}: {tier.count} clients cannot share {round(tier.share * samples)} training "
            f"samples ({tier.share:g} of {samples}); give fewer clients or a larger share"
        )


def _check_nobody_is_empty(counts_MC: Ints, kind: str) -> None:
    empty = np.flatnonzero(counts_MC.sum(axis=1) == 0)
    if len(empty):
        raise DataError(
            f"no {kind} sample is left for {len(empty)} of {len(counts_MC)} clients, the first is "
            f"client {empty[0]}; give fewer clients, or more classes to a client"
        )


# --- class probabilities ------------------------------------------------------------------------


def _probabilities(
    tiers: Sequence[PartitionTier], global_C: Floats, rng: np.random.Generator
) -> Floats:
    rows = []
    for tier in tiers:
        if tier.alpha is not None:
            q = rng.dirichlet(np.full(len(global_C), tier.alpha), size=tier.count) + TINY
            rows.append(q / q.sum(axis=1, keepdims=True))
        elif tier.classes_per_client is not None:
            rows.append(_few_classes(tier.count, tier.classes_per_client, len(global_C), rng))
        else:
            rows.append(np.tile(global_C, (tier.count, 1)))
    return np.concatenate(rows)


def _few_classes(count: int, k: int, num_classes: int, rng: np.random.Generator) -> Floats:
    """Equal probabilities on `k` classes a client; over all clients, classes are used evenly."""
    q_MC, used_C = np.zeros((count, num_classes)), np.zeros(num_classes)
    for row_C in q_MC:
        chosen = np.argsort(used_C + rng.random(num_classes))[:k]  # least used; chance among equals
        row_C[chosen] = 1 / k
        used_C[chosen] += 1
    return q_MC


# --- how many samples of a class ----------------------------------------------------------------


def _train_counts(
    sizes_C: Ints,
    tiers: Sequence[PartitionTier],
    strong_M: npt.NDArray[np.bool_],
    q_MC: Floats,
    rng: np.random.Generator,
    spill: Spill,
    block: int,
) -> Ints:
    total = int(sizes_C.sum())
    counts_MC = np.zeros(q_MC.shape, dtype=np.int64)
    left_C = sizes_C.copy()
    start, share = 0, 0.0

    def next_size(more: float) -> int:  # rounds what is taken up to here, so that the sum is exact
        return math.floor((share + more) * total + 0.5) - (total - int(left_C.sum()))

    for tier in tiers:
        if tier.follows_the_mix and tier.count:
            ideal_C = tier.share * sizes_C  # of the original sizes, not of what is left
            tier_C = _rounded(ideal_C, next_size(tier.share), left_C)
            counts_MC[start : start + tier.count] = _dealt(tier_C, tier.count)
            left_C -= tier_C
            share += tier.share
        start += tier.count
    weak_M = np.concatenate([np.full(t.count, t.share / max(t.count, 1)) for t in tiers])[~strong_M]
    if len(weak_M):
        wanted = next_size(float(weak_M.sum()))
        pool_C = _rounded(left_C * (wanted / max(int(left_C.sum()), 1)), wanted, left_C)
        target_M = _rounded(weak_M / weak_M.sum() * wanted, wanted)
        counts_MC[~strong_M] = _fill(pool_C, target_M, q_MC[~strong_M], rng, spill, block)
    return counts_MC


def _test_counts(
    sizes_C: Ints,
    strong_M: npt.NDArray[np.bool_],
    q_MC: Floats,
    rng: np.random.Generator,
    spill: Spill,
    block: int,
) -> Ints:
    clients = len(strong_M)
    counts_MC = np.zeros(q_MC.shape, dtype=np.int64)
    each_C = sizes_C // clients
    counts_MC[strong_M] = each_C
    if strong_M.any() and (each_C[sizes_C > 0] == 0).any():
        # So few samples that whole classes would be missing: equal sizes, and turns at the classes.
        num_strong = int(strong_M.sum())
        wanted = int(sizes_C.sum()) // clients * num_strong
        tier_C = _rounded(sizes_C * (wanted / int(sizes_C.sum())), wanted, sizes_C)
        counts_MC[strong_M] = _dealt(tier_C, num_strong)
    left_C = sizes_C - counts_MC.sum(axis=0)
    num_weak = int((~strong_M).sum())
    if num_weak:
        target_M = np.full(num_weak, left_C.sum() // num_weak)
        counts_MC[~strong_M] = _fill(left_C, target_M, q_MC[~strong_M], rng, spill, block)
    return counts_MC


def _rounded(ideal: npt.NDArray[np.floating], total: int, limit: Ints | None = None) -> Ints:
    """Whole numbers that sum to `total`, each next to its ideal and none above its limit.

    >>> _rounded(np.array([1.5, 2.25, 0.25]), 4)
    array([2, 2, 0])
    """
    counts: Ints = np.floor(ideal + 1e-9).astype(np.int64)
    if limit is not None:
        counts = np.minimum(counts, limit)
    while (missing := total - int(counts.sum())) > 0:
        room = np.full(len(counts), True) if limit is None else counts < limit
        order = np.argsort(np.where(room, counts - ideal, np.inf), kind="stable")
        counts[order[: min(missing, int(room.sum()))]] += 1
    return counts


def _dealt(total_C: Ints, num_clients: int) -> Ints:
    """`total_C` among equal clients: in every class and in sum they differ by one at most.

    What a class leaves after even division is dealt around the table, going on with the next class
    where the last one stopped.

    >>> _dealt(np.array([5, 4, 2]), 3)
    array([[2, 1, 1],
           [2, 1, 1],
           [1, 2, 0]])
    """
    counts_MC = np.tile(total_C // num_clients, (num_clients, 1))
    classes = np.repeat(np.arange(len(total_C)), total_C % num_clients)
    counts_MC[np.arange(len(classes)) % num_clients, classes] += 1
    return counts_MC


def _fill(
    pool_C: Ints, target_M: Ints, q_MC: Floats, rng: np.random.Generator, spill: Spill, block: int
) -> Ints:
    """How many samples of every class the clients draw until all have their target.

    A client that isn't full is picked at random and draws a class with its q, again and again. A
    draw that finds no class with samples is repeated in the paper's experiments; here it is drawn
    from the same distribution directly.
    """
    left, need = pool_C.tolist(), target_M.tolist()
    counts = [[0] * len(left) for _ in need]
    hungry = [m for m, n in enumerate(need) if n > 0]
    ladders: list[list[float]] = []
    changed = True  # which classes have samples
    for pick, u in rng.random((int(target_M.sum()), 2)).tolist():
        if changed:
            open_C = np.array(left) > 0
            classes = np.flatnonzero(open_C).tolist()
            ladders = np.cumsum(_odds(q_MC, open_C, spill), axis=1).tolist()
            hungry = [m for m in hungry if ladders[m][-1] > 0]  # others had few classes: all gone
            changed = False
        if not hungry:
            break
        place = int(pick * len(hungry))
        m = hungry[place]
        ladder = ladders[m]
        c = classes[bisect_right(ladder, u * ladder[-1])]
        moved = min(block, need[m], left[c])
        counts[m][c] += moved
        left[c] -= moved
        need[m] -= moved
        changed = left[c] == 0
        if need[m] == 0:
            hungry[place] = hungry[-1]
            hungry.pop()
    return np.array(counts, dtype=np.int64).reshape(q_MC.shape)


def _odds(q_MC: Floats, open_C: npt.NDArray[np.bool_], spill: Spill) -> Floats:
    """The chances of the classes that have samples left, up to a factor: (M, open classes).

    With "next", a used-up class hands its chance to the next open one, and what lies behind the
    last open class is drawn again. A client with impossible classes (q = 0) never spills into
    them: its own open classes share the chance.

    >>> q = np.array([[0.5, 0.125, 0.25, 0.125]])
    >>> _odds(q, np.array([False, True, True, False]), "next")
    array([[0.625, 0.25 ]])
    >>> _odds(q, np.array([False, True, True, False]), "renormalise")
    array([[0.125, 0.25 ]])
    """
    kept = q_MC[:, open_C]
    if spill == "renormalise" or not open_C.any():
        return kept
    spilled = np.diff(np.cumsum(q_MC, axis=1)[:, open_C], axis=1, prepend=0.0)
    strict_M = (q_MC == 0).any(axis=1, keepdims=True)
    return np.where(strict_M, kept, spilled)


# --- which samples ------------------------------------------------------------------------------


def _deal(labels: Ints, counts_MC: Ints, rng: np.random.Generator) -> list[Tensor]:
    """The clients' indices, in ascending order: every class is shuffled and cut by the counts."""
    num_clients = len(counts_MC)
    order = rng.permutation(len(labels))
    by_class = order[np.argsort(labels[order], kind="stable")]  # shuffled within each class
    starts_C = np.concatenate([[0], np.cumsum(np.bincount(labels, minlength=counts_MC.shape[1]))])
    owner = np.full(len(labels), num_clients)
    for c, column_M in enumerate(counts_MC.T):
        taken = by_class[starts_C[c] : starts_C[c] + column_M.sum()]
        owner[taken] = np.repeat(np.arange(num_clients), column_M)
    by_owner = np.argsort(owner, kind="stable")
    sizes_M = counts_MC.sum(axis=1).tolist()
    return list(torch.from_numpy(by_owner[: sum(sizes_M)]).split(sizes_M))
