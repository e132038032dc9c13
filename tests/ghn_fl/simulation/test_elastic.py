"""Devices that change in the middle of a run: schedules, fleets, states, and the whole loop."""

from __future__ import annotations

import copy
import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.func import functional_call

import zoo
from ghn_fl import RunConfig, run
from ghn_fl.data import load
from ghn_fl.errors import ConfigError
from ghn_fl.methods import METHODS
from ghn_fl.report import read_run, write_report
from ghn_fl.report.plots import accuracy_figure
from ghn_fl.simulation import checkpoint
from ghn_fl.simulation.build import build_world, setting_of
from ghn_fl.simulation.elastic import Stage, changes_of, in_force, stages_of
from ghn_fl.simulation.fleet import tiers_of
from ghn_fl.simulation.grid import shared
from ghn_fl.tree import equal
from ghn_fl.types import Method, State
from tests.ghn_fl.methods.bed import OPTIONS, Bed
from zoo import ModelSpec

ELASTIC = [name for name in METHODS.names() if METHODS[name].elastic]
SHORT = {"recipfl": {"imitate": 5, "lessons": 20}}  # at the end, and at a change
LARGE, SMALL, NEW = (ModelSpec.parse(text) for text in ("lenet5", "lenet5-d1", "lenet5-w0.5"))


def change(round: int = 3, tier: str = "weak", part: float = 0.34, model: str = "lenet5") -> str:
    return f"[[change]]\nround={round}\ntier='{tier}'\npart={part}\nmodel='{model}'\n"


def config(folder: Path, schedule: str = "", **changes: Any) -> RunConfig:
    """A run on the synthetic set with 1 strong and 6 weak devices, a third of which are 2."""
    settings: dict[str, Any] = {
        "dataset": "synthetic",
        "method": "exclusivefl",
        "skew": "1:6",
        "rounds": 6,
        "sample": 4,
        "epochs": 1,
        "lr": 0.05,
        "batch_size": 32,
        "eval_every": 1,
    } | changes
    if schedule:
        file = folder / "schedule.toml"
        file.write_text(schedule)
        settings["elastic"] = str(file)
    method = settings["method"]
    return RunConfig(options=OPTIONS.get(method, {}) | SHORT.get(method, {}), **settings)


def stages(settings: RunConfig) -> tuple[Stage, ...]:
    dataset = load(settings.dataset, None)
    tiers = tiers_of(settings, dataset.in_channels)
    return stages_of(settings, tiers, build_world(settings, dataset, tiers)[1])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", r"must consist of \[\[change\]\] tables"),
        ("rounds = 3", r"must consist of \[\[change\]\] tables, got rounds"),
        ("change = []", r"must consist of \[\[change\]\] tables"),
        ("change = [3]", "a change must be a table of round, tier, part, model, got 3"),
        (change().replace("part", "prat"), "unknown key of a change 'prat'; did you mean 'part'"),
        ("[[change]]\nround=3", "a change needs round, tier, part, model"),
        (change().replace("'lenet5'", "5"), "the model as a text"),
        (change(round=1), "must be from 2 to the run's last, 6, got 1"),
        (change(round=7), "must be from 2 to the run's last, 6, got 7"),
        (change().replace("round=3", "round=3.5"), "'round' must be int, got 3.5"),
        (change(part=0), "above 0 and at most 1, got 0"),
        (change(part=1.5), "above 0 and at most 1, got 1.5"),
        (change(tier="weka"), "unknown tier 'weka'; did you mean 'weak'"),
        (change(model="lenet9"), "lenet9"),
        (change(model="lenet5-w2"), "width must be"),
        (change(part=0.6) + change(part=0.6, model="lenet5-w0.5"), "8 devices of the tier 'weak'"),
        (change(model="lenet5-d1"), "nothing would change"),
        (change() + change(4, "strong", 1.0), "every device drawn from the tier 'strong' has len"),
    ],
)
def test_bad_schedules(tmp_path: Path, text: str, says: str) -> None:
    settings = config(tmp_path, text or "\n")
    with pytest.raises(ConfigError, match=says) as refused:
        run(settings, out=tmp_path / "run", workers=1)
    assert "schedule.toml" in str(refused.value)
    assert not (tmp_path / "run").exists()


