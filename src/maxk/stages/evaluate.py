"""`maxk evaluate MODEL --problems P …`: max@k and pass@k of a model folder or hub id, at one or several temperatures.

    maxk evaluate models/mine --problems problems.jsonl --n 64 --temperatures 0.6 1.0
    maxk evaluate ORG/MODEL --problems problems.jsonl mbpp=data/mbpp.jsonl.gz --config vllm.yaml

Writes a configuration for each temperature and runs the pipeline with it: base, sample, verify, score, tables, report.
The same command continues a stopped run; with a larger --n it draws the missing samples only. At the end it writes the
table of the temperatures, results/NAME/temperatures.{csv,md} (`maxk.reporting.temperatures`).
"""

from __future__ import annotations

import argparse
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from pathlib import Path
from typing import Any

from maxk import config as configuration
from maxk import data
from maxk.artifacts import files
from maxk.artifacts.paths import BASE
from maxk.artifacts.records import Policy
from maxk.config import Config
from maxk.data import hub
from maxk.data.candidates import Funnel
from maxk.data.sections import Benchmark
from maxk.errors import UserError, counted, no_such_file
from maxk.estimators import usual_ks
from maxk.reporting import interruption
from maxk.resources import gpus
from maxk.stages.base import opened, require_usable

# Keys that a config file may not set, and what sets them.
DECIDED = {
    "name": "--name",
    "base.source": "the argument MODEL",
    "base.model": "the argument MODEL",
    "datasets": "--problems",
    "objectives": "`snakemake --configfile`, which trains",
    "experiments": "`snakemake --configfile`, which trains",
    "sampling.n": "--n",
    "sampling.temperature": "--temperatures",
}
TYPED = {"name": "--name", "base.model": "MODEL", "sampling.n": "--n", "sampling.temperature": "--temperatures"}
TEMPLATE = """\
Write a Python program that solves this task. It reads from standard input and prints only the answer.

{statement}

Answer with one Python code block."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", help="a Hugging Face folder or hub id")
    parser.add_argument(
        "--problems",
        nargs="+",
        required=True,
        metavar="P",
        help="a file or folder of your own problems, or SOURCE[=LOCATION]; SOURCE is a name or package.module:Class",
    )
    parser.add_argument("--n", type=int, default=64, help="samples per problem (default: 64)")
    parser.add_argument(
        "--temperatures", type=float, nargs="+", default=[1.0], metavar="T", help="sampling temperatures (default: 1.0)"
    )
    parser.add_argument("--name", help="name of the results (default: the model's)")
    parser.add_argument("--config", help="a config file with other settings, such as prompt.template")
    parser.add_argument("--cores", default="all", help="cores that the pipeline may use (default: all)")
    parser.add_argument("--snakefile", default="Snakefile", help="the workflow (default: Snakefile)")


def run(args: argparse.Namespace) -> int:
    from maxk.reporting import temperatures

    defaults = configuration.defaults()
    _require_sound(args)
    problems = {_dataset(given)[0]: given for given in args.problems}
    with _named_as_typed(problems, args.config):
        given = _config_file(args.config) if args.config else {}
        own = _settings(defaults, given, args)
        root = configuration.parse(own).layout.root
        _require_own_folder(root, args)
        _require_problems(_at(own, args.temperatures[0], args))
        print(f"reading the model {args.model}", file=sys.stderr, flush=True)  # its libraries take seconds to import
        chat = _is_chat_model(args.model, own["base"].get("revision"))
        own = configuration.overlay(own, {"prompt": {"chat": chat, **given.get("prompt", {})}})
        configs = {temperature: _at(own, temperature, args) for temperature in args.temperatures}
        first = configs[args.temperatures[0]]
        require_usable(first, Policy(BASE, "", args.model, own["base"].get("revision"), {}, {}))
    print(f"device: {_device(first)}", file=sys.stderr, flush=True)
    for config in configs.values():
        if status := _run_pipeline(config, args):
            return status
    print(*temperatures.write(configs, f"{root}/temperatures"), sep="\n")
    return 0


@contextmanager
def _named_as_typed(problems: Mapping[str, str], config: str | None) -> Iterator[None]:
    """A UserError names what was typed, such as `--n`, and not the key of the configuration that it sets.

    problems: by dataset, what was typed. A key that no option sets is one for the config file.
    """
    try:
        yield
    except UserError as error:
        message = str(error).removeprefix("config: ")
        of_settings = message != str(error) or re.match(rf"({'|'.join(Config.model_fields)})[.:=]", message)
        for name, given in problems.items():
            key = rf"\bdatasets\.{re.escape(name)}(?![\w-])(: |\.)?"
            message = re.sub(key, lambda _, given=given: f"--problems {given}: ", message)  # type: ignore[misc]
        for key, typed in TYPED.items():
            message = re.sub(rf"(?<![\w.]){re.escape(key)}(?=[=:]| ')", typed, message)
        if of_settings and not message.startswith(("--", "MODEL")):
            message = f"--config {config}: {message}" if config else f"{message}, in a file given by --config"
        raise UserError(message) from None


def _require_sound(args: argparse.Namespace) -> None:
    """Raises UserError for mistakes that the configuration's schema cannot detect."""
    if not Path(args.snakefile).exists():
        raise UserError(f"{args.snakefile}: no such file; run in the folder of the workflow, or name it by --snakefile")
    if args.n < 1:
        raise UserError(f"--n {args.n}: at least 1 sample per problem is needed")
    if len({f"{one:g}" for one in args.temperatures}) != len(args.temperatures):
        raise UserError(f"--temperatures {' '.join(map(str, args.temperatures))}: a temperature is given twice")
    if _name(args) == "default":
        raise UserError("the name 'default' belongs to the default experiment; choose another with --name")


