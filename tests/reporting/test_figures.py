"""Figures are drawn from what exists, the same bytes every time, and methods keep their look."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from made_up import DATASET, Experiment, write_statistics
from matplotlib.image import imread
from matplotlib.text import Text

from maxk.artifacts import files
from maxk.config import colours
from maxk.errors import UserError
from maxk.reporting import MEAN, figures, style, training_log
from maxk.reporting.load import load


def inputs(made: Experiment) -> figures.Inputs:
    write_statistics(made)
    return figures.inputs(load(made.config), made.config)


def write(made: Experiment, names: Iterable[str] | None = None) -> dict[str, list[str]]:
    """Paths of the files of each figure, by default of all figures of the experiment."""
    given, declared = inputs(made), figures.figures(made.config)
    return {name: figures.write(declared[name], given) for name in names or declared}


def write_metrics(made: Experiment, objective: str = "grpo", lines: int = 30) -> None:
    path = Path(made.config.layout.metrics(f"{objective}/seed0"))
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [{"step": i + 1, "reward": i / 30, "kl": None if i < 3 else 0.1, "ratio_q99": 1.5} for i in range(lines)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    Path(made.config.layout.policy(f"{objective}/seed0")).write_text("{}")  # the training is finished


def test_the_kl_to_the_old_policy_is_drawn_where_it_is_logged(small: Experiment) -> None:
    write_metrics(small)
    assert [ax.get_title() for ax in figures.FIGURES["training"].draw(inputs(small)).axes] == [
        "mean reward",
        "KL to the base model",
    ]
    log = Path(small.config.layout.metrics("grpo/seed0"))
    log.write_text(log.read_text().replace('"kl"', '"kl_old"'))
    assert [ax.get_title() for ax in figures.FIGURES["training"].draw(inputs(small)).axes] == [
        "mean reward",
        "KL to the policy at generation",
    ]


@pytest.mark.parametrize("names", [["differences"], pytest.param(list(figures.FIGURES), marks=pytest.mark.slow)])
def test_figures_are_reproducible(small: Experiment, names: list[str]) -> None:
    write_metrics(small)
    written = write(small, names)
    for name, paths in written.items():
        assert paths == [f"results/{name}.png", f"results/{name}.pdf"]
    before = {path: files.digest(path) for paths in written.values() for path in paths}
    write(small, names)
    assert before == {path: files.digest(path) for path in before}


def test_every_figure_says_what_it_shows() -> None:
    for name, one in figures.FIGURES.items():
        assert one.title, name
        assert one.caption.endswith("."), name


@pytest.mark.slow
def test_figures_fit_a_page(experiment: Callable[..., Experiment]) -> None:
    """Twelve policies on five datasets: every figure is 8 inches wide and at most 11.5 high, at 200 dots per inch."""
    objectives = {f"grpo_{i}": {"type": "grpo", "label": f"Policy {i}"} for i in range(11)}
    made = experiment(
        objectives=objectives, datasets={f"d{i}": DATASET for i in range(5)}, training={"datasets": ["d0"]}
    )
    for policy in made.config.policies:
        for dataset in made.config.evaluated:
            made.score(policy, dataset, [0.0, 0.5, 1.0])
    for name in objectives:
        write_metrics(made, name)
    for name, (png, *_) in write(made).items():
        height, width, _ = imread(png).shape
        assert (width, height <= 11.5 * 200) == (8 * 200, True), (name, width, height)


@pytest.mark.slow
@pytest.mark.filterwarnings("error::FutureWarning")  # of pandas, where an empty frame decides about types
@pytest.mark.parametrize("objectives", [{"grpo": {"type": "grpo"}}, {}], ids=["unscored", "untrained"])
def test_with_only_a_base_model_every_figure_is_drawn(
    experiment: Callable[..., Experiment], objectives: dict[str, object]
) -> None:
    made = experiment(objectives=objectives)
    made.score_all({"base": {"easy": [0.0, 0.5], "hard": [0.5, 1.0]}})
    for name, (png, *_) in write(made).items():
        image = imread(png)
        assert image.shape[1] > 1000, name
        ink = (image[..., :3] < 0.9).any(axis=2)
        assert ink.any(), name
        assert not ink[[0, -1]].any(), f"{name} is clipped"
        assert not ink[:, [0, -1]].any(), f"{name} is clipped"


def test_figures_about_training_are_those_of_experiments_that_train(experiment: Callable[..., Experiment]) -> None:
    untrained = experiment(objectives={}).config
    assert list(figures.figures(untrained)) == ["max_at_k", "max_at_k_grid", "figure1", "figure2", "clusters"]
    assert list(figures.figures(experiment().config)) == list(figures.FIGURES)
    with pytest.raises(UserError, match=r"no figure 'training'; known: max_at_k, max_at_k_grid, figure1"):
        figures.get(untrained, "training")


def test_without_training_logs_a_message_says_why(experiment: Callable[..., Experiment]) -> None:
    said = [text.get_text() for text in drawn(experiment(), "ratios").texts]
    assert said[0].startswith("No training log has these metrics: ratio_q99")


def panels(figure: object) -> dict[str, list[tuple[object, list[float]]]]:
    """By panel, colour and values of every line that is drawn as a curve or a dot."""
    return {
        " ".join(ax.get_title(loc="left").split()): [
            (line.get_color(), list(map(float, line.get_ydata())))
            for line in ax.lines
            if line.get_marker() not in ("", "None")
        ]
        for ax in figure.axes
    }


def test_curves_are_shown_beside_their_differences_to_the_base_model_and_to_grpo(small: Experiment) -> None:
    """Rewards are constant within a problem, so every max@k is the mean of the eight rewards in conftest.py."""
    with style.applied():
        found = panels(figures.FIGURES["max_at_k"].draw(inputs(small)))
    base, grpo, bon = (0.5 + 0.0625) / 2, (0.625 + 0.125) / 2, (0.875 + 0.125) / 2
    expected = {
        "max@k": {"base": base, "grpo": grpo, "bon_mean": bon},
        "max@k − Base model": {"grpo": grpo - base, "bon_mean": bon - base},
        "max@k − GRPO": {"bon_mean": bon - grpo},
    }
    colours = {policy: look.colour for policy, look in style.looks(small.config).items()}
    assert list(found) == list(expected)
    for panel, values in expected.items():
        drawn = dict(found[panel])
        assert drawn.keys() == {colours[policy] for policy in values}
        for policy, value in values.items():
            assert drawn[colours[policy]] == pytest.approx([value] * 3), (panel, policy)


def test_a_dot_is_filled_where_the_interval_excludes_zero(experiment: Callable[..., Experiment]) -> None:
    rewards = [0.2, 0.3, 0.4, 0.5]
    made = experiment().score_all(
        {
            "base": {"easy": rewards, "hard": rewards},
            "grpo/seed0": {"easy": [0.9, 0.0, 0.6, 0.3], "hard": [0.1, 0.6, 0.2, 0.6]},
            "bon_mean/seed0": {"easy": [one + 0.3 for one in rewards], "hard": [one + 0.3 for one in rewards]},
        }
    )
    with style.applied():
        [first, *_] = figures.FIGURES["differences"].draw(inputs(made)).axes
        fills = {line.get_color(): line.get_markerfacecolor() for line in first.lines if line.get_marker() == "o"}
    looks = style.looks(made.config)
    assert fills[looks["bon_mean"].colour] == looks["bon_mean"].colour
    assert fills[looks["grpo"].colour] == "white"


def test_differences_say_of_how_many_seeds_they_are(experiment: Callable[..., Experiment]) -> None:
    made, rewards = experiment(seeds=[0, 1]), {"easy": [0.0, 0.5], "hard": [0.5, 1.0]}
    made.score_all(dict.fromkeys(("base", "grpo/seed0", "bon_mean/seed0"), rewards))
    with style.applied():
        drawn = figures.FIGURES["differences"].draw(inputs(made))
    said = "One training seed: no claim about methods, only about these trained policies."
    assert any(said in text.get_text() for text in drawn.findobj(Text))


def drawn(made: Experiment, name: str) -> object:
    made.score_all({"base": {"easy": [0.0, 0.5], "hard": [0.5, 1.0]}})
    with style.applied():
        return figures.FIGURES[name].draw(inputs(made))


def test_without_entropies_figure_2_is_a_message(experiment: Callable[..., Experiment]) -> None:
    made = experiment()
    made.score("base", "easy", [0.5], entropy=False)
    assert Path(write(made, ["figure2"])["figure2"][0]).stat().st_size


def test_the_mean_over_one_dataset_is_called_by_its_name(experiment: Callable[..., Experiment]) -> None:
    rewards = [0.0, 0.5, 0.5, 1.0]
    two = experiment().score_all({"base": {"easy": rewards, "hard": rewards}})
    assert figures._title(inputs(two), MEAN) == "mean of 2 datasets"
    one = experiment(datasets={"easy": DATASET}).score_all({"base": {"easy": rewards}})
    assert figures._title(inputs(one), MEAN) == "easy"


def test_without_statistics_the_command_that_makes_them_is_named(small: Experiment) -> None:
    with pytest.raises(UserError, match=r"missing statistics.csv, paired_tests.csv; make them: `maxk table statistics"):
        figures.inputs(load(small.config), small.config)


def test_an_unknown_figure_is_one_line(small: Experiment) -> None:
    with pytest.raises(UserError, match=r"no figure 'figure9' \(did you mean 'figure\d'\?\); known: max_at_k"):
        figures.get(small.config, "figure9")


# ------------------------------------------------------------------------------------------------------- training logs
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
    assert training_log._by_batch(run, "ratio_q99", steps=3) == pytest.approx([1.3, 1.5])
    assert training_log._by_batch(run, "reward", steps=3) == pytest.approx([0.1, 0.3])


def test_half_a_line_of_metrics_is_one_line_of_error(small: Experiment) -> None:
    write_metrics(small)
    path = Path(small.config.layout.metrics("grpo/seed0"))
    path.write_text(path.read_text()[:-9])
    with pytest.raises(UserError, match=r"metrics.jsonl: not one JSON object a line"):
        training_log.curves(small.config, ["reward"])


def test_a_training_that_is_not_finished_has_no_curves(small: Experiment) -> None:
    """Its curve would stand beside scores of the whole training, and cut the other seeds' logs."""
    write_metrics(small)
    assert training_log.read(small.config, "grpo", ["reward"])["reward"].shape == (1, 30)
    Path(small.config.layout.policy("grpo/seed0")).unlink()
    assert training_log.read(small.config, "grpo", ["reward"]) == {}


# --------------------------------------------------------------------------------------------------------------- looks
def test_a_method_has_one_colour_in_every_experiment(experiment: Callable[..., Experiment]) -> None:
    first = style.looks(experiment().config)
    other = experiment(
        objectives={
            "loo": {"type": "bon_loo1", "k": 4},
            "mean": {"type": "bon_mean", "k": 2},
            "mean_4": {"type": "bon_mean", "k": 4},
        }
    )
    looks = style.looks(other.config)
    assert looks["mean"] == first["bon_mean"]
    assert looks["mean_4"].colour == looks["mean"].colour
    assert looks["mean_4"] != looks["mean"]
    assert looks["loo"].colour not in {look.colour for look in first.values()}
    assert looks["base"] == first["base"]


def test_methods_differ_in_colour_and_policies_of_one_method_in_line_or_marker(
    experiment: Callable[..., Experiment],
) -> None:
    every = [*colours.COLOURS.values(), *colours.OTHERS, colours.BASE_COLOUR]
    assert len(set(every)) == len(every)
    made = experiment(objectives={f"o{i}": {"type": "grpo"} for i in range(12)})
    looks = style.looks(made.config)
    assert len({(str(look.dashes), look.marker) for name, look in looks.items() if name != "base"}) == 12
