"""maxk inspect DATASET: report on a prepared dataset, with warnings (`maxk.reporting.inspection`).

maxk inspect mbpp --config results/mini/config.json
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from maxk import config as configuration
from maxk.artifacts import files, models
from maxk.artifacts.paths import BASE
from maxk.artifacts.records import Problem
from maxk.config import Config, HubBase, PretrainedBase
from maxk.errors import lookup


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dataset", help="a key of `datasets`")


def run(args: argparse.Namespace) -> None:
    from maxk.data import prompts
    from maxk.reporting import inspection

    config = configuration.load(args.config)
    name = args.dataset
    dataset = lookup(config.datasets, name, "dataset")
    splits = {split: _problems(config, name, split) for split in ("train", "test") if dataset.has(split)}
    tokenizer = _tokenizer(config)
    prompt = config.prompt if tokenizer else config.prompt.model_copy(update={"chat": False})

    def render(statement: str) -> str:
        return prompts.render(statement, prompt, tokenizer)

    length: Callable[[str], int] = (lambda text: len(tokenizer(text)["input_ids"])) if tokenizer else len
    report = inspection.lines(
        name,
        splits,
        files.read_json(config.layout.funnel(name)),
        {source: _problems(config, source, "train") for source in _trained_on(config, name)},
        render,
        ("tokens" if tokenizer else "characters (the tokenizer of the base policy is not available)", length),
        _pretrained_on(config),
    )
    print(*report, sep="\n")


def _problems(config: Config, name: str, split: str) -> list[Problem]:
    return files.read_problems(config.layout.problems(name), split)


def _trained_on(config: Config, name: str) -> list[str]:
    """The prepared datasets with train problems, this one first."""
    others = [other for other in config.training.datasets if other != name]
    with_train = [one for one in [name, *others] if config.datasets[one].has("train")]
    return [one for one in with_train if Path(config.layout.problems(one)).exists()]


def _pretrained_on(config: Config) -> set[str]:
    """Statements of the pretraining corpus; none if the base policy is not pretrained here."""
    if not isinstance(config.base, PretrainedBase):
        return set()
    return {statement for statement, _ in config.base.corpus.pairs(config.base.seed)}


def _tokenizer(config: Config) -> Any:
    """The base policy's tokenizer; None if it is not made or downloaded yet."""
    path = config.layout.policy(BASE)
    model, revision = None, None
    if Path(path).exists():
        policy = files.read_policy(path)
        model, revision = policy.model, policy.revision
    elif isinstance(config.base, HubBase):
        model, revision = config.base.model, config.base.revision
    try:
        return models.tokenizer(model, revision) if model else None
    except (OSError, ValueError):
        return None