def test_a_missing_schedule_ends_a_whole_grid(tmp_path: Path) -> None:
    values = {"dataset": "synthetic", "elastic": str(tmp_path / "none.toml")}
    with pytest.raises(ConfigError, match="cannot read"):
        shared(values, ["fedavg", "recipfl"], "fedavg", None)


@pytest.mark.parametrize("method", ["recipfl", "exclusivefl", "allsmall"])
def test_a_third_of_the_weak_clients_change_and_nothing_else_does(
    tmp_path: Path, method: str
) -> None:
    before, after = stages(config(tmp_path, change(), method=method))
    assert (before.since, before.changed, after.since) == (1, (), 3)
    assert len(after.changed) == 2 and all(before.clients[i].tier == "weak" for i in after.changed)
    trained = {"recipfl": (LARGE, SMALL), "exclusivefl": (LARGE,), "allsmall": (SMALL,)}
    for old, new in zip(before.clients, after.clients, strict=True):
        if new.id in after.changed:
            assert new == dataclasses.replace(old, models=trained[method])
        else:
            assert new == old


def test_who_changes_follows_from_the_seed_alone(tmp_path: Path) -> None:
    def drawn(seed: int, schedule: str, method: str = "exclusivefl") -> set[int]:
        return set(stages(config(tmp_path, schedule, seed=seed, method=method))[1].changed)

    assert drawn(0, change()) == drawn(0, change(model="lenet5-w0.5"), "allsmall")
    assert drawn(0, change()) < drawn(0, change(part=0.7))
    assert len({tuple(drawn(seed, change())) for seed in range(5)}) > 1
    assert len(drawn(0, change(part=0.01))) == 1


def test_changes_follow_each_other(tmp_path: Path) -> None:
    # before round 3 a half gets one model and a half another, before round 5 all get theirs back
    back = change(5, part=1, model="lenet5-d1")
    text = back + change(3, part=0.5) + change(3, part=0.5, model="lenet5-w0.5")
    first, second, third = stages(config(tmp_path, text))
    models = [client.models[0] for client in second.clients]
    assert [models.count(m) for m in (LARGE, NEW, SMALL)] == [1 + 3, 3, 0]
    assert second.changed == third.changed == (1, 2, 3, 4, 5, 6)
    assert third.clients == first.clients
    all_stages = (first, second, third)
    assert [in_force(all_stages, n).since for n in (1, 2, 3, 4, 5, 6)] == [1, 1, 3, 3, 5, 5]


def test_who_has_that_model_already_does_not_change(tmp_path: Path) -> None:
    _, second, third = stages(config(tmp_path, change() + change(4, part=1)))
    assert sorted(second.changed + third.changed) == [1, 2, 3, 4, 5, 6]


def test_the_smallest_model_of_the_fleet_is_that_of_the_fleet_as_it_is_now(tmp_path: Path) -> None:
    less = ModelSpec.parse("lenet5-d1-w0.5")
    for method, own in (
        ("recipfl", {LARGE: (LARGE, less), SMALL: (SMALL, less), less: (less,)}),
        ("allsmall", dict.fromkeys((LARGE, SMALL, less), (less,))),
        ("exclusivefl", {spec: (spec,) for spec in (LARGE, SMALL, less)}),
    ):
        _, after = stages(config(tmp_path, change(model=str(less)), method=method))
        assert len(after.changed) == 2
        for client in after.clients:
            has = (
                LARGE if client.tier == "strong" else less if client.id in after.changed else SMALL
            )
            assert client.models == own[has]
    # once nobody has the small one any more, the large one is the smallest
    _, after = stages(config(tmp_path, change(part=1), method="allsmall"))
    assert {client.models for client in after.clients} == {(LARGE,)}


def test_no_schedule_is_one_stage(tmp_path: Path) -> None:
    (only,) = stages(config(tmp_path))
    assert only.since == 1 and changes_of(config(tmp_path), []) == ()


@pytest.mark.parametrize("method", ["depthfl", "fedavg"])
def test_a_method_that_cannot_go_on_is_refused_before_the_first_round(
    tmp_path: Path, method: str
) -> None:
    says = f"{method} cannot go on .* these can: alllarge, allsmall, exclusivefl, local, recipfl"
    with pytest.raises(ConfigError, match=says):
        run(config(tmp_path, change(), method=method), out=tmp_path / "run", workers=1)
    assert not (tmp_path / "run").exists()