def _settings(defaults: Mapping[str, Any], given: Mapping[str, Any], args: argparse.Namespace) -> dict[str, Any]:
    """What all temperatures share: the defaults, over them the config file, and over both the command line."""
    base = given.get("base", {})
    ks = usual_ks(args.n)
    own_defaults = {
        "prompt": {"template": TEMPLATE},
        "sampling": {"max_tokens": 512},
        "report": {"ks": ks, "headline_k": ks[-1]},
        "gpus": len(gpus.visible()),
    }
    command_line = {
        "name": _name(args),
        "base": {**base, "source": "hub", "model": args.model},
        "datasets": _datasets(args.problems),
        "objectives": {},
        "sampling": {"n": args.n},
    }
    return reduce(configuration.overlay, (own_defaults, given, command_line), dict(defaults))


def _config_file(path: str) -> dict[str, Any]:
    """The settings of a config file. Raises UserError if they include what the command line decides."""
    given = configuration.read_yaml(path)
    for name in ("base", "sampling"):
        if not isinstance(given.get(name, {}), Mapping):
            raise UserError(f"--config {path}: {name}: expected keys and values, got {type(given[name]).__name__}")
    if found := [f"{key} (use {instead})" for key, instead in DECIDED.items() if _holds(given, key)]:
        raise UserError(f"--config {path} must not set {', '.join(found)}")
    return given


def _holds(given: Mapping[str, Any], key: str) -> bool:
    section, _, name = key.partition(".")
    return section in given and (not name or name in given[section])


def _require_own_folder(root: str, args: argparse.Namespace) -> None:
    """Raises UserError if results of this name, at any temperature, are those of another model."""
    folder = Path(root)
    for path in [folder / "config.json", *sorted(folder.parent.glob(f"{folder.name}-t[0-9]*/config.json"))]:
        found = configuration.read_yaml(path)["base"].get("model", "a pretrained policy") if path.exists() else None
        if found and not _same_model(found, args.model):
            raise UserError(f"{path.parent} contains results of {found}, not of {args.model}; give --name")


def _same_model(one: str, other: str) -> bool:
    return one == other or (Path(one).exists() and Path(other).exists() and Path(one).samefile(other))


