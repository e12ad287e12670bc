"""`maxk evaluate MODEL --problems P …`: max@k and pass@k of a model folder or hub id, at one or several temperatures.

    maxk evaluate models/mine --problems problems.jsonl --n 64 --temperatures 0.6 1.0
    maxk evaluate ORG/MODEL --problems problems.jsonl mbpp=data/mbpp.jsonl.gz --config vllm.yaml

Writes a configuration for each temperature and runs the pipeline with it: base, sample, verify, score, tables, report.
The same command continues a stopped run; with a larger --n it draws only the missing samples. At the end it writes a
table of max@k and pass@k by temperature (`maxk.reporting.temperatures`).
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from maxk import config as configuration
from maxk.artifacts import files
from maxk.config import Config
from maxk.errors import UserError

TEMPLATE = """\
Write a Python program that solves this task. It reads from standard input and prints only the answer.

{statement}

Answer with one Python code block."""


def register_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("evaluate", help="max@k and pass@k of a model, at one or several temperatures")
    parser.add_argument("model", help="a Hugging Face folder or hub id")
    parser.add_argument(
        "--problems", nargs="+", required=True, metavar="P", help="a file or folder of own problems, or SOURCE=LOCATION"
    )
    parser.add_argument("--n", type=int, default=64, help="samples per problem (default: 64)")
    parser.add_argument("--temperatures", type=float, nargs="+", default=[1.0], metavar="T", help="(default: 1.0)")
    parser.add_argument("--name", help="name of the results; by default that of the model")
    parser.add_argument("--config", help="a config file with further settings, such as prompt.template")
    parser.add_argument("--cores", default="all", help="cores that the pipeline may use (default: all)")
    parser.add_argument("--snakefile", default="Snakefile", help="the workflow (default: Snakefile)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    from maxk.reporting import temperatures

    if not Path(args.snakefile).exists():
        raise UserError(f"{args.snakefile}: no such file; run in the folder of the workflow, or name it by --snakefile")
    if len(set(args.temperatures)) != len(args.temperatures):
        raise UserError(f"--temperatures {' '.join(map(str, args.temperatures))}: one is given twice")
    own = _settings(args)
    configs = {temperature: _configured(own, temperature, args) for temperature in args.temperatures}
    for config in configs.values():
        _run_pipeline(config, args)
    name = f"results/{own['name']}.temperatures"
    print(*temperatures.write(configs, name), sep="\n")


def _settings(args: argparse.Namespace) -> dict[str, Any]:
    """The settings that all temperatures share, overlaid by the config file."""
    ks = [k for k in (2**i for i in range(args.n.bit_length())) if k <= args.n]
    settings = {
        "name": args.name or _slug(Path(args.model).name),
        "base": {"source": "hub", "model": args.model},
        "datasets": dict(_dataset(given) for given in args.problems),
        "objectives": {},
        "prompt": {"template": TEMPLATE, "chat": _is_chat_model(args.model)},
        "sampling": {"n": args.n, "max_tokens": 512},
        "report": {"ks": ks, "headline_k": ks[-1]},
    }
    return configuration.overlay(settings, configuration.read_yaml(args.config) if args.config else {})


def _dataset(given: str) -> tuple[str, dict[str, Any]]:
    """Name and section of a dataset: a file or folder of own problems, SOURCE=LOCATION, or a source alone."""
    source, _, location = given.partition("=")
    if Path(given).exists():
        return _slug(Path(given).name.partition(".")[0]), {"source": "jsonl", "location": given}
    if not location and ("/" in given or "." in given):
        raise UserError(f"--problems {given}: no such file or folder")
    return _slug(source), {"source": source, **({"location": location} if location else {})}


def _slug(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", text).strip("-.") or "model"


def _is_chat_model(model: str) -> bool:
    from maxk.artifacts import models

    try:
        return models.tokenizer(model, None).chat_template is not None
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{model}: no model can be read from there ({reason[:200]})") from None


def _configured(own: Mapping[str, Any], temperature: float, args: argparse.Namespace) -> Config:
    """The validated configuration for one temperature."""
    name = own["name"] if len(args.temperatures) == 1 else f"{own['name']}-t{temperature:g}"
    changes = {**own, "name": name, "sampling": {**own["sampling"], "temperature": temperature}}
    defaults = configuration.read_yaml(configuration.DEFAULTS)
    return configuration.parse(configuration.overlay(defaults, changes))


def _run_pipeline(config: Config, args: argparse.Namespace) -> None:
    path = Path(config.layout.root, "evaluate.json")
    files.write_json(path, config.model_dump(mode="json"))
    command = [sys.executable, "-m", "snakemake", "--snakefile", args.snakefile, "--cores", args.cores]
    if subprocess.run([*command, "--configfile", str(path)], check=False).returncode:
        raise UserError(f"the pipeline failed at temperature {config.sampling.temperature:g} (above); run this again")
