"""Means over clients' weights, by hand."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ghn_fl.aggregate import count_mean, weighted_mean

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
