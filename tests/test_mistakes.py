"""The likely mistakes of users: each with the exact command, its exit status and one line with the fix.

`maxk` and `make` exit with 2, Snakemake with its own 1. What runs in this process gives exit status 2; the schema's
faults stand in test_config.py, those of a machine that fails half-way in tests/faults.
"""

from __future__ import annotations

import errno
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from maxk import cli
from maxk import config as configuration
from maxk.artifacts import files
from maxk.artifacts.digests import canonical
from maxk.artifacts.records import Policy, Provenance
from maxk.config import Config
from pipeline import ENVIRONMENT, RESULTS, ROOT, UNTRACKED, snakemake

CONFIG = "results/config.json"
PROBLEM = {"problem_id": "double", "tests": [{"stdin": "2", "expected": "4"}]}
SAMPLE = {"problem_id": "double", "program": "print(2 * int(input()))"}


class Here:
    """An empty folder with the resolved configuration of the seconds-scale experiment, tracking off."""

    def __init__(self, config: Config, patch: pytest.MonkeyPatch) -> None:
        self.content, self.patch = {**config.model_dump(mode="json"), "name": "default"}, patch
        Path("config").symlink_to(ROOT / "config")
        self.configure(tracking={"enabled": False})
        self.jsonl("problems.jsonl", PROBLEM)
        self.jsonl("samples.jsonl", SAMPLE)

    def configure(self, **changes: Any) -> None:
        self.content = configuration.overlay(self.content, changes)
        files.write_json(CONFIG, self.content)

    def write(self, path: str, text: str) -> None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(text)

    def jsonl(self, path: str, *rows: Any) -> None:
        self.write(path, "".join(json.dumps(row) + "\n" for row in rows))

    def parquet(self, path: str, **columns: list[Any]) -> None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(columns), path)

    def policy(self, **lineage: Any) -> None:
        made = Policy("base", "Base model", "nowhere", None, lineage, {})
        files.write_policy("results/policies/base/policy.json", made)

    def refuse(self, where: str, error: BaseException) -> None:
        """Makes a library's function raise."""

        def raises(*_: Any, **__: Any) -> None:
            raise error

        self.patch.setattr(where, raises)


class Mistake(NamedTuple):
    command: str
    said: tuple[str, ...]
    made: Callable[[Here], Any] = lambda here: None


def mine(text: str) -> Callable[[Here], Any]:
    """The user's own config file."""
    return lambda here: here.write("mine.yaml", text)


def mbpp(**place: Any) -> Callable[[Here], Any]:
    """A benchmark as the only dataset."""
    data = {"mine": {"source": "mbpp", "train": "all", **place}}
    model = {"source": "hub", "model": "org/model"}
    return lambda here: here.configure(datasets=data, training={"datasets": ["mine"]}, base=model)


def base(model: str, **more: str) -> Callable[[Here], Any]:
    return lambda here: here.configure(base={"source": "hub", "model": model, **more})


def _folder_without_weights(here: Here) -> None:
    here.write("model/config.json", "{}")
    base("./model")(here)


def _scores_of_another_configuration(here: Here) -> None:
    made = Provenance("score", "default", {"n": 8, "ks": [1, 2, 4, 8]})
    metadata = {b"maxk": canonical(made.__dict__).encode()}
    path = "results/scores/base/pocket-short.parquet"
    Path(path).parent.mkdir(parents=True)
    pq.write_table(pa.table({"n": [8]}).replace_schema_metadata(metadata), path)


def _damaged_scores(here: Here) -> None:
    here.write("results/scores/base/pocket-short.parquet", "PAR1 and no more")


def _local_rows(here: Here) -> None:
    here.parquet("rows.parquet", task_id=[1], txt=["add"], code=["x"], test_list=[["assert x"]])
    mbpp(location="rows.parquet")(here)


