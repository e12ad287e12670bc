"""Reads configuration files: an overlay on the default experiment, or a resolved configuration."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from maxk.artifacts import files
from maxk.config.experiment import Config
from maxk.config.messages import explain
from maxk.errors import UserError, no_such_file

DEFAULTS = Path(__file__).parents[3] / "config" / "config.yaml"
YAML_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml is ten times as fast, and not everywhere
REPLACED_WHOLE = ("base", "datasets", "objectives", "experiments")


# YAML 1.1 reads these in base 8 and 60, people and YAML 1.2 do not. 0x1F and 0b11 have one reading.
_TWO_READINGS = re.compile(r"[-+]?(0[0-7_]+|[0-9][0-9_]*(:[0-9]+)+(\.[0-9_]*)?)")


class _Strict(YAML_LOADER):  # type: ignore[misc, valid-type]
    """Refuses what YAML takes silently, but perhaps not as meant: a repeated key (the last counts), 0400 and 1:30."""

    def __init__(self, stream: Any) -> None:
        super().__init__(stream)
        self._flattened: set[yaml.Node] = set()

    def flatten_mapping(self, node: Any) -> None:
        """The first call for a mapping comes before merge keys (`<<`) have added inherited keys to it."""
        if node not in self._flattened:
            self._flattened.add(node)
            _require_unique(node)
            for key, value in node.value:
                self._require_one_reading(key, value)
        super().flatten_mapping(node)

    def _require_one_reading(self, key: yaml.Node, node: yaml.Node) -> None:
        """Raises ConstructorError if a number, or one in a list, has two readings."""
        for item in node.value if isinstance(node, yaml.SequenceNode) else []:
            self._require_one_reading(key, item)
        plain = isinstance(node, yaml.ScalarNode) and not node.style and node.tag != "tag:yaml.org,2002:str"
        if plain and _TWO_READINGS.fullmatch(node.value):
            read, text = self.construct_object(node), node.value
            other = f'"{text}"' if ":" in text else int(text)
            raise yaml.constructor.ConstructorError(
                problem=f"{key.value}: write {read} (as YAML 1.1 reads it) or {other} instead of {text}",
                problem_mark=node.start_mark,
            )


def _require_unique(node: yaml.MappingNode) -> None:
    seen: set[tuple[str, str]] = set()
    for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode) and key.value != "<<"):
        if (key.tag, key.value) in seen:
            raise yaml.constructor.ConstructorError(
                problem=f"the key {key.value!r} is repeated", problem_mark=key.start_mark
            )
        seen.add((key.tag, key.value))


def read_yaml(path: str | Path) -> dict[str, Any]:
    """A YAML file as a mapping. Raises UserError if it cannot be read."""
    try:
        with Path(path).open(encoding="utf-8") as handle:
            content = yaml.load(handle, _Strict)
    except FileNotFoundError:
        raise UserError(f"config {path}: {no_such_file(path)}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"config {path}: cannot be read ({error})") from None
    except yaml.YAMLError as error:
        raise UserError(f"config {path}: not valid YAML ({' '.join(str(error).split())})") from None
    if not isinstance(content, dict):
        raise UserError(f"config {path}: expected keys and values, got {type(content).__name__}")
    return content


def overlay(defaults: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """`changes` laid over `defaults`: sections merge key by key, except for `REPLACED_WHOLE`; other values replace."""
    merged = dict(defaults)
    for key, value in changes.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = {**merged[key], **value} if both and key not in REPLACED_WHOLE else value
    if "objectives" in changes and "experiments" not in changes:
        merged.pop("experiments", None)  # they refer to policies that no longer exist
    return merged


def with_nulls(content: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """`content` with the nulls of `given`, Snakemake's `--config`, which reads values within a mapping as text."""
    found = dict(content)
    for key in given.keys() & content.keys():
        match given[key]:
            case Mapping() as inner if isinstance(content[key], Mapping):
                found[key] = with_nulls(content[key], inner)
            case [*values]:
                found[key] = [None if one == "null" else one for one in values]
            case "null":
                found[key] = None
    return found


def parse(content: Mapping[str, Any]) -> Config:
    """A validated configuration. Raises UserError naming every key at fault, in one line."""
    try:
        return Config.model_validate(content)
    except ValidationError as error:
        faults = "; ".join(explain(item) for item in _causes(error.errors()))
        raise UserError(f"config: {faults}") from None


def _causes(errors: Sequence[ErrorDetails]) -> list[ErrorDetails]:
    """The errors without those that follow from others: a list of which no item is valid also counts as empty."""
    at_fault = {one["loc"][:-1] for one in errors}
    return [one for one in errors if one["type"] != "too_short" or one["loc"] not in at_fault]


def defaults() -> dict[str, Any]:
    """The default experiment. Raises UserError if maxk was installed without its repository."""
    if not DEFAULTS.exists():
        raise UserError(
            "the pipeline needs a clone of the repository, which has its Snakefile and config/, and an environment of "
            "that clone: run `make environment` or `pip install --editable '.[pipeline]'` there"
        )
    return read_yaml(DEFAULTS)


def experiment(path: str | Path | None) -> Config:
    """The experiment that a config file describes, laid over the default one; without a file, the default one.

    A resolved configuration (`results/NAME/config.json`) describes itself.
    """
    standard = defaults()
    return parse(standard if path is None else overlay(standard, read_yaml(path)))


def load(path: str | Path) -> Config:
    """The resolved configuration of a run, such as `results/config.json`; a YAML file names the run that it started.

    Raises UserError if there is no such run.
    """
    path = Path(path)
    if not path.exists():
        raise UserError(f"config {path}: {no_such_file(path)}; {_other_runs(path)}")
    if path.suffix.lower() == ".json":
        return parse(files.read_json(path))
    run = experiment(path).layout.config
    if not Path(run).exists():
        raise UserError(f"{run}: no such run; start it: `snakemake --configfile {path} --cores all`")
    return load(run)


def _other_runs(path: Path) -> str:
    if module := os.environ.get("MAXK_MODULE"):  # workflow/rules/common.smk
        return f"the workflow that uses the module must write it: `onstart: {module}.onstart()`"
    runs = sorted(path.parent.glob("*/config.json"))
    if not runs:
        return "name one with --config, or make it: `snakemake --cores all`"
    return f"choose a run: {', '.join(f'--config {run}' for run in runs)}"
