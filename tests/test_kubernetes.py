"""The Kubernetes profile, with Snakemake's real executor and a stand-in for kubectl that runs a job's command here."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline import RESULTS, UNTRACKED, snakemake

KUBECTL = """#!{python}
import os, signal, subprocess, sys, yaml
from pathlib import Path

jobs, verb, names = Path({jobs!r}), sys.argv[1], [a for a in sys.argv[3:] if not a.startswith("-")]
if verb == "create":
    job = yaml.safe_load(sys.stdin)
    name = job["metadata"]["generateName"] + str(len(list(jobs.glob("*.yaml"))))
    (jobs / (name + ".yaml")).write_text(yaml.safe_dump(job))
    [container] = job["spec"]["template"]["spec"]["containers"]
    command = 'cd "$1" && shift && "$@" > "$0.log" 2>&1; echo $? > "$0.rc"'
    place = [str(jobs / name), container["workingDir"]]
    subprocess.Popen(["sh", "-c", command, *place, *container["args"]], stdout=subprocess.DEVNULL)
    print(name, end="")
elif verb == "get":
    [name] = names
    ended = jobs / (name + ".rc")
    state = (" 1 " if ended.read_text().strip() == "0" else "  1") if ended.exists() else "  "
    print(name + state if (jobs / (name + ".yaml")).exists() else "", end="")
elif verb == "delete":
    for name in names:
        (jobs / (name + ".yaml")).rename(jobs / (name + ".deleted"))
"""

WORKFLOW = """
rule all:
    input: "scores.txt"

rule sample:
    output: "samples.txt"
    threads: 2
    resources: mem_mb=16000, runtime=90, gpu=2
    shell: "echo sampled > {output}"

rule score:
    input: "samples.txt"
    output: "scores.txt"
    threads: 3
    resources: mem_mb=4000, runtime=5, gpu=0
    shell: "echo scored | cat {input} - > {output}"
"""


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder where the stand-in keeps its jobs."""
    jobs, tool = tmp_path / "jobs", tmp_path / "bin" / "kubectl"
    jobs.mkdir()
    tool.parent.mkdir()
    tool.write_text(KUBECTL.format(python=sys.executable, jobs=str(jobs)))
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}")
    return jobs


def run(root: Path, folder: Path, workflow: str) -> subprocess.CompletedProcess[str]:
    folder.mkdir()
    (folder / "Snakefile").write_text(workflow)
    profile = str(root / "workflow" / "profiles" / "kubernetes")
    options = ["--workflow-profile", profile, "--retries", "0", "--latency-wait", "5"]
    command = [sys.executable, "-m", "snakemake", *options]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=600)


def manifests(cluster: Path) -> dict[str, Any]:
    """The jobs that were made, by the rule they are for."""
    made = [yaml.safe_load(path.read_text()) for path in cluster.glob("*.yaml")]
    return {job["metadata"]["annotations"]["rule"]: job for job in made}


@pytest.mark.slow
def test_every_rule_is_a_job_with_its_resources(root: Path, cluster: Path, tmp_path: Path) -> None:
    done = run(root, tmp_path / "work", WORKFLOW)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "work" / "scores.txt").read_text() == "sampled\nscored\n"
    jobs = manifests(cluster)
    assert set(jobs) == {"sample", "score"}
    pods = {rule: job["spec"]["template"]["spec"] for rule, job in jobs.items()}
    limits = {rule: pod["containers"][0]["resources"]["limits"] for rule, pod in pods.items()}
    assert limits["sample"] == {"cpu": "16", "memory": "16000M", "nvidia.com/gpu": "2"}
    assert limits["score"] == {"cpu": "3", "memory": "4000M"}
    assert {rule: pod["activeDeadlineSeconds"] for rule, pod in pods.items()} == {"sample": 5400, "score": 300}
    assert all(pod["containers"][0]["workingDir"] == str(tmp_path / "work") for pod in pods.values())


@pytest.mark.slow
def test_a_failed_job_fails_its_rule(root: Path, cluster: Path, tmp_path: Path) -> None:
    done = run(root, tmp_path / "work", WORKFLOW.replace("echo sampled", "false"))
    assert done.returncode == 1
    assert "Error in rule sample" in done.stderr
    assert set(manifests(cluster)) == {"sample"}


@pytest.mark.slow
def test_gpus_of_a_node_do_not_bound_a_cluster(root: Path, cluster: Path, tmp_path: Path) -> None:
    """They bound the jobs of one machine. Both runs end early: no GPUs here, and a cluster that takes no job."""
    (cluster.parent / "bin" / "kubectl").write_text("#!/bin/sh\nexit 1\n")
    profile = str(root / "workflow" / "profiles" / "kubernetes")
    target = f"{RESULTS}/data/pocket-short/funnel.json"
    configuration = ["--config", "gpus=2", UNTRACKED, "--", target]
    here = snakemake(tmp_path, "--workflow-profile", "none", *configuration).stderr
    assert "Provided resources: gpu" in here
    there = snakemake(tmp_path, "--workflow-profile", profile, "--retries", "0", *configuration).stderr
    assert "Provided remote nodes: 64" in there
    assert "Provided resources: gpu" not in there


@pytest.mark.parametrize(
    ("state", "expected"), [("running", "running"), ("0", "success"), ("1", "failed"), ("deleted", "failed")]
)
def test_states_of_a_job(state: str, expected: str, root: Path, cluster: Path) -> None:
    (cluster / "maxk-0.yaml").write_text("kind: Job")
    if state == "deleted":
        subprocess.run([root / "workflow/profiles/kubernetes/cancel.sh", "maxk-0"], check=True)
    elif state != "running":
        (cluster / "maxk-0.rc").write_text(state)
    assert status(root, "maxk-0") == expected


def test_a_cluster_that_does_not_answer_fails_no_job(root: Path, cluster: Path) -> None:
    (cluster.parent / "bin" / "kubectl").write_text("#!/bin/sh\necho 'connection refused' >&2; exit 1\n")
    assert status(root, "maxk-0") == "running"


def status(root: Path, job: str) -> str:
    command = [root / "workflow/profiles/kubernetes/status.sh", job]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_no_pod_has_more_rights_than_it_needs(root: Path) -> None:
    """Non-root and under the default seccomp profile: the grader then confines programs by Landlock and seccomp."""
    folder = root / "workflow" / "profiles" / "kubernetes"
    parts = [
        yaml.safe_load((folder / "job.yaml").read_text()),
        *yaml.safe_load_all((folder / "cluster.yaml").read_text()),
    ]
    pods = [p["spec"] if p["kind"] == "Pod" else p["spec"]["template"]["spec"] for p in parts if p["kind"] in PODS]
    assert len(pods) == 2
    for pod in pods:
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not any(c.get("securityContext", {}).get("privileged") for c in pod["containers"])


PODS = {"Job", "Pod"}
