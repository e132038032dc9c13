"""Does everybody gain? The panel's runs exist and are comparable; its verdicts, worked by hand."""

import dataclasses
import json
from pathlib import Path

import pytest

from benchmarks import gains, gains_ablation, gains_report, results_file
from benchmarks.gains import METHODS, SETTINGS, TUNING_SEED
from benchmarks.gains_report import (
    BEGIN,
    END,
    PAGE,
    Measured,
    best_baseline,
    bytes_a_visit,
    filled,
    gains_figure,
    results_text,
    rows_of,
    samples_trained,
    summary_table,
    verdict,
)
from ghn_fl.data import DATASETS
from ghn_fl.errors import ConfigError
from ghn_fl.report.grid import Missing, read_grid
from ghn_fl.report.paired import Paired, paired_test
from ghn_fl.report.read import read_run
from ghn_fl.report.style import svg
from ghn_fl.report.tune import Trial
from ghn_fl.simulation.fleet import tiers_of
from ghn_fl.simulation.grid import OWN, Cell
from ghn_fl.which_models import smallest
from tests.ghn_fl.report.examples import change, change_round, write_run

RATES = dict.fromkeys(METHODS, 0.03)
# what a method may have for itself; all else is the same for every method of a setting
THEIRS = {"method", "options", "seed", "lr"}


@pytest.mark.parametrize("name", SETTINGS)
def test_runs_of_a_setting_differ_in_the_method_alone(name: str, tmp_path: Path) -> None:
    cells = gains.evaluation_cells(name, tmp_path, (0, 1), RATES)
    assert [c.name for c in cells[: len(METHODS)]] == [f"{m}-0" for m in METHODS]
    assert len({cell.name for cell in cells}) == 2 * len(METHODS)
    _check_comparable(cells)
    assert {cell.config.lr for cell in cells} == {0.03}
    assert {cell.config.validation for cell in cells} == {0.0}
    tiers = tiers_of(cells[0].config, DATASETS[cells[0].config.dataset].shape[0])
    assert {"strong", "weak"} <= {tier.name for tier in tiers}  # what summaries speak of


@pytest.mark.parametrize("name", SETTINGS)
def test_tuning_tries_the_same_for_all_and_looks_at_no_test_data(name: str, tmp_path: Path) -> None:
    cells = gains.tuning_cells(name, tmp_path, METHODS)
    _check_comparable(cells)
    (rates,) = {
        tuple(cell.config.lr for cell in cells if cell.config.method == method)
        for method in METHODS
    }
    assert len(rates) > 1 and list(rates) == sorted(set(rates))
    for method in METHODS:
        own = [cell.config for cell in cells if cell.config.method == method]
        assert {config.seed for config in own} == {TUNING_SEED}
        assert all(config.validation == 0.2 for config in own)
    whole = gains.base_config(name, tmp_path, tuning=False)
    assert cells[0].config.rounds < whole.rounds
    with pytest.raises(ConfigError, match="chose the learning rates"):
        gains.evaluation_cells(name, tmp_path, (0, TUNING_SEED), RATES)


def _check_comparable(cells: list[Cell]) -> None:
    assert THEIRS - {"method", "options", "seed"} <= set(OWN)
    shared = [
        {k: v for k, v in dataclasses.asdict(cell.config).items() if k not in THEIRS}
        for cell in cells
    ]
    assert all(own == shared[0] for own in shared)
    assert shared[0]["public"]  # held out for all, or FedMD alone would have less


def test_larger_devices_of_the_mixed_fleet_train_the_weak_ones_model(tmp_path: Path) -> None:
    models = {t.name: t.model for t in tiers_of(gains.base_config("g", tmp_path, tuning=False), 3)}
    assert smallest(None, models["strong"], list(models.values())) == (models["weak"],)
    assert len({model.family for model in models.values()}) == len(models)


def test_tuning_keeps_the_best_rate_all_scores_and_reasons(tmp_path: Path) -> None:
    runs = [read_run(write_run(tmp_path / str(i), gain=-0.1 * i)) for i in range(2)]
    trials = [
        Trial(method="recipfl", settings={"lr": 0.1}, words={}, runs=(runs[1],), reasons=()),
        Trial(method="recipfl", settings={"lr": 0.01}, words={}, runs=(runs[0],), reasons=()),
        Trial(method="local", settings={"lr": 0.1}, words={}, runs=(), reasons=("too wide",)),
    ]
    found = gains.tuned(trials)
    assert found["recipfl"]["lr"] == 0.01
    assert found["recipfl"]["scores"] == {"0.1": trials[0].score, "0.01": trials[1].score}
    assert found["local"] == {"reason": "too wide"}