def _made_tables(here: Here) -> None:
    here.write("results/table2.md", "**Table 2**")
    here.write("results/summary.md", "**maxk**")


def _tracked_by_nobody(here: Here) -> None:
    here.configure(tracking={"enabled": True})
    here.patch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    here.patch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:1")


def _read_only(here: Here) -> None:
    here.refuse("pathlib.Path.mkdir", OSError(errno.EROFS, "Read-only file system"))


def _no_gpu(here: Here) -> None:
    class Job:
        has_work = True
        write_prompts = print

    here.configure(gpus=8)
    here.policy()
    here.patch.setattr("maxk.stages.sample._tasks", lambda *_: [])
    here.patch.setattr("maxk.stages.sample._Job", lambda *_: Job)
    here.patch.setattr("maxk.resources.gpus.visible", dict)


def _no_matplotlib(here: Here) -> None:
    """And grading fails, so that it must not have begun."""
    here.patch.setitem(sys.modules, "matplotlib", None)
    here.patch.delitem(sys.modules, "maxk.reporting.style", raising=False)
    here.refuse("maxk.stages.grade.Samples.__init__", AssertionError("graded before the check"))


def _not_installed(here: Here) -> None:
    here.configure(sampling={"backend": "vllm"})
    here.patch.setattr("importlib.util.find_spec", lambda name: None)


PREPARE = "maxk prepare mine"
BASE = "maxk base"
PLAN = "maxk plan --config mine.yaml"
GRADE = "maxk grade problems.jsonl samples.jsonl"

