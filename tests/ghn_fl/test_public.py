"""What a client does with public data, on models small enough to follow."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from ghn_fl import local, losses, public
from ghn_fl.local import LocalConfig, Samples
from ghn_fl.types import Recipe


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def task() -> tuple[nn.Module, Samples]:
    torch.manual_seed(0)
    return nn.Linear(3, 2), Samples(torch.randn(8, 3), torch.arange(8) % 2)


def order(model: nn.Module, data: Samples, **changes: object) -> dict[str, object]:
    indices = torch.tensor([1, 2, 5, 6])
    targets = model(data.x[indices]).detach()
    return {
        "indices": indices, "targets": targets, "epochs": 1, "batch": 2, "probabilities": False,
    } | changes  # fmt: skip


@pytest.mark.parametrize("probabilities", [False, True])
def test_a_model_that_agrees_with_the_consensus_has_nothing_to_digest(probabilities: bool) -> None:
    model, data = task()
    targets = model(data.x[torch.tensor([1, 2, 5, 6])]).detach()
    wanted = order(
        model,
        data,
        targets=targets.softmax(1) if probabilities else targets,
        probabilities=probabilities,
    )
    before = copy.deepcopy(model.state_dict())
    # two batches of one matrix product round otherwise than one of four
    assert public.digest(model, data, wanted, rng()) == pytest.approx(0.0, abs=1e-6)
    assert all(torch.allclose(t, before[n], atol=3e-3) for n, t in model.state_dict().items())


def test_the_digest_is_adam_on_the_mean_absolute_error() -> None:
    # z = w x + b with x = 1, w = (1, -1), b = 0, targets (0, 0): the error is (|1| + |-1|) / 2 = 1
    # Adam's first step is 1e-3 against the sign: w = (0.999, -0.999), b = (-0.001, 0.001)
    model = nn.Linear(1, 2)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[1.0], [-1.0]]))
        model.bias.zero_()
    data = Samples(torch.ones(2, 1), torch.zeros(2, dtype=torch.long))
    wanted = {
        "indices": torch.arange(2), "targets": torch.zeros(2, 2), "epochs": 1, "batch": 2,
        "probabilities": False,
    }  # fmt: skip
    assert public.digest(model, data, wanted, rng()) == pytest.approx(1.0)
    assert model.weight.flatten().tolist() == pytest.approx([0.999, -0.999])
    assert model.bias.tolist() == pytest.approx([-0.001, 0.001])


def test_a_digest_comes_closer_and_touches_its_own_samples_only() -> None:
    model, data = task()
    wanted = order(model, data, epochs=300, targets=torch.tensor([[1.0, -1.0]] * 4))
    spoiled = Samples(data.x.clone(), data.y)
    spoiled.x[[0, 3, 4, 7]] = float("nan")  # not in the alignment set
    first = public.digest(model, spoiled, wanted, rng())
    indices = torch.tensor([1, 2, 5, 6])
    assert float((model(data.x[indices]) - wanted["targets"]).abs().mean()) < 0.5 * first


def test_pretraining_learns_the_public_labels() -> None:
    model = nn.Linear(2, 2)
    x = torch.tensor([[1.0, 0.0], [0.0, 1.0]]).repeat(8, 1)
    data = Samples(x, torch.arange(16) % 2)
    first = public.pretrain(model, data, 300, 8, rng())
    assert float(F.cross_entropy(model(x), data.y)) < min(first, 0.6)


def test_scores_are_logits_with_the_alignment_sets_statistics() -> None:
    # one channel, samples 1, 3 and (not asked for) 100: mean 2, variance 2 (of n - 1)
    model = nn.BatchNorm1d(1, eps=1e-12)
    data = Samples(torch.tensor([[1.0], [3.0], [100.0]]), torch.zeros(3, dtype=torch.long))
    model.train()(data.x)  # what it saw before is forgotten
    found = public.scores(model, data, torch.tensor([0, 1]))
    assert found.flatten().tolist() == pytest.approx([-(0.5**0.5), 0.5**0.5])
    assert not found.requires_grad


def test_images_are_prepared() -> None:
    data = Samples(torch.tensor([[2], [4]], dtype=torch.uint8), torch.zeros(2, dtype=torch.long),
                   prepare=lambda x: x.float() / 2)  # fmt: skip
    assert public.scores(nn.Identity(), data, torch.tensor([1])).tolist() == [[2.0]]


def test_the_proximal_term_has_no_gradient_at_the_start() -> None:
    w = {"w": torch.tensor([1.0, -2.0], requires_grad=True)}
    (slope,) = torch.autograd.grad(
        losses.proximal(w, {"w": torch.tensor([1.0, -2.0])}, 0.7, None), w["w"]
    )
    assert slope.tolist() == [0.0, 0.0]


def test_the_proximal_term_pulls_to_the_anchor_that_is_given() -> None:
    # one full batch: w - lr (grad CE + mu (w - anchor))
    model, data = task()
    start = {n: p.detach().clone() for n, p in model.named_parameters()}
    anchor = {n: p + 1.0 for n, p in start.items()}
    slopes = torch.autograd.grad(F.cross_entropy(model(data.x), data.y), list(model.parameters()))
    config, recipe = LocalConfig(lr=0.5, batch_size=8), Recipe(epochs=1, prox=0.1)
    local.train(model, data, config, rng(), recipe, anchor=anchor)
    for (name, p), g in zip(model.named_parameters(), slopes, strict=True):
        torch.testing.assert_close(p, start[name] - 0.5 * (g - 0.1))