# --- verdicts -----------------------------------------------------------------------------------


def paired(*by_seed: float, p: float | None) -> Paired:
    difference = sum(by_seed) / len(by_seed)
    return Paired(difference=difference, by_seed=by_seed, pairs=300, over_seeds=False, p=p)


def test_above_and_below_need_both_tests() -> None:
    # means of the seeds 4, 5, 6: t = 5 / (1 / sqrt 3) = 8.66, p = 1 - sqrt(75 / 77) = 0.013
    steady = paired(0.04, 0.05, 0.06, p=1e-9)
    assert steady.p_seeds == pytest.approx(1 - (75 / 77) ** 0.5)
    assert verdict(steady, 1e-8) == "above"
    assert verdict(steady, 0.05) == "level"  # after the correction
    assert verdict(paired(-0.04, -0.05, -0.06, p=1e-9), 1e-8) == "below"
    # 1, 2, 3: p = 1 - sqrt(12 / 14) = 0.074, however many devices agree
    assert verdict(paired(0.01, 0.02, 0.03, p=1e-9), 1e-8) == "level"
    assert verdict(paired(0.09, 0.05, -0.01, p=1e-9), 1e-8) == "level"


def test_one_seed_or_none_gives_no_verdict() -> None:
    assert verdict(paired(0.05, p=1e-9), 1e-8) == "–"
    assert verdict(None, None) == "–"
    assert verdict(paired_test({0: [(0.5, 0.6)]}), None) == "–"


# --- what is told -------------------------------------------------------------------------------


@pytest.fixture
def measured(tmp_path: Path) -> Measured:
    """Three seeds of 2 strong and 4 weak devices; accuracies are set by hand.

    strong: ours is ahead of allsmall by 4, 5, 6 points, and behind exclusivefl by 1, 2, 3.
    weak: ours is ahead of allsmall by 1 in every seed but for one device each, which has 1 + seed.
    """
    folders = []
    for method, strong, weak in (("recipfl", 0, 0), ("allsmall", -4, -1), ("exclusivefl", 1, 1)):
        for seed in range(3):
            shift = (strong + (strong > 0) * seed - (strong < 0) * seed) / 100
            values = [0.8 + shift] * 2 + [0.7 + weak / 100] * 3
            values.append(0.7 + weak / 100 * (1 + seed))
            folders.append(_run(tmp_path / f"{method}-{seed}", method, seed, values))
    missing = [Missing(method="heterofl", seed=s, status="", reason="no cut") for s in range(3)]
    scores = {"recipfl": {"0.01": 0.5, "0.03": 0.625}}
    grid = read_grid(folders, missing, "recipfl")
    return Measured(name="a", title="Digits", grid=grid, scores=scores)


def _run(folder: Path, method: str, seed: int, values: list[float]) -> Path:
    """A run of 5 rounds whose devices end with these accuracies on the whole test set."""
    tiers = {"strong": 2, "weak": 4}
    write_run(folder, method=method, seed=seed, tiers=tiers, rounds=5)
    for key, value in (("lr", 0.03), ("epochs", 2)):
        change(folder / "config.json", "config", key, to=value)
    for place, value in enumerate(values):
        change_round(folder, 5, "clients", place, "accuracy_full", to=value)
    for tier, own in (("strong", values[:2]), ("weak", values[2:])):
        mean = sum(own) / len(own)
        change(folder / "summary.json", "tiers", tier, "accuracy_full", to=mean)
    return folder