def joined(bed: Bed, folder: Path) -> tuple[Stage, Method, State, State]:
    """The method on a fleet in which a weak device has a model that is new, before and after."""
    file = folder / "schedule.toml"
    file.write_text(change(model="lenet5-w0.5"))
    settings = dataclasses.replace(bed.config, elastic=str(file))
    _, stage = stages_of(settings, tiers_of(settings, 1), bed.clients)
    setting = setting_of(settings, bed.world, stage.clients)
    method = METHODS[settings.method].build(settings.method_config(), setting)
    state, _ = bed.method.run_round(bed.method.init(), bed.clients, bed.train(1))
    before = copy.deepcopy(state)
    assert method.join is not None
    after = method.join(state)
    assert equal(state, before)
    return stage, method, state, after


@pytest.mark.parametrize("name", ELASTIC)
def test_what_was_there_is_kept_and_everybody_is_served_his_model(
    name: str, tmp_path: Path
) -> None:
    torch.set_num_threads(1)
    bed = Bed(name, **SHORT.get(name, {}))
    stage, method, state, after = joined(bed, tmp_path)
    for client, weights in zip(
        stage.clients, method.personalize(after, stage.clients), strict=True
    ):
        model = zoo.build(client.models[0], **bed.world.task)
        assert {n: w.shape for n, w in weights.items()} == {
            n: p.shape for n, p in model.named_parameters()
        }
    for key, values in state.items():
        if key == "behind":  # how many samples stand behind each prior, of the fleet as it is now
            assert after[key][str(NEW)] == sum(stage.clients[i].samples for i in stage.changed)
        elif isinstance(values, dict) and key != "clients":
            assert equal(values, {k: after[key][k] for k in values})
        elif key != "clients":
            assert equal(values, after[key])
    going_on, _ = method.run_round(after, stage.clients, bed.train(2))
    assert not equal(going_on, after)


def test_a_new_group_begins_from_its_initial_weights(tmp_path: Path) -> None:
    bed = Bed("exclusivefl")
    _, method, state, after = joined(bed, tmp_path)
    assert after["models"].keys() == {*state["models"], "lenet5-w0.5"}
    assert equal(after["models"]["lenet5-w0.5"], method.init()["models"]["lenet5-w0.5"])
    assert not equal(after["models"]["lenet5"], method.init()["models"]["lenet5"])


def test_local_forgets_the_weights_of_those_who_changed(tmp_path: Path) -> None:
    stage, _, state, after = joined(Bed("local"), tmp_path)
    (changed,) = stage.changed
    assert state["clients"].keys() - after["clients"].keys() == {str(changed)}
    assert equal(after["clients"], {k: state["clients"][k] for k in after["clients"]})


def test_a_new_prior_is_taught_what_the_known_ones_answer(tmp_path: Path) -> None:
    bed = Bed("recipfl", lessons=100)
    stage, method, state, after = joined(bed, tmp_path)
    setting = setting_of(bed.config, bed.world, stage.clients)
    assert method.lessons is not None
    known: Any = method.lessons(state)  # by the priors that were there
    model = zoo.build(NEW, **setting.task)

    def error(weights: Any) -> float:
        answers = functional_call(model, dict(weights), (known.images,)).log_softmax(1)
        return float(F.kl_div(answers, known.answers, reduction="batchmean", log_target=True))

    assert error(after["prior"][str(NEW)]) < 0.5 * error(setting.initial[NEW])
    assert equal(after["mean"][str(NEW)], after["prior"][str(NEW)])
    assert all((w == 0).all() for w in after["speed"][str(NEW)].values())
    assert after["steps"][str(NEW)] == 0