UNKNOWN_POLICY = ("no policy 'grppo/seed0' (did you mean 'grpo/seed0'?); known: base, grpo/seed0",)
MISTAKES = {
    # ---- the user's config file
    "a wrong section": Mistake(
        PLAN, ("trainig: unknown key", "did you mean 'training'?"), mine("trainig: {epochs: 2}")
    ),
    "a wrong key": Mistake(
        PLAN,
        ("training.learnign_rate: unknown key", "did you mean 'learning_rate'?"),
        mine("training: {learnign_rate: 1}"),
    ),
    "a wrong type": Mistake(
        PLAN, ("training.epochs: input should be a valid number", "got 'many'"), mine("training: {epochs: many}")
    ),
    "k above n": Mistake(
        PLAN,
        ("objectives.a: k=9 is more than training.num_generations=8", "k ≤ n"),
        mine("objectives: {a: {type: bon_loo1, k: 9}}"),
    ),
    "k above the samples": Mistake(PLAN, ("k=256, more than sampling.n=64", "k ≤ n"), mine("sampling: {n: 64}")),
    "a batch that does not divide": Mistake(
        PLAN, ("16 × 8 = 128 must be a multiple of",), mine("training: {per_device_batch_size: 5}")
    ),
    "an unknown objective type": Mistake(
        PLAN, ("objectives.a", "'grppo'", "'grpo'"), mine("objectives: {a: {type: grppo}}")
    ),
    "an unknown training dataset": Mistake(
        PLAN, ("'pocket-contest'", "did you mean 'pocket-contests'?"), mine("training: {datasets: [pocket-contest]}")
    ),
    "an unknown source": Mistake(
        PLAN, ("datasets.a: source='mpbb' is unknown", "mbpp"), mine("datasets: {a: {source: mpbb}}")
    ),
    "off-policy without iterations": Mistake(
        PLAN,
        ("iterations=1", "set objectives.a.training.iterations (paper: 3) or minibatches to 2 or more"),
        mine("objectives: {a: {type: bon_offpolicy, k: 4}}"),
    ),
    "an unknown sandbox": Mistake(
        PLAN, ("verification.sandbox", "'bubblewrap'", "got 'docker'"), mine("verification: {sandbox: docker}")
    ),
    "a tab in YAML": Mistake(PLAN, ("config mine.yaml: not valid YAML", "line 1"), mine("\ttraining: {}")),
    "a list for a config": Mistake(PLAN, ("config mine.yaml: expected keys and values",), mine("- seeds")),
    "no cores": Mistake("maxk plan --cores 0", ("--cores must be at least 1, got 0",)),
    "no such config file": Mistake("maxk plan --config mien.yaml", ("config mien.yaml: no such file",)),
    "an objective that is not installed": Mistake(
        PLAN,
        ("'my_objectives:Mine' cannot be imported", "name its folder in PYTHONPATH"),
        mine("objectives: {a: {type: 'my_objectives:Mine'}}"),
    ),
    "a plot without matplotlib": Mistake(
        "maxk compare samples.jsonl two=samples.jsonl --problems problems.jsonl --plot curves.png",
        ("needs the extra `pipeline` (no module 'matplotlib'): pip install '.[pipeline]' in a clone of maxk",),
        _no_matplotlib,
    ),
    "no run yet": Mistake(
        "maxk score base --config results/other/config.json",
        ("config results/other/config.json: no such file", "snakemake --cores all"),
    ),
    "a damaged configuration": Mistake(
        "maxk score base",
        (f"{CONFIG}: cannot be read", "delete it and run again"),
        lambda here: here.write(CONFIG, '{"name": '),
    ),
    # ---- names
    "an unknown dataset": Mistake(
        "maxk prepare pocket-shrot", ("no dataset 'pocket-shrot'", "known: pocket-contests, pocket-short")
    ),
    "an unknown dataset to inspect": Mistake("maxk inspect mbpp", ("no dataset 'mbpp'", "known: pocket-contests")),
    "a picture of an unknown kind": Mistake(
        "maxk compare a.csv b.csv --plot curves.svg",
        ("--plot: expected a name that ends in .png or .pdf, got curves.svg",),
    ),
    "an unknown objective": Mistake(
        "maxk train grppo --seed 0", ("no objective 'grppo' (did you mean 'grpo'?)", "known: grpo")
    ),
    "an unknown policy to sample": Mistake("maxk sample grppo/seed0", UNKNOWN_POLICY),
    "an unknown policy to verify": Mistake("maxk verify grppo/seed0", UNKNOWN_POLICY),
    "an unknown policy to score": Mistake("maxk score grppo/seed0", UNKNOWN_POLICY),
    "an unknown policy to push": Mistake(
        "maxk push grppo/seed0 --folder out", ("no trained policy 'grppo/seed0' (did you mean 'grpo/seed0'?); give",)
    ),
    "a folder to push to that is in none": Mistake(
        "maxk push grpo/seed0 --folder none/out", ("--folder none/out: no folder none; make it, or name another",)
    ),
    "a policy that was not trained": Mistake(
        "maxk sample grpo/seed7",
        ("grpo/seed7/policy.json: no such file", "make it: `snakemake --cores all results/policies/grpo/seed7/policy"),
    ),
    "an unknown profile": Mistake(
        "maxk plan --profile pocket-gpu", ("no profile 'pocket-gpu' (did you mean 'pocket-c",)
    ),
    "an unknown table": Mistake("maxk table table99", ("no table 'table99'", "known: table1, table2")),
    "an unknown table to show": Mistake(
        "maxk show tabel2",
        ("no table 'tabel2' in results/ (did you mean 'table2'?); known: table2, summary",),
        _made_tables,
    ),
    "no tables to show": Mistake(
        "maxk show table2", ("results/ has no tables yet; make them: `snakemake --cores all tables`",)
    ),
    "a config file that was not run": Mistake(
        "maxk show --config mine.yaml",
        ("results/mine/config.json: no such run; start it: `snakemake --configfile mine.yaml --cores all`",),
        mine("name: mine"),
    ),
    "an unknown figure": Mistake("maxk figure figure99", ("no figure 'figure99'", "figure1")),
    "a shard too many": Mistake(
        "maxk sample base --shard 7", ("--shard 7", "allows 0 … 0"), lambda here: here.policy()
    ),
    # ---- order
    "trained before the base": Mistake(
        "maxk train grpo --seed 0", ("policies/base/policy.json: no such file", "make it: `snakemake ")
    ),
    "graded before the problems": Mistake(
        "maxk verify base",
        ("no such file", "make it: `snakemake --cores all results/samples/base/"),
    ),
    "drawn before scores": Mistake("maxk figure figure1", ("no scores yet", "snakemake --cores all")),
    # ---- models and data
    "a hub model offline": Mistake(BASE, ("'org/model' cannot be loaded", "HF_HUB_OFFLINE"), base("org/model")),
    "a revision that is gone": Mistake(
        BASE,
        ("cannot be loaded", "abc is not a valid git identifier", "base.revision"),
        lambda here: (
            base("org/model", revision="abc")(here),
            here.refuse("transformers.AutoConfig.from_pretrained", OSError("abc is not a valid git identifier")),
        ),
    ),
    "a model folder that is not there": Mistake(
        BASE, ("'./modle' cannot be loaded", "an existing folder"), base("./modle")
    ),
    "a model folder without weights": Mistake(
        BASE, ("'./model' has no *.safetensors", "convert them"), _folder_without_weights
    ),
    "a data file that is not there": Mistake(
        PREPARE, ("datasets.mine.location: no file or folder ./rows.jsonl",), mbpp(location="./rows.jsonl")
    ),
    "a hub dataset without revision": Mistake(
        PREPARE, ("datasets.mine.revision: missing; pin a commit", "local file or folder"), mbpp()
    ),
    "a data file with other columns": Mistake(
        PREPARE, ("rows.parquet (row 1): no column 'text' (renamed to 'txt'?)",), _local_rows
    ),
    # ---- the machine
    "GPUs asked for where none are": Mistake(
        "maxk configure CONTENT --local",
        ("gpus: 8 needed, but torch finds 0", "CUDA_VISIBLE_DEVICES", "0: CPU only"),
        lambda here: here.configure(gpus=8),
    ),
    "a GPU job on a node that has none": Mistake(
        "maxk sample base",
        ("gpus: 1 needed, but torch finds 0", "0: CPU only"),
        _no_gpu,
    ),
    "vLLM not installed": Mistake(
        "maxk sample base", ("vLLM is not installed", "docs/sampling.md", "choose transformers"), _not_installed
    ),
    "no accelerate file": Mistake(
        "maxk train grpo --seed 0",
        ("training.accelerate: no file 'ddp.yaml'", "config/accelerate/"),
        lambda here: here.configure(training={"processes": 2, "accelerate": "ddp.yaml"}),
    ),
    "weights sharded over no GPUs": Mistake(
        "maxk train grpo --seed 0",
        ("fsdp2.yaml shards weights (FSDP) over GPUs, and `gpus` is 0", "leave `accelerate` out"),
        lambda here: here.configure(training={"processes": 2, "accelerate": f"{ROOT}/config/accelerate/fsdp2.yaml"}),
    ),
    "bubblewrap asked for and missing": Mistake(
        f"{GRADE} --sandbox bubblewrap",
        ("bwrap is not installed", "Install bubblewrap"),
        lambda here: here.patch.setenv("PATH", "/nowhere"),
    ),
    "a tracking server that does not answer": Mistake(
        "maxk configure CONTENT",
        ("MLflow at http://127.0.0.1:1 cannot start", "fix MLFLOW_TRACKING_URI"),
        _tracked_by_nobody,
    ),
    "a full disk": Mistake(
        "maxk configure CONTENT",
        ("cannot be written (No space left on device), nothing was changed", "free some space", "run again"),
        lambda here: here.refuse("os.fsync", OSError(errno.ENOSPC, "No space left on device")),
    ),
    "a read-only folder": Mistake(
        "maxk configure CONTENT",
        ("cannot be written (Read-only file system)", "mount it for writing"),
        _read_only,
    ),
    "a file in the way": Mistake(
        "maxk configure CONTENT",
        ("cannot be written", "fix the path"),
        lambda here: (shutil.rmtree("results"), here.write("results", "mine")),
    ),
    "memory that ran out": Mistake(
        BASE,
        ("memory ran out; lower training.per_device_batch_size",),
        lambda here: here.refuse(
            "maxk.training.pretrain.pretrain", RuntimeError("CUDA out of memory. Tried to allocate 2 GiB")
        ),
    ),
    "memory that ran out in a comparison": Mistake(
        "maxk compare samples.jsonl two=samples.jsonl",
        ("maxk compare: memory ran out; give fewer problems or samples at once, or fewer --workers",),
        lambda here: here.refuse("maxk.evaluation.systems.read_results", MemoryError()),
    ),
    "too many samples of a problem": Mistake(
        "maxk compare counts.csv two=counts.csv",
        ("counts.csv:2: at most 1000000 samples of a problem are allowed, got n = 1000001",),
        lambda here: here.write("counts.csv", "problem,n,c\np,1000001,3\n"),
    ),
    # ---- results
    "damaged scores": Mistake(
        "maxk table table2",
        ("pocket-short.parquet: not a complete parquet file", "delete the file and run again"),
        _damaged_scores,
    ),
    "results of another configuration": Mistake(
        "maxk table table2",
        ("do not belong together: settings.n is 8 in one and 16", "run `maxk score` again"),
        _scores_of_another_configuration,
    ),
    "problems without a column": Mistake(
        "maxk sample base",
        ("problems.parquet: ", "run again"),
        lambda here: (here.policy(), here.parquet("results/data/pocket-contests/problems.parquet", problem_id=["a"])),
    ),
    # ---- maxk grade
    "a line that is no JSON": Mistake(
        GRADE,
        ("samples.jsonl:2: not JSON", "each line must be one object"),
        lambda here: here.write("samples.jsonl", json.dumps(SAMPLE) + '\n{"problem_id": "dou\n'),
    ),
    "a packed file": Mistake(
        GRADE,
        ("samples.jsonl: a damaged gzip file", "fetch it again"),
        lambda here: Path("samples.jsonl").write_bytes(b"\x1f\x8b\x08\x00\xff"),
    ),
    "an unknown sample id": Mistake(
        GRADE,
        ("samples.jsonl:1: no problem 'treble'", "the only problem is 'double'"),
        lambda here: here.jsonl("samples.jsonl", {**SAMPLE, "problem_id": "treble"}),
    ),
    "a sample without program": Mistake(
        GRADE,
        ("samples.jsonl:1: no known form of samples", "got the keys problem_id, text"),
        lambda here: here.jsonl("samples.jsonl", {"problem_id": "double", "text": "x"}),
    ),
    "a problem without expected": Mistake(
        GRADE,
        ("problems.jsonl:1, test 0: expected the keys stdin and expected, got stdin",),
        lambda here: here.jsonl("problems.jsonl", {"problem_id": "a", "tests": [{"stdin": "1"}]}),
    ),
    "samples before problems": Mistake(
        "maxk grade samples.jsonl problems.jsonl",
        (
            "samples.jsonl:1: no known form of problems",
            "got the keys problem_id, program",
            "are these samples? the order",
        ),
    ),
    "no such problems": Mistake(
        "maxk grade problem.jsonl samples.jsonl", ("problem.jsonl: no such file (did you mean 'problems.jsonl'?)",)
    ),
    "no such verdicts": Mistake(
        "maxk compare sample.jsonl problems.jsonl", ("sample.jsonl: no such file (did you mean 'samples.jsonl'?)",)
    ),
    "no such samples": Mistake(
        "maxk grade problems.jsonl sample.jsonl", ("sample.jsonl: no such file (did you mean 'samples.jsonl'?)",)
    ),
    "more than there are samples": Mistake(
        f"{GRADE} --k 1,8", ("--k: 8 is more than the 1 sample of problem 'double'",)
    ),
    "a sandbox of another kind": Mistake(
        f"{GRADE} --sandbox docker", ("argument --sandbox: invalid choice: 'docker' (choose from 'auto', 'bubblewrap'",)
    ),
    "verdicts of other samples": Mistake(
        GRADE,
        ("samples.verdicts.jsonl exists and contains no verdicts", "name another file"),
        lambda here: here.jsonl("samples.verdicts.jsonl", {"key": "of another"}),
    ),
}