def test_rows_by_hand(measured: Measured) -> None:
    ours, allsmall, exclusive = rows_of(measured.grid, "strong")
    assert (ours.method, ours.lr, ours.verdict) == ("recipfl", "0.03", "–")
    assert ours.values == pytest.approx((0.8, 0.8, 0.8))
    assert allsmall.ahead is not None and exclusive.ahead is not None
    # two devices a seed: a t-test over three seeds; p 0.013, times 2 after Holm
    assert allsmall.ahead.by_seed == pytest.approx((0.04, 0.05, 0.06))
    assert allsmall.p == pytest.approx(2 * (1 - (75 / 77) ** 0.5))
    assert allsmall.verdict == "above"
    assert exclusive.ahead.difference == pytest.approx(-0.02)
    assert exclusive.p == pytest.approx(1 - (12 / 14) ** 0.5) and exclusive.verdict == "level"
    assert best_baseline([ours, allsmall, exclusive]) is exclusive
    assert best_baseline([ours]) is None
    _, weak, _ = rows_of(measured.grid, "weak")
    assert weak.ahead is not None and (weak.ahead.pairs, weak.ahead.over_seeds) == (12, False)
    assert weak.ahead.by_seed == pytest.approx((0.01, 0.0125, 0.015))
    # the t-test: mean 1.25, deviation 0.25, t = 5 sqrt 3 = 8.66 once more
    assert weak.ahead.p_seeds == pytest.approx(1 - (75 / 77) ** 0.5)
    assert weak.verdict == "above"


def test_the_summary_has_a_row_a_tier(measured: Measured) -> None:
    strong, weak = summary_table([measured]).splitlines()[2:]
    assert strong == (
        "| a. Digits | strong | 80.00 ± 0.00 | exclusivefl 82.00 ± 1.00 | -2.00 | 0 of 3 "
        "| **level** | 1 / 1 / 0 |"
    )
    assert weak.startswith("| a. Digits | weak | 70.00 ± 0.00 | exclusivefl 71.25 ± 0.25 | -1.25")


def test_the_text_names_all_methods_reasons_rates_and_costs(measured: Measured) -> None:
    text = results_text([measured])
    assert "- heterofl: no cut" in text
    assert "| strong | **exclusivefl** | 0.03 | 82.00 ± 1.00 | -2.00 | 0 of 3 | 3 seeds |" in text
    assert "| a | recipfl | 50.00 | **62.50** |" in text
    assert "lenet5 + lenet5-d1" in text and "nan" not in text


