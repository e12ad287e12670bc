"""`maxk doctor`: what works on this machine, at which scale, and how to mend the rest.

    maxk doctor                                # pocket, mini and paper
    maxk doctor --config config/mine.yaml      # and an experiment of yours

Every check tries the thing itself: attacks run in the sandbox, the hub and the tracker are asked. Exit status 0 if the
experiment asked for works here (without `--config` the default one), 1 if not. GPU memory and disk are judged by the
rates of config/rates.yaml, so they are estimates.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import platform
import re
import shutil
import tomllib
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from maxk import config as configuration
from maxk.config import Config, HubBase
from maxk.errors import UserError
from maxk.training import accelerate_config

ROOT = configuration.DEFAULTS.parent.parent
SCALES = {"pocket": None, "mini": ROOT / "config" / "mini.yaml", "paper": ROOT / "config" / "paper.yaml"}
HUB_TIMEOUT_S = 3.0
INSTALL = "python -m pip install --editable ."


@dataclass(frozen=True)
class Check:
    """What was found. A check that is not `ok` keeps every experiment from running; `mend` may also be an advice."""

    name: str
    said: str
    ok: bool = True
    mend: str = ""


@dataclass(frozen=True)
class Machine:
    """What experiments need of a machine, in numbers: memory of the smallest GPU, and free disk, in GB."""

    gpus: int
    gpu_gb: float
    disk_gb: float
    hub: bool
    vllm: bool


def register_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("doctor", help="say what works on this machine, and how to mend the rest")
    parser.add_argument("--config", help="a config file to judge too, such as config/mine.yaml")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    scales = SCALES if args.config is None else {args.config: args.config, **SCALES}
    experiments = {name: configuration.experiment(path) for name, path in scales.items()}
    asked = next(iter(experiments))
    gpu_gb, disk_gb = gpus(), shutil.disk_usage(".").free / 1e9
    machine = Machine(len(gpu_gb), min(gpu_gb, default=0.0), disk_gb, hub_answers(), has_vllm())
    checks = [*machine_checks(machine, gpu_gb), *software_checks(experiments[asked])]
    for check in checks:
        print(f"{'ok' if check.ok else 'BAD':4} {check.name:12} {check.said}")
        if check.mend:
            print(f"{'':17} → {check.mend}")
    print()
    faults = [f"{check.name}: {check.said}" for check in checks if not check.ok]
    works = {name: [*faults, *obstacles(config, machine)] for name, config in experiments.items()}
    for name, found in works.items():
        print(
            f"{name}: {'works here' if not found else 'does not work here:'}",
            *(f"  - {one}" for one in found),
            sep="\n",
        )
    return 1 if works[asked] else 0


# -------------------------------------------------------------------------------------------------------- the machine
def gpus() -> list[float]:
    """Memory of every GPU, in GB."""
    import torch

    return [torch.cuda.get_device_properties(i).total_memory / 1e9 for i in range(torch.cuda.device_count())]


def hub_answers() -> bool:
    """Whether the Hugging Face hub, or the mirror that HF_ENDPOINT names, answers."""
    if _offline():
        return False
    url = os.environ.get("HF_ENDPOINT", "https://huggingface.co")
    try:
        urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=HUB_TIMEOUT_S).close()
    except urllib.error.HTTPError:
        return True
    except (OSError, ValueError):
        return False
    return True


def _offline() -> bool:
    return os.environ.get("HF_HUB_OFFLINE", "") not in ("", "0")


def has_vllm() -> bool:
    return importlib.util.find_spec("vllm") is not None


def machine_checks(machine: Machine, gpu_gb: list[float]) -> Iterator[Check]:
    memory_gb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    cores = len(os.sched_getaffinity(0))
    yield Check("machine", f"{cores} cores, {memory_gb:.0f} GB memory, {machine.disk_gb:.0f} GB of disk free")
    found = ", ".join(f"{gb:.0f} GB" for gb in gpu_gb)
    yield Check("gpu", f"{machine.gpus}: {found}" if gpu_gb else "none: all runs on the CPU")
    silent = "does not answer: only what is cached or local can be used"
    silent = "not asked: HF_HUB_OFFLINE is set" if _offline() else silent
    yield Check("hub", "answers" if machine.hub else silent)
    version = metadata.version("vllm") if machine.vllm else "not installed; only backend: vllm needs it"
    yield Check("vllm", version)


# -------------------------------------------------------------------------------------------------------- the software
def software_checks(config: Config) -> Iterator[Check]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    yield check_python(project["requires-python"])
    yield check_packages(project["dependencies"])
    yield check_sandbox(config)
    yield check_tracking(config)
    yield check_profiles(ROOT / "workflow" / "profiles")


def check_python(required: str) -> Check:
    from packaging.specifiers import SpecifierSet

    ok = platform.python_version() in SpecifierSet(required)
    mend = "" if ok else "make PYTHON=/path/to/python3.11"
    return Check("python", f"{platform.python_version()} (needs {required})", ok, mend)


def check_packages(pins: list[str]) -> Check:
    """Whether every pinned package is here; another version than the pinned one is told, since nobody tried it."""
    missing, other = [], []
    for pin in pins:
        name, version = pin.split("==")
        try:
            found = metadata.version(name).split("+")[0]  # 2.13.0+cpu is a build of 2.13.0
        except metadata.PackageNotFoundError:
            missing.append(name)
            continue
        if found != version:
            other.append(f"{name} {found} (pinned {version})")
    if missing:
        return Check("packages", f"missing: {', '.join(missing)}", False, INSTALL)
    if other:
        return Check("packages", f"not tried together: {', '.join(other)}", mend=INSTALL)
    return Check("packages", f"{len(pins)}, all at their pins")


def check_sandbox(config: Config) -> Check:
    """Starts the grader, which tries attacks on each tier from the strongest, and grades a good and bad programs."""
    from maxk.grading import Grader

    try:
        with Grader(workers=1, sandbox=config.verification.sandbox) as grader:
            grader.canary()
            reasons = {tier: why for tier, why in grader.tier_reasons.items() if tier != grader.tier}
            passed_over = "; ".join(f"{tier} is not used: {why}" for tier, why in reasons.items())
            advice = "apt-get install bubblewrap" if "bubblewrap" in reasons and not shutil.which("bwrap") else ""
            said = f"{grader.tier}, withstood the attacks that were tried{f' ({passed_over})' if reasons else ''}"
            return Check("sandbox", said, mend=advice)
    except UserError as error:
        return Check("sandbox", str(error), False, "docs/grader.md says what each tier needs")


def check_tracking(config: Config) -> Check:
    from maxk.tracking import server

    if not config.tracking.enabled:
        return Check("tracking", "off (tracking.enabled)")
    said = server.without_secrets(server.address(config))
    try:
        server.ask(server.address(config))
    except Exception as error:
        mend = "mend MLFLOW_TRACKING_URI or unset it"
        return Check("tracking", f"{said} does not answer ({server.reason(error)})", False, mend)
    return Check("tracking", said)


def check_profiles(folder: Path) -> Check:
    """Snakemake's profiles, and whether the plugin of each one's executor is installed."""
    found = []
    for path in sorted(folder.glob("*/config*.yaml")):
        try:
            executor = configuration.read_yaml(path).get("executor")
        except UserError as error:
            return Check("profiles", str(error), False, "mend the file, or take the one of the repository")
        plugin = executor is None or importlib.util.find_spec(f"snakemake_executor_plugin_{executor.replace('-', '_')}")
        lacks = "" if plugin else f" (lacks snakemake-executor-plugin-{executor})"
        found.append(f"{path.parent.name}{lacks}")
    return Check("profiles", ", ".join(found) or "none", bool(found), "" if found else "git checkout workflow/profiles")


# ----------------------------------------------------------------------------------------------------- the experiments
def obstacles(config: Config, machine: Machine) -> Iterator[str]:
    """What keeps an experiment from running on a machine, each with its mend."""
    if config.gpus > machine.gpus:
        yield (
            f"it asks for {config.gpus} GPU(s) and {machine.gpus} are here: use such a machine or a cluster "
            "(`--profile`), or set `gpus` and `training.processes` to what there is"
        )
    gpu_gb, disk_gb = needs(config)
    if config.gpus and machine.gpus and gpu_gb > machine.gpu_gb:
        yield (
            f"training needs at least {gpu_gb:.0f} GB of GPU memory and {machine.gpu_gb:.0f} are there: more "
            "`training.processes` with `accelerate`, `training.lora`, or a smaller base"
        )
    yield from sorted(set(_unsound(config)))
    if disk_gb > machine.disk_gb:
        yield f"it writes about {disk_gb:.0f} GB and {machine.disk_gb:.0f} are free here: see `maxk clean`"
    if not machine.hub and (absent := [name for kind, name in from_hub(config) if not cached(kind, name)]):
        yield (
            f"the hub does not answer and the cache lacks {', '.join(absent)}: go "
            "online (HF_HUB_OFFLINE, HF_ENDPOINT), or name local copies"
        )
    if not machine.vllm and "vllm" in (config.sampling.backend, config.training.generator.backend):
        yield "it uses backend: vllm, which is not installed here (docs/sampling.md), or set `transformers`"


def _unsound(config: Config) -> Iterator[str]:
    """What its accelerate files ask for in vain; a file named relative to another folder is not looked for."""
    for training in map(config.training_of, config.objectives):
        if training.accelerate is not None and Path(training.accelerate).is_file():
            try:
                accelerate_config.require_sound(training, config.gpus)
            except UserError as error:
                yield str(error)


def needs(config: Config) -> tuple[float, float]:
    """GB of memory on each GPU and GB of disk, by the rates of the base model; zero where there are none.

    Training holds weights, gradients and two Adam moments in float32, and the reference policy in bfloat16; activations
    come on top.
    """
    from maxk.reporting import plan

    rates = plan.read_rates(str(ROOT / "config" / "rates.yaml"))
    try:
        profile = rates.profiles[plan.choose(rates, config, None)]
    except UserError:
        return 0.0, 0.0
    weights = profile.policy_gb.value  # 2 bytes a parameter
    held = weights if config.training.lora is not None else 8 * weights
    disk_gb = plan.peak_disk_gb(config, list(plan.plan(config, profile)), profile)
    return (held + weights) / config.training.processes, disk_gb


def from_hub(config: Config) -> Iterator[tuple[str, str]]:
    """(kind, id) of what an experiment takes from the hub."""
    if isinstance(config.base, HubBase) and not Path(config.base.model).is_dir():
        yield "model", config.base.model
    for dataset in config.datasets.values():
        location = getattr(dataset, "location", None)
        if location is not None and not Path(location).expanduser().exists():
            yield "dataset", location
        length = getattr(dataset, "length", None)
        if length is not None and not Path(length.tokenizer).is_dir():
            yield "model", length.tokenizer


def cached(kind: str, name: str) -> bool:
    """Whether the local cache holds some revision of a hub repository."""
    from huggingface_hub import constants

    folder = re.sub("/", "--", f"{kind}s/{name}")
    return any((Path(constants.HF_HUB_CACHE) / folder / "snapshots").glob("*"))
