"""The server's step: its sign first."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import zoo
from ghn_fl import Change, Request, UpdateConfig, update
from ghn_fl.errors import GHNError
from ghn_fl.hypernet.update import gradient
from ghn_fl.optim import AdamState
from tests.ghn_fl.hypernet.examples import make, request

SGD = UpdateConfig(optimizer="sgd", lr=1.0, clip=1e9)


class Identity(nn.Module):
    """A hypernetwork whose parameters are the weights that it gives, scaled by `factor`."""

    def __init__(self, weights: dict[str, Tensor], factor: float = 1.0) -> None:
        super().__init__()
        self.weights = nn.ParameterDict(weights)
        self.factor = factor

    def generate_many(self, requests: list[Request], grad: bool) -> list[dict[str, Tensor]]:
        return [{n: self.factor * w for n, w in self.weights.items()} for _ in requests]

    def with_parameters(self, parameters: dict[str, Tensor]) -> Identity:
        weights = {n.removeprefix("weights."): p for n, p in parameters.items()}
        return Identity(weights, self.factor)


def answer(ghn, r: Request, by: float, share: float = 1.0) -> Change:  # type: ignore[no-untyped-def]
    """A client that moved each weight by `by` times a random direction."""
    sent = {n: w.detach() for n, w in ghn.generate_many([r], grad=False)[0].items()}
    trained = {n: w + by * torch.randn_like(w) for n, w in sent.items()}
    return Change(request=r, sent=sent, trained=trained, share=share)


def test_one_step_of_size_one_lands_on_the_clients_weights() -> None:
    start = {"w": torch.tensor([1.0, -2.0]), "b": torch.tensor([0.5])}
    trained = {"w": torch.tensor([0.0, -5.0]), "b": torch.tensor([2.0])}
    ghn = Identity(start)
    change = Change(request=request(), sent=start, trained=trained)
    after, _, norm = update(ghn, [change], config=SGD)  # type: ignore[arg-type]
    assert all(torch.equal(after.weights[n], w) for n, w in trained.items())
    assert norm == pytest.approx((1 + 9 + 2.25) ** 0.5)
    assert torch.equal(ghn.weights["w"], torch.tensor([1.0, -2.0]))  # the old one is as it was


def test_the_gradient_is_that_of_half_the_squared_distance() -> None:
    ghn, r = make(), request()
    change = answer(ghn, r, by=0.1)
    found = gradient(ghn, [change], SGD)
    live = ghn.generate_many([r], grad=True)[0]
    distance = sum((live[n] - change.trained[n]).square().sum() / 2 for n in live)
    names, parameters = zip(*ghn.named_parameters(), strict=True)
    expected = torch.autograd.grad(distance, parameters, allow_unused=True)
    for name, g in zip(names, expected, strict=True):
        assert (g is None) == (name not in found)
        if g is not None:
            torch.testing.assert_close(found[name], g)


def test_the_gradient_is_the_slope_along_delta() -> None:
    # finite difference of <sent(phi), delta> along a random direction of phi
    ghn, r = make(), request()
    change = answer(ghn, r, by=1.0)
    found = gradient(ghn, [change], SGD)
    name, h = "decoders.place.weight", 1e-3
    direction = torch.randn_like(found[name])

    def inner(step: float) -> float:
        moved = {n: p.detach() for n, p in ghn.named_parameters()}
        moved[name] = moved[name] + step * direction
        weights = ghn.with_parameters(moved).generate_many([r])[0]
        return float(
            sum((weights[n] * (change.sent[n] - change.trained[n])).sum() for n in weights)
        )

    slope = (inner(h) - inner(-h)) / (2 * h)
    assert slope == pytest.approx(float((found[name] * direction).sum()), rel=0.01)


def test_a_small_step_brings_the_weights_nearer() -> None:
    ghn, r = make(), request()
    change = answer(ghn, r, by=0.1)
    after, state, _ = update(ghn, [change], config=UpdateConfig(lr=1e-4))

    def distance(g) -> float:  # type: ignore[no-untyped-def]
        weights = g.generate_many([r])[0]
        return float(sum((weights[n] - change.trained[n]).square().sum() for n in weights))

    assert distance(after) < distance(ghn)
    assert state.step == 1


def test_no_change_means_no_step() -> None:
    ghn = make()
    change = answer(ghn, request(), by=0.0)
    after, _, norm = update(ghn, [change], config=SGD)
    assert norm == 0
    assert all(torch.equal(a, b) for a, b in zip(after.parameters(), ghn.parameters(), strict=True))


def test_nobody_answered() -> None:
    ghn, state = make(), AdamState(step=4)
    assert update(ghn, [], state) == (ghn, state, 0.0)


def test_chunked_is_whole() -> None:
    ghn = make()
    changes = [
        answer(ghn, request(s, seed=i), 0.1) for i, s in enumerate(["lenet5", "lenet5-d1"] * 2)
    ]
    whole = gradient(ghn, changes, UpdateConfig(chunk=4))
    for chunk in (1, 3):
        parts = gradient(ghn, changes, UpdateConfig(chunk=chunk))
        assert parts.keys() == whole.keys()
        for name, g in whole.items():
            torch.testing.assert_close(parts[name], g, rtol=1e-3, atol=1e-4)


def test_the_gradient_is_additive_over_clients() -> None:
    ghn = make()
    a, b = answer(ghn, request(seed=0), 0.1), answer(ghn, request("lenet5"), -0.2)
    both, first, second = (gradient(ghn, part, SGD) for part in ([a, b], [a], [b]))
    for name, g in both.items():
        zero = torch.zeros_like(g)
        torch.testing.assert_close(
            g, first.get(name, zero) + second.get(name, zero), rtol=1e-3, atol=1e-4
        )


def test_weighted_by_share_by_hand() -> None:
    # identity generator, gradients a = 6 and b = -12, shares 0.1 and 0.5:
    # (0.1 * 6 + 0.5 * -12) / 0.6 = (1 a + 5 b) / 6 = -9
    start = {"w": torch.tensor([0.0])}
    changes = [
        Change(request=request(), sent=start, trained={"w": torch.tensor([t])}, share=share)
        for t, share in ((-6.0, 0.1), (12.0, 0.5))
    ]
    config = UpdateConfig(optimizer="sgd", weighting="share")
    g = gradient(Identity(start), changes, config)  # type: ignore[arg-type]
    assert g["weights.w"].item() == pytest.approx(-9)


def test_shares_count_only_where_a_client_uses_a_tensor() -> None:
    # a convolutional and a dense client: the conv decoder belongs to the first alone
    ghn = make()
    dense = nn.Linear(4, 3)
    import graphs

    other = Request(graph=graphs.trace(dense, torch.zeros(1, 4)))
    a, b = answer(ghn, request(), 0.1, share=0.2), answer(ghn, other, 0.1, share=0.8)
    weighted = UpdateConfig(weighting="share")
    both, alone = gradient(ghn, [a, b], weighted), gradient(ghn, [a], SGD)
    name = "decoders.output.conv.weight"
    torch.testing.assert_close(both[name], alone[name], rtol=1e-4, atol=1e-5)


def test_adam_goes_on_where_it_was() -> None:
    ghn = make()
    change = answer(ghn, request(), by=0.1)
    one, state, _ = update(ghn, [change])
    two, state, _ = update(one, [answer(one, request(), 0.1)], state)
    assert state.step == 2
    moved = [not torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True)]
    assert any(moved)
    assert one.training == ghn.training


def test_bad_answers() -> None:
    ghn = make()
    good = answer(ghn, request(), by=0.1)
    name = next(iter(good.sent))

    def refuses(trained: dict[str, Tensor], says: str) -> None:
        with pytest.raises(GHNError, match=says):
            update(ghn, [Change(request=good.request, sent=good.sent, trained=trained)])

    refuses({}, "the trained weights must have the graph's names")
    refuses({**good.trained, name: torch.zeros(2)}, "must have shape")
    refuses({**good.trained, name: good.trained[name] * float("inf")}, "not finite")
    with pytest.raises(GHNError, match="optimizer must be 'adam' or 'sgd', got 'adma'"):
        UpdateConfig(optimizer="adma")  # type: ignore[arg-type]
    with pytest.raises(GHNError, match="chunk at least 1, got"):
        UpdateConfig(chunk=0)


def test_it_learns_a_toy() -> None:
    """Two clients of different size, two blobs: the weights it generates must come to classify."""
    torch.manual_seed(0)
    ghn, state = make(width=32, num_classes=2), None
    y = torch.arange(64) % 2
    x = torch.randn(64, 6) + 3.0 * y.unsqueeze(1) - 1.5
    models = [
        nn.Sequential(nn.Linear(6, n), nn.ReLU(), nn.Linear(n, 2)) for n in (4, 16)
    ]  # fmt: skip
    import graphs

    requests = [Request(graph=graphs.trace(m, x)) for m in models]

    def loss(m: nn.Module, w: dict[str, Tensor]) -> Tensor:
        return F.cross_entropy(torch.func.functional_call(m, w, (x,)), y)

    config = UpdateConfig(lr=3e-3)
    before = [float(loss(m, w)) for m, w in zip(models, ghn.generate_many(requests), strict=True)]
    for _ in range(30):
        changes = []
        for m, r, sent in zip(models, requests, ghn.generate_many(requests), strict=True):
            live = {n: w.clone().requires_grad_() for n, w in sent.items()}
            for _ in range(5):
                grads = torch.autograd.grad(loss(m, live), list(live.values()))
                live = {
                    n: (w - 0.1 * g).detach().requires_grad_()
                    for (n, w), g in zip(live.items(), grads, strict=True)
                }
            trained = {n: w.detach() for n, w in live.items()}
            changes.append(Change(request=r, sent=sent, trained=trained))
        ghn, state, _ = update(ghn, changes, state, config)
    after = [float(loss(m, w)) for m, w in zip(models, ghn.generate_many(requests), strict=True)]
    assert max(after) < 0.1 < max(before)


def test_initialize_is_strict_and_recomputes_statistics(caplog: pytest.LogCaptureFixture) -> None:
    from ghn_fl import initialize

    torch.manual_seed(0)
    model = zoo.build("lenet5").eval()
    weights = {n: torch.randn_like(p) for n, p in model.named_parameters()}
    model(torch.randn(2, 1, 28, 28))
    caplog.set_level("INFO", logger="ghn_fl")
    reset = initialize(model, weights)
    assert "reset the statistics of 2 BatchNorm layers" in caplog.text
    assert not reset.stages["1"].bn.running_mean.any()
    batches = [torch.randn(8, 1, 28, 28) + shift for shift in (0.0, 4.0)]
    fresh = initialize(model, weights, batches)
    assert "recomputed the statistics of 2 BatchNorm layers on 2 batches" in caplog.text
    seen = torch.cat([fresh.stages["1"].conv(b) for b in batches])
    mean = seen.mean((0, 2, 3))
    torch.testing.assert_close(fresh.stages["1"].bn.running_mean, mean, rtol=1e-3, atol=1e-4)
    assert fresh.stages["1"].bn.momentum == 0.1 and not fresh.training
    assert all(torch.equal(fresh.get_parameter(n), w) for n, w in weights.items())
    with pytest.raises(GHNError, match="`data` is empty"):
        initialize(model, weights, [])
    name = next(iter(weights))
    with pytest.raises(GHNError, match=f"missing \\['{name}'\\]"):
        initialize(model, {n: w for n, w in weights.items() if n != name})
    with pytest.raises(GHNError, match="must have shape"):
        initialize(model, {**weights, name: torch.zeros(1)})
