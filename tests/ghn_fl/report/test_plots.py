import re
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from ghn_fl.report import Run, plots, read_run
from ghn_fl.report.style import PALETTE, inline, percent_axis, svg, variables
from tests.ghn_fl.report.examples import write_run

FIGURES = ("accuracy", "clients", "fleet", "seconds", "bytes", "metrics")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("run")
    return read_run(write_run(folder, tiers={"strong": 2, "gateway": 3, "weak": 6}, every=4))


def draw(name: str, run: Run) -> Figure:
    figure: Figure = getattr(plots, f"{name}_figure")(run)
    return figure


def test_accuracy_has_a_panel_a_protocol_and_a_line_a_tier(run: Run) -> None:
    panels = draw("accuracy", run).axes
    assert len(panels) == 2
    for axes in panels:
        assert len(axes.lines) == 3
        # evaluated: rounds 4, 8 and the last fifth
        assert [list(line.get_xdata()) for line in axes.lines] == [[4, 8, 9, 10]] * 3
    weak = [run.rounds[i].tiers["weak"].accuracy for i in (3, 7, 8, 9)]
    assert list(panels[0].lines[2].get_ydata()) == weak
    legend = panels[0].get_legend()
    assert legend is not None
    assert [t.get_text().split()[0] for t in legend.get_texts()] == ["strong", "gateway", "weak"]


def test_every_client_is_a_dot_sorted_within_its_tier(run: Run) -> None:
    panels = draw("clients", run).axes
    assert [axes.get_title(loc="left") for axes in panels] == ["strong, 2", "gateway, 3", "weak, 6"]
    for axes, count in zip(panels, (2, 3, 6), strict=True):
        full, own = (list(dots.get_offsets()) for dots in axes.collections)
        assert len(full) == len(own) == count
        heights = [float(y) for _, y in own]
        assert heights == sorted(heights)


def test_fleet_shows_samples_and_mix_of_every_client(run: Run) -> None:
    figure = draw("fleet", run)
    samples, mixes, bar = figure.axes[:3], figure.axes[3:6], figure.axes[6:]
    assert [len(axes.patches) for axes in samples] == [2, 3, 6]
    assert samples[0].patches[0].get_height() == 15000  # type: ignore[attr-defined]
    assert [axes.images[0].get_array().shape for axes in mixes] == [(10, 2), (10, 3), (10, 6)]
    assert len({axes.images[0].get_clim() for axes in mixes}) == 1  # one scale for all
    assert len(bar) == 1


def test_a_thousand_weak_clients_leave_room_for_two_strong_ones(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path, tiers={"strong": 2, "weak": 1000}, rounds=2))
    figure = draw("fleet", run)
    text = svg(figure)
    strong, weak = figure.axes[:2]
    assert strong.get_position().width > 0.1 * weak.get_position().width
    assert len(weak.patches) == 1  # one outline instead of a thousand bars
    assert len(weak.patches[0].get_data().values) == 1000  # type: ignore[attr-defined]
    assert len(text) < 200_000
    main = figure.axes[3].images[0].get_array().argmax(axis=0)
    assert list(main) == sorted(main)  # ordered by the most common class
    assert len(svg(draw("clients", run))) < 600_000


def test_seconds_and_bytes_add_up(run: Run) -> None:
    whole, rounds = draw("seconds", run).axes
    totals = plots.phase_seconds(run)
    assert list(totals) == ["generate", "train", "update", "evaluate", "record"]
    assert [bar.get_width() for bar in whole.patches] == list(totals.values())  # type: ignore[attr-defined]
    top = rounds.patches[-1].get_data().values  # type: ignore[attr-defined]
    assert list(top) == pytest.approx([sum(r.seconds.values()) for r in run.rounds])
    each, total = draw("bytes", run).axes
    assert len(each.lines) == len(total.lines) == 2
    assert total.lines[1].get_ydata()[-1] == run.summary.bytes_up
    assert len(each.lines[0].get_ydata()) == 10


def test_metrics_are_a_panel_each(run: Run) -> None:
    panels = [axes for axes in draw("metrics", run).axes if axes.get_visible()]
    titles = [axes.get_title(loc="left") for axes in panels]
    assert titles == ["test loss", "server_loss", "transfer_loss"]
    assert len(panels[0].lines) == 3 and len(panels[1].lines[0].get_xdata()) == 10


def test_comparison_has_a_line_a_run(run: Run, tmp_path: Path) -> None:
    runs = [run, read_run(write_run(tmp_path, rounds=5))]
    panels = plots.comparison_figure(runs, ["a", "b"]).axes
    assert len(panels) == 6  # three tiers, two protocols
    assert all(len(axes.lines) == 2 for axes in panels)
    assert [len(line.get_xdata()) for line in panels[0].lines] == [4, 5]
    assert [len(line.get_xdata()) for line in panels[1].lines] == [4, 0]  # b has no gateways


def test_eight_runs_differ_in_colour_or_line(run: Run) -> None:
    axes = plots.comparison_figure([run] * 8, list("abcdefgh")).axes[0]
    assert len({(line.get_color(), line.get_linestyle()) for line in axes.lines}) == 8


@pytest.mark.parametrize("name", FIGURES)
def test_svg_is_the_same_twice_and_names_no_address_inline(run: Run, name: str) -> None:
    text = inline(draw(name, run), name, "label")
    assert inline(draw(name, run), name, "label") == text
    assert "http" not in text and "<style" not in text
    ids = re.findall(r' id="([^"]*)"', text)
    assert len(ids) == len(set(ids)) and all(i.startswith(f"{name}-") for i in ids)
    assert set(re.findall(r'(?:url\(#|href="#)([^)"]+)', text)) == set(ids)


def test_every_colour_of_a_figure_follows_the_page(run: Run) -> None:
    text = inline(draw("clients", run), "x", "label")
    assert "var(--c0)" in text and "var(--ink)" in text
    assert not re.findall(r"#[0-9a-f]{6}\b", re.sub(r"#x-\w+", "", text))
    assert len(variables()) == 3 + len(PALETTE)


@pytest.mark.parametrize("name", FIGURES)
def test_figures_of_a_single_round(tmp_path: Path, name: str) -> None:
    run = read_run(write_run(tmp_path, rounds=1, finished=False))
    assert svg(draw(name, run)).endswith("</svg>\n")


@pytest.mark.parametrize(("value", "text"), [(0.985, "98.5 %"), (1.0, "100 %"), (1.02, "")])
def test_no_axis_names_more_than_all(value: float, text: str) -> None:
    assert percent_axis(value) == text
