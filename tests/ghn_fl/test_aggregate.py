"""Means over clients' weights, and draws around them, by hand."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from ghn_fl.aggregate import clt_mean, count_mean, weighted_mean
from ghn_fl.tree import equal

FIRST_TWO = torch.arange(2)
CUT = {"w": (FIRST_TWO, FIRST_TWO)}  # the top-left 2 x 2 of a 3 x 3 matrix


def square(size: int, value: float) -> dict[str, torch.Tensor]:
    return {"w": torch.full((size, size), value)}


def test_heterofls_three_clients() -> None:
    # A and B hold 2 x 2 of 1 and 3, C holds 3 x 3 of 5: top-left (1 + 3 + 5) / 3 = 3, rest 5
    mean = count_mean(square(3, 0), [square(2, 1), square(2, 3), square(3, 5)], [CUT, CUT, {}])
    assert mean["w"].tolist() == [[3, 3, 5], [3, 3, 5], [5, 5, 5]]
    # without C: top-left (1 + 3) / 2 = 2, and what nobody has stays
    mean = count_mean(square(3, -7), [square(2, 1), square(2, 3)], [CUT, CUT])
    assert mean["w"].tolist() == [[2, 2, -7], [2, 2, -7], [-7, -7, -7]]


def test_an_element_of_two_of_three_clients_is_their_mean() -> None:
    places = [{"w": (torch.tensor(rows),)} for rows in ([0, 1], [1, 2], [3])]
    values = [{"w": torch.tensor(v)} for v in ([-2.0, 4.0], [-6.0, 8.0], [1.0])]
    # row 1 is A's second and B's first: (4 - 6) / 2 = -1
    mean = count_mean({"w": torch.full((5,), 9.0)}, values, places)
    assert mean["w"].tolist() == [-2, -1, 8, 1, 9]


def test_shares_count_where_an_element_is_held() -> None:
    # (1 * -1 + 3 * 3) / 4 = 2 in the top-left, elsewhere the second alone
    mean = count_mean(square(3, 0), [square(2, -1), square(3, 3)], [CUT, {}], [1, 3])
    assert mean["w"].tolist() == [[2, 2, 3], [2, 2, 3], [3, 3, 3]]


def test_a_tensor_of_one_of_three_clients_is_that_clients() -> None:
    old = {"block1": torch.tensor(0.0), "block2": torch.tensor(0.0), "block3": torch.tensor(5.0)}
    shallow = [{"block1": torch.tensor(v)} for v in (1.0, -4.0)]
    deep = {"block1": torch.tensor(6.0), "block2": torch.tensor(-2.0)}
    mean = count_mean(old, [*shallow, deep])  # (1 - 4 + 6) / 3 = 1
    assert {name: float(w) for name, w in mean.items()} == {"block1": 1, "block2": -2, "block3": 5}


def test_nobody_leaves_all_as_it_was() -> None:
    old = square(3, 2)
    assert count_mean(old, []) == old


@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=4), st.integers(1, 7))
def test_equal_contributors_give_their_value_back_bit_for_bit(
    values: list[float], count: int
) -> None:
    one = {"w": torch.tensor(values)}
    mean = count_mean({"w": torch.zeros(len(values))}, [one] * count)
    assert torch.equal(mean["w"], one["w"])


def test_shares_of_whole_tensors_are_the_weighted_mean() -> None:
    weights = [{"w": torch.tensor([0.0, -2.0])}, {"w": torch.tensor([4.0, 2.0])}]
    mean = count_mean(weights[0], weights, shares=[1, 3])
    assert mean["w"].tolist() == weighted_mean(weights, [1, 3])["w"].tolist() == [3, 1]


def test_bad_contributors() -> None:
    with pytest.raises(ValueError, match=r"tensors that nobody keeps: \['v'\]"):
        count_mean({"w": torch.zeros(2)}, [{"v": torch.zeros(2)}])
    with pytest.raises(ValueError, match=r"a part must have shape \(3, 3\), got \(2, 2\)"):
        count_mean(square(3, 0), [square(2, 1)])


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def w(*values: float) -> dict[str, Tensor]:
    return {"w": torch.tensor(values)}


OLD = {"w": torch.zeros(1)}


@pytest.mark.parametrize(
    ("values", "unbiased", "mean", "variance"),
    [
        # n = (1, 3), W = (1, 3): mu = (1 + 9) / 4 = 2.5; sum n (W - mu)^2 = 2.25 + 0.75 = 3
        ((1.0, 3.0), True, 2.5, 1.0),  # 3 / (4 - 1)
        ((1.0, 3.0), False, 2.5, 0.75),  # 3 / 4
        # W = (1, -3): mu = (1 - 9) / 4 = -2; sum n (W - mu)^2 = 9 + 3 = 12
        ((1.0, -3.0), True, -2.0, 4.0),
        ((1.0, -3.0), False, -2.0, 3.0),
    ],
)
def test_a_draw_by_hand(
    values: tuple[float, float], unbiased: bool, mean: float, variance: float
) -> None:
    # at t = 4 the deviation is sigma / 2, and the variance a quarter: 0.25 and 0.1875 in the first
    # two rows
    clients, n = [w(values[0]), w(values[1])], [1, 3]
    z = float(torch.randn(1, generator=rng(), dtype=torch.double))
    drawn = clt_mean(OLD, clients, shares=n, generator=rng(), divisor=2.0, unbiased=unbiased)
    assert float(drawn["w"]) == pytest.approx(mean + variance**0.5 / 2 * z, rel=1e-6)
    many = [{"w": torch.full((100_000,), v)} for v in values]
    spread = clt_mean(many[0], many, shares=n, generator=rng(1), divisor=2.0, unbiased=unbiased)[
        "w"
    ]
    assert float(spread.mean()) == pytest.approx(mean, abs=0.02)
    assert float(spread.var()) == pytest.approx(variance / 4, rel=0.02)


def test_clients_that_agree_leave_nothing_to_chance() -> None:
    client = {"w": torch.randn(1000, generator=rng())}
    drawn = clt_mean(client, [client] * 3, shares=[7, 2, 4], generator=rng(), divisor=1.0)
    assert equal(drawn, client)


def test_one_client_with_one_sample() -> None:
    drawn = clt_mean(OLD, [w(-3.0)], shares=[1], generator=rng(), divisor=1.0)
    assert equal(drawn, w(-3.0))  # not 0 / 0


def test_only_clients_that_have_an_element_count() -> None:
    #            everybody   both of the right   the last    nobody
    # values      1, 3, 5       -, 3, 5            -, -, 5      -        of 1, 3 and 4 samples
    clients = [w(1.0), w(3.0, 3.0), w(5.0, 5.0, 5.0)]
    places = [{"w": (torch.arange(held),)} for held in (1, 2, 3)]
    old = w(7.0, 7.0, 7.0, -7.0)
    mean = count_mean(old, clients, places, [1, 3, 4])
    # (1 + 9 + 20) / 8, (9 + 20) / 7, 5, as it was
    torch.testing.assert_close(mean, w(3.75, 29 / 7, 5.0, -7.0))
    drawn = clt_mean(old, clients, places, [1, 3, 4], generator=rng(), divisor=1.0)["w"]
    z = torch.randn(4, generator=rng(), dtype=torch.double)
    # sum n (W - mu)^2: 2.75^2 + 3 * 0.75^2 + 4 * 1.25^2 = 15.5, over 7;
    # 3 (8/7)^2 + 4 (6/7)^2 = 336 / 49 = 48 / 7, over 6
    assert float(drawn[0]) == pytest.approx(3.75 + (15.5 / 7) ** 0.5 * float(z[0]))
    assert float(drawn[1]) == pytest.approx(29 / 7 + (8 / 7) ** 0.5 * float(z[1]))
    assert drawn[2:].tolist() == [5.0, -7.0]  # one client has no spread


def test_neither_order_matters() -> None:
    clients = [{n: torch.randn(50, generator=rng(i)) for n in ("a", "b")} for i in range(3)]
    one = clt_mean(clients[0], clients, shares=[1, 3, 5], generator=rng(), divisor=1.0)
    other = clt_mean(clients[0], clients[::-1], shares=[5, 3, 1], generator=rng(), divisor=1.0)
    torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)
    swapped = {name: clients[0][name] for name in ("b", "a")}
    again = clt_mean(swapped, clients, shares=[1, 3, 5], generator=rng(), divisor=1.0)
    assert equal(one["b"], again["b"])


def test_a_draw_of_nobody_leaves_all_as_it_was() -> None:
    assert equal(clt_mean(OLD, [], generator=rng(), divisor=1.0), OLD)
