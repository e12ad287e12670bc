"""The seconds-scale experiment through the real command line and Snakemake, from nothing to tables.

All tests share one finished run; those that run the pipeline again are slow (`make test-all`).
"""

from __future__ import annotations

import contextlib
import csv
import fcntl
import inspect
import json
import os
import platform
import pty
import re
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from mlflow import MlflowClient
from snakemake.scheduling.job_scheduler import JobScheduler

from maxk.artifacts import files
from maxk.config import Config
from maxk.reporting import figures, tables
from maxk.tracking import page
from pipeline import RESULTS, UNTRACKED, Background, command, planned, snakemake

POLICIES = ["base", "grpo", "bon_offpolicy_exact"]
DATASETS = ["pocket-contests", "pocket-short"]
REPORTS = {"table", "figure", "summary", "report", "all"}


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as handle:
        return list(csv.DictReader(handle))


# ------------------------------------------------------------------------------------------------------------ results
@pytest.mark.parametrize("table", ["table2", "table3"])
def test_tables_hold_every_policy_and_dataset(table: str, finished: Path) -> None:
    found = rows(finished / f"results/seconds/{table}.csv")
    assert [row["policy"] for row in found] == POLICIES
    for row in found:
        values = [float(row[dataset]) for dataset in DATASETS]
        assert all(0 <= value <= 1 for value in values)
        assert float(row["mean"]) == pytest.approx(sum(values) / 2, abs=1e-4)
    assert 0 < float(found[0]["mean"]) < 1  # the base model solves some of it, not all


def test_max_at_16_is_the_mean_of_the_best_of_all_16(finished: Path) -> None:
    """An independent path from verdicts to a cell of table 2: at k = n, max@k is the plain maximum."""
    import pyarrow.parquet as pq

    best: dict[str, float] = {}
    for row in pq.read_table(finished / "results/seconds/verdicts/base/pocket-short/0.parquet").to_pylist():
        reward = row["statuses"].count("passed") / len(row["statuses"])
        best[row["problem_id"]] = max(best.get(row["problem_id"], 0.0), reward)
    [base] = [row for row in rows(finished / "results/seconds/table2.csv") if row["policy"] == "base"]
    assert float(base["pocket-short"]) == pytest.approx(sum(best.values()) / len(best), abs=1e-4)


def test_figures_and_twins_exist(finished: Path, seconds: Config) -> None:
    kept = [name for name in tables.tables(seconds) if name.startswith("table")]
    assert len(kept) == 8
    numbered = [f"{name}.{suffix}" for name in kept for suffix in ("csv", "md", "tex")]
    drawn = [f"{name}.{suffix}" for name in figures.FIGURES for suffix in ("png", "pdf")]
    for name in (*numbered, *drawn, "statistics.csv", "paired_tests.csv", "comparison.md", "summary.md"):
        assert (finished / "results/seconds" / name).stat().st_size > 100, name


