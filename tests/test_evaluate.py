"""`maxk evaluate`: the configuration that it writes, the table of temperatures, and (slow) a whole run."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from maxk import cli
from maxk import config as configuration
from maxk.artifacts import files
from maxk.config import Config
from maxk.reporting import temperatures
from maxk.stages import evaluate
from pipeline import ENVIRONMENT

MBPP = Path(__file__).parent / "data" / "mbpp" / "mbpp.jsonl.gz"
PROBLEMS = [
    {"id": "sum", "statement": "sort up, total", "tests": [{"stdin": "1 2\n", "expected": "3\n"}]},
    {"id": "show", "statement": "halve, show", "tests": [{"stdin": "4 8\n", "expected": "2 4\n"}]},
]


@pytest.fixture
def folder(tmp_path: Path, root: Path, base_model: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder as a user has it: the workflow, a model and own problems."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "Snakefile").symlink_to(root / "Snakefile")
    with_context(tmp_path / "tiny", base_model, 1024)
    (tmp_path / "own.jsonl").write_text("".join(json.dumps(problem) + "\n" for problem in PROBLEMS))
    return tmp_path


def with_context(folder: Path, model: str, tokens: int) -> None:
    """A model's folder, by links, that states another context length; its weights know none."""
    folder.mkdir()
    for path in Path(model).iterdir():
        (folder / path.name).symlink_to(path)
    (folder / "config.json").unlink()
    stated = json.loads(Path(model, "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**stated, "max_position_embeddings": tokens}))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Config]:
    """The configurations that the pipeline would be run with; nothing runs."""
    configs: list[Config] = []
    monkeypatch.setattr(evaluate, "_run_pipeline", lambda config, args: configs.append(config) or 0)
    monkeypatch.setattr(temperatures, "write", lambda configs, name: [name])
    monkeypatch.setattr(evaluate.gpus, "visible", dict)
    return configs


def test_every_temperature_is_an_experiment(folder: Path, asked: list[Config], capsys: Any) -> None:
    command = ["evaluate", "tiny", "--problems", "own.jsonl", "--n", "12", "--temperatures", "0.6", "1"]
    assert cli.main(command) == 0
    assert [(one.name, one.sampling.temperature) for one in asked] == [("tiny-t0.6", 0.6), ("tiny-t1", 1.0)]
    assert capsys.readouterr().out == "results/tiny/temperatures\n"
    for config in asked:
        assert (config.base.model, config.objectives, config.policies) == ("tiny", {}, ["base"])
        assert config.datasets["own"].source == "jsonl"
        assert config.datasets["own"].location == "own.jsonl"
        assert (config.sampling.n, config.report.ks, config.report.headline_k) == (12, (1, 2, 4, 8, 12), 12)
        assert config.sampling.stop == ()  # no chat template
        assert not config.prompt.chat  # the tiny model's tokenizer has no chat template


def test_a_source_at_a_place_and_further_settings(folder: Path, asked: list[Config]) -> None:
    files.write_text("more.yaml", "sampling: {max_tokens: 99}\nprompt: {template: '{statement}'}\n")
    shutil.copy(MBPP, "mbpp.jsonl.gz")
    command = ["evaluate", "tiny", "--problems", "own.jsonl", "mbpp=mbpp.jsonl.gz", "--config", "more.yaml"]
    assert cli.main([*command, "--name", "mine"]) == 0
    [config] = asked
    assert (config.name, config.sampling.n, config.sampling.max_tokens) == ("mine", 64, 99)
    assert {name: (one.source, one.location) for name, one in config.datasets.items()} == {
        "own": ("jsonl", "own.jsonl"),
        "mbpp": ("mbpp", "mbpp.jsonl.gz"),
    }
    assert config.prompt.template == "{statement}"
    assert config.sampling.temperature == 1.0
    assert (config.objectives, config.experiments) == ({}, {})


def test_a_source_may_be_a_class(folder: Path, asked: list[Config]) -> None:
    code = "from maxk.data.mbpp import MbppDataset\nclass {}(MbppDataset):\n source: str\n location: str = {!r}\n"
    files.write_text("sources/of_mine.py", code.format("First", "mbpp.jsonl.gz") + code.format("Second", ""))
    shutil.copy(MBPP, "mbpp.jsonl.gz")
    sources = ["sources.of_mine:First", "sources.of_mine:Second"]
    assert cli.main(["evaluate", "tiny", "--problems", sources[0], f"{sources[1]}=mbpp.jsonl.gz"]) == 0
    [config] = asked
    assert {name: (one.source, one.location) for name, one in config.datasets.items()} == {
        "First": (sources[0], "mbpp.jsonl.gz"),
        "Second": (sources[1], "mbpp.jsonl.gz"),
    }


@pytest.mark.parametrize(
    ("content", "chat"), [("{}", True), ("prompt: {template: '{statement}'}", True), ("prompt: {chat: false}", False)]
)
def test_a_chat_model_is_prompted_in_its_template_unless_the_file_says_otherwise(
    content: str, chat: bool, folder: Path, asked: list[Config], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluate, "_is_chat_model", lambda model, revision: True)
    monkeypatch.setattr(evaluate, "require_usable", lambda config, policy: None)  # the tiny model has no template
    files.write_text("more.yaml", content)
    assert cli.main(["evaluate", "tiny", "--problems", "own.jsonl", "--config", "more.yaml"]) == 0
    assert [(config.prompt.chat, bool(config.sampling.stop)) for config in asked] == [(chat, chat)]


def test_the_file_is_over_the_defaults_and_below_the_command_line(folder: Path, asked: list[Config]) -> None:
    files.write_text("more.yaml", "base: {revision: abc, parameters: 0.5}\nreport: {ks: [1, 3], headline_k: 3}\n")
    assert cli.main(["evaluate", "tiny", "--problems", "own.jsonl", "--config", "more.yaml"]) == 0
    [config] = asked
    assert (config.base.model, config.base.revision, config.base.parameters) == ("tiny", "abc", 0.5)
    assert (config.report.ks, config.report.headline_k, config.report.confidence) == ((1, 3), 3, 0.95)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("base: {model: other}", "base.model (use the argument MODEL)"),
        ("base: {source: hub}", "base.source (use the argument MODEL)"),
        ("datasets: {}", "datasets (use --problems)"),
        ("objectives: {grpo: {type: grpo}}", "objectives (use `snakemake --configfile`, which trains)"),
        ("experiments: {}", "experiments (use `snakemake --configfile`, which trains)"),
        ("name: other", "name (use --name)"),
        ("sampling: {n: 8}", "sampling.n (use --n)"),
        ("sampling: {temperature: 0.3}", "sampling.temperature (use --temperatures)"),
    ],
)
def test_a_file_may_not_set_what_the_command_line_does(
    content: str, words: str, folder: Path, asked: list[Config], capsys: pytest.CaptureFixture[str]
) -> None:
    files.write_text("more.yaml", content)
    assert refused(["tiny", "--problems", "own.jsonl", "--config", "more.yaml"], capsys) == (
        f"maxk evaluate: --config more.yaml must not set {words}"
    )
    assert asked == []


