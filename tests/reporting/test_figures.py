"""Figures are drawn from what exists, the same bytes every time, with labels that do not overlap."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up import DATASET, Experiment
from matplotlib.image import imread

from maxk.artifacts import files
from maxk.errors import UserError
from maxk.reporting import figures, specs, style, training_log
from maxk.reporting.load import load


def test_figures_are_written_as_png_and_pdf_and_are_reproducible(small: Experiment) -> None:
    scores = load(small.config)
    write_metrics(small)
    for name in figures.FIGURES:
        paths = figures.write(name, scores, small.config)
        assert [Path(path).suffix for path in paths] == [".png", ".pdf"]
        before = [files.digest(path) for path in paths]
        figures.write(name, scores, small.config)
        assert before == [files.digest(path) for path in paths], name


def write_metrics(made: Experiment, objective: str = "grpo", lines: int = 30) -> None:
    path = Path(made.config.layout.metrics(f"{objective}/seed0"))
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [{"step": i + 1, "reward": i / 30, "kl": None if i < 3 else 0.1, "ratio_q99": 1.5} for i in range(lines)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    Path(made.config.layout.policy(f"{objective}/seed0")).write_text("{}")  # the training is finished


def test_every_figure_that_rules_ask_for_is_drawn() -> None:
    assert list(figures.FIGURES) == list(specs.FIGURES)


def test_figures_fit_a_page(experiment: Callable[..., Experiment]) -> None:
    """Twelve policies on five datasets: no figure is wider than 8 inches or higher than 11, at 200 dots an inch."""
    objectives = {f"grpo_{i}": {"type": "grpo", "label": f"Policy {i}"} for i in range(11)}
    made = experiment(
        objectives=objectives, datasets={f"d{i}": DATASET for i in range(5)}, training={"datasets": ["d0"]}
    )
    for policy in made.config.policies:
        for dataset in made.config.evaluated:
            made.score(policy, dataset, [0.0, 0.5, 1.0])
    for name in objectives:
        write_metrics(made, name)
    for name in figures.FIGURES:
        png, _ = figures.write(name, load(made.config), made.config)
        height, width, _ = imread(png).shape
        assert (width, height <= 11 * 200) == (8 * 200, True), (name, width, height)


def test_the_mean_over_one_dataset_is_called_by_its_name(experiment: Callable[..., Experiment]) -> None:
    rewards = [0.0, 0.5, 0.5, 1.0]
    two = experiment().score_all({"base": {"easy": rewards, "hard": rewards}})
    assert figures._place_title(load(two.config), specs.MEAN) == "mean of 2 datasets"
    one = experiment(datasets={"easy": DATASET}).score_all({"base": {"easy": rewards}})
    assert figures._place_title(load(one.config), specs.MEAN) == "easy (4 problems)"


def test_a_batchs_value_is_the_mean_over_the_iterations_that_log_it() -> None:
    """As the trainer logs at μ = 3: rewards in the first iteration of a batch, ratios in the two that follow."""
    run = [
        {"step": 1, "reward": 0.1},
        {"step": 2, "ratio_q99": 1.2},
        {"step": 3, "ratio_q99": 1.4},
        {"step": 3, "eval_reward": 0.9},
        {"step": 4, "reward": 0.3},
        {"step": 5, "ratio_q99": 1.0},
        {"step": 6, "ratio_q99": 2.0},
    ]
    assert training_log._by_batch(run, "ratio_q99", iterations=3) == pytest.approx([1.3, 1.5])
    assert training_log._by_batch(run, "reward", iterations=3) == pytest.approx([0.1, 0.3])


def test_an_unknown_figure_is_one_line(small: Experiment) -> None:
    with pytest.raises(UserError, match=r"no figure 'figure9'; there are figure1, figure2"):
        figures.write("figure9", load(small.config), small.config)


def test_without_data_a_figure_is_a_note(experiment: Callable[..., Experiment]) -> None:
    made = experiment()
    made.score("base", "easy", [0.5], entropy=False)
    for name in figures.FIGURES:
        assert all(Path(path).stat().st_size for path in figures.write(name, load(made.config), made.config))


def test_half_a_line_of_metrics_is_one_line_of_error(small: Experiment) -> None:
    write_metrics(small)
    path = Path(small.config.layout.metrics("grpo/seed0"))
    path.write_text(path.read_text()[:-9])
    with pytest.raises(UserError, match=r"metrics.jsonl: not one JSON object a line"):
        figures.write("training", load(small.config), small.config)


def test_a_training_that_is_not_finished_has_no_curves(small: Experiment) -> None:
    """One that is being done again would stand beside scores of the whole training, and cut the other seeds' logs."""
    write_metrics(small)
    assert training_log.read(small.config, "grpo", ["reward"])["reward"].shape == (1, 30)
    Path(small.config.layout.policy("grpo/seed0")).unlink()
    assert training_log.read(small.config, "grpo", ["reward"]) == {}


def test_a_policy_keeps_its_look_whatever_is_shown() -> None:
    rows = ["base", *(f"o{i}" for i in range(30))]
    looks = style.looks(rows)
    assert looks["base"].colour == style.BASE_COLOUR
    assert len({(look.colour, str(look.dashes)) for look in looks.values()}) == 31
    assert len({(look.colour, look.marker) for look in looks.values()}) == 31
    assert style.looks(rows[:5])["o3"] == looks["o3"]


@given(st.lists(st.floats(-0.2, 1.2), min_size=1, max_size=20), st.floats(0.001, 0.2))
def test_labels_are_spread_in_order_within_the_panel(wanted: list[float], gap: float) -> None:
    gap = min(gap, 1 / len(wanted))
    placed = style.spread({str(i): y for i, y in enumerate(wanted)}, gap)
    positions = sorted(placed.values())
    assert all(b - a >= gap - 1e-9 for a, b in itertools.pairwise(positions))
    assert positions[0] >= -1e-9
    assert positions[-1] <= 1 + 1e-9
    order = sorted(placed, key=lambda row: placed[row])
    assert [wanted[int(i)] for i in order] == sorted(wanted)


def test_labels_stay_where_they_are_if_there_is_room() -> None:
    assert style.spread({"a": 0.1, "b": 0.9}, 0.1) == pytest.approx({"a": 0.1, "b": 0.9})
