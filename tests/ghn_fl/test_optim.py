import pytest
import torch

from ghn_fl.optim import AdamState, adam, clip_norm, sgd


def test_adam_is_torchs_adam() -> None:
    torch.manual_seed(0)
    start = {"a": torch.randn(3, 2), "b": torch.randn(4)}
    theirs = {name: p.clone().requires_grad_() for name, p in start.items()}
    optimizer = torch.optim.Adam(theirs.values(), lr=0.05)
    ours, state = dict(start), AdamState()
    for _ in range(5):
        gradients = {name: torch.randn_like(p) for name, p in start.items()}
        ours, state = adam(ours, gradients, state, lr=0.05)
        for name, p in theirs.items():
            p.grad = gradients[name]
        optimizer.step()
    for name in start:
        torch.testing.assert_close(ours[name], theirs[name].detach())
    assert state.step == 5


def test_adam_leaves_its_arguments_and_what_has_no_gradient_alone() -> None:
    p = {"a": torch.ones(2), "b": torch.ones(2)}
    g, state = {"a": torch.tensor([1.0, -1.0])}, AdamState()
    new, after = adam(p, g, state, lr=0.1)
    assert p["a"].tolist() == [1, 1] and state == AdamState()
    assert new["b"] is p["b"] and list(after.first) == ["a"]
    torch.testing.assert_close(new["a"], torch.tensor([0.9, 1.1]))  # first step: lr * sign


def test_sgd_by_hand() -> None:
    new = sgd({"a": torch.tensor([1.0, -2.0])}, {"a": torch.tensor([0.5, -4.0])}, lr=0.5)
    assert new["a"].tolist() == [0.75, 0.0]


def test_clip_by_hand() -> None:
    # |(3, -4)| = 5 over two tensors
    gradients = {"a": torch.tensor([3.0]), "b": torch.tensor([-4.0])}
    clipped, norm = clip_norm(gradients, 2.5)
    assert norm == pytest.approx(5)
    assert clipped["a"].item() == pytest.approx(1.5) and clipped["b"].item() == pytest.approx(-2)
    assert clip_norm(gradients, 50)[0]["a"].item() == 3