def test_an_experiment_with_training_is_refused(
    folder: Path, root: Path, asked: list[Config], capsys: pytest.CaptureFixture[str]
) -> None:
    line = refused(["tiny", "--problems", "own.jsonl", "--config", str(root / "config" / "mini.yaml")], capsys)
    for key in ("name", "base.model", "datasets", "objectives", "experiments", "sampling.n"):
        assert f" {key} (use " in line
    assert asked == []


@pytest.mark.parametrize("section", ["base", "sampling"])
def test_a_section_that_is_none_is_refused(
    section: str, folder: Path, asked: list[Config], capsys: pytest.CaptureFixture[str]
) -> None:
    files.write_text("more.yaml", f"{section}: 3")
    line = refused(["tiny", "--problems", "own.jsonl", "--config", "more.yaml"], capsys)
    assert line == f"maxk evaluate: --config more.yaml: {section}: expected keys and values, got int"


@pytest.mark.parametrize(
    ("shown", "content", "gpus", "device"),
    [
        (0, "", 0, "CPU"),
        (2, "", 2, "1 of 2 GPUs"),
        (2, "sampling: {shards: 4}", 2, "2 of 2 GPUs"),
        (4, "sampling: {backend: vllm, vllm: {tensor_parallel: 2}}", 4, "2 of 4 GPUs"),
        (2, "gpus: 0", 0, "CPU"),
        (0, "gpus: 1", 1, "1 of 1 GPU"),
    ],
)
def test_visible_gpus_are_used_unless_the_file_says_otherwise(
    shown: int, content: str, gpus: int, device: str, folder: Path, asked: list[Config], monkeypatch: Any, capsys: Any
) -> None:
    monkeypatch.setattr(evaluate.gpus, "visible", lambda: {str(index): f"GPU-{index}" for index in range(shown)})
    files.write_text("more.yaml", content or "{}")
    assert cli.main(["evaluate", "tiny", "--problems", "own.jsonl", "--config", "more.yaml"]) == 0
    assert [config.gpus for config in asked] == [gpus]
    assert capsys.readouterr().err == f"reading the model tiny\ndevice: {device}\n"


