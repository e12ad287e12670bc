"""`maxk push`: the folder is right and loads, numbers are those of the one policy, and nothing is uploaded unasked."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import httpx
import huggingface_hub
import pytest
import yaml
from made_up import Experiment
from tokenizers import Tokenizer, models
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from maxk import cli
from maxk.artifacts import files
from maxk.artifacts.records import Policy

NAME = "bon_mean/seed0"


@pytest.fixture
def trained(small: Experiment) -> Experiment:
    """The policy NAME with weights, beside one that was not trained."""
    folder = Path(small.config.layout.policy(NAME)).parent / "model"
    shape = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    LlamaForCausalLM(LlamaConfig(vocab_size=4, **shape)).save_pretrained(folder)
    words = Tokenizer(models.WordLevel({word: i for i, word in enumerate("abcd")}, unk_token="a"))
    PreTrainedTokenizerFast(tokenizer_object=words).save_pretrained(folder)
    environment = {"python": "3.11.2", "torch": "2.13.0", "source": "abc", "sandbox": "landlock"}
    lineage = {"seed": 0, **small.lineage(NAME)}
    policy = Policy(NAME, "BoN mean", str(folder), lineage=lineage, environment=environment)
    files.write_policy(small.config.layout.policy(NAME), policy)
    files.write_policy(small.config.layout.policy("base"), Policy("base", "base", "some/model", "a" * 40))
    return small


def failure(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line of a refused push."""
    assert cli.main(["push", *arguments]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    return said


def test_the_folder_loads_and_its_card_tells_how_it_was_made(trained: Experiment) -> None:
    assert cli.main(["push", NAME, "--folder", "out"]) == 0
    assert AutoModelForCausalLM.from_pretrained("out").config.vocab_size == 4
    assert AutoTokenizer.from_pretrained("out").vocab_size == 4
    header, card = Path("out/README.md").read_text().split("---\n\n", 1)
    metadata = yaml.safe_load(header.strip("-\n"))
    assert metadata["base_model"] == "some/model"
    assert metadata["library_name"] == "transformers"
    assert {"maxk", "bon_mean"} <= set(metadata["tags"])
    for told in ('"type": "bon_mean", "k": 4', "`some/model`", "some easy", "| seed of this policy | 0 |", "landlock"):
        assert told in card
    assert "| seeds that the experiment configures | 0 |" in card
    # easy: 0.5, 1, 1, 1 and hard: 0, 0, 0, 0.5 in all samples; ± 3.182 (t, 3 degrees) standard errors of 0.125
    assert "| easy | this one | 0.875 [0.477, 1.000] | 0.875 [0.477, 1.000] | 0.875 [0.477, 1.000] |" in card
    assert "| hard | this one | 0.125 [0.000, 0.523] |" in card
    assert "| easy | base | 0.500 [0.000, 1.000] |" in card
    assert "128 completions per problem" in card


def test_provenance_names_no_path_of_this_machine(trained: Experiment) -> None:
    cli.main(["push", NAME, "--folder", "out"])
    provenance = json.loads(Path("out/provenance.json").read_text())
    assert provenance["lineage"]["settings"]["objective"] == {"type": "bon_mean", "k": 4}
    assert "model" not in provenance
    assert str(Path.cwd()) not in Path("out/README.md").read_text() + Path("out/provenance.json").read_text()


def test_a_local_base_model_is_not_named(trained: Experiment) -> None:
    """Neither while its folder is there, nor after: a folder has no commit."""
    files.write_policy(trained.config.layout.policy("base"), Policy("base", "base", "some/model"))
    assert cli.main(["push", NAME, "--folder", "out"]) == 0
    card = Path("out/README.md").read_text()
    assert "some/model" not in card
    assert "a local model" in card


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ("base", "the base policy is not trained; give OBJECTIVE/seedN, such as grpo/seed0"),
        ("grpo", "no trained policy 'grpo'"),
        ("grpo/seed0", "policies/grpo/seed0/policy.json: no such file; make it: `snakemake --cores all results/"),
    ],
)
def test_what_cannot_be_pushed(policy: str, message: str, trained: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert message in failure(capsys, policy, "--folder", "out")
    assert not Path("out").exists()


def test_an_experiment_without_objectives(
    experiment: Callable[..., Experiment], capsys: pytest.CaptureFixture[str]
) -> None:
    experiment(objectives={})
    assert "no trained policy 'grpo/seed0'; this experiment has no objectives" in failure(
        capsys, "grpo/seed0", "--folder", "out"
    )


def test_a_model_that_was_deleted(trained: Experiment, capsys: pytest.CaptureFixture[str]) -> None:
    model = Path(trained.config.layout.policy(NAME)).parent / "model"
    shutil.rmtree(model)
    assert f"{model}: no such folder" in failure(capsys, NAME, "--folder", "out")
    assert not Path("out").exists()


def test_a_policy_without_scores_is_not_pushed(trained: Experiment, capsys: pytest.CaptureFixture[str]) -> None:
    for dataset in ("easy", "hard"):
        Path(trained.config.layout.scores(NAME, dataset)).unlink()
    assert f"{NAME}: no scores yet; make them: `snakemake --cores all results/scores/{NAME}/easy.parquet" in failure(
        capsys, NAME, "--folder", "out"
    )


def test_a_folder_is_never_overwritten(trained: Experiment, capsys: pytest.CaptureFixture[str]) -> None:
    Path("out").mkdir()
    assert "--folder out exists" in failure(capsys, NAME, "--folder", "out")


# ---- the hub
class Hub:
    """What HfApi was asked to do."""

    asked: ClassVar[dict[str, Any]] = {}

    def create_repo(self, repo_id: str, *, private: bool, exist_ok: bool) -> Any:
        Hub.asked = {"private": private}
        return huggingface_hub.RepoUrl(f"https://huggingface.co/{repo_id}")

    def upload_folder(self, *, repo_id: str, folder_path: Path, commit_message: str) -> None:
        Hub.asked |= {"repo": repo_id, "files": {path.name for path in folder_path.iterdir()}}


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> type[Hub]:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub, "HfApi", Hub)
    monkeypatch.setenv("HF_TOKEN", "hf_of_nobody")
    return Hub


@pytest.mark.parametrize(("options", "private"), [([], True), (["--public"], False)])
def test_the_hub_gets_the_same_folder(
    options: list[str], private: bool, trained: Experiment, hub: type[Hub], capsys: pytest.CaptureFixture[str]
) -> None:
    cli.main(["push", NAME, "--folder", "out"])
    assert cli.main(["push", NAME, "--to", "me/policy", *options]) == 0
    assert hub.asked == {
        "private": private,
        "repo": "me/policy",
        "files": {path.name for path in Path("out").iterdir()},
    }
    assert f"{NAME} is at https://huggingface.co/me/policy" in capsys.readouterr().out


def test_an_upload_without_a_token_or_a_network_ends_before_any_work(
    hub: type[Hub], trained: Experiment, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(huggingface_hub, "get_token", lambda: None)
    assert "the hub needs a token" in failure(capsys, NAME, "--to", "me/policy")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    assert "HF_HUB_OFFLINE is set" in failure(capsys, NAME, "--to", "me/policy")


@pytest.mark.parametrize("kind", [httpx.ConnectError, ConnectionError])
def test_a_hub_that_does_not_respond(
    kind: type[Exception],
    hub: type[Hub],
    trained: Experiment,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise kind("no route\nto host")

    monkeypatch.setattr(hub, "upload_folder", refuse)
    assert "--to me/policy: no route to host" in failure(capsys, NAME, "--to", "me/policy")
