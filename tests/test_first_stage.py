"""A model or a prompt that a later stage could not use is refused before any GPU is taken."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer, MambaConfig, MambaForCausalLM

from maxk import cli
from maxk import config as configuration
from maxk.artifacts import files
from maxk.artifacts.records import Problem, Provenance, Test
from maxk.config import Config
from maxk.errors import UserError
from maxk.resources import gpus, launcher

CONFIG = "results/seconds/config.json"


@pytest.fixture
def said(
    seconds: Config,
    base_model: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Callable[..., str]:
    """What the stages print until the first that fails with 2; no stage may take a GPU."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(gpus, "hold", lambda *_: pytest.fail("a GPU was taken"))
    shutil.copytree(base_model, "model")

    def run(*stages: str, **changes: Any) -> str:
        own = {"base": {"source": "hub", "model": "model"}, "tracking": {"enabled": False}, **changes}
        config = configuration.parse(configuration.overlay(seconds.model_dump(mode="json"), own))
        files.write_json(CONFIG, config.model_dump(mode="json"))
        for name in config.datasets:
            made = [
                Problem(f"{name}/{one}", name, one, "sort up, total", [Test("1", "1")]) for one in ("train", "test")
            ]
            files.write_problems(config.layout.problems(name), made, Provenance("prepare", config.name, {}))
        codes = [cli.main([*stage.split(), "--config", CONFIG]) for stage in stages]
        assert codes == [0] * (len(stages) - 1) + [2]
        return capsys.readouterr().err.splitlines()[-1]

    return run


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"prompt": {"chat": True}}, "prompt.chat: the model has no chat template"),
        ({"sampling": {"stop_tokens": ["<nowhere>"]}}, "sampling.stop_tokens: '<nowhere>' is not one token of model"),
        (
            {"sampling": {"max_tokens": 512}},
            "sampling.max_tokens=512 leaves no room for a prompt: model takes 512 tokens",
        ),
        (
            {"training": {"max_tokens": 600}},
            "training.max_tokens=600 leaves no room for a prompt: model takes 512 tokens",
        ),
    ],
)
def test_a_model_that_does_not_fit_is_refused_by_base(changes: dict, message: str, said: Callable[..., str]) -> None:
    assert message in said("base", **changes)
    assert not Path("results/seconds/policies/base/policy.json").exists()


def test_a_model_with_a_recurrent_state_is_refused_by_base(said: Callable[..., str], base_model: str) -> None:
    shutil.rmtree("model")
    tokenizer = AutoTokenizer.from_pretrained(base_model)
    MambaForCausalLM(MambaConfig(vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=1)).save_pretrained(
        "model"
    )
    tokenizer.save_pretrained("model")
    assert "is a MambaForCausalLM, whose recurrent state sampling.backend=transformers cannot split" in said("base")


def test_a_template_without_system_messages_is_refused_by_base(said: Callable[..., str]) -> None:
    Path("model/chat_template.jinja").write_text(
        "{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    )
    line = said("base", prompt={"chat": True, "system": "Be brief."})
    assert "the model's chat template refuses system and user messages (System role not supported)" in line


def test_a_prompt_too_long_for_the_context_is_named_before_a_gpu_is_taken(said: Callable[..., str]) -> None:
    long = {"max_tokens": 509}
    sampled = said("base", "sample base", sampling=long)
    assert "/test: a prompt of " in sampled
    assert "tokens and sampling.max_tokens=509 exceed the 512 tokens that the model takes" in sampled
    trained = said("base", "train grpo --seed 0", training=long)
    assert "/train: a prompt of " in trained
    assert "tokens and training.max_tokens=509 exceed the 512 tokens that the model takes" in trained


@pytest.mark.parametrize("seed", [-1, 2**32])
@pytest.mark.parametrize("place", ["base", "sampling", "report", "seeds"])
def test_seeds_that_libraries_refuse_are_refused_by_the_schema(place: str, seed: int, seconds: Config) -> None:
    changes = {"seeds": [seed]} if place == "seeds" else {place: {"seed": seed}}
    content = configuration.overlay(seconds.model_dump(mode="json"), changes)
    with pytest.raises(UserError, match="seed"):
        configuration.parse(content)


def test_the_place_that_another_launcher_left_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch would wait without end for the other processes."""
    left = {"WORLD_SIZE": "2", "RANK": "0", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "PMI_SIZE": "2"}
    left |= {"OMPI_COMM_WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "x", "ACCELERATE_USE_FSDP": "true"}
    left |= {"MPI_LOCALRANKID": "1", "MV2_COMM_WORLD_LOCAL_RANK": "1", "ROLE_NAME": "default", "PMI_FD": "3"}
    kept = {"LOCAL_DATA": "here", "HF_HUB_OFFLINE": "1"}
    for name, value in (left | kept).items():
        monkeypatch.setenv(name, value)
    launcher.clear()
    assert not left.keys() & os.environ.keys()
    assert kept.items() <= os.environ.items()


def test_training_in_one_process_forgets_the_place_that_was_left(
    said: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where as many processes are asked for as the other launcher had started."""
    for name, value in {"WORLD_SIZE": "2", "RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    for processes in (1, 2):
        training = {"max_tokens": 509, "processes": processes}
        assert "exceed the 512 tokens that the model takes" in said("base", "train grpo --seed 0", training=training)
        assert "WORLD_SIZE" not in os.environ
        monkeypatch.setenv("WORLD_SIZE", "2")