@pytest.mark.parametrize("earlier", ["tiny", "tiny-t0.6"])
@pytest.mark.parametrize("base", [{"source": "hub", "model": "other/tiny"}, {"source": "pretrain"}])
def test_results_of_another_model_are_not_mixed_with(
    earlier: str, base: dict[str, str], folder: Path, asked: list[Config], capsys: pytest.CaptureFixture[str]
) -> None:
    files.write_json(Path("results", earlier, "config.json"), {"base": base})
    command = ["tiny", "--problems", "own.jsonl"]
    found = base.get("model", "a pretrained policy")
    assert (
        refused(command, capsys)
        == f"maxk evaluate: results/{earlier} contains results of {found}, not of tiny; give --name"
    )
    assert asked == []
    assert cli.main(["evaluate", *command, "--name", "mine"]) == 0


@pytest.mark.parametrize("spelling", ["tiny", "./tiny", "{folder}/tiny"])
def test_results_of_the_same_model_are_continued(spelling: str, folder: Path, asked: list[Config]) -> None:
    files.write_json("results/tiny/config.json", {"base": {"source": "hub", "model": "tiny"}})
    assert cli.main(["evaluate", spelling.format(folder=folder), "--problems", "own.jsonl"]) == 0
    assert len(asked) == 1


def test_problems_of_one_name_are_refused(
    folder: Path, asked: list[Config], capsys: pytest.CaptureFixture[str]
) -> None:
    files.write_text("more/own.jsonl", Path("own.jsonl").read_text())
    for second in ("more/own.jsonl", "own.jsonl", "own=elsewhere"):
        line = refused(["tiny", "--problems", "own.jsonl", second], capsys)
        assert line.startswith(f"maxk evaluate: --problems {second}: a second dataset named 'own'")
    assert asked == []