def _device(config: Config) -> str:
    """The devices that sampling uses at once."""
    used = min(config.gpus, config.sampling.shards * config.sampling.gpus)
    return f"{used} of {counted(config.gpus, 'GPU')}" if used else "CPU"


def _datasets(problems: Sequence[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for given in problems:
        name, section = _dataset(given)
        if name in found:
            raise UserError(
                f"--problems {given}: a second dataset named {name!r}; rename the file, or evaluate it by itself with "
                "another --name"
            )
        found[name] = section
    return found


def _dataset(given: str) -> tuple[str, dict[str, Any]]:
    """Name and section of a dataset: a file or folder of your own problems, SOURCE=LOCATION, or a source alone.

    A source may be the import path of a class, `package.module:Class`.
    """
    source, _, location = given.partition("=")
    if Path(given).exists():
        return _slug(Path(given).name.partition(".")[0]), {"source": "jsonl", "location": given}
    place = location or given
    is_path = hub.is_path(location) if location else "/" in given or "." in given.rpartition(":")[2]
    if is_path and not Path(place).expanduser().exists():
        raise UserError(f"--problems {given}: {no_such_file(place)}")
    return _slug(source.rpartition(":")[2]), {"source": source, **({"location": location} if location else {})}


def _require_problems(config: Config) -> None:
    """Raises UserError for problems that the pipeline could not read: not there, none, or a first one without a key."""
    for name, dataset in config.datasets.items():
        needs = list(data.needs(name, dataset))
        if not all(Path(one.where).expanduser().exists() for one in needs):
            online = hub.responds()
            for one in needs:
                if fault := hub.fault(one.where, one.revision, one.kind, one.holds, online):
                    raise UserError(f"datasets.{name}: {one.where}: {fault}")
        elif isinstance(dataset, Benchmark) and next(dataset.candidates(Funnel(name)), None) is None:
            raise UserError(f"datasets.{name}: no problem in {dataset.location}")


def _slug(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", text).strip("-.") or "model"


def _name(args: argparse.Namespace) -> str:
    return args.name or _slug(Path(args.model).name)


def _is_chat_model(model: str, revision: str | None) -> bool:
    if model.startswith(("/", "./", "../", "~")) and not Path(model).exists():
        raise UserError(f"{model}: no such folder; give a folder with a model, or a hub id")
    tokenizer, _ = opened(model, revision)
    return tokenizer.chat_template is not None


def _at(own: Mapping[str, Any], temperature: float, args: argparse.Namespace) -> Config:
    """The validated configuration for one temperature."""
    name = own["name"] if len(args.temperatures) == 1 else f"{own['name']}-t{temperature:g}"
    return configuration.parse(configuration.overlay(own, {"name": name, "sampling": {"temperature": temperature}}))


def _run_pipeline(config: Config, args: argparse.Namespace) -> int:
    """Returns 0, or the status of a pipeline that was interrupted and has said so. Raises UserError if it failed."""
    path = Path(config.layout.root, "evaluate.json")
    files.write_json(path, config.model_dump(mode="json"))
    command = [sys.executable, "-m", "snakemake", "--snakefile", args.snakefile, "--cores", args.cores]
    print(f"temperature {config.sampling.temperature:g}: the pipeline starts", file=sys.stderr, flush=True)
    status = _status([*command, "--configfile", str(path)])
    if status == -signal.SIGINT:  # before Snakemake has read the workflow
        raise KeyboardInterrupt
    if status not in (0, interruption.STATUS):
        raise UserError(f"the pipeline failed at temperature {config.sampling.temperature:g} (above)")
    return status


def _status(command: Sequence[str]) -> int:
    """The exit status of a command, which Ctrl-C reaches as well: it is waited for, and ends as it sees fit."""
    if (former := signal.getsignal(signal.SIGINT)) is signal.default_int_handler:
        signal.signal(signal.SIGINT, lambda *_: None)  # unlike SIG_IGN, not inherited
    try:
        with subprocess.Popen(command) as process:
            try:
                return process.wait()
            finally:
                process.terminate()  # nothing to one that has ended
    finally:
        signal.signal(signal.SIGINT, former)
