"""The schema refuses what is unknown, out of range or contradictory, before any work, in one line that names it."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from datetime import date
from pathlib import Path

import pytest
import yaml

from maxk import config as configuration
from maxk.artifacts import files
from maxk.config.reference import reference
from maxk.errors import UserError
from maxk.objectives import OBJECTIVES

RULE = {"policy": "bon_mean", "then": "a", "otherwise": "b"}
FOLLOWS = {"type": "grpo", "training": {"entropy_bonus": {"like": "short"}}}


def question(**keys: object) -> dict:
    """An overlay with one experiment."""
    return {"experiments": {"x": {"question": "?", "policies": ["grpo", "bon_mean"], "reference": "grpo", **keys}}}


# overlay on the default config → what the one-line message must hold
FAULTS = {
    "unknown section": ({"trainig": {}}, ["trainig", "did you mean 'training'"]),
    "unknown key": ({"training": {"learnign_rate": 1}}, ["training.learnign_rate", "did you mean 'learning_rate'"]),
    "unknown key of an objective": (
        {"objectives": {"a": {"type": "grpo", "training": {"lerning_rate": 1}}}},
        ["objectives.a.training.lerning_rate", "did you mean 'learning_rate'"],
    ),
    "an empty key": ({"training": {"": 2}}, ["training.'': unknown key; allowed: datasets, epochs"]),
    "an empty key of an objective": (
        {"objectives": {"a": {"type": "grpo", "training": {"": 2}}}},
        ["objectives.a.training.'': unknown key; allowed: datasets, epochs"],
    ),
    "an empty name": ({"objectives": {"": {"type": "grpo"}}}, ["objectives.'': expected the form", "got ''"]),
    "no key": ({"training": {None: 2}}, ["training.None: keys should be strings, got None"]),
    "a key with an empty part": (
        {"training": {"epochs.": 2}},
        ["training.'epochs.': unknown key (did you mean 'epochs'?)"],
    ),
    "a key with dots": ({"training.epochs": 2}, ["'training.epochs': unknown key; nest it: `training: {epochs: …}`"]),
    "a key with more dots": (
        {"objectives.grpo.k": 2},
        ["'objectives.grpo.k': unknown key; nest it: `objectives: {grpo: {k: …}}`"],
    ),
    "renamed key": (
        {"training": {"microbatch_completions": 8}},
        ["training.microbatch_completions: renamed to per_device_batch_size"],
    ),
    "renamed key of an objective": (
        {"objectives": {"a": {"type": "grpo", "training": {"completions": 8}}}},
        ["objectives.a.training.completions: renamed to num_generations"],
    ),
    "unknown key of a dataset": (
        {"datasets": {"a": {"source": "pocket", "transfroms": [1]}}},
        ["datasets.a.transfroms", "did you mean 'transforms'"],
    ),
    "unknown objective": ({"objectives": {"a": {"type": "grppo"}}}, ["objectives.a", "'grppo'", "'grpo'"]),
    "unknown parameter": ({"objectives": {"a": {"type": "grpo", "kk": 2}}}, ["objectives.a", "'kk'"]),
    "not a mapping": ({"objectives": {"a": "grpo"}}, ["objectives.a", "mapping", "'grpo'"]),
    "type missing": ({"objectives": {"a": {"k": 4}}}, ["objectives.a", "`type`", "bon_loo1"]),
    "misspelt label": ({"objectives": {"a": {"type": "grpo", "lable": "x"}}}, ["objectives.a", "'lable'", "'label'"]),
    "k not a number": ({"objectives": {"a": {"type": "bon_loo1", "k": "x"}}}, ["objectives.a.k", "'x'"]),
    "unknown variant": (
        {"objectives": {"a": {"type": "bon_offpolicy", "k": 4, "variant": "x"}}},
        ["objectives.a.variant", "'surrogate' or 'literal'", "'x'"],
    ),
    "negative clamp": (
        {"objectives": {"a": {"type": "bon_offpolicy", "k": 4, "clamp_delta": -1}}},
        ["objectives.a", "clamp_delta", "above 0", "-1"],
    ),
    "k missing": ({"objectives": {"a": {"type": "bon_loo1"}}}, ["objectives.a.k: missing"]),
    "k above n": ({"objectives": {"a": {"type": "bon_loo1", "k": 9}}}, ["k=9", "num_generations=8"]),
    "schedule above n": (
        {"objectives": {"a": {"type": "bon_loo1", "k": {"schedule": "linear", "start": 12, "end": 1}}}},
        ["k=12", "num_generations=8"],
    ),
    "unknown key in a list": (
        question(rules=[{"policy": "bon_mean", "thn": "a", "otherwise": "b"}]),
        ["rules.0.thn", "'then'"],
    ),
    "a rule about itself": (question(rules=[{**RULE, "policy": "grpo"}]), ["experiments.x.rules", "with itself"]),
    "a rule with a k that is not scored": (question(rules=[{**RULE, "k": 3}]), ["k=3", "report.ks"]),
    "a rule about a vote that is not counted": (question(rules=[{**RULE, "vote": True}]), ["experiment's `vote`"]),
    "rules without a list": (question(rules=RULE), ["experiments.x.rules: expected a list"]),
    "a flag for a number": (question(vote=True), ["experiments.x.vote: expected an integer, got 'true'"]),
    "a flag for a seed": ({"seeds": [0, True]}, ["seeds.1: expected an integer, got true"]),
    "a flag for a real number": ({"training": {"epochs": True}}, ["training.epochs: ", "'true'"]),
    "a flag for an optional number": (
        {"datasets": {"a": {"source": "mbpp", "test": False}}},
        ["datasets.a", "'false'"],
    ),
    "a flag for a number of an objective": (
        {"objectives": {"a": {"type": "bon_topm", "k": 4, "m": True}}},
        ["objectives.a.m: expected an integer, got 'true'"],
    ),
    "no policies": (question(policies=[]), ["reference='grpo'", "none"]),
    "no source": ({"base": {}}, ["base: needs the key 'source'"]),
    "a section in one word": (
        {"training": {"entropy_bonus": 0.1}},
        ["training.entropy_bonus: expected keys and values"],
    ),
    "no seeds": ({"seeds": []}, ["seeds: at least 1 needed"]),
    "more milestones than generation batches": (
        question(milestones=10_000),
        ["milestones=10000, but the training of 'grpo'", "at most "],
    ),
    "milestones without the KL to the base model": (
        {**question(milestones=2), "training": {"kl_reference": "old"}},
        ["experiments.x.milestones", "equal KL to the base model", "(grpo, bon_mean)", "experiments: {}"],
    ),
    "milestones without a KL": (
        {**question(milestones=2), "training": {"kl_coefficient": 0}},
        ["experiments.x.milestones", "kl_coefficient: 0"],
    ),
    "too many GPUs": (
        {"gpus": 1, "training": {"processes": 4, "per_device_batch_size": 32}},
        ["objectives.grpo, objectives.grpo_binary and ", "others: training.processes=4"],
    ),
    "the entropy of a shorter training": (
        {"objectives": {"short": {"type": "grpo", "training": {"epochs": 0.5}}, "b": FOLLOWS}},
        ["objectives.b.training.entropy_bonus.like: 'short' ends first"],
    ),
    "the entropy of larger batches": (
        {"objectives": {"short": {"type": "grpo", "training": {"prompts_per_step": 32}}, "b": FOLLOWS}},
        ["'short' ends first", "prompts_per_step=32"],
    ),
    "k = n has no gradient": ({"objectives": {"a": {"type": "bon_mean", "k": 8}}}, ["no gradient", "k < n"]),
    "off-policy with one iteration": (
        {"objectives": {"a": {"type": "bon_offpolicy", "k": 4}}},
        ["objectives.a", "iterations=1", "2 or more"],
    ),
    "unknown dataset": ({"training": {"datasets": ["pocket-contest"]}}, ["'pocket-contests'"]),
    "dataset without train problems": ({"training": {"datasets": ["pocket-long"]}}, ["pocket-long", "train=0"]),
    "batch not divisible": ({"training": {"per_device_batch_size": 5}}, ["16 × 8 = 128", "1 × 5"]),
    "vllm server without url": ({"training": {"generator": {"backend": "vllm", "mode": "server"}}}, ["url"]),
    "no sampler for its probabilities": (
        {"training": {"old_policy": "sampler"}},
        ["training", "generator.backend: vllm"],
    ),
    "ahead without a server": (
        {"training": {"old_policy": "sampler", "generator": {"backend": "vllm", "ahead": True}}},
        ["training.generator", "ahead: true needs a vLLM server"],
    ),
    "ahead without the sampler's policy": (
        {"training": {"generator": {"backend": "vllm", "mode": "server", "url": "http://gpu:8000", "ahead": True}}},
        ["training", "it needs old_policy: sampler and processes: 1"],
    ),
    "sampler corrected twice": (
        {"training": {"old_policy": "sampler", "generator": {"backend": "vllm", "importance_sampling": "token_mask"}}},
        ["training", "corrected twice"],
    ),
    "correction without vllm": (
        {"training": {"generator": {"importance_sampling": "token_mask"}}},
        ["training.generator", "backend: vllm"],
    ),
    "no penalty for its reference": (
        {"training": {"kl_reference": "old", "kl_coefficient": 0}},
        ["training", "kl_reference: old needs a kl_coefficient above 0"],
    ),
    "a precision of no reference model": (
        {"training": {"kl_reference": "old", "reference_precision": "bfloat16"}},
        ["training", "loads no reference model"],
    ),
    "shared gpu without a fixed cache": (
        {"training": {"gpu": 0.25, "generator": {"backend": "vllm"}}},
        ["training", "gpu=0.25", "generator.kv_cache_gb"],
    ),
    "shared gpu without a fixed cache for samples": (
        {"sampling": {"gpu": 0.25, "backend": "vllm"}},
        ["sampling", "gpu=0.25", "vllm.kv_cache_gb"],
    ),
    "more than a gpu": ({"training": {"gpu": 2}}, ["training.gpu", "got 2"]),
    "processes do not divide": ({"training": {"processes": 3}}, ["training", "3 × 128"]),
    "no training data": ({"training": {"datasets": []}}, ["training.datasets"]),
    "training data twice": ({"training": {"datasets": ["pocket-contests"] * 2}}, ["training", "twice"]),
    "accelerate for one process": ({"training": {"accelerate": "config/accelerate/ddp.yaml"}}, ["processes"]),
    "chat without a chat model": ({"prompt": {"chat": True}}, ["prompt.chat", "pretrain"]),
    "name of a folder": ({"name": "policies"}, ["'policies'", "folder"]),
    "one completion": ({"training": {"num_generations": 1}}, ["training.num_generations", "got 1"]),
    "eval k above n": ({"sampling": {"n": 100, "chunk": 50}}, ["k=256", "sampling.n=100"]),
    "ks without the headline": ({"report": {"ks": [1, 2, 4]}}, ["report", "[128]"]),
    "ks unsorted": ({"report": {"ks": [128, 1]}}, ["report", "ascend"]),
    "negative seed": ({"seeds": [-1]}, ["seeds.0", "got -1"]),
    "seed twice": ({"seeds": [1, 1]}, ["seeds", "twice"]),
    "not a number": ({"training": {"learning_rate": "fast"}}, ["training.learning_rate", "'fast'"]),
    "infinite": ({"training": {"learning_rate": float("inf")}}, ["training.learning_rate", "inf"]),
    "unknown base": ({"base": {"source": "hug"}}, ["base", "pretrain", "hub"]),
    "unknown sandbox": ({"verification": {"sandbox": "docker"}}, ["verification.sandbox", "bubblewrap", "'docker'"]),
    "template without statement": ({"prompt": {"template": "solve"}}, ["prompt", "{statement}"]),
    "system without chat": ({"prompt": {"system": "be brief"}}, ["prompt", "chat"]),
    "name with a slash": ({"name": "a/b"}, ["name", "'a/b'"]),
    "objective named base": ({"objectives": {"base": {"type": "grpo"}}}, ["objectives.base"]),
    "entropy of no objective": (
        {"objectives": {"a": {"type": "grpo", "training": {"entropy_bonus": {"like": "b"}}}}},
        ["objectives.a.training.entropy_bonus.like", "'b'"],
    ),
    "entropy of a training that follows itself": (
        {"objectives": {"a": {"type": "grpo", "training": {"entropy_bonus": {"like": "a"}}}}},
        ["objectives.a.training.entropy_bonus.like", "'a'", "follows another"],
    ),
    "entropy to follow and to hold": (
        {"training": {"entropy_bonus": {"like": "grpo", "target": 0.3}}},
        ["training.entropy_bonus", "leave both out"],
    ),
    "heads do not divide": (
        {"base": {"source": "pretrain", "architecture": {"hidden_size": 30, "heads": 4}}},
        ["base.architecture", "hidden_size=30"],
    ),
    "nothing evaluated": (
        {
            "datasets": {
                "pocket-contests": {
                    "source": "pocket",
                    "transforms": [1],
                    "open_operations": [1],
                    "rare": 0.1,
                    "readings": [1, 0, 0],
                    "train": 8,
                }
            }
        },
        ["datasets", "test"],
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults_are_named_in_one_line(name: str, defaults: dict) -> None:
    changes, expected = FAULTS[name]
    with pytest.raises(UserError) as error:
        configuration.parse(configuration.overlay(defaults, changes))
    message = str(error.value)
    assert "\n" not in message
    assert len(message) < 900
    for part in expected:
        assert part in message


def test_ratios_to_the_sampler_need_no_second_iteration(defaults: dict) -> None:
    training = {"old_policy": "sampler", "generator": {"backend": "vllm"}}
    changes = {"objectives": {"a": {"type": "bon_offpolicy_exact", "k": 4}}, "training": training}
    assert configuration.parse(configuration.overlay(defaults, changes)).training_of("a").iterations == 1


def test_several_faults_are_told_at_once(defaults: dict) -> None:
    with pytest.raises(UserError) as error:
        configuration.parse(configuration.overlay(defaults, {"seed": 3, "training": {"clip": -1}}))
    assert "seed" in str(error.value)
    assert "training.clip" in str(error.value)


def test_sections_merge_and_sets_replace(defaults: dict) -> None:
    merged = configuration.overlay(
        defaults, {"training": {"epochs": 2}, "objectives": {"only": {"type": "grpo"}}, "seeds": [7]}
    )
    config = configuration.parse(merged)
    assert config.training.epochs == 2
    assert config.training.prompts_per_step == 16
    assert config.policies == ["base", "only/seed7"]


def test_objective_overrides_training(defaults: dict) -> None:
    config = configuration.parse(defaults)
    assert config.training_of("bon_offpolicy").iterations == 3
    assert config.training_of("grpo").iterations == 1
    assert config.training_of("bon_offpolicy").num_generations == config.training.num_generations


def test_a_resolved_configuration_reads_back_equal(defaults: dict, tmp_path: Path) -> None:
    config = configuration.parse(defaults)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config.model_dump(mode="json")))
    assert configuration.load(path) == config


def test_a_config_file_stands_for_its_run(defaults: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was resolved: values of the command line are not in the file."""
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text("name: mine")
    with pytest.raises(
        UserError, match=r"results/mine/config.json: no such run; start it: `snakemake --configfile mine"
    ):
        configuration.load("mine.yaml")
    run = configuration.parse({**defaults, "name": "mine", "seeds": [3, 4]})
    files.write_json(run.layout.config, run.model_dump(mode="json"))
    assert configuration.load("mine.yaml") == run
    with pytest.raises(
        UserError, match=r"results/config.json: no such file; choose a run: --config results/mine/config"
    ):
        configuration.load("results/config.json")


