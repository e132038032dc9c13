import pytest
import torch

from ghn_fl.engines.message import decode, encode
from ghn_fl.tree import all_finite, equal, flatten, unflatten

STATE = {"round": 3, "none": None, "list": [1.5, "x", {"w": torch.tensor([1.0, -2.0])}], "a/b": {}}


def test_flatten_and_back() -> None:
    assert equal(unflatten(*flatten(STATE)), STATE)


def test_messages_carry_states() -> None:
    assert equal(decode(encode(STATE)), STATE)
    scalar = {"w": torch.tensor(3), "b": torch.tensor([True])}
    assert equal(decode(encode(scalar)), scalar)


def test_equal_sees_a_single_bit() -> None:
    other = {**STATE, "list": [1.5, "x", {"w": torch.tensor([1.0, -2.0000002])}]}
    assert not equal(STATE, other)
    assert not equal(STATE, {**STATE, "round": 4})


def test_not_finite_is_found_by_its_path() -> None:
    assert all_finite(STATE) == ""
    assert all_finite({"a": [torch.tensor([1.0, float("nan")])]}) == "/a/0"
    assert all_finite({"n": torch.tensor([3])}) == ""


def test_what_cannot_be_stored_is_refused() -> None:
    with pytest.raises(TypeError, match="holds tensors and plain data"):
        flatten({"f": object()})
    with pytest.raises(TypeError, match="keys are texts, got 3"):
        flatten({3: 1})
