"""The colour of every method: the same in all figures of all experiments, and in MLflow."""

from __future__ import annotations

from maxk.artifacts.paths import BASE
from maxk.config.experiment import Config

BASE_COLOUR = "#333333"
COLOURS = {
    "grpo": "#0072B2",  # blue
    "grpo_binary": "#56B4E9",  # sky
    "bon_max_second": "#999933",  # olive
    "bon_max_mean": "#E69F00",  # orange
    "bon_loo1": "#009E73",  # green
    "bon_loo2": "#332288",  # indigo
    "bon_mean": "#CC79A7",  # purple
    "bon_offpolicy": "#D55E00",  # vermilion
    "bon_offpolicy_exact": "#882255",  # wine
    "bon_loo1_firstorder": "#8C6D46",  # brown
}
OTHERS = ("#44AA99", "#7F7F7F", "#AA4499", "#117733", "#DDAA33")  # for further methods, in the order of the config


def colours(config: Config) -> dict[str, str]:
    """By row, the colour of the base model and of every objective, those of experiments included."""
    of_type, found = dict(COLOURS), {BASE: BASE_COLOUR}
    for name, objective in config.every_objective.items():
        found[name] = of_type.setdefault(objective.type, OTHERS[(len(of_type) - len(COLOURS)) % len(OTHERS)])
    return found
