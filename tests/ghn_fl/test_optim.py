import pytest
import torch

from ghn_fl.optim import AdamState, adam, clip_norm, momentum_sgd, server_adam, sgd


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


def test_momentum_sgd_is_torchs_sgd() -> None:
    torch.manual_seed(0)
    start = {"a": torch.randn(3, 2), "b": torch.randn(4)}
    theirs = {name: p.clone().requires_grad_() for name, p in start.items()}
    optimizer = torch.optim.SGD(theirs.values(), lr=0.05, momentum=0.9, weight_decay=0.01)
    ours, velocity = dict(start), dict[str, torch.Tensor]()
    for _ in range(5):
        gradients = {name: torch.randn_like(p) for name, p in start.items()}
        ours, velocity = momentum_sgd(
            ours, gradients, velocity, lr=0.05, momentum=0.9, weight_decay=0.01
        )
        for name, p in theirs.items():
            p.grad = gradients[name]
        optimizer.step()
    for name in start:
        torch.testing.assert_close(ours[name], theirs[name].detach())


def moved(g: list[float], **options: float) -> list[float]:
    """How far FedAdam's first step goes from 0, with the numbers of its authors."""
    weights, update = {"w": torch.zeros(len(g))}, {"w": torch.tensor(g)}
    return server_adam(weights, update, AdamState(), lr=0.1, **options)[0]["w"].tolist()  # type: ignore[arg-type]


def test_server_adam_by_hand() -> None:
    # m = 0.1 * 0.5 = 0.05; v = 0.01 * 0.25 = 0.0025; 0.1 * 0.05 / (0.05 + 0.001) = 0.0980392
    assert moved([0.5, -0.5]) == pytest.approx([0.0980392, -0.0980392], abs=1e-7)
    # v = 0.99 * 1e-6 + 0.0025 = 0.00250099, its root 0.0500099; 0.005 / 0.0510099 = 0.0980202
    assert moved([0.5, -0.5], v0=1e-6) == pytest.approx([0.0980202, -0.0980202], abs=1e-7)


def test_server_adam_goes_where_clients_went() -> None:
    assert moved([1.0])[0] > 0 > moved([-1.0])[0]


def test_server_adam_without_memory_is_the_sign() -> None:
    steps = moved([3.0, -0.002, 0.0], betas=(0.0, 0.0), tau=0.0)  # type: ignore[arg-type]
    assert steps == pytest.approx([0.1, -0.1, 0.0])


def test_corrected_server_adam_is_torchs_adam_on_the_negative() -> None:
    torch.manual_seed(0)
    theirs = torch.zeros(4, requires_grad=True)
    optimizer = torch.optim.Adam([theirs], lr=0.1, betas=(0.9, 0.99), eps=1e-3)
    ours, state = {"w": torch.zeros(4)}, AdamState()
    for _ in range(5):
        g = torch.randn(4)
        ours, state = server_adam(ours, {"w": g}, state, lr=0.1, bias_correction=True)
        theirs.grad = -g
        optimizer.step()
    torch.testing.assert_close(ours["w"], theirs.detach())


def test_server_adam_remembers_and_leaves_its_arguments_alone() -> None:
    # after g = 0.5 (m 0.05, v 0.0025), g = -1: m = 0.045 - 0.1 = -0.055,
    # v = 0.99 * 0.0025 + 0.01 = 0.012475, its root 0.1116915; -0.0055 / 0.1126915 = -0.0488058
    start, update = {"w": torch.tensor([0.0]), "x": torch.tensor([7.0])}, torch.tensor([0.5])
    one, state = server_adam(start, {"w": update}, AdamState(), lr=0.1)
    two, after = server_adam(one, {"w": -2 * update}, state, lr=0.1)
    assert (two["w"] - one["w"]).item() == pytest.approx(-0.0488058, abs=1e-7)
    assert start["w"].item() == 0 and update.item() == 0.5
    assert state.first["w"].item() == pytest.approx(0.05) and (state.step, after.step) == (1, 2)
    assert two["x"] is start["x"] and list(after.second) == ["w"]


def test_yogi_by_hand() -> None:
    # v = 4 above g^2 = 1 falls by 0.01 to 3.99; v = 0 below it rises to 0.01, like Adam's
    state = AdamState(1, {"w": torch.zeros(2)}, {"w": torch.tensor([4.0, 0.0])})
    update = {"w": torch.tensor([1.0, -1.0])}
    new, after = server_adam({"w": torch.zeros(2)}, update, state, lr=0.1, yogi=True)
    assert after.second["w"].tolist() == pytest.approx([3.99, 0.01])
    # 0.1 * 0.1 / (sqrt(3.99) + 0.001) = 0.0050037; -0.01 / (0.1 + 0.001) = -0.0990099
    assert new["w"].tolist() == pytest.approx([0.0050037, -0.0990099], abs=1e-7)