@pytest.fixture
def here(seconds: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Here:
    monkeypatch.chdir(tmp_path)
    return Here(seconds, monkeypatch)


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_line_with_its_fix(name: str, here: Here, capsys: pytest.CaptureFixture[str]) -> None:
    mistake = MISTAKES[name]
    mistake.made(here)
    program, *arguments = shlex.split(mistake.command)
    assert program == "maxk"
    content = json.dumps(here.content)
    assert cli.main([content if word == "CONTENT" else word for word in arguments]) == 2
    said = capsys.readouterr().err
    [line] = [line for line in said.splitlines() if line.startswith(f"maxk {arguments[0]}: ")]
    assert "Traceback" not in said
    for part in mistake.said:
        assert part in line


# -------------------------------------------------------------------------------------------------- snakemake, make
FAKE_PYTHON = f"""#!/bin/sh
case "$*" in *prepare*) kill -9 $$;; esac
exec {shlex.quote(sys.executable)} "$@"
"""


def test_a_wrong_key_on_the_command_line(tmp_path: Path) -> None:
    done = snakemake(tmp_path, "--config", "trainig={epochs: 2}")
    assert done.returncode == 1
    [line] = [line for line in done.stderr.splitlines() if "trainig" in line]
    assert line.startswith("maxk: config: trainig: unknown key (did you mean 'training'?)")
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "results").exists()