def test_a_stage_depends_on_its_own_settings_only(defaults: dict) -> None:
    """What Snakemake reruns follows from this: a report setting must not retrain, workers must repeat nothing."""
    before = configuration.parse(defaults)

    def changed(changes: dict) -> set[str]:
        after = configuration.parse(configuration.overlay(defaults, changes))
        of = {"train": {"objective": "grpo"}, "prepare": {"dataset": "pocket-long"}}
        stages = ("prepare", "base", "train", "sample", "verify", "score", "report")
        return {s for s in stages if before.settings(s, **of.get(s, {})) != after.settings(s, **of.get(s, {}))}

    assert changed({"report": {"resamples": 5}}) == {"report"}
    assert changed({"training": {"checkpoint_every": 7, "gradient_checkpointing": True}}) == set()
    assert changed({"training": {"generator": {"gpu_memory_utilization": 0.5}}}) == set()
    assert changed({"training": {"gpu": 0.5, "generator": {"kv_cache_gb": 4}}}) == set()
    assert changed({"sampling": {"gpu": 0.5, "vllm": {"kv_cache_gb": 4}}}) == set()
    renamed = {**defaults["datasets"], "pocket-long": {**defaults["datasets"]["pocket-long"], "paper": "mbpp"}}
    assert changed({"datasets": renamed}) == {"report"}
    assert changed({"verification": {"workers": 2}}) == set()
    assert changed({"sampling": {"shards": 4, "batch_tokens": 8, "vllm": {"tensor_parallel": 2}}}) == set()
    assert changed({"sampling": {"entropy": False}}) == {"sample"}
    assert changed({"verification": {"cpu_s": 1.0}}) == {"train", "verify"}
    assert changed({"training": {"epochs": 2}}) == {"train"}
    assert changed({"sampling": {"temperature": 0.5}}) == {"sample"}
    assert changed({"prompt": {"template": "{statement}:\n"}}) == {"base", "train", "sample"}


