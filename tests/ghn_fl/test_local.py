import copy
import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import zoo
from ghn_fl import local, losses
from ghn_fl.errors import ConfigError
from ghn_fl.local import LocalConfig, Samples
from ghn_fl.types import Recipe


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def linear_task() -> tuple[nn.Module, Samples]:
    torch.manual_seed(0)
    return nn.Linear(3, 2), Samples(torch.randn(8, 3), torch.arange(8) % 2)


def test_one_epoch_of_one_full_batch_is_one_step_of_gradient_descent() -> None:
    model, data = linear_task()
    expected = copy.deepcopy(model)
    loss = F.cross_entropy(expected(data.x), data.y)
    grads = torch.autograd.grad(loss, list(expected.parameters()))
    reported = local.train(model, data, LocalConfig(epochs=1, lr=0.5, batch_size=8), rng()).loss
    for p, q, g in zip(model.parameters(), expected.parameters(), grads, strict=True):
        torch.testing.assert_close(p, q - 0.5 * g)
    assert reported == pytest.approx(float(loss))


@pytest.mark.parametrize(
    ("run", "recipe", "length"),
    [(0.0, 0.0, None), (0.1, 0.0, 0.1), (9.0, 0.0, None), (0.1, 0.05, 0.05), (0.0, 0.05, 0.05)],
)
def test_a_step_is_no_longer_than_its_limit(
    run: float, recipe: float, length: float | None
) -> None:
    model, data = linear_task()
    expected = copy.deepcopy(model)
    loss = F.cross_entropy(expected(data.x), data.y)
    grads = torch.autograd.grad(loss, list(expected.parameters()))
    whole = float(torch.cat([g.flatten() for g in grads]).norm())
    assert 0.1 < whole < 9  # the limits are on both sides of it
    config = LocalConfig(epochs=1, lr=0.5, batch_size=8, clip=run)
    local.train(model, data, config, rng(), Recipe(clip=recipe))
    for p, q, g in zip(model.parameters(), expected.parameters(), grads, strict=True):
        torch.testing.assert_close(p, q - 0.5 * g * (1 if length is None else length / whole))


def test_the_same_generator_gives_the_same_weights() -> None:
    (model, data), config = linear_task(), LocalConfig(batch_size=3)
    twin, other = copy.deepcopy(model), copy.deepcopy(model)
    local.train(model, data, config, rng(1))
    local.train(twin, data, config, rng(1))
    local.train(other, data, config, rng(2))
    assert all(
        torch.equal(p, q) for p, q in zip(model.parameters(), twin.parameters(), strict=True)
    )
    assert any(
        not torch.equal(p, q) for p, q in zip(model.parameters(), other.parameters(), strict=True)
    )


def test_transfer_loss_by_hand() -> None:
    # z_S = (ln 2, 0), z_L = (ln 3, 0), y = 0, features = logits; p_S = (2/3, 1/3), p_L = (3/4, 1/4)
    z_small, z_large = torch.tensor([[math.log(2), 0.0]]), torch.tensor([[math.log(3), 0.0]])
    small, large = zoo.Output(z_small, z_small, ()), zoo.Output(z_large, z_large, ())
    y = torch.tensor([0])
    ce, mimic = 0.405465, 0.578752
    paper = losses.transfer_loss(small, large, y, "small_large")
    code = losses.transfer_loss(small, large, y, "large_small")
    assert float(paper) == pytest.approx(ce + mimic + 0.017372, abs=1e-5)
    assert float(code) == pytest.approx(ce + mimic + 0.016417, abs=1e-5)


def test_features_of_different_size_are_left_out() -> None:
    z = torch.tensor([[1.0, -1.0]])
    small, large = zoo.Output(z, torch.zeros(1, 3), ()), zoo.Output(z, torch.zeros(1, 5), ())
    expected = F.cross_entropy(z, torch.tensor([1])) + F.cross_entropy(z, z.softmax(1))
    torch.testing.assert_close(
        losses.transfer_loss(small, large, torch.tensor([1]), "small_large"), expected
    )


def test_the_teacher_gets_no_gradient_and_stays_as_it_is() -> None:
    student, teacher = zoo.build("lenet5-d1"), zoo.build("lenet5").eval()
    before = copy.deepcopy(teacher.state_dict())
    data = Samples(torch.randn(6, 1, 28, 28), torch.arange(6))
    local.train(student, data, LocalConfig(epochs=1, batch_size=3), rng(), teacher=teacher)
    assert all(torch.equal(t, before[n]) for n, t in teacher.state_dict().items())
    assert all(p.grad is None for p in teacher.parameters())