def test_a_target_of_an_unknown_objective(tmp_path: Path) -> None:
    done = snakemake(tmp_path, "-n", "--", f"{RESULTS}/scores/gprpo/seed0/pocket-short.parquet")
    assert done.returncode == 1
    assert "maxk: no objective 'gprpo' (did you mean 'grpo'?); known: grpo" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("target", "said"),
    [
        (f"{RESULTS}/tabel2.csv", f" (did you mean '{RESULTS}/table2.csv'?)"),
        ("sumary", " (did you mean 'summary'?)"),
        (
            f"{RESULTS}/scores/grpo/seed0/pocket-shrt.parquet",
            f" (did you mean '{RESULTS}/scores/grpo/seed0/pocket-short.",
        ),
        ("nothing", "; `snakemake --list` lists the rules"),
    ],
)
def test_a_target_that_no_rule_makes(target: str, said: str, tmp_path: Path) -> None:
    done = snakemake(tmp_path, "-n", "--", target)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(f"maxk: no target {target}{said}")


@pytest.mark.slow
def test_a_folder_that_another_run_uses(tmp_path: Path) -> None:
    with files.lock(tmp_path / RESULTS):
        done = snakemake(tmp_path)
    assert done.returncode == 1
    [line] = [line for line in done.stderr.splitlines() if line.startswith("maxk: ")]
    assert "results/seconds: another run is using it" in line
    assert "run the same command again" in line