def test_every_config_in_the_repository_is_valid(root: Path, defaults: dict) -> None:
    found = {*root.glob("config/*.yaml"), *root.glob("tests/configs/*.yaml")} - {root / "config" / "rates.yaml"}
    assert found
    for path in found:
        configuration.parse(configuration.overlay(defaults, configuration.read_yaml(path)))


def one_objective(defaults: dict, section: object) -> configuration.Config:
    return configuration.parse(configuration.overlay(defaults, {"objectives": {"a": section}}))


def test_numbers_without_a_dot_are_numbers_everywhere(defaults: dict) -> None:
    """YAML 1.1, which Snakemake and PyYAML read, takes 5e-6 for text."""
    text = "{type: bon_offpolicy, k: 4, clamp_delta: 1e-1, training: {iterations: 3, learning_rate: 5e-6}}"
    objective = one_objective(defaults, yaml.safe_load(text)).objectives["a"]
    assert objective.spec["clamp_delta"] == 0.1
    assert objective.training["learning_rate"] == 5e-6


def test_scalars_of_the_command_line_are_texts(defaults: dict) -> None:
    """`snakemake --config 'objectives={a: {…}}'` leaves every scalar inside the mapping as text."""
    text = "{type: bon_offpolicy_exact, k: 4, clamp_log_ratio: null, binary: true, training: {iterations: 3}}"
    as_text = yaml.load(text, Loader=yaml.BaseLoader)
    assert as_text["k"] == "4"
    assert one_objective(defaults, as_text) == one_objective(defaults, yaml.safe_load(text))
    schedule = {"type": "bon_loo1", "k": {"schedule": "linear", "start": "4", "end": "1"}}
    assert one_objective(defaults, schedule).objectives["a"].objective.ks == (1, 2, 3, 4)