def test_the_page_of_a_study_takes_results_of_one_version(finished: Path, root: Path) -> None:
    command = [sys.executable, str(root / "docs" / "study.py"), str(finished / RESULTS), "--groups"]
    done = subprocess.run(command, cwd=finished, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "| GRPO |" in done.stdout


def test_the_report_holds_everything_and_needs_no_network(finished: Path) -> None:
    report = (finished / "results/seconds/report.html").read_text()
    headings = re.findall(r"<h[12][^>]*>(.*?)</h", report)
    assert headings == ["Experiment seconds", "Findings", "Limits", "Figures", "Tables", "What was run", "Jobs"]
    for name in ("table14", "statistics", "max_at_k_grid"):
        assert f'id="{name}"' in report, name
    assert report.count("data:image/png;base64,") == len(figures.FIGURES)
    needed = report.replace('<a href="https://arxiv.org/abs/2510.23393">', "")  # a link to the paper
    assert not re.search(r"""(?:src|href)=.?https?:|<script|<link""", needed)
    assert re.search(r"<td>train</td><td>2</td>", report)  # run times


def test_training_is_logged_step_by_step(finished: Path) -> None:
    for objective, steps in (("grpo", 4), ("bon_offpolicy_exact", 8)):
        path = finished / f"results/seconds/policies/{objective}/seed0/metrics.jsonl"
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        assert [line["step"] for line in lines] == list(range(1, steps + 1))
        assert all("kl" in line and "entropy" in line for line in lines)
        assert all(0 < line["epoch"] <= 1 for line in lines)
        assert lines[-1]["epoch"] == 1
    assert "ratio_max" in lines[-1]


def test_training_has_every_curve_of_the_mlflow_page(finished: Path, seconds: Config) -> None:
    state = json.loads(json.loads(page.tags(seconds)["mlflow.sharedViewState.maxk-training"])["state"])
    for objective in ("grpo", "bon_offpolicy_exact"):
        path = finished / f"results/seconds/policies/{objective}/seed0/metrics.jsonl"
        logged = [{key.replace("@", "_at_") for key in json.loads(line)} for line in path.read_text().splitlines()]
        assert all(card["selectedXAxisMetricKey"] in keys for card in state["compareRunCharts"] for keys in logged)
        assert {card["metricKey"] for card in state["compareRunCharts"]} <= set.union(*logged)


def test_what_was_used_is_recorded(finished: Path) -> None:
    policy = files.read_policy(finished / "results/seconds/policies/grpo/seed0/policy.json")
    assert policy.environment["sandbox"] in ("bubblewrap", "landlock", "seccomp")
    assert policy.environment["device"].startswith(platform.machine())
    source = files.read_provenance(finished / "results/seconds/scores/grpo/seed0/pocket-short.parquet")
    assert source.environment["sandbox"] in ("bubblewrap", "landlock", "seccomp")
    assert source.settings["n"] == 16
    assert "sandbox" in (finished / "results/seconds/table2.md").read_text()


def test_every_job_is_a_finished_nested_run(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(finished)
    where = files.read_json("results/seconds/tracking.json")
    runs = MlflowClient(f"sqlite:///{finished}/results/seconds/mlflow.db").search_runs([where["experiment_id"]])
    nested = {r.info.run_name: r for r in runs if "mlflow.parentRunId" in r.data.tags}
    expected = {"base: base", *(f"{dataset}: prepare" for dataset in DATASETS)}
    for policy in ("base", "grpo/seed0", "bon_offpolicy_exact/seed0"):
        expected |= {f"{policy}: {stage}" for stage in ("sample, shard 0", "verify, shard 0", "score")}
    expected |= {"grpo/seed0: train", "bon_offpolicy_exact/seed0: train"}
    assert expected <= set(nested)
    assert all(run.info.status == "FINISHED" for run in runs)
    client = MlflowClient(f"sqlite:///{finished}/results/seconds/mlflow.db")
    curve = client.get_metric_history(nested["base: score"].info.run_id, "pocket-short/max_at_k")
    assert [point.step for point in curve] == [1, 2, 4, 8, 16]


# ------------------------------------------------------------------------------------------------- nothing twice
def test_a_second_run_does_nothing(finished: Path) -> None:
    done = snakemake(finished)
    assert done.returncode == 0
    assert "Nothing to be done" in done.stdout + done.stderr
    assert done.stderr.endswith("maxk: nothing to do; open results/seconds/report.html\n")


def test_weights_are_not_needed_once_scores_are_there(unfinished: Callable[..., Path]) -> None:
    """A policy trained on a lent machine: what docs/plan-mini.md keeps of it is enough for everything that follows."""
    folder = unfinished("policies/*/*/model", "policies/*/*/checkpoints", "cache", "drawn", "table2.csv")
    rules = set(planned(snakemake(folder, "--dry-run")))
    assert "table" in rules <= REPORTS


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("report={resamples: 50}", REPORTS),
        ("verification={workers: 2}", {"report", "all"}),  # the report shows the whole configuration
        ("sampling={temperature: 0.5}", {"sample", "verify", "score", *REPORTS}),
        pytest.param("sampling={n: 32}", {"sample", "verify", "score", *REPORTS}, marks=pytest.mark.slow),
        pytest.param("sampling={chunk: 4, batch_tokens: 1000}", {"report", "all"}, marks=pytest.mark.slow),
        pytest.param("sampling={shards: 2}", {"sample", "verify", "score", *REPORTS}, marks=pytest.mark.slow),
        pytest.param("training={epochs: 2}", {"train", "sample", "verify", "score", *REPORTS}, marks=pytest.mark.slow),
        pytest.param(
            "verification={cpu_s: 1.0}", {"train", "sample", "verify", "score", *REPORTS}, marks=pytest.mark.slow
        ),
    ],
)
def test_a_changed_setting_repeats_what_it_concerns(finished: Path, change: str, expected: set[str]) -> None:
    done = snakemake(finished, "--dry-run", "--config", change)
    assert done.returncode == 0, done.stderr
    assert set(planned(done)) == expected


@pytest.mark.slow
def test_a_changed_setting_after_a_failed_run_runs_what_is_missing(tmp_path: Path) -> None:
    """Inputs marked `ancient()` once hid the missing jobs: only the configuration was written, and success reported."""
    target = ("--", "results/seconds/data/pocket-short/problems.parquet")
    failed = snakemake(tmp_path, "--config", UNTRACKED, "datasets={pocket-short: {train: 100000}}", *target)
    assert failed.returncode != 0
    assert not (tmp_path / target[1]).exists()
    assert snakemake(tmp_path, "--config", UNTRACKED, *target).returncode == 0
    assert (tmp_path / target[1]).exists()


