"""Theorem 4.1: the numbers of a calculation by hand, and what must grow with what."""

import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ghn_fl.bound import epsilon_for, samples_needed, weak_threshold
from ghn_fl.errors import GhnFlError

CASE: dict[str, Any] = {"epsilon": 0.1, "delta": 0.05, "parameters": 1000, "clients": 100}


def test_by_hand() -> None:
    # d = 4, M = 2, eps = 0.5, delta = 0.04: x = 4 * 2 / 0.5 = 16, and
    # 4 * 4 / (2 * 0.25) * ln 16 + 4 / (2 * 0.25) * ln 100 = 32 * 2.772589 + 8 * 4.605170
    needed = samples_needed(epsilon=0.5, delta=0.04, parameters=4, clients=2)
    assert needed == pytest.approx(125.5642, abs=5e-5)
    assert needed == pytest.approx(32 * math.log(16) + 8 * math.log(100))


def test_twice_the_clients_need_half() -> None:
    assert samples_needed(**CASE) == pytest.approx(28588.5565, abs=5e-5)
    assert samples_needed(**{**CASE, "clients": 200}) == pytest.approx(14294.2782, abs=5e-5)


def test_many_clients_still_need_one_over_epsilon_squared() -> None:
    case = {**CASE, "parameters": 1, "clients": 1_000_000}
    assert samples_needed(**case) == pytest.approx(100)


def test_rounding_of_the_number_of_cubes() -> None:
    # x is exactly 16: rounding up changes nothing, the first whole number above is 17.
    case: dict[str, Any] = {"epsilon": 0.5, "delta": 0.04, "parameters": 4, "clients": 2}
    plain = samples_needed(**case)
    assert samples_needed(**case, rounding="ceil") == plain
    strict = samples_needed(**case, rounding="strict")
    assert strict == pytest.approx(32 * math.log(17) + 8 * math.log(100))
    # x = 4 * 0.3 * 2 / 0.5 = 4.8: both take 5.
    ceil = samples_needed(**case, radius=0.3, rounding="ceil")
    assert ceil == samples_needed(**case, radius=0.3, rounding="strict")
    assert ceil == pytest.approx(32 * math.log(5) + 8 * math.log(100))


def test_a_covering_by_less_than_one_cube_counts_as_one() -> None:
    # x = 4 * 0.01 * 2 / 0.5 = 0.16: only the second term is left, 8 * ln 100.
    case: dict[str, Any] = {"epsilon": 0.5, "delta": 0.04, "parameters": 4, "clients": 2}
    assert samples_needed(**case, radius=0.01) == pytest.approx(8 * math.log(100))
    assert samples_needed(**case, radius=1e-300, rounding="ceil") == pytest.approx(
        8 * math.log(100)
    )


def test_weak_threshold_counts_a_strong_client_k_times() -> None:
    case = {k: v for k, v in CASE.items() if k != "clients"}
    got = weak_threshold(**case, weak=100, strong=2, ratio=50)
    assert got == samples_needed(**{**CASE, "clients": 200})
    assert weak_threshold(**case, weak=100, ratio=100) == got
    assert weak_threshold(**case, weak=100, strong=0, ratio=9) == samples_needed(**CASE)


@given(
    key=st.sampled_from(["epsilon", "delta", "parameters", "clients", "radius", "lipschitz"]),
    epsilon=st.floats(0.01, 0.45),
    delta=st.floats(0.001, 0.45),
    parameters=st.integers(1, 10**6),
    clients=st.integers(1, 10**4),
    radius=st.floats(0.01, 100),
    lipschitz=st.floats(0.01, 100),
)
def test_falls_and_grows_as_it_should(key: str, **case: Any) -> None:
    before, after = samples_needed(**case), samples_needed(**{**case, key: case[key] * 2})
    if key in ("epsilon", "delta", "clients"):
        assert after <= before
    else:
        assert after >= before


@given(
    epsilon=st.floats(0.01, 0.95),
    parameters=st.integers(1, 10**6),
    clients=st.integers(1, 10**4),
    rounding=st.sampled_from(["none", "ceil", "strict"]),
)
def test_inverse(epsilon: float, parameters: int, clients: int, rounding: Any) -> None:
    case: dict[str, Any] = {"delta": 0.05, "parameters": parameters, "clients": clients}
    case["rounding"] = rounding
    samples = samples_needed(epsilon=epsilon, **case)
    back = epsilon_for(samples=samples, **case)
    assert back <= epsilon * (1 + 1e-9)
    assert samples_needed(epsilon=back, **case) <= samples
    if rounding == "none":
        assert back == pytest.approx(epsilon, rel=1e-9)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"epsilon": 0.0}, "epsilon must be above 0 and below 1, got 0"),
        ({"epsilon": 1.0}, "epsilon must be"),
        ({"delta": 1.0}, "delta must be above 0 and below 1, got 1"),
        ({"delta": math.nan}, "delta must be"),
        ({"parameters": 0}, "parameters must be above 0, got 0"),
        ({"clients": -1}, "clients must be above 0, got -1"),
        ({"radius": math.inf}, "radius must be above 0, got inf"),
        ({"lipschitz": 0.0}, "lipschitz must be above 0"),
        ({"epsilon": 1e-300}, "more samples than can be counted are needed for epsilon 1e-300"),
        ({"radius": 1e308, "rounding": "ceil"}, "more samples than can be counted"),
        ({"rounding": "up"}, "rounding must be none, ceil or strict, got 'up'"),
    ],
)
def test_what_makes_no_sense_is_refused(change: dict[str, Any], says: str) -> None:
    with pytest.raises(GhnFlError, match=says):
        samples_needed(**{**CASE, **change})


def _threshold(**change: float) -> float:
    case: dict[str, Any] = {"epsilon": 0.1, "delta": 0.1, "parameters": 9, "weak": 1, "ratio": 1}
    return weak_threshold(**{**case, **change})


@pytest.mark.parametrize(
    ("ask", "says"),
    [
        (lambda: _threshold(weak=-1), "weak and strong must be 0 or more, got -1 and 1"),
        (lambda: _threshold(ratio=0), "ratio must be above 0, got 0"),
        (lambda: _threshold(weak=0, strong=0), "clients must be above 0, got 0"),
        (
            lambda: epsilon_for(samples=3, delta=0.05, parameters=1000, clients=10),
            # 4 / 10 * (1000 * ln(4 * sqrt(1000)) + ln 80)
            r"3 samples a client guarantee nothing: more than 1937\.82 are needed",
        ),
    ],
)
def test_thresholds_that_make_no_sense(ask: Callable[[], float], says: str) -> None:
    with pytest.raises(GhnFlError, match=says):
        ask()
