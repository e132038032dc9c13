import math

import pytest
import torch
import torch.nn.functional as F

from ghn_fl.losses import exits_loss, masked, proximal


def test_masked_logits_by_hand() -> None:
    # logits (2, 5, 1), classes {0, 2}, y = 0: ln(e^2 + e^0 + e^1) - 2
    logits = masked(torch.tensor([[2.0, 5.0, 1.0]]), torch.tensor([True, False, True]))
    loss = F.cross_entropy(logits, torch.tensor([0]))
    assert float(loss) == pytest.approx(math.log(math.e**2 + 1 + math.e) - 2, abs=1e-6)
    assert float(loss) == pytest.approx(0.4076, abs=1e-4)
    # not as if the class did not exist: ln(e^2 + e^1) - 2 = 0.3133
    gone = F.cross_entropy(torch.tensor([[2.0, -math.inf, 1.0]]), torch.tensor([0]))
    assert float(gone) == pytest.approx(0.3133, abs=1e-4)


def test_exits_learn_from_each_other_by_hand() -> None:
    # z = (0, 0) and (ln 3, 0), y = 0: p = (1/2, 1/2) and (3/4, 1/4)
    # CE: ln 2 + ln(4/3) = 0.980829; KL(p2|p1) = 0.130812, KL(p1|p2) = 0.143841
    exits = (torch.tensor([[0.0, 0.0]]), torch.tensor([[math.log(3), 0.0]]))
    y = torch.tensor([0])
    assert float(exits_loss(exits, y, 1.0)) == pytest.approx(1.255482, abs=1e-6)
    assert float(exits_loss(exits, y, 0.0)) == pytest.approx(0.980829, abs=1e-6)
    assert float(exits_loss(exits[:1], y, 1.0)) == pytest.approx(math.log(2))  # one exit: plain


def test_a_teacher_exit_gets_no_gradient() -> None:
    first = torch.tensor([[0.3, -0.2]], requires_grad=True)
    second = torch.tensor([[1.0, 0.5]], requires_grad=True)
    y = torch.tensor([0])
    (whole,) = torch.autograd.grad(exits_loss((first, second), y, 1.0), first, retain_graph=True)
    # CE(z1) + KL(p2 | p1), z2 a constant: softmax(z1) - onehot + softmax(z1) - softmax(z2)
    p1, p2 = first.detach().softmax(1), second.detach().softmax(1)
    assert torch.allclose(whole, (p1 - torch.tensor([[1.0, 0.0]])) + (p1 - p2), atol=1e-6)


def test_three_exits_average_two_divergences() -> None:
    z = torch.tensor([[0.0, 0.0]])
    other = torch.tensor([[math.log(3), 0.0]])
    y = torch.tensor([0])
    # exits (a, a, b): a hears 0 and KL(b|a), twice; b hears KL(a|b) twice; all halved
    expected = 2 * 0.130812 / 2 + 2 * 0.143841 / 2
    alone = float(exits_loss((z, z, other), y, 0.0))
    assert float(exits_loss((z, z, other), y, 1.0)) - alone == pytest.approx(expected, abs=1e-5)


def test_proximal_and_linear_terms_by_hand() -> None:
    # w = (1, -2), w_t = (0, 1), mu = 0.5: 0.25 (1 + 9) = 2.5; h = (2, 3): -(2 - 6) = 4
    w = {"w": torch.tensor([1.0, -2.0], requires_grad=True)}
    anchor, h = {"w": torch.tensor([0.0, 1.0])}, {"w": torch.tensor([2.0, 3.0])}
    assert float(proximal(w, anchor, 0.5, None)) == pytest.approx(2.5)
    assert float(proximal(w, anchor, 0.5, h)) == pytest.approx(6.5)
    (slope,) = torch.autograd.grad(proximal(w, anchor, 0.5, None), w["w"])
    assert slope.tolist() == [0.5, -1.5]  # mu (w - w_t)
    (at_start,) = torch.autograd.grad(proximal(w, {"w": w["w"].detach()}, 1.0, None), w["w"])
    assert at_start.tolist() == [0.0, 0.0]