@pytest.mark.slow
def test_damaged_scores_are_named_and_cost_only_the_tables_made_from_them(finished: Path, tmp_path: Path) -> None:
    """Snakemake removes a table before it makes it anew. An `update()` output would come back from a failed job, but
    with a new date: a stale table that counts as up to date. None is better, and what took work to make stays."""
    folder, target = tmp_path / "copy", "results/seconds/table2.csv"
    shutil.copytree(finished, folder, symlinks=True)
    table, work = (folder / target).read_bytes(), _digests(folder)
    score = folder / "results/seconds/scores/base/pocket-short.parquet"
    score.write_bytes(score.read_bytes()[:100])
    done = snakemake(folder, "--config", UNTRACKED, "--", target)
    assert done.returncode != 0
    assert "pocket-short.parquet: not a complete parquet file" in done.stdout + done.stderr
    assert not (folder / target).exists()
    assert {path for path, digest in _digests(folder).items() if digest != work[path]} == {score.relative_to(folder)}
    score.unlink()
    assert snakemake(folder, "--config", UNTRACKED, "--", target).returncode == 0
    assert (folder / target).read_bytes() == table
    assert _digests(folder) == work


def _digests(folder: Path) -> dict[Path, str]:
    """Everything under data, policies, samples, verdicts and scores."""
    kinds = ("data", "policies", "samples", "verdicts", "scores")
    found = (path for kind in kinds for path in (folder / "results/seconds" / kind).rglob("*") if path.is_file())
    return {path.relative_to(folder): files.digest(path) for path in found}


def _older(path: Path, content: bytes) -> None:
    """Edits a file, but leaves it a date before every result's, as another folder that is moved to its place has."""
    path.write_bytes(content)
    os.utime(path, (0, 0))


@pytest.mark.slow
def test_what_depends_on_an_input_that_was_edited_in_place_runs_again(base_model: str, tmp_path: Path) -> None:
    model, data = tmp_path / "model", tmp_path / "own.jsonl"
    shutil.copytree(base_model, model)
    rows = [
        {"statement": f"print {n}", "tests": [["", str(n)]], "solutions": [f"print({n})"], "split": split}
        for n, split in ((1, "train"), (2, "test"))
    ]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    own = {
        "name": "seconds",
        "base": {"source": "hub", "model": str(model)},
        "datasets": {"own": {"source": "jsonl", "location": str(data), "train": 1, "test": 1}},
        "objectives": {},
        "tracking": {"enabled": False},
    }
    (tmp_path / "own.json").write_text(json.dumps(own))
    targets = [f"{RESULTS}/policies/base/policy.json", f"{RESULTS}/data/own/problems.parquet"]

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        done = snakemake(tmp_path, *arguments, "--configfile", str(tmp_path / "own.json"), "--", *targets)
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    run()
    assert planned(run("--dry-run")) == {}
    template = model / "chat_template.jinja"
    for path, content, rule in (
        (model / "model.safetensors", bytes(100), "base"),
        (template, b"{{ messages }}", "base"),
        (data, data.read_bytes().replace(b"print 2", b"Print 2"), "prepare"),
    ):
        before = path.read_bytes() if path.exists() else None
        _older(path, content)
        assert planned(run("--dry-run")) == {rule: 1}, path
        path.unlink() if before is None else _older(path, before)


@pytest.mark.slow
def test_a_copied_folder_writes_nothing_into_its_original(finished: Path, unfinished: Callable[..., Path]) -> None:
    """Its tables and its report once replaced those that MLflow keeps of the original."""

    def seen(folder: Path) -> dict[str, int]:
        return {str(p.relative_to(folder)): p.stat().st_mtime_ns for p in folder.rglob("*") if p.is_file()}

    before, copy = seen(finished), unfinished("summary.md")
    done = snakemake(copy, "--", f"{RESULTS}/summary.md")
    assert done.returncode == 0, done.stdout + done.stderr
    assert seen(finished) == before
    began = (copy / RESULTS / "tracking.json").stat().st_mtime_ns
    assert any(p.stat().st_mtime_ns > began - 60 * 10**9 for p in (copy / RESULTS / "mlartifacts").rglob("config.json"))