def test_load_forgets_statistics_and_averages_those_to_come() -> None:
    model = zoo.build("lenet5").train()
    model(torch.randn(4, 1, 28, 28) + 5)
    weights = {n: torch.randn_like(p) for n, p in model.named_parameters()}
    local.load(model, weights)
    bn = model.stages["1"].bn
    assert not bn.running_mean.any() and bn.momentum is None
    batches = [torch.randn(4, 1, 28, 28), torch.randn(4, 1, 28, 28) + 2]
    for batch in batches:
        model(batch)
    mean = torch.stack([model.stages["1"].conv(b).mean((0, 2, 3)) for b in batches]).mean(0)
    torch.testing.assert_close(bn.running_mean, mean.detach(), rtol=1e-4, atol=1e-4)
    assert all(torch.equal(w, weights[n]) for n, w in local.unload(model).items())


def test_scores_by_hand() -> None:
    # a model that answers its input; four samples of classes 0, 0, 1, 2: right, wrong, right, wrong
    x = torch.tensor([[5.0, 0, 0, 0], [0, 5.0, 0, 0], [0, 5.0, 0, 0], [5.0, 0, 0, 0]])
    score = local.evaluate(nn.Identity(), x, torch.tensor([0, 0, 1, 2]), 4)
    assert score.accuracy == 0.5
    assert score.by_class[:3] == (0.5, 1.0, 0.0) and math.isnan(score.by_class[3])
    right, wrong = math.log(math.exp(5) + 3) - 5, math.log(math.exp(5) + 3)
    assert score.loss == pytest.approx((right + wrong) / 2, rel=1e-5)


def test_other_models_answers_are_parts_by_hand() -> None:
    # p = (3/4, 1/4) and q = (1/8, 7/8); a third of q: (13/24, 11/24), two thirds: (8/24, 16/24);
    # half of q and a quarter of r = (1/2, 1/2): (6/32 + 2/32 + 4/32, ...) = (12/32, 20/32)
    class Says(nn.Module):
        def __init__(self, *probabilities: float) -> None:
            super().__init__()
            self.logits = torch.tensor([probabilities]).log() + 2  # any constant will do

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.logits.expand(len(x), -1)

    p, q, r = Says(3 / 4, 1 / 4), Says(1 / 8, 7 / 8), Says(1 / 2, 1 / 2)
    x, y = torch.zeros(1, 1), torch.tensor([0])
    for others, right, answer in (
        ([(q, 1 / 3)], 1.0, 13 / 24),
        ([(q, 2 / 3)], 0.0, 8 / 24),
        ([(q, 1 / 2), (r, 1 / 4)], 0.0, 12 / 32),
        ([], 1.0, 3 / 4),
    ):
        score = local.evaluate(p, x, y, 2, others)
        assert score.accuracy == right and score.loss == pytest.approx(-math.log(answer), rel=1e-5)


def test_every_exit_has_a_score() -> None:
    torch.manual_seed(0)
    model = zoo.build("lenet5-exits").eval()
    x, y = torch.randn(30, 1, 28, 28), torch.arange(30) % 10
    score = local.evaluate(model, x, y, 10)
    with torch.no_grad():
        exits = zoo.run(model, x).exits
    expected = [float((z.argmax(1) == y).double().mean()) for z in exits]
    assert list(score.exits) == pytest.approx(expected) and len(expected) == 2
    ensemble = (exits[0] + exits[1]) / 2
    assert score.accuracy == pytest.approx(float((ensemble.argmax(1) == y).double().mean()))
    assert score.loss == pytest.approx(float(F.cross_entropy(ensemble, y)), rel=1e-5)
    for spec in ("lenet5", "lenet5-d1-exits"):  # one exit only
        assert local.evaluate(zoo.build(spec), x, y, 10).exits == ()


