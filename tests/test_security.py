"""What SECURITY.md promises beside the grader (tests/grading): no foreign code, no secrets in what is written."""

from __future__ import annotations

import ast
import functools
import json
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from maxk import cli
from maxk import config as configuration
from maxk.artifacts import files, models
from maxk.config import Config
from maxk.errors import UserError
from maxk.tracking import server

SECRET = "s3cret-of-the-test"
HUB_TOKEN = "hf_" + "Qx7" * 10


# ------------------------------------------------------------------------------------------------------- foreign code
@functools.cache
def calls(source: Path) -> frozenset[tuple[str, str]]:
    """(file, dotted name) of everything that the Python files of a folder call or import."""
    return frozenset(_calls(source))


def _calls(source: Path) -> Iterator[tuple[str, str]]:
    for path in source.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            where = path.relative_to(source).as_posix()
            if isinstance(node, ast.Import):
                yield from ((where, alias.name) for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                yield where, node.module
            elif isinstance(node, ast.Call):
                yield where, ast.unparse(node.func)


CONFINED = ("confined/jobs", "confined/warming")


@pytest.mark.parametrize(
    ("name", "allowed"),
    [
        ("pickle", {"artifacts/packed_tests.py"}),  # its unpickler admits no class (tests/data/test_testcases.py)
        # What the grader's parent sends to its children; results come back as plain numbers. `planning` only measures
        # code, and `confined/warming` packs a program of its own.
        ("marshal", {f"grading/{name}.py" for name in ("connection", "sandbox", "planning", *CONFINED)}),
        ("shelve", set()),
        ("dill", set()),
        ("cloudpickle", set()),
        ("joblib", set()),
        ("torch.load", set()),
        ("torch.save", set()),
        ("np.load", set()),
        ("yaml.load", {"config/loading.py"}),  # with a safe loader: the next test
        ("eval", {"data/arithmetic.py"}),  # its own operations
        ("os.system", set()),
    ],
)
def test_what_can_run_code_from_data_stands_where_it_is_known(name: str, allowed: set[str], root: Path) -> None:
    assert {where for where, called in calls(root / "src/maxk") if called == name} == allowed


@pytest.mark.parametrize("tag", ["!!python/object/apply:os.system ['true']", "!!python/name:os.system"])
def test_a_configuration_makes_no_objects(tag: str, tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(f"name: {tag}\n")
    with pytest.raises(UserError, match="could not determine a constructor"):
        configuration.read_yaml(path)


def test_models_and_tokenizers_are_loaded_in_one_place(root: Path) -> None:
    loading = {where for where, name in calls(root / "src/maxk") if name.endswith(".from_pretrained")}
    assert loading == {"artifacts/models.py"}
    assert not [where for where, name in calls(root / "benchmarks") if name.endswith(".from_pretrained")]


def test_what_others_load_for_us_gets_the_same_settings(seconds: Config, tmp_path: Path, root: Path) -> None:
    from maxk.training.arguments import arguments

    chosen = arguments(seconds.training, tmp_path, seed=0, prompts=16)
    assert chosen.model_init_kwargs == {"trust_remote_code": False, "use_safetensors": True}
    assert not chosen.trust_remote_code
    vllm = (root / "src/maxk/sampling/vllm.py").read_text(encoding="utf-8")
    assert 'load_format="safetensors"' in vllm
    assert "**models.NO_CODE" in vllm


class Bomb:
    """Unpickled, it leaves a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def test_pickled_weights_are_refused(
    base_model: str, defaults: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, went_off = tmp_path / "model", tmp_path / "went off"
    shutil.copytree(base_model, folder)
    (folder / "model.safetensors").unlink()
    torch.save({"weight": Bomb(went_off)}, folder / "pytorch_model.bin")
    with pytest.raises(OSError, match=r"safetensors"):
        models.causal_lm(str(folder), None, "float32")
    monkeypatch.chdir(tmp_path)
    content = {**defaults, "base": {"source": "hub", "model": "model"}, "tracking": {"enabled": False}}
    assert cli.main(["configure", json.dumps(content)]) == 0
    assert cli.main(["base"]) == 2
    assert "has no *.safetensors" in capsys.readouterr().err
    assert not went_off.exists()
    with pytest.raises(pickle.UnpicklingError):  # the bomb is live: only weights_only=True keeps torch from it
        torch.load(folder / "pytorch_model.bin", weights_only=True)


def test_code_of_a_model_s_repository_is_not_run(base_model: str, tmp_path: Path) -> None:
    folder, ran = tmp_path / "model", tmp_path / "ran"
    shutil.copytree(base_model, folder)
    (folder / "evil.py").write_text(f"open({str(ran)!r}, 'w')\nclass Config: pass\nclass Model: pass\n")
    path = folder / "config.json"
    content = files.read_json(path)
    classes = {"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model"}
    path.write_text(json.dumps({**content, "model_type": "evil", "auto_map": classes}))
    with pytest.raises(ValueError, match=r"trust_remote_code|custom code|model type"):
        models.config(str(folder), None)
    with pytest.raises(ValueError, match=r"trust_remote_code|custom code|model type"):
        models.causal_lm(str(folder), None, "float32")
    assert not ran.exists()


# ------------------------------------------------------------------------------------------------------------ secrets
@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (f"http://maxk:{SECRET}@host:5000/x", "http://host:5000/x"),
        (f"https://{SECRET}@host", "https://host"),
        (f"postgresql://maxk:{SECRET}@host/db", "postgresql://maxk@host/db"),
        (f"postgresql+psycopg2://maxk:p@{SECRET}@host/db", "postgresql+psycopg2://maxk@host/db"),
        (f"mysql://host/db?password={SECRET}&charset=utf8", "mysql://host/db?password=…&charset=utf8"),
        (f"cannot reach http://maxk:{SECRET}@host today", "cannot reach http://host today"),
        ("sqlite:///results/mlflow.db", "sqlite:///results/mlflow.db"),
        ("http://127.0.0.1:5000", "http://127.0.0.1:5000"),
    ],
)
def test_addresses_are_shown_without_passwords(given: str, shown: str) -> None:
    assert server.without_secrets(given) == shown


def test_jobs_find_the_password_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    where = {"uri": "postgresql://maxk@host/db"}
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"postgresql://maxk:{SECRET}@host/db")
    assert server.address_of(where) == f"postgresql://maxk:{SECRET}@host/db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://elsewhere")
    assert server.address_of(where) == "postgresql://maxk@host/db"


@pytest.mark.parametrize(
    "changes",
    [
        {"training": {"generator": {"backend": "vllm", "mode": "server", "url": f"http://maxk:{SECRET}@host"}}},
        {"base": {"source": "hub", "model": f"https://maxk:{SECRET}@host/model"}},
        {"prompt": {"template": "{statement}" + HUB_TOKEN}},
    ],
)
def test_a_configuration_with_a_secret_is_refused_without_showing_it(changes: dict, defaults: dict) -> None:
    with pytest.raises(UserError, match="contains a password or token") as refused:
        configuration.parse(configuration.overlay(defaults, changes))
    assert SECRET not in str(refused.value)
    assert HUB_TOKEN not in str(refused.value)


@pytest.mark.parametrize("key", ["token", "hub_token", "password"])
def test_no_section_has_a_key_for_secrets(key: str) -> None:
    def names(node: Any) -> Iterator[str]:
        if isinstance(node, dict):
            yield from node.get("properties", {})
            for value in node.values():
                yield from names(value)

    assert key not in set(names(Config.model_json_schema()))


def test_secrets_of_the_environment_are_written_nowhere(seconds: Config, tmp_path: Path) -> None:
    """Stages that end well and ill, with every secret set: none is in what they print, write or track."""
    secrets = ("HF_TOKEN", "MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN", "AWS_SECRET_ACCESS_KEY")
    environment = {**os.environ, **dict.fromkeys(secrets, SECRET), "MLFLOW_TRACKING_USERNAME": "maxk"}
    environment.pop("MLFLOW_TRACKING_URI", None)

    def maxk(*arguments: str, **more: str) -> tuple[int, str]:
        command = [sys.executable, "-m", "maxk", *arguments]
        done = subprocess.run(
            command, cwd=tmp_path, env={**environment, **more}, capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout + done.stderr

    content, config = seconds.model_dump_json(), ("--config", seconds.layout.config)
    uri = f"http://maxk:{SECRET}@127.0.0.1:1"
    status, refused = maxk("configure", content, MLFLOW_TRACKING_URI=uri, MLFLOW_HTTP_REQUEST_MAX_RETRIES="0")
    assert status == 2
    assert "cannot start" in refused
    printed = [maxk("configure", content), maxk("prepare", "pocket-short", *config), maxk("score", "base", *config)]
    assert [status for status, _ in printed] == [0, 0, 2]
    assert SECRET not in refused + "".join(words for _, words in printed)
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(path.name == "mlflow.db" for path in written)
    assert [path for path in written if SECRET.encode() in path.read_bytes()] == []


# -------------------------------------------------------------------------------------------------------------- files
def test_files_are_neither_executable_nor_writable_for_others(base_model: str, tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        files.write_text(tmp_path / "folder" / "text", "x")
    finally:
        os.umask(before)
    places = [tmp_path / "folder", *(tmp_path / "folder").iterdir(), *Path(base_model).iterdir()]
    for path in places:
        assert path.stat().st_mode & (0o022 if path.is_dir() else 0o133) == 0, path