def test_without_the_repository_the_message_says_to_clone_it(
    folder: Path, asked: list[Config], monkeypatch: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("maxk.config.loading.DEFAULTS", folder / "absent.yaml")
    Path("Snakefile").unlink()
    assert "the pipeline needs a clone of the repository" in refused(["tiny", "--problems", "own.jsonl"], capsys)


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The one line by which the command refuses."""
    assert cli.main(["evaluate", *arguments]) == 2
    [line] = [line for line in capsys.readouterr().err.splitlines() if line.startswith("maxk")]
    return line


def test_problems_that_cannot_be_read_are_refused_before_the_pipeline(
    folder: Path, asked: list[Config], capsys: pytest.CaptureFixture[str]
) -> None:
    """A file of `maxk grade` needs no statements."""
    files.write_text("own.jsonl", json.dumps({"problem_id": "sum", "tests": PROBLEMS[0]["tests"]}) + "\n")
    said = refused(["tiny", "--problems", "own.jsonl"], capsys)
    assert "own.jsonl:1: no column 'statement'; it has problem_id, tests" in said
    assert asked == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tiny": "nowhere"}, "maxk evaluate: MODEL 'nowhere' cannot be loaded ("),
        ({"tiny": "unknown"}, "maxk evaluate: MODEL 'unknown' cannot be loaded (Unrecognized model in unknown."),
        ({"tiny": "/nowhere"}, "/nowhere: no such folder; give a folder with a model, or a hub id"),
        ({"own.jsonl": "absent.jsonl"}, "--problems absent.jsonl: no such file"),
        ({"own.jsonl": "owm.jsonl"}, "--problems owm.jsonl: no such file (did you mean 'own.jsonl'?)"),
        ({"own.jsonl": "mbpp=owm.jsonl"}, "--problems mbpp=owm.jsonl: no such file (did you mean 'own.jsonl'?)"),
        ({"own.jsonl": "mbpq"}, "--problems mbpq: source='mbpq' is unknown (did you mean 'mbpp'?)"),
        ({"own.jsonl": "mbpp:own.json"}, "--problems mbpp:own.json: no such file"),
        (
            {"own.jsonl": "absent.module:Mine"},
            "--problems absent.module:Mine: source='absent.module:Mine' cannot be imported (No module named 'absent'); "
            "install it, or name its folder in PYTHONPATH",
        ),
        ({"own.jsonl": "none.jsonl"}, "--problems none.jsonl: no problem in none.jsonl"),
        ({"own.jsonl": "mbpp=none.jsonl"}, "--problems mbpp=none.jsonl: no problem in none.jsonl"),
        ({"own.jsonl": "empty"}, "--problems empty: empty has no data files "),
        ({"own.jsonl": "livebench"}, "--problems livebench: livebench/coding: neither a local path nor in the "),
        ({"tiny": "empty"}, "MODEL 'empty' has no *.safetensors"),
        (
            {"tiny": "short"},
            "sampling.max_tokens=512 leaves no room for a prompt: short takes 512 tokens in all; set a lower number, "
            "in a file given by --config",
        ),
        ({"1": "0"}, "maxk evaluate: --temperatures: input should be greater than 0, got 0.0"),
        ({"mine": "a/b"}, "maxk evaluate: --name: expected the form "),
        ({"1": "0.5"}, "--temperatures 0.5 0.5: a temperature is given twice"),
        ({"1": "0.5000001"}, "--temperatures 0.5 0.5000001: a temperature is given twice"),
        ({"4": "0"}, "--n 0: at least 1 sample per problem is needed"),
        ({"4": "-3"}, "--n -3: at least 1 sample per problem is needed"),
        ({"mine": "default"}, "the name 'default' belongs to the default experiment"),
        ({"mine": "policies"}, "name='policies' is a folder of the default experiment"),
        ({"Snakefile": "Absent"}, "Absent: no such file; run in the folder of the workflow"),
    ],
)
def test_a_mistake_is_one_line(
    changes: dict[str, str], words: str, folder: Path, base_model: str, asked: list[Config], capsys: Any
) -> None:
    Path("none.jsonl").touch()
    Path("empty").mkdir()
    with_context(folder / "short", base_model, 512)
    with_context(folder / "unknown", base_model, 512)
    Path("unknown", "config.json").write_text("{}")
    command = ["tiny", "--problems", "own.jsonl", "--temperatures", "0.5", "1", "--n", "4", "--snakefile", "Snakefile"]
    assert words in refused([changes.get(one, one) for one in [*command, "--name", "mine"]], capsys)
    assert asked == []


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("sampling: {top_p: 3}", "sampling.top_p: input should be less than or equal to 1, got 3"),
        ("samplin: {top_p: 1}", "samplin: unknown key (did you mean 'sampling'?)"),
        ("report: {ks: [9], headline_k: 9}", "report: ks=[9] lacks [1]"),
        ("sampling: {max_tokens: 1024}", "sampling.max_tokens=1024 leaves no room for a prompt: tiny takes 1024"),
    ],
)
def test_a_mistake_in_the_file_names_the_file(
    content: str, words: str, folder: Path, asked: list[Config], capsys: pytest.CaptureFixture[str]
) -> None:
    files.write_text("more.yaml", content)
    line = refused(["tiny", "--problems", "own.jsonl", "--config", "more.yaml"], capsys)
    assert line.startswith(f"maxk evaluate: --config more.yaml: {words}")
    assert asked == []


# ------------------------------------------------------------------------------------------- the pipeline as a process
SAID = "maxk: interrupted; finished work is kept, the same command continues where it stopped\n"
STAND_IN = f"""\
import signal, sys, time
def end(*_):
    time.sleep(1)  # longer than subprocess.run would wait
    sys.exit(sys.stderr.write({SAID!r}) and 130)
signal.signal(signal.SIGINT, end)
print("at work", flush=True)
time.sleep(60)
"""


def pipeline(tmp_path: Path, source: str) -> dict[str, str]:
    """An environment in which `source` runs in Snakemake's place."""
    (tmp_path / "stand_in").mkdir()
    (tmp_path / "stand_in" / "snakemake.py").write_text(source)
    known = [str(tmp_path / "stand_in"), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(known)}


def test_ctrl_c_leaves_the_word_to_the_pipeline(folder: Path) -> None:
    """It reaches both processes: the pipeline ends in its own time, its line is the only one, and its status counts."""
    running = subprocess.Popen(
        [sys.executable, "-m", "maxk", "evaluate", "tiny", "--problems", "own.jsonl", "--n", "2"],
        env=pipeline(folder, STAND_IN),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert running.stdout is not None
    assert running.stderr is not None
    assert running.stdout.readline() == "at work\n"
    os.killpg(running.pid, signal.SIGINT)
    assert running.wait(timeout=30) == 130
    assert running.stderr.read().splitlines(keepends=True)[-2:] == ["temperature 1: the pipeline starts\n", SAID]


def test_a_pipeline_interrupted_as_it_starts_is_no_failed_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in pipeline(folder, "raise KeyboardInterrupt").items():
        monkeypatch.setenv(name, value)
    assert cli.main(["evaluate", "tiny", "--problems", "own.jsonl", "--n", "2"]) == 130
    assert capsys.readouterr().err.endswith("maxk evaluate: interrupted\n")


def test_a_pipeline_that_fails_has_said_what_to_do(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in pipeline(folder, "raise SystemExit(1)").items():
        monkeypatch.setenv(name, value)
    line = refused(["tiny", "--problems", "own.jsonl", "--temperatures", "0.5", "1", "--n", "2"], capsys)
    assert line == "maxk evaluate: the pipeline failed at temperature 0.5 (above)"


def test_the_best_temperature_of_every_k() -> None:
    def means(values: dict[int, float]) -> pd.DataFrame:
        rows = [
            {"dataset": place, "metric": "max", "k": k, "mean": mean, "low": mean - 0.1, "high": mean + 0.1}
            for k, mean in values.items()
            for place in ("own", "mean")
        ]
        return pd.DataFrame(rows).assign(mean_tokens=10.0, truncated=0.1, stopped=0.8)

    frame = temperatures.table({1.0: means({1: 0.3, 8: 0.9}), 0.6: means({1: 0.5, 8: 0.7})})
    assert [(row.k, row.temperature) for row in frame[frame.best].itertuples()] == [(1, 0.6), (8, 1.0)]
    head, _, *rows = temperatures.lines(frame)
    assert head == "| quantity | temperature 0.6 | temperature 1 | best |"
    assert rows == [
        "| max@1 | 0.500 [0.400, 0.600] | 0.300 [0.200, 0.400] | 0.6 |",
        "| max@8 | 0.700 [0.600, 0.800] | 0.900 [0.800, 1.000] | 1 |",
    ]


@pytest.mark.slow
def test_a_tiny_model_from_nothing_to_the_best_temperature(folder: Path, root: Path) -> None:
    command = [sys.executable, "-m", "maxk", "evaluate", "tiny", "--problems", "own.jsonl", "--n", "4"]
    files.write_text("small.yaml", "sampling: {max_tokens: 32, shards: 2}\n")  # the tiny model takes 512 tokens
    command += ["--config", "small.yaml", "--snakefile", str(root / "Snakefile")]
    environment = {**ENVIRONMENT, "PYTHONPATH": os.pathsep.join([str(root / "src"), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(
        [*command, "--temperatures", "0.6", "1.0"], capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr[-3000:]
    with Path("results/tiny/temperatures.csv").open(newline="") as handle:
        rows = list(csv.DictReader(handle))
    assert {(row["metric"], row["k"], row["temperature"]) for row in rows} == {
        (metric, k, temperature) for metric in ("max", "pass") for k in ("1", "2", "4") for temperature in ("0.6", "1")
    }
    for temperature in ("0.6", "1"):
        assert Path(f"results/tiny-t{temperature}/report.html").exists()
        config = configuration.load(f"results/tiny-t{temperature}/config.json")
        assert config.sampling.temperature == float(temperature)