@pytest.mark.slow
def test_a_job_killed_for_its_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel's SIGKILL leaves no message of the job; the shell around it explains it."""
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text(FAKE_PYTHON)
    python.chmod(0o755)
    monkeypatch.setitem(ENVIRONMENT, "PATH", f"{python.parent}:{ENVIRONMENT['PATH']}")
    done = snakemake(tmp_path, "--config", UNTRACKED, "--", f"{RESULTS}/data/pocket-short/problems.parquet")
    said = done.stdout + done.stderr
    assert done.returncode == 1
    assert "killed (SIGKILL), most likely because memory ran out" in said
    assert "raise the mem_mb of the job" in said
    assert "logs/prepare/pocket-short.log" in said
    assert "maxk: Finished work is kept" in said


def _make(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    shutil.copy(ROOT / "Makefile", folder)
    shutil.copy(ROOT / "pyproject.toml", folder)
    shutil.copytree(ROOT / "requirements", folder / "requirements")
    return subprocess.run(["make", *arguments], cwd=folder, capture_output=True, text=True, check=False)


MAKE_RUN = ("make", "LOCK=cpu", "--assume-old=.venv/.ready-cpu", "run")


def _make_with(folder: Path, snakemake: str) -> None:
    """Makes a folder in which `MAKE_RUN` runs a shell script in Snakemake's place."""
    shutil.copy(ROOT / "Makefile", folder)
    program = folder / ".venv" / "bin" / "snakemake"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\n{snakemake}\n")
    program.chmod(0o755)


def _outside_make() -> dict[str, str]:
    """The environment without what a make that runs the tests puts there."""
    return {name: value for name, value in os.environ.items() if name not in ("MAKELEVEL", "MAKEFLAGS", "MFLAGS")}


def test_make_adds_nothing_to_what_an_interrupted_run_says(tmp_path: Path) -> None:
    """Ctrl-C reaches make, its shell and Snakemake, which ends with a status that make would report."""
    _make_with(tmp_path, "trap 'echo interrupted; exit 1' INT\necho at work\nwhile :; do sleep 0.1; done")
    make = subprocess.Popen(
        MAKE_RUN,
        **{
            "cwd": tmp_path,
            "env": _outside_make(),
            "text": True,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.STDOUT,
        },
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert make.stdout is not None
    try:
        assert [make.stdout.readline() for _ in range(2)] == ["snakemake --cores all \n", "at work\n"]
    finally:
        os.killpg(make.pid, signal.SIGINT)
    assert make.stdout.read() == "interrupted\n"
    assert make.wait() == -signal.SIGINT


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ("-s", ""),
        ("--silent", ""),
        ("-ks", ""),
        ("-k", "snakemake --cores all \n"),
        ("--warn-undefined-variables", "snakemake --cores all \n"),
    ],
)
def test_a_silent_make_shows_no_command(options: str, shown: str, tmp_path: Path) -> None:
    """A long option with an s in it is not silent."""
    _make_with(tmp_path, "echo at work")
    done = subprocess.run([*MAKE_RUN, options], cwd=tmp_path, env=_outside_make(), capture_output=True, text=True)
    assert done.stdout == f"{shown}at work\n"


def test_a_run_that_fails_is_told_by_make(tmp_path: Path) -> None:
    _make_with(tmp_path, "exit 1")
    assert subprocess.run(MAKE_RUN, cwd=tmp_path, capture_output=True).returncode == 2


def test_a_python_that_is_too_old(tmp_path: Path) -> None:
    old = tmp_path / "python3.9"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    done = _make(tmp_path, "run", f"PYTHON={old}")
    assert done.returncode == 2
    assert "maxk needs Python 3.11" in done.stdout
    assert "make PYTHON=/path/to/python3.11" in done.stdout
    assert not (tmp_path / ".venv").exists()


def test_a_config_file_that_is_not_there(tmp_path: Path) -> None:
    """Told before an environment is built, and before Snakemake, which would show a traceback."""
    shutil.copytree(ROOT / "config", tmp_path / "config")
    done = _make(tmp_path, "run", "CONFIG=mien.yaml")
    assert done.returncode == 2
    assert "no config file mien.yaml; config/ holds arithmetic.yaml config.yaml mini.yaml paper.yaml" in done.stderr
    assert not (tmp_path / ".venv").exists()