def test_costs_by_hand(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", tiers={"strong": 2, "weak": 4}, rounds=4)
    change(folder / "config.json", "config", "epochs", to=2)
    run = read_run(folder)
    # all six devices in four rounds, but for one that is missing in the last: a strong one has
    # two models and 15,000 samples, a weak one a model and 7,500
    gone = run.rounds[3].rejected[0].client
    lost = 30_000 if gone < 2 else 7_500
    assert samples_trained(run) == 2 * (4 * (2 * 30_000 + 4 * 7_500) - lost)
    # 250 kB down for each who was asked, and up for each who answered
    assert bytes_a_visit(run) == pytest.approx(250_000 * (24 + 23) / 23)


def test_the_picture_has_a_line_a_tier(measured: Measured) -> None:
    figure = gains_figure([measured])
    (axes,) = figure.axes
    assert [t.get_text() for t in axes.get_yticklabels()] == ["a. Digits   strong", "weak"]
    assert [t.get_text().strip() for t in axes.texts] == [
        "-2.00 vs exclusivefl",
        "-1.25 vs exclusivefl",
    ]
    assert svg(figure) == svg(gains_figure([measured]))


def test_the_page_is_filled_between_its_marks(measured: Measured) -> None:
    page = PAGE.read_text()
    once = filled(page, [measured])
    assert once.startswith(page[: page.index(BEGIN)]) and once.endswith(page[page.index(END) :])
    assert "exclusivefl 82.00" in once and filled(once, [measured]) == once


def test_a_setting_tells_what_is_there_and_why_the_rest_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "tuned.json"
    choices = {"recipfl": {"lr": 0.1, "scores": {"0.1": 0.5}}, "flexifed": {"reason": "too wide"}}
    file.write_text(json.dumps({"h": choices}))
    monkeypatch.setattr(gains, "TUNED", file)
    monkeypatch.setattr(gains, "KEPT", tmp_path / "kept")
    write_run(tmp_path / "h" / "recipfl-0", seed=0)
    assert gains.rates_of("h") == {"recipfl": 0.1}
    found = gains.measured("h", tmp_path, (0, 1))
    assert list(found.grid.runs) == ["recipfl"] and found.scores == {"recipfl": {"0.1": 0.5}}
    reasons = {(m.method, m.seed): m.reason for m in found.grid.missing}
    assert ("recipfl", 1) not in reasons  # nobody has run this seed
    assert reasons["flexifed", 0] == "too wide" and reasons["local", 0] == "not tuned"
    # a seed counts once every method that is tuned has run it; what it lacks is told
    file.write_text(json.dumps({"h": choices | {"local": {"lr": 0.1, "scores": {}}}}))
    write_run(tmp_path / "h" / "recipfl-2", seed=2)
    write_run(tmp_path / "h" / "local-2", seed=2, method="local")
    found = gains.measured("h", tmp_path, (0, 1, 2))
    assert found.grid.seeds == [2] and set(found.grid.runs) == {"recipfl", "local"}
    assert [m.seed for m in found.grid.missing if m.method == "local"] == [0]
    with pytest.raises(ConfigError, match="gains tune a"):
        gains.rates_of("a")
    with pytest.raises(ConfigError, match="no runs to compare"):
        gains.report(tmp_path, (0,))


def test_variants_differ_from_the_whole_method_in_one_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "tuned.json"
    file.write_text(json.dumps({"h": {"recipfl": {"lr": 0.5, "scores": {}}}}))
    monkeypatch.setattr(gains, "TUNED", file)
    (whole,) = gains.evaluation_cells("h", tmp_path, (1,), {"recipfl": 0.5})
    cells = gains_ablation.cells_of("h", tmp_path, (1,))
    assert len({cell.name for cell in cells}) == len(gains_ablation.VARIANTS)
    for cell, (variant, options) in zip(cells, gains_ablation.VARIANTS.items(), strict=True):
        expected = dataclasses.replace(whole.config, options=whole.config.options | options)
        if variant in gains_ablation.METHODS:
            expected = dataclasses.replace(whole.config, method="recipfl-paper", options={})
        assert cell.config == expected


def test_a_variant_that_has_less_is_below(measured: Measured) -> None:
    runs = measured.grid.runs
    found = {"recipfl": runs["recipfl"], "no transfer": runs["allsmall"], "neither": {}}
    text = gains_ablation.text("h", found)
    # strong 4, 5, 6 points below the whole; weak 1, 1.25, 1.5: p of both t-tests 0.013
    assert "| no transfer | 75.00 ± 1.00 | -5.00 | 0.013 | below | 68.75 ± 0.25 | -1.25 |" in text
    assert "neither" not in text


@pytest.mark.slow
def test_tune_run_and_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = {"dataset": "synthetic", "skew": "1:2", "large": "lenet5", "small": "lenet5-w0.5"}
    setting = gains.Setting(
        title="Clusters",
        settings={**small, "public": "heldout", "rounds": 2, "epochs": 1},
        tuning_rounds=1,
        rates="lr=0.03",
    )
    page = tmp_path / "results.md"
    page.write_text(PAGE.read_text())
    monkeypatch.setattr(gains, "SETTINGS", {"a": setting})
    methods = ("recipfl", "local", "inclusivefl")
    monkeypatch.setattr(gains, "METHODS", methods)
    monkeypatch.setattr(gains, "TUNED", tmp_path / "tuned.json")
    monkeypatch.setattr(gains, "KEPT", tmp_path / "kept")
    monkeypatch.setattr(gains_report, "PAGE", page)
    for module in (gains_report, results_file):
        monkeypatch.setattr(module, "FOLDER", tmp_path)
    for part in (methods[:2], methods[2:]):  # what was tuned before is kept
        gains.tune(["a"], part, tmp_path / "runs", None)
    gains.run(["a"], methods, (0, 1), tmp_path / "runs", None)
    written = gains.report(tmp_path / "runs", (0, 1))
    assert [path.name for path in written] == ["gains.md", "gains.svg", "results.md"]
    text = written[0].read_text()
    assert "- inclusivefl: inclusivefl needs models that share layers" in text
    assert "a strong device trains" in text and "lenet5 + lenet5-w0.5" in text
    assert "| a. Clusters | strong |" in page.read_text()
    # on another machine: what is kept is not run again, and says the same
    gains.run(["a"], methods, (0, 1), tmp_path / "other", None)
    assert not list(tmp_path.glob("other/a/*/checkpoint"))
    assert gains.report(tmp_path / "other", (0, 1))[0].read_text() == text