def test_a_null_of_the_command_line_is_one_everywhere(defaults: dict) -> None:
    """Even where a text is allowed, such as a revision."""
    text = "{base: {source: hub, model: null-model, revision: null}, training: {lora: null, epochs: 2}}"
    as_text = yaml.load(text, Loader=yaml.BaseLoader)
    assert as_text["base"]["revision"] == "null"
    read = configuration.with_nulls(as_text, as_text)
    assert read == {
        "base": {"source": "hub", "model": "null-model", "revision": None},
        "training": {"lora": None, "epochs": "2"},
    }
    given = configuration.parse(configuration.overlay(defaults, read))
    assert given == configuration.parse(configuration.overlay(defaults, yaml.safe_load(text)))


def test_a_text_of_a_file_stays_text_beside_a_null_of_the_command_line() -> None:
    content = {"base": {"label": "null", "revision": "null"}, "name": "null", "stop": ["a", "null"]}
    read = configuration.with_nulls(content, {"base": {"revision": "null"}, "stop": ["a", "null"], "elsewhere": "null"})
    assert read == {"base": {"label": "null", "revision": None}, "name": "null", "stop": ["a", None]}


def test_what_an_objective_is_trained_with_is_what_differs_from_its_defaults(defaults: dict) -> None:
    """It is in the provenance of every trained policy: spelling out a default must not train anew."""
    schedule = {"schedule": "step", "start": 4, "end": 1}
    short = one_objective(defaults, {"type": "bon_loo1", "k": schedule, "label": "A"})
    spelt = one_objective(defaults, {"type": "bon_loo1", "k": schedule, "binary": False, "training": {}})
    assert short.settings("train", objective="a")["objective"] == {"type": "bon_loo1", "k": schedule}
    assert spelt.settings("train", objective="a") == short.settings("train", objective="a")