# -------------------------------------------------------------------------------------------------------------- kills
@pytest.mark.slow
def test_a_job_whose_every_process_is_asked_to_stop_saves_a_checkpoint(unfinished: Callable[..., Path]) -> None:
    """As clusters do it. The shell and `tee` of the rule once died of it, and training of its next line of progress."""
    folder = unfinished("policies/grpo", "scores/grpo", "samples/grpo", "verdicts/grpo")
    policy = folder / RESULTS / "policies/grpo/seed0"
    changes = "training={epochs: 40, checkpoint_every: 1000}"
    run = Background(folder, "--config", changes, "--", f"{RESULTS}/policies/grpo/seed0/policy.json")
    while not (policy / "metrics.jsonl").exists() or (policy / "metrics.jsonl").read_text().count("\n") < 2:
        assert run.running, run.said()[-3000:]
        time.sleep(0.05)
    run.signal(signal.SIGTERM, jobs=True)
    assert run.wait().returncode != 0
    assert len(list(policy.glob("checkpoints/*/*/trainer_state.json"))) == 1
    assert not (policy / "policy.json").exists()
    assert files.read_json(folder / RESULTS / "tracking.json")["sent"]["train/grpo/seed0"]["status"] == "KILLED"


def _steps(folder: Path, policy: str) -> list[dict[str, float]]:
    """What a training log says, but for times."""
    path = folder / f"results/seconds/policies/{policy}/metrics.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [{key: value for key, value in line.items() if "time" not in key} for line in lines]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("objective", "how"), [("grpo", signal.SIGTERM), ("bon_offpolicy_exact", signal.SIGKILL)], ids=["asked", "killed"]
)
def test_a_stopped_training_job_ends_as_an_undisturbed_one(
    objective: str, how: signal.Signals, finished: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(finished, folder, symlinks=True)
    path = folder / "results/seconds/config.json"
    config = json.loads(path.read_text())
    config["training"] |= {"epochs": 6.0, "checkpoint_every": 1}
    path.write_text(json.dumps(config))
    train = [sys.executable, "-m", "maxk", "train", objective, "--config", "results/seconds/config.json", "--seed"]
    subprocess.run([*train, "1"], cwd=folder, check=True, capture_output=True)
    policy = folder / f"results/seconds/policies/{objective}/seed1"
    shutil.copytree(policy, tmp_path / "undisturbed")

    log = policy / "metrics.jsonl"
    log.unlink()
    process = subprocess.Popen([*train, "1"], cwd=folder, stderr=subprocess.PIPE)
    while not log.exists() or log.read_text().count("\n") < 5:
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.01)
    process.send_signal(how)
    process.communicate()
    assert process.returncode == (143 if how is signal.SIGTERM else -9)
    assert not (policy / "policy.json").exists()  # once it stood there; training anew took it away
    stopped_at = log.read_text().count("\n")
    subprocess.run([*train, "1"], cwd=folder, check=True, capture_output=True)

    resumed = _steps(folder, f"{objective}/seed1")
    (tmp_path / "undisturbed").rename(folder / f"results/seconds/policies/{objective}/seed2")
    assert stopped_at < len(resumed)
    assert resumed == [pytest.approx(line, rel=1e-5) for line in _steps(folder, f"{objective}/seed2")]


@pytest.mark.slow
def test_on_a_terminal_the_result_comes_after_the_progress_bars(unfinished: Callable[..., Path]) -> None:
    """The bars are drawn by moving the cursor up: what is printed while they are there is overwritten."""
    folder = unfinished("summary.md", "verdicts", "scores")
    master, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 160, 0, 0))
    run = subprocess.Popen(
        command(folder, "--config", UNTRACKED), stdin=subprocess.DEVNULL, stdout=terminal, stderr=terminal
    )
    os.close(terminal)
    said = b""
    with contextlib.suppress(OSError):  # the terminal's end
        while part := os.read(master, 1 << 16):
            said += part
    os.close(master)
    assert run.wait() == 0
    moved_up = re.compile(r"\x1b\[\d*A")
    bars, *_, result = moved_up.split(said.decode())
    assert "Workflow start" in bars
    line = re.compile(r"verify \S+ \S+: \d+/\d+ in ")  # the bars would erase a job's lines, so its log alone has them
    assert not line.search(said.decode())
    assert all(line.search(log.read_text()) for log in (folder / "results/seconds/logs/verify").rglob("*.log"))
    shown = " ".join(re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", result).split())
    for part in ("max@16 − GRPO", "Exact off-policy BoN", "differences are paired", "One training seed: no claim"):
        assert part in shown, part
    assert shown.endswith("maxk: done; open results/seconds/report.html")


# ---------------------------------------------------------------------------------------------------------- scheduling
def test_snakemake_reads_what_the_workflow_turns_off() -> None:
    """Otherwise its scheduler looks for ready jobs ever more often (workflow/rules/setup.smk)."""
    scheduler = inspect.getsource(JobScheduler)
    assert "if self.job_rate_limiter is not None:" in scheduler
    assert "if self.job_rate_limiter is None:" in scheduler
