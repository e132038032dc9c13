"""InclusiveFL's own rules, on small text encoders whose clients answer what a test says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from ghn_fl.errors import ConfigError
from ghn_fl.methods.inclusivefl import Config, build
from ghn_fl.optim import AdamState, ServerConfig, server_adam
from ghn_fl.tree import all_finite, equal
from ghn_fl.types import Answer, Client, Job, Method, Setting, State, Train
from tests.ghn_fl.methods.bed import Bed
from tests.ghn_fl.methods.stubs import answering, setting_of
from zoo import ModelSpec

TASK = {"num_classes": 2, "vocab_size": 5, "sequence_length": 3}
A, B, C = (f"bert_mini-d{depth}-w0.02" for depth in (1, 2, 3))  # L = (1, 2, 3), hidden size 8
SAMPLES = (1, 3, 2, 5)


def fleet(*models: str | tuple[str, ...], task: dict[str, int] = TASK) -> Setting:
    """One client with each of these models; their samples are 1, 3, 2, 5, and over again."""
    tuples = [(m,) if isinstance(m, str) else m for m in models]
    clients = tuple(
        Client(
            id=i,
            tier="any",
            models=tuple(ModelSpec.parse(name) for name in names),
            samples=SAMPLES[i % 4],
            share=0.1,
            mix=(0.5, 0.5),
        )
        for i, names in enumerate(tuples)
    )
    return setting_of(clients, task)


def layer(name: str) -> int | None:
    """0 for embeddings, l for encoder layers, None for the head."""
    room, number = name.split(".")[:2]
    return {"stem": 0, "exits": None}[room] if room != "stages" else int(number)


def answers(value: Callable[[Client, str, int | None], float | None], *, moves: bool) -> Train:
    """Clients whose tensors are all one number, or (`moves`) have moved by it; None: unchanged."""

    def answer(job: Job, spec: ModelSpec, name: str, given: Tensor) -> Tensor:
        number = value(job.client, str(spec), layer(name))
        return given if number is None else given * moves + number

    return answering(answer)


def run(
    method: Method,
    setting: Setting,
    train: Train,
    who: Sequence[int] | None = None,
    rounds: int = 1,
) -> State:
    state = method.init()
    for _ in range(rounds):
        sampled = setting.clients if who is None else [setting.clients[i] for i in who]
        state, _ = method.run_round(state, sampled, train)
    return state


def by(table: dict[tuple[str, int | None], float]) -> Callable[..., float | None]:
    return lambda client, spec, number: table.get((spec, number))


def query(state: State, spec: str, number: int) -> Tensor:
    tensor: Tensor = state[spec]["weights"][f"stages.{number}.query.weight"]
    return tensor


def plain(**options: Any) -> Config:
    return Config(**({"weights": "clients", "momentum": False} | options))


def test_a_layer_is_averaged_over_the_groups_that_have_one_above_it() -> None:
    # n = (1, 2, 1), L = (1, 2, 3): layer 1 is b's and c's, (2 * 1 + 1 * 4) / 3 = 2; a's is its top
    # layer 0, the embeddings, is everybody's: (1 * 8 + 2 * -2 + 1 * 4) / 4 = 2
    setting = fleet(A, B, B, C)
    values = {(A, 1): 9.0, (B, 1): 1.0, (C, 1): 4.0, (C, 2): 7.0, (B, 2): -3.0}
    values |= {(A, 0): 8.0, (B, 0): -2.0, (C, 0): 4.0}
    method = build(plain(), setting)
    state = run(method, setting, answers(by(values), moves=False))
    assert torch.allclose(query(state, B, 1), torch.tensor(2.0), atol=1e-5)
    assert torch.allclose(query(state, C, 1), torch.tensor(2.0), atol=1e-5)
    assert torch.allclose(query(state, A, 1), torch.tensor(9.0), atol=1e-5)
    # layer 2 is b's top and lies below c's: no mixing
    assert torch.allclose(query(state, B, 2), torch.tensor(-3.0), atol=1e-5)
    assert torch.allclose(query(state, C, 2), torch.tensor(7.0), atol=1e-5)
    for spec in (A, B, C):
        words = state[spec]["weights"]["stem.words.weight"]
        assert torch.allclose(words, torch.tensor(2.0), atol=1e-5)


def test_clients_may_count_by_their_samples() -> None:
    # samples (1, 3, 2, 5): layer 1 of b is (3 * 1 + 2 * 1) / 5 = 1, with c's 4: (5*1 + 5*4) / 10
    setting = fleet(A, B, B, C)
    values = by({(B, 1): 1.0, (C, 1): 4.0})
    state = run(build(plain(weights="samples"), setting), setting, answers(values, moves=False))
    assert torch.allclose(query(state, C, 1), torch.tensor(2.5), atol=1e-5)

    def of_client(client: Client, spec: str, number: int | None) -> float | None:
        return {1: -4.0, 2: 6.0}.get(client.id) if number == 2 else None

    # b's top layer: its two clients of 3 and 2 samples say -4 and 6: (-12 + 12) / 5 = 0, mean 1
    for weights, expected in (("samples", 0.0), ("clients", 1.0)):
        method = build(plain(weights=weights), setting)
        state = run(method, setting, answers(of_client, moves=False))
        assert torch.allclose(query(state, B, 2), torch.tensor(expected), atol=1e-5)


def test_heads_never_mix_and_shared_layers_agree() -> None:
    setting = fleet(A, B, C)

    def train(client: Client, spec: str, number: int | None) -> float:
        return 0.1 * (1 + client.id)

    state = run(build(Config(), setting), setting, answers(train, moves=True), rounds=3)
    for name in state[A]["weights"]:
        if layer(name) == 0:
            for spec in (B, C):
                assert torch.equal(state[A]["weights"][name], state[spec]["weights"][name])
    assert torch.equal(query(state, B, 1), query(state, C, 1))
    assert not torch.equal(query(state, A, 1), query(state, B, 1))
    for i, spec in enumerate((A, B, C)):
        start = setting.initial[ModelSpec.parse(spec)]
        for name, w in state[spec]["weights"].items():
            if layer(name) is None:  # three rounds of its own clients' steps
                assert torch.allclose(w, start[name] + 3 * 0.1 * (1 + i), atol=1e-5)


def test_all_groups_begin_with_the_largest_models_layers() -> None:
    setting = fleet(A, C)
    state = build(Config(), setting).init()
    large = setting.initial[ModelSpec.parse(C)]
    for name, w in state[A]["weights"].items():
        head = layer(name) is None
        assert torch.equal(w, setting.initial[ModelSpec.parse(A)][name] if head else large[name])


def test_momentum_by_hand() -> None:
    # groups b and c, L- = 2 and L = 3: g2 = 1 and g3 = 3 give m = 2
    setting = fleet(B, C)
    method = build(Config(beta=0.2, weights="clients", hetero_aggregation=False), setting)
    values = by({(C, 2): 1.0, (C, 3): 3.0, (B, 2): -5.0})
    train = answers(values, moves=True)
    start = method.init()
    first, report = method.run_round(start, setting.clients, train)
    assert torch.allclose(first[C]["momentum"]["stages.2.query.weight"], torch.tensor(2.0))
    assert len(first[C]["momentum"]) == 16 and not first[B]["momentum"]
    assert report == {"momentum_skipped": 0, "momentum_left_out": 0}
    # the buffer was 0: the top layer moves by 0.2 * 0 + 0.8 * -5 = -4
    assert torch.allclose(query(first, B, 2) - query(start, B, 2), torch.tensor(-4.0), atol=1e-5)
    # then by 0.2 * 2 + 0.8 * -5 = -3.6; the layer below it stays out of it
    second, _ = method.run_round(first, setting.clients, train)
    assert torch.allclose(query(second, B, 2) - query(first, B, 2), torch.tensor(-3.6), atol=1e-5)
    assert torch.equal(query(second, B, 1), query(start, B, 1))


def test_momentum_of_five_layers() -> None:
    # L = (4, 8, 12): layers 8..12 move by 8..12: m = 10; layers 4..8 of b by -4..-8: m = -6
    names = ("bert_base-d4-w0.02", "bert_base-d8-w0.02", "bert_base-w0.02")
    setting = fleet(*names)
    sign = {names[0]: 0.0, names[1]: -1.0, names[2]: 1.0}
    train = answers(lambda _, spec, number: sign[spec] * (number or 0), moves=True)
    config = Config(hetero_aggregation=False, momentum_source="before_injection")
    state = run(build(config, setting), setting, train)
    m_b, m_c = (state[n]["momentum"] for n in names[1:])
    assert torch.allclose(m_b["stages.4.query.weight"], torch.tensor(-6.0), atol=1e-5)
    assert torch.allclose(m_c["stages.8.query.weight"], torch.tensor(10.0), atol=1e-5)


@pytest.mark.parametrize(
    ("source", "expected"), [("after_injection", 2.5), ("before_injection", 3.0)]
)
def test_where_momentum_is_taken(source: str, expected: float) -> None:
    # b's layers 1 and 2 move by 4 and 2; beta = 1/2 and c's buffer is 0, so g2 becomes 1:
    # (4 + 1) / 2 after, (4 + 2) / 2 before the injection
    setting = fleet(A, B, C)
    values = by({(B, 1): 4.0, (B, 2): 2.0})
    config = Config(beta=0.5, weights="clients", momentum_source=source)  # type: ignore[arg-type]
    state = run(build(config, setting), setting, answers(values, moves=True))
    m = state[B]["momentum"]["stages.1.query.weight"]
    assert torch.allclose(m, torch.tensor(expected), atol=1e-5)


def test_beta_one_moves_a_top_layer_along_the_larger_models_momentum_only() -> None:
    setting = fleet(A, B)
    method = build(Config(beta=1.0, hetero_aggregation=False), setting)
    values = by({(A, 1): 100.0, (B, 1): -1.0, (B, 2): 4.0})
    train = answers(values, moves=True)
    start = method.init()
    first, _ = method.run_round(start, setting.clients, train)
    assert torch.equal(query(first, A, 1), query(start, A, 1))  # m = 0: not at all
    second, _ = method.run_round(first, setting.clients, train)
    moved = query(second, A, 1) - query(first, A, 1)
    assert torch.allclose(moved, torch.tensor(1.5), atol=1e-5)  # (-1 + 4) / 2


@pytest.mark.parametrize("server", ["fedavg", "fedadam"])
def test_beta_zero_is_without_momentum(server: str) -> None:
    setting = fleet(A, B, C)
    train = answers(lambda c, _, number: 0.1 * c.id - 0.2 * (number or 3), moves=True)
    zero = run(build(Config(beta=0.0, server=server), setting), setting, train, rounds=2)  # type: ignore[arg-type]
    off = run(build(Config(momentum=False, server=server), setting), setting, train, rounds=2)  # type: ignore[arg-type]
    on = run(build(Config(server=server), setting), setting, train, rounds=2)  # type: ignore[arg-type]
    assert equal(zero, off) and not equal(on, off)


def test_one_group_is_fedadam() -> None:
    # clients of 1 and 3 samples move by -1 and 3: g = 2 (by samples), 1 (each counts one)
    setting = fleet(C, C)
    train = answers(lambda client, *_: (-1.0, 3.0)[client.id], moves=True)
    for weights, g in (("samples", 2.0), ("clients", 1.0)):
        config = Config(server="fedadam", weights=weights)  # type: ignore[arg-type]
        state = run(build(config, setting), setting, train, rounds=3)
        expected, adam = dict(setting.initial[ModelSpec.parse(C)]), AdamState()
        for _ in range(3):
            update = {n: torch.full_like(w, g) for n, w in expected.items()}
            expected, adam = server_adam(expected, update, adam, lr=0.1)
        for name, w in state[C]["weights"].items():
            assert torch.allclose(w, expected[name], atol=1e-5)
        assert state[C]["adam"]["step"] == 3


def test_one_group_with_fedavg_is_fedavg() -> None:
    # 1 and 3 samples that answer -1 and 3: 2
    setting = fleet(C, C)
    train = answers(lambda client, *_: (-1.0, 3.0)[client.id], moves=False)
    state = run(build(Config(), setting), setting, train)
    assert all(
        torch.allclose(w, torch.tensor(2.0), atol=1e-5) for w in state[C]["weights"].values()
    )


def test_a_group_of_which_nobody_was_sampled() -> None:
    setting = fleet(A, B, C)
    method = build(Config(server="fedadam"), setting)
    train = answers(lambda c, *_: 0.3 * (c.id - 0.5), moves=True)
    before = run(method, setting, train)
    after, _ = method.run_round(before, [setting.clients[0], setting.clients[2]], train)
    assert equal(before[B]["adam"], after[B]["adam"])
    assert equal(before[B]["momentum"], after[B]["momentum"])
    for name, w in before[B]["weights"].items():
        isolated = layer(name) not in (0, 1)
        assert torch.equal(w, after[B]["weights"][name]) == isolated
    assert torch.equal(query(after, B, 1), query(after, C, 1))  # c alone was there for it


def test_no_layer_becomes_nan_when_strong_clients_are_rare() -> None:
    # weak : medium : strong = 7 : 2 : 1, one or two of ten sampled: often no strong one
    setting = fleet(*[A] * 7, B, B, C)
    method = build(Config(server="fedadam", adam=ServerConfig(lr=0.01)), setting)
    train = answers(lambda c, _, number: 0.01 * (-1) ** c.id * (number or 1), moves=True)
    state, stream, without = method.init(), np.random.default_rng(0), 0
    for _ in range(60):
        who = stream.choice(10, int(stream.integers(1, 3)), replace=False)
        without += 9 not in who
        state, _ = method.run_round(state, [setting.clients[i] for i in who], train)
        assert not all_finite(state)
    assert without > 40


def test_a_strong_devices_small_model_counts_among_the_weak() -> None:
    # the strong client (1 sample) says 3 for the small model, the weak one (3 samples) -1: 0 or 1
    setting = fleet((C, A), A)
    train = answers(lambda client, spec, _: 3.0 - 4.0 * client.id, moves=False)
    for weights, expected in (("samples", 0.0), ("clients", 1.0)):
        state = run(build(plain(weights=weights), setting), setting, train)
        assert torch.allclose(query(state, A, 1), torch.tensor(expected), atol=1e-5)
        assert torch.allclose(query(state, C, 3), torch.tensor(3.0), atol=1e-5)


def test_without_heterogeneous_aggregation_only_momentum_passes() -> None:
    setting = fleet(A, C)
    method = build(Config(hetero_aggregation=False), setting)
    train = answers(lambda client, *_: 1.0 + client.id, moves=True)
    start = method.init()
    state = run(method, setting, train)
    for i, spec in enumerate((A, C)):
        moved = state[spec]["weights"]["stem.words.weight"]
        assert torch.allclose(
            moved - start[spec]["weights"]["stem.words.weight"], torch.tensor(1.0 + i)
        )


def test_dropped_groups() -> None:
    setting = fleet(A, B, C)
    method = build(Config(drop_groups=f" {B},"), setting)
    seen: list[Job] = []

    def train(jobs: Sequence[Job]) -> Sequence[Answer]:
        seen.extend(jobs)
        return answers(lambda client, *_: 1.0 + client.id, moves=True)(jobs)

    start = method.init()
    state, _ = method.run_round(start, setting.clients, train)
    assert [job.client.id for job in seen] == [0, 2]
    assert torch.equal(query(state, B, 2), query(start, B, 2))
    assert torch.equal(query(state, B, 1), query(state, C, 1))  # what it is served goes on
    # momentum comes from the next larger group that is there, over layers 1..3 of c
    assert len(state[C]["momentum"]) == 16 and not state[B]["momentum"]
    assert "stages.1.query.weight" in state[C]["momentum"]
    served = method.personalize(state, setting.clients)
    assert [w.keys() for w in served] == [state[s]["weights"].keys() for s in (A, B, C)]
    nobody, _ = method.run_round(start, [setting.clients[1]], train)
    assert equal(nobody, start)


def test_layers_of_other_shapes_are_left_out_of_the_momentum() -> None:
    # LeNet-5's second block is larger than its first: the mean is over the first alone
    bed = Bed("inclusivefl", weights="clients")
    state, report = bed.method.run_round(
        bed.method.init(), bed.clients[:1], answers(lambda *_: 0.5, moves=True)
    )
    assert report == {"momentum_skipped": 0, "momentum_left_out": 4}
    for w in state["lenet5"]["momentum"].values():
        assert torch.allclose(w, torch.tensor(0.5), atol=1e-5)
    assert set(state["lenet5"]["momentum"]) == {
        f"stages.1.{module}.{kind}" for module in ("conv", "bn") for kind in ("weight", "bias")
    }


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"beta": 1.5}, "beta must be from 0 to 1, got 1.5"),
        ({"server": "adam"}, "server must be fedavg or fedadam, got 'adam'"),
        ({"weights": "all"}, "weights must be samples or clients"),
        ({"momentum_source": "x"}, "momentum_source must be after_injection or before_injection"),
        ({"adam": ServerConfig(weighted=True)}, "weights=samples or weights=clients says"),
    ],
)
def test_bad_settings(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Config(**options)


def test_fleets_that_it_refuses() -> None:
    images = {"num_classes": 2, "in_channels": 1, "image_size": 28}
    with pytest.raises(
        ConfigError, match=r"lenet5-w0\.5 has none of lenet5's; choose models that differ in depth"
    ):
        build(Config(), fleet("lenet5", "lenet5-w0.5", task=images))
    with pytest.raises(ConfigError, match="drop_groups names lenet5, the fleet has"):
        build(Config(drop_groups="lenet5"), fleet(A, B))
    with pytest.raises(ConfigError, match="drop_groups leaves no group"):
        build(Config(drop_groups=A), fleet(A))
