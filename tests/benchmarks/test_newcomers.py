"""The newcomers' benchmark: cropped models by hand, its runs, and how somebody joins."""

import dataclasses
import doctest
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.func import functional_call

import graphs
from benchmarks import cropped as cropped_module
from benchmarks import newcomers
from benchmarks.cropped import cropped, fit
from benchmarks.newcomers import (
    NEWCOMERS,
    WAYS,
    Newcomer,
    Place,
    architectures,
    cells,
    join,
    late_clients,
    text,
)
from ghn_fl import GHN, GHNConfig, Lessons, run
from ghn_fl.report.read import Device, Rejection, Round, Run, Score, summarize
from ghn_fl.simulation.fleet import tiers_of

TINY = {"ghn.width": 16, "ghn.decoder_width": 16, "imitate": 2, "lessons": 20}


def net(width: int, kernel: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, width, kernel, padding=kernel // 2),
        nn.ReLU(),
        nn.Conv2d(width, 2 * width, kernel, padding=kernel // 2),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(8 * width, 3),
    )


def weights_of(model: nn.Module) -> dict[str, torch.Tensor]:
    return {n: p.detach().clone() for n, p in model.named_parameters()}


def test_a_kernel_is_matched_at_its_middle() -> None:
    # 3x3 into 5x5: a rim of zeros; 5x5 into 3x3: its middle
    old = torch.arange(1.0, 10).reshape(1, 1, 3, 3)
    large = fit(old, torch.full((1, 1, 5, 5), 7.0))
    assert torch.equal(large[..., 1:4, 1:4], old)
    assert large.sum() == old.sum()
    assert torch.equal(fit(large, torch.full((1, 1, 3, 3), 7.0)), old)


def test_a_wider_network_with_larger_kernels_computes_what_the_trained_one_does() -> None:
    torch.manual_seed(0)
    old, new = net(3, 3), net(5, 5)
    x = torch.randn(4, 1, 8, 8)
    trained = (graphs.trace(old, x[:1]), weights_of(old))
    made = cropped(graphs.trace(new, x[:1]), weights_of(new), [trained])
    torch.testing.assert_close(functional_call(new, made, (x,)), old(x))


def test_the_nearest_model_is_the_one_that_fills_most() -> None:
    torch.manual_seed(0)
    x = torch.randn(1, 1, 8, 8)
    small, large, new = net(2, 3), net(6, 3), net(4, 3)
    trained = [(graphs.trace(m, x), weights_of(m)) for m in (small, large)]
    made = cropped(graphs.trace(new, x), weights_of(new), trained)
    assert torch.equal(made["0.weight"], large.state_dict()["0.weight"][:4])


def test_tensors_without_a_counterpart_stay_fresh() -> None:
    x = torch.randn(1, 1, 8, 8)
    old, new = nn.Sequential(nn.Flatten(), nn.Linear(64, 3)), net(2, 3)
    fresh = weights_of(new)
    made = cropped(graphs.trace(new, x), fresh, [(graphs.trace(old, x), weights_of(old))])
    assert torch.equal(made["0.weight"], fresh["0.weight"])
    assert not torch.equal(made["6.weight"], fresh["6.weight"])  # the classifiers correspond


def test_examples() -> None:
    assert doctest.testmod(cropped_module).failed == 0


def test_at_least_ten_newcomers_of_four_families_that_no_fleet_trains() -> None:
    assert len(NEWCOMERS) >= 10 and len({n.family for n in NEWCOMERS.values()}) >= 4
    task = {"num_classes": 10, "in_channels": 1, "image_size": 28}
    known = {"lenet5", "lenet5-d1"}
    for name, newcomer in NEWCOMERS.items():
        assert name not in known
        assert newcomer.build(task).eval()(torch.randn(2, 1, 28, 28)).shape == (2, 10)


def test_half_of_the_weak_devices_is_never_there_and_then_the_other(tmp_path: Path) -> None:
    fleet, first, second = cells("mnist5k", 30, (3,), tmp_path)
    assert [cell.name for cell in (fleet, first, second)] == ["fleet-3", "first-3", "second-3"]
    assert fleet.config.public == "heldout:0.2"  # 200 + 600 of 4000
    tiers = [tiers_of(cell.config, in_channels=1) for cell in (first, second)]
    assert [[t.name for t in found] for found in tiers] == [
        ["strong", "weak", "late"],
        ["strong", "late", "weak"],
    ]
    # else alike, so that a device has the same data in both
    shapes = [[(t.count, t.share, t.alpha, t.model) for t in found] for found in tiers]
    assert shapes[0] == shapes[1]


def test_every_device_is_compared_with_itself() -> None:
    # devices 1 and 2 are weak in the first run, 3 and 4 in the second; 2 never answers
    def one(tiers: str, sampled: tuple[int, ...], accuracies: tuple[float, ...]) -> Run:
        record = Round(
            number=1,
            sampled=sampled,
            rejected=tuple(Rejection(client=i, reason="not available") for i in (2,)),
            tiers={},
            clients={
                i: Score(accuracy=a, loss=0.0, accuracy_full=a / 2)
                for i, a in enumerate(accuracies)
            },
            bytes_down=0,
            bytes_up=0,
            seconds={},
            metrics={},
        )
        names = {"s": "strong", "w": "weak", "l": "late"}
        fleet = tuple(
            Device(id=i, tier=names[t], models=(), train_samples=1, test_samples=1, mix=())
            for i, t in enumerate(tiers)
        )
        return Run(
            folder=Path(),
            settings={},
            fleet=fleet,
            versions={},
            rounds=(record,),
            summary=summarize((record,), []),
            finished=True,
            notes=(),
        )

    first = one("swwll", (0, 1, 2), (1.0, 0.5, 0.4, 0.9, 0.8))
    second = one("sllww", (3, 4), (1.0, 0.6, 0.2, 0.7, 0.4))
    pairs = late_clients(first, second)
    assert pairs["own"] == [(0.5, 0.6), (0.7, 0.9), (0.4, 0.8)]
    assert pairs["whole"] == [(0.25, 0.3), (0.35, 0.45), (0.2, 0.4)]


def test_a_newcomer_joins_in_every_way_and_is_told_of() -> None:
    torch.manual_seed(0)
    x, y = torch.randn(60, 1, 8, 8), torch.arange(60) % 3
    old = net(3, 3)
    answers = torch.randn(60, 3).log_softmax(1)
    place = Place(
        ghn=GHN(GHNConfig(num_classes=3, width=16, decoder_width=16)).eval(),
        lessons=Lessons(x, answers),
        trained=((graphs.trace(old, x[:1]), weights_of(old)),),
        public=Lessons(x.flip(0), answers),
        task={"num_classes": 3, "in_channels": 1, "image_size": 8},
        own=(x, y),
        test=(x, y),
        seed=0,
    )
    few = {
        "conv": Newcomer("CNN", newcomers.plain((4, 6), (3, 3), 8)),
        "dense": Newcomer("MLP", newcomers.mlp(8)),
    }
    rows = {name: join(place, one, steps=2) for name, one in few.items()}
    for row in rows.values():
        assert row.keys() == {"parameters", *WAYS}
        assert all(0 <= figure <= 100 for way in WAYS for figure in row[way])
    pairs = {0: {"own": [(0.5, 0.6)] * 6, "whole": [(0.5, 0.4), (0.5, 0.5)] * 3}}
    told = text({0: rows}, pairs, few)
    assert f"| dense | MLP | {64 * 8 + 8 + 8 * 3 + 3} |" in told
    assert "+10.00 ± 0.00" in told and "-5.00 ± 2.24" in told


@pytest.mark.slow
def test_a_small_fleet_from_runs_to_rows(tmp_path: Path) -> None:
    fleet, *_ = cells("synthetic", 1, (0,), tmp_path)
    config = dataclasses.replace(fleet.config, epochs=1, options=TINY)
    run(config, out=tmp_path / "fleet-0", workers=1)
    few = {"dense": Newcomer("MLP", newcomers.mlp(8))}
    rows = architectures(tmp_path / "fleet-0", None, few)
    assert rows == architectures(tmp_path / "fleet-0", None, few)  # kept
    assert rows.keys() == {"dense"}