def test_a_last_batch_of_one_is_left_out() -> None:
    model = zoo.build("lenet5-d1")  # its BatchNorm could take one image, others could not
    data = Samples(torch.randn(5, 1, 28, 28), torch.arange(5))
    local.train(model, data, LocalConfig(epochs=1, batch_size=4), rng())
    assert int(model.stages["1"].bn.num_batches_tracked) == 1


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"epochs": 0}, "epochs must be at least 1 and batch_size at least 2, got 0"),
        ({"batch_size": 1}, "batch_size at least 2, got 5 and 1"),  # every batch would be skipped
        ({"lr": 0.0}, "lr must be above 0"),
        ({"kl": "both"}, "kl must be small_large or large_small, got 'both'"),
    ],
)
def test_bad_settings(options: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        LocalConfig(**options)  # type: ignore[arg-type]


def test_a_proximal_term_pulls_towards_the_start() -> None:
    # F = (w - 2)^2 / 2 has no batches here, so its like: one weight, full batches, many steps;
    # minimiser of CE + mu/2 |w - w_0|^2 moves less the larger mu is, and mu = 0 is plain SGD
    def distance(mu: float) -> float:
        model, data = linear_task()
        start = {n: p.detach().clone() for n, p in model.named_parameters()}
        local.train(
            model, data, LocalConfig(epochs=20, lr=0.2, batch_size=8), rng(), Recipe(prox=mu)
        )
        return sum(float((p - start[n]).square().sum()) for n, p in model.named_parameters())

    assert distance(0.0) > distance(0.5) > distance(2.0) > 0


def test_fewer_epochs_and_steps() -> None:
    def after(recipe: Recipe) -> dict[str, torch.Tensor]:
        model, data = linear_task()
        local.train(model, data, LocalConfig(epochs=3, lr=0.1, batch_size=4), rng(), recipe)
        return local.unload(model)

    untouched = after(Recipe(epochs=0))
    assert all(
        torch.equal(w, p)
        for w, p in zip(untouched.values(), linear_task()[0].parameters(), strict=True)
    )
    # 8 samples in batches of 4: two steps are one epoch
    one, two = after(Recipe(epochs=1)), after(Recipe(steps=2))
    assert all(torch.equal(one[n], two[n]) for n in one)
    assert any(not torch.equal(one[n], w) for n, w in after(Recipe()).items())


def test_the_scaler_divides_hidden_outputs_in_training_only() -> None:
    model = zoo.build("lenet5")
    x, seen = zoo.example_input("lenet5", batch_size=2), []
    conv, head = model.get_submodule("stages.1.conv"), model.get_submodule("exits.2.classifier")
    for train in (True, False):
        model.train(train)
        with local.scaled_outputs(model, 0.5):
            hook = conv.register_forward_hook(lambda _, __, out: seen.append(out))
            last = head.register_forward_hook(lambda m, i, out: seen.append((m, i, out)))
            model(x)
            hook.remove(), last.remove()
    plain = conv(x)
    assert torch.allclose(seen[0], 2 * plain) and torch.allclose(seen[2], plain)
    for module, inputs, out in (seen[1], seen[3]):  # the classifier is never scaled
        assert torch.allclose(out, F.linear(inputs[0], module.weight, module.bias))


def test_activations_are_means_over_all_samples() -> None:
    torch.manual_seed(0)
    model = zoo.build("lenet5-d1")
    data = Samples(torch.randn(6, 1, 28, 28), torch.tensor([0, 1, 2, 0, 1, 2]))
    config = LocalConfig(epochs=2, lr=1e-9, batch_size=4)
    extras = local.train(model, data, config, rng(), Recipe(activations=True)).extras
    assert extras.keys() == {"activation/exit1.fc"}
    assert (
        extras["activation/exit1.fc"].shape == (84,) and (extras["activation/exit1.fc"] >= 0).all()
    )


def test_activations_of_texts_are_means_over_all_tokens_and_leave_out_heads() -> None:
    torch.manual_seed(0)
    model = zoo.build("bert_tiny-d1", vocab_size=9).eval()
    groups = local.dense_groups(model)
    assert set(groups.values()) == {"stages.1.middle", "exit1.pooler"}
    outputs: list[torch.Tensor] = []
    model.get_submodule("stages.1.up").register_forward_hook(lambda *a: outputs.append(a[2]))
    with local.watched(model, True) as means:
        for size in (2, 1):
            model(torch.randint(9, (size, 5)))
    every_token = torch.cat([out.relu().flatten(0, 1) for out in outputs])  # 15 of 512 units
    torch.testing.assert_close(means["stages.1.middle"](), every_token.mean(0))


def test_static_statistics_are_those_of_the_final_weights() -> None:
    torch.manual_seed(0)
    model = zoo.build("lenet5-d1")
    data = Samples(torch.randn(40, 1, 28, 28), torch.zeros(40, dtype=torch.long))
    local.static_norm(model, data)
    conv, norm = model.get_submodule("stages.1.conv"), model.get_submodule("stages.1.bn")
    assert torch.allclose(norm.running_mean, conv(data.x).mean((0, 2, 3)), atol=1e-5)


class Answers(nn.Module):
    """Says to every sample, a number, the probability of class 1 that stands there."""

    def __init__(self, *ones: float) -> None:
        super().__init__()
        self.ones = torch.tensor(ones)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        one = self.ones[x]
        return torch.stack([1 - one, one], 1).log()


def test_the_likeliest_part_by_hand() -> None:
    # labels 1 and 0; own model p = (0.8, 0.1), second q = (0.2, 0.9): the likelihood's logarithm
    # log(0.8 - 0.6 b) + log(0.1 + 0.8 b) is highest where 0.8 (0.8 - 0.6 b) = 0.6 (0.1 + 0.8 b)
    data = local.Samples(torch.tensor([0, 1]), torch.tensor([1, 0]))

    def part(own: Answers, second: Answers) -> float:
        return local.likeliest_part(local.of_labels(own, data), local.of_labels(second, data))

    own, second = Answers(0.8, 0.9), Answers(0.2, 0.1)
    assert part(own, second) == pytest.approx(0.58 / 0.96, abs=1e-4)
    assert part(second, own) == pytest.approx(1 - 0.58 / 0.96, abs=1e-4)
    # one is better throughout
    good, bad = Answers(0.9, 0.1), Answers(0.2, 0.8)
    assert part(good, bad) == 0.001
    assert part(bad, good) == 0.999
    certain = Answers(0.0, 1.0)  # and wrong: no logarithm of 0
    assert part(certain, good) == 0.999