def test_an_objective_of_ones_own_is_named_by_its_import_path(
    defaults: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "of_mine.py").write_text(
        "from dataclasses import dataclass\n"
        "from maxk.objectives import MaxAtK\n"
        "@dataclass(frozen=True, kw_only=True)\n"
        "class Mine(MaxAtK):\n"
        "    label = 'My row'\n"
        "    shift: float = 0.5\n"
        "    def advantages(self, rewards, k):\n"
        "        return rewards - k * self.shift\n"
        "def centred(rewards):\n"
        "    return rewards - rewards.mean(dim=1, keepdim=True)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    config = one_objective(defaults, {"type": "of_mine:Mine", "k": "2", "shift": "1e-1"})
    assert config.objectives["a"].objective.keys == {"k": 2, "binary": False, "shift": 0.1}
    assert config.label("a") == "My row"
    assert config.settings("train", objective="a")["objective"] == {"type": "of_mine:Mine", "k": 2, "shift": 0.1}
    assert configuration.parse(config.model_dump(mode="json")) == config
    before = config.settings("train", objective="a")
    with (tmp_path / "of_mine.py").open("a") as handle:
        handle.write("# edited\n")
    assert config.settings("train", objective="a") != before
    assert one_objective(defaults, {"type": "of_mine:centred"}).label("a") == "centred"
    for section, message in (
        ({"type": "of_mine:Mine", "k": 2, "shfit": 1}, "did you mean 'shift'"),
        ({"type": "of_mine:Mine", "k": 9}, "k=9 is more than training.num_generations=8"),
        ({"type": "of_mine:centred", "k": 2}, "of_mine:centred has no key 'k'"),
        ({"type": "of_mine:other"}, "objective type 'of_mine:other' cannot be imported"),
        ({"type": "not_there:other"}, "objective type 'not_there:other' cannot be imported"),
    ):
        with pytest.raises(UserError, match=r"objectives\.a: ") as error:
            one_objective(defaults, section)
        assert message in str(error.value).replace("objectives.a: ", "")


def test_chat_models_stop_at_the_closing_fence(root: Path, defaults: dict) -> None:
    mini = configuration.experiment(root / "config" / "mini.yaml")
    pocket, paper = configuration.parse(defaults), configuration.experiment(root / "config" / "paper.yaml")
    assert mini.sampling.stop == mini.training.stop == mini.training_of("bon_mean").stop == ("\n```\n",)
    assert pocket.sampling.stop == pocket.training.stop == paper.sampling.stop == paper.training.stop == ()
    for given in ([], ["END"]):
        changed = configuration.overlay(mini.model_dump(mode="json"), {"sampling": {"stop": given}})
        assert configuration.parse(changed).sampling.stop == tuple(given)
    assert mini.settings("sample")["sampling"]["stop"] == ["\n```\n"]
    assert mini.settings("train", objective="grpo")["training"]["stop"] == ["\n```\n"]


def test_reference_of_all_keys_is_up_to_date(root: Path) -> None:
    """Update with: python -m maxk.config.reference > config/README.md"""
    assert (root / "config" / "README.md").read_text(encoding="utf-8") == reference()


def test_reference_titles_every_section_by_its_key() -> None:
    """Not by the name of its class, which no config file has."""
    titles = [line for line in reference().splitlines() if line.startswith("## ") and line != "## Top level"]
    keys = [re.findall(r"`([^`]+)`", title)[0].split(".") for title in titles]
    assert {key[0] for key in keys} <= configuration.Config.model_fields.keys()
    assert ["training", "entropy_bonus"] in keys
    assert ["experiments", "NAME", "rules"] in keys


def test_reference_names_every_key_of_every_objective(root: Path) -> None:
    text = (root / "config" / "README.md").read_text(encoding="utf-8")
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| `")]
    shown = {(row[0], name) for row in rows if len(row) == 5 and row[3] for name in row[4].split(", ")}
    for name, kind in OBJECTIVES.items():
        for field in fields(kind):
            assert (f"`{field.name}`", f"`{name}`") in shown


def test_default_config_spells_out_every_value_a_user_would_change(defaults: dict) -> None:
    """Sections of the default file hold all keys of the schema but those that are rarely touched."""
    rarely = {"seed", "max_grad_norm", "evaluation", "entropy_bonus"}
    rarely |= {
        "gpu",
        "processes",
        "nodes",
        "accelerate",
        "precision",
        "gradient_checkpointing",
        "lora",
        "generator",
    }  # larger scales
    rarely |= {"reference_precision", "kl_reference", "torch_compile", "old_policy", "minibatches"}
    rarely |= {"stop"}  # its default depends on `base`
    sections = {
        "training": configuration.Training,
        "sampling": configuration.Sampling,
        "verification": configuration.Verification,
        "report": configuration.Report,
    }
    for name, model in sections.items():
        assert set(model.model_fields) - set(defaults[name]) <= rarely, name


@pytest.mark.parametrize(
    ("content", "expected"),
    [("a: [1", "not valid YAML"), ("- 1", "expected keys and values"), ("\tx: 1", "not valid YAML")],
)
def test_unreadable_files(content: str, expected: str, tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(content)
    with pytest.raises(UserError, match=expected):
        configuration.read_yaml(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"absent\.yaml: no such file"):
        configuration.read_yaml(tmp_path / "absent.yaml")


def test_yaml_numbers_are_numbers(root: Path) -> None:
    """YAML reads `1e-4` as text; the files must write `1.0e-4`."""
    for path in set(root.glob("config/*.yaml")) - {root / "config" / "rates.yaml"}:
        text = yaml.safe_load(path.read_text())
        assert isinstance(text.get("base", {}).get("learning_rate", 0.1), float)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("training: {epochs: 2}\ntraining: {learning_rate: 1.0e-5}\n", "the key 'training' is repeated"),
        ("objectives:\n  a: {type: grpo}\n  a: {type: bon_mean}\n", "the key 'a' is repeated"),
        ('{"name": "x", "name": "y"}', "the key 'name' is repeated"),
    ],
)
def test_a_repeated_key_is_refused(text: str, said: str, tmp_path: Path) -> None:
    """YAML takes the last and loses the others."""
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(UserError, match=rf"mine.yaml: not valid YAML \({said} .*line \d"):
        configuration.read_yaml(path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("sampling: {n: 0400}", "n: write 256 (as YAML 1.1 reads it) or 400 instead of 0400"),
        ("sampling:\n  temperature: 1:30", 'temperature: write 90 (as YAML 1.1 reads it) or "1:30" instead of 1:30'),
        (
            "sampling: {temperature: 0:01.5}",
            'temperature: write 1.5 (as YAML 1.1 reads it) or "0:01.5" instead of 0:01.5',
        ),
        ("statistics: {ks: [1, [-010]]}", "ks: write -8 (as YAML 1.1 reads it) or -10 instead of -010"),
    ],
)
def test_a_number_with_two_readings_is_refused(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(UserError) as raised:
        configuration.read_yaml(path)
    assert str(raised.value).startswith(f"config {path}: not valid YAML ({said} in ")


def test_a_number_with_one_reading_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("""a: [0, 0.5, 10, 1_000, 0x1F, 0b11, "0400", '1:30', 12:ab, 007a, 2026-12-01]""")
    read = [0, 0.5, 10, 1000, 31, 3, "0400", "1:30", "12:ab", "007a", date(2026, 12, 1)]
    assert configuration.read_yaml(path) == {"a": read}


@pytest.mark.parametrize(
    ("text", "read"),
    [
        (
            "one: &one {epochs: 1, seed: 1}\ntwo: {<<: *one, epochs: 2}\n",
            {"one": {"epochs": 1, "seed": 1}, "two": {"epochs": 2, "seed": 1}},
        ),
        # `two` is merged into `three` before it is constructed itself, because it is deeper.
        (
            "all:\n  of:\n    one: &one {epochs: 1}\n    two: &two {<<: *one, epochs: 2}\nthree: {<<: *two}\n",
            {"all": {"of": {"one": {"epochs": 1}, "two": {"epochs": 2}}}, "three": {"epochs": 2}},
        ),
    ],
)
def test_a_key_may_override_a_merged_one(text: str, read: dict[str, object], tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    assert configuration.read_yaml(path) == read


def test_a_wrong_seed_is_one_fault() -> None:
    """A tuple whose only item is wrong is also too short, which says nothing new."""
    with pytest.raises(UserError) as raised:
        configuration.parse(configuration.overlay(configuration.defaults(), {"seeds": [-1]}))
    assert str(raised.value) == "config: seeds.0: input should be greater than or equal to 0, got -1"


def test_the_penalty_can_be_to_the_old_policy() -> None:
    """For all objectives and for one."""
    defaults = configuration.defaults()
    changes = {"training": {"kl_reference": "old"}, "experiments": {}}
    everywhere = configuration.parse(configuration.overlay(defaults, changes))
    assert {everywhere.training_of(name).kl_reference for name in everywhere.objectives} == {"old"}
    own = {
        "objectives": {"one": {"type": "grpo", "training": {"kl_reference": "old"}}, "other": {"type": "grpo_binary"}}
    }
    one = configuration.parse(configuration.overlay(defaults, own))
    assert [one.training_of(name).kl_reference for name in ("one", "other")] == ["old", "base"]