def test_priors_that_nobody_trains_any_more_teach_before_they_go(tmp_path: Path) -> None:
    bed = Bed("recipfl", lessons=20)
    settings = config(tmp_path, change(part=1, model="lenet5-w0.5"), method="recipfl")
    settings = dataclasses.replace(bed.config, elastic=settings.elastic)
    _, stage = stages_of(settings, tiers_of(settings, 1), bed.clients)
    method = METHODS["recipfl"].build(
        settings.method_config(), setting_of(settings, bed.world, stage.clients)
    )
    assert method.join is not None and method.lessons is not None
    state, _ = bed.method.run_round(bed.method.init(), bed.clients, bed.train(1))
    after = method.join(state)
    assert after["behind"].keys() == {str(LARGE), str(NEW)} and str(SMALL) in after["prior"]
    blank = copy.deepcopy(state)  # with a small prior that knows nothing, others are taught
    blank["mean"][str(SMALL)] = {n: w * 0 for n, w in blank["mean"][str(SMALL)].items()}
    assert not equal(method.join(blank)["prior"][str(NEW)], after["prior"][str(NEW)])
    rested, forgotten = (
        method.lessons(after | {"mean": after["mean"] | {str(SMALL): of["mean"][str(SMALL)]}})
        for of in (after, blank)
    )
    assert torch.equal(rested.answers, forgotten.answers)  # type: ignore[attr-defined]


def test_without_lessons_a_new_prior_begins_from_its_initial_weights(tmp_path: Path) -> None:
    bed = Bed("recipfl", lessons=0)
    stage, _, _, after = joined(bed, tmp_path)
    initial = setting_of(bed.config, bed.world, stage.clients).initial[NEW]
    assert equal(after["prior"][str(NEW)], dict(initial))


def test_only_models_change(tmp_path: Path) -> None:
    # Under `local` devices do not hear of each other, so who keeps his model keeps his figures.
    plain = run(config(tmp_path, method="local", dropout=0.2), workers=1)
    settings = config(tmp_path, change(4), method="local", dropout=0.2)
    elastic = run(settings, workers=1)
    changed = set(elastic.rounds[3]["changed"])
    assert len(changed) == 2
    for a, b in zip(plain.rounds, elastic.rounds, strict=True):
        assert a["sampled"] == b["sampled"] and a["rejected"] == b["rejected"]
        for one, other in zip(a["clients"], b["clients"], strict=True):
            assert one == other or (b["round"] >= 4 and one["id"] in changed)
    assert ["changed" in record for record in elastic.rounds] == [n == 4 for n in range(1, 7)]
    assert not any("changed" in record for record in plain.rounds)


class Stop(Exception):
    pass


def stop_after_three(record: dict[str, Any]) -> None:
    if record["round"] == 3:
        raise Stop


@pytest.mark.parametrize("method", ELASTIC)
def test_a_run_with_changes_goes_on_bit_for_bit(tmp_path: Path, method: str) -> None:
    # what changed before round 3 is in the checkpoint after it, what changes before 4 is not
    text = change(3) + change(4, model="lenet5-w0.5")
    settings = config(tmp_path, text, method=method, eval_every=6)
    whole = run(settings, out=tmp_path / "whole", workers=1)
    assert all(0 <= whole.summary[f"{tier}_accuracy"] <= 1 for tier in ("strong", "weak"))
    parts = tmp_path / "parts"
    with pytest.raises(Stop):
        run(settings, out=parts, workers=1, watch=stop_after_three)
    saved = checkpoint.load(parts)
    assert saved is not None and saved[0] == 3
    resumed = run(settings, out=parts, workers=1, resume=True)
    assert equal(whole.state, resumed.state)
    for a, b in zip(whole.rounds, resumed.rounds, strict=True):
        assert {k: v for k, v in a.items() if k != "seconds"} == {
            k: v for k, v in b.items() if k != "seconds"
        }


def test_a_run_folder_tells_of_the_changes(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    settings = config(tmp_path, change(2), rounds=3)
    result = run(settings, out=folder, workers=1)
    changed = result.rounds[1]["changed"]
    stored = json.loads((folder / "config.json").read_text())
    assert [c["models"] for c in stored["fleet"]] == [["lenet5"]] + [["lenet5-d1"]] * 6
    assert stored["changes"] == [
        {"round": 2, "clients": [{"id": i, "models": ["lenet5"]} for i in changed]}
    ]
    found = read_run(folder)
    assert [list(record.changed) for record in found.rounds] == [[], changed, []]
    lines = [line.get_xdata() for line in accuracy_figure(found).axes[0].lines]
    assert [1.5, 1.5] in [list(x) for x in lines]
    assert "change to other models" in write_report(folder).read_text()
    config(tmp_path, change(3), rounds=3)  # another schedule of the same name
    with pytest.raises(ConfigError, match="was started with another schedule"):
        run(settings, out=folder, workers=1, resume=True)
