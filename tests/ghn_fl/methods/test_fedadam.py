"""FedAdam's own rules, beyond the contract; its numbers are in test_optim, too."""

from __future__ import annotations

from typing import Any

import pytest

from ghn_fl.errors import ConfigError
from ghn_fl.simulation.config import RunConfig
from ghn_fl.tree import equal
from tests.ghn_fl.methods.bed import Bed
from tests.ghn_fl.methods.stubs import at, counted, method_for, only


def stepped(values: dict[int, tuple[float, int]], rounds: int = 1, **options: Any) -> list[float]:
    """Where the model goes from 1.0, round by round, if clients move by x on n samples."""
    bed = Bed("fedadam", **options)
    state, found = at(bed.method.init(), 1.0), []
    for _ in range(rounds):
        now = only(state["models"]["lenet5-d1"])
        answers = counted({m: (now + x, n) for m, (x, n) in values.items()})
        state, _ = bed.method.run_round(state, [bed.clients[m] for m in values], answers)
        found.append(only(state["models"]["lenet5-d1"]))
    return found


def test_first_step_by_hand() -> None:
    # both clients move by 0.5: 0.1 * 0.05 / (0.05 + 0.001); see test_optim
    assert stepped({0: (0.5, 1), 1: (0.5, 3)})[0] == pytest.approx(1.0980392, abs=1e-6)
    assert stepped({0: (0.5, 1)}, v0="tau2")[0] == pytest.approx(1.0980202, abs=1e-6)
    assert stepped({0: (-0.5, 1)})[0] == pytest.approx(1 - 0.0980392, abs=1e-6)


def test_the_model_goes_where_clients_went() -> None:
    for optimizer in ("adam", "yogi", "avgm"):
        assert stepped({0: (1.0, 1), 2: (1.0, 9)}, optimizer=optimizer)[0] > 1
        assert stepped({0: (-1.0, 1), 2: (-1.0, 9)}, optimizer=optimizer)[0] < 1


def test_the_mean_is_plain_unless_weighted() -> None:
    # updates 4 of 1 sample and -2 of 3: plain 1, weighted 4/4 - 6/4 = -0.5
    values, sign = {0: (4.0, 1), 1: (-2.0, 3)}, {"beta1": 0.0, "beta2": 0.0, "tau": 0.0}
    assert stepped(values, **sign)[0] == pytest.approx(1.1)
    assert stepped(values, weighted=True, **sign)[0] == pytest.approx(0.9)
    avgm = {"optimizer": "avgm", "lr": 1.0, "beta1": 0.0}
    assert stepped(values, **avgm)[0] == pytest.approx(2.0)
    assert stepped(values, weighted=True, **avgm)[0] == pytest.approx(0.5)


def test_momentum_by_hand() -> None:
    # v = 2, then 0.5 * 2 + 2 = 3; w = 1 + 0.1 * 2, then + 0.1 * 3
    found = stepped({0: (2.0, 1)}, rounds=2, optimizer="avgm", beta1=0.5)
    assert found == pytest.approx([1.2, 1.5])


def test_moments_are_in_the_state() -> None:
    # m = 0.05, then 0.095; v = 0.0025, then 0.004975, its root 0.0705337
    # 0.1 * 0.095 / (0.0705337 + 0.001) = 0.1328044
    one, two = stepped({0: (0.5, 1)}, rounds=2)
    assert two - one == pytest.approx(0.1328044, abs=1e-6)


def test_weighted_momentum_free_avgm_is_fedavg() -> None:
    avg, avgm = (
        Bed("fedavg"),
        Bed("fedadam", optimizer="avgm", lr=1.0, beta1=0.0, weighted=True),
    )
    one, _ = avg.method.run_round(avg.method.init(), avg.clients, avg.train(1))
    other, _ = avgm.method.run_round(avgm.method.init(), avgm.clients, avgm.train(1))
    for name, w in one["models"]["lenet5-d1"].items():
        assert w.allclose(other["models"]["lenet5-d1"][name], atol=1e-6)


def test_bias_correction_makes_the_first_step_whole() -> None:
    # m / (1 - 0.9) = 0.5, sqrt(v / (1 - 0.99)) = 0.5: 0.1 * 0.5 / 0.501 = 0.0998004
    step = stepped({0: (0.5, 1)}, bias_correction=True)[0] - 1
    assert step == pytest.approx(0.0998004, abs=1e-6)


def test_refusals() -> None:
    for options, says in (
        ({"optimizer": "sgd"}, "optimizer must be adam, avgm or yogi"),
        ({"v0": "one"}, "v0 must be zero or tau2"),
        ({"lr": 0.0}, "lr must be above 0 and tau at least 0"),
        ({"beta2": 1.0}, "beta1 and beta2 must be at least 0 and below 1"),
    ):
        with pytest.raises(ConfigError, match=says):
            RunConfig(method="fedadam", options=options)
    with pytest.raises(ConfigError, match="fedadam needs one model"):
        method_for(RunConfig(dataset="synthetic", method="fedadam", small="lenet5"))


def test_two_rounds_differ_from_one_round_twice() -> None:
    bed = Bed("fedadam")
    state, _ = bed.method.run_round(bed.method.init(), bed.clients, bed.train(1))
    after, _ = bed.method.run_round(state, bed.clients, bed.train(2))
    assert after["moments"]["lenet5-d1"]["step"] == 2
    assert not equal(after["moments"], state["moments"])
