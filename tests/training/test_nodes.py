"""Training on several nodes: the commands that start it, and the same policy as on one node."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from accelerate.commands import launch
from accelerate.utils.launch import prepare_multi_gpu_env
from snakemake.utils import read_job_properties
from tiny import ROUNDING, difference, weights

import pipeline
from maxk import cli
from maxk import config as configuration
from maxk.artifacts import files
from maxk.config import Training
from maxk.errors import UserError
from maxk.resources import launcher

TRAINING = Training(
    datasets=("any",), prompts_per_step=8, per_device_batch_size=8, num_generations=4, processes=4, nodes=2
)
# Runs its command once a node, at the same time, as srun does in a job; the first node's output is its own.
SRUN = """#!{python}
import os, subprocess, sys
nodes, start = int(sys.argv[sys.argv.index("--nodes") + 1]), sys.argv.index({python!r})
tasks = [subprocess.Popen(sys.argv[start:], env=os.environ | {{"SLURM_NODEID": str(i)}}) for i in range(nodes)]
sys.exit(max(task.wait() for task in tasks))
"""


@pytest.fixture
def in_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Slurm job on this machine, with a stand-in for srun."""
    srun = tmp_path / "bin" / "srun"
    srun.parent.mkdir()
    srun.write_text(SRUN.format(python=sys.executable))
    srun.chmod(0o755)
    monkeypatch.setenv("PATH", f"{srun.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_JOB_ID", "7")


# ---- commands
def test_nodes_without_slurm_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    with pytest.raises(UserError, match=r"training\.nodes=2: only Slurm assigns several nodes"):
        launcher.on_nodes(TRAINING)


def test_a_local_run_over_nodes_is_refused_when_it_starts(
    seconds: configuration.Config, capsys: pytest.CaptureFixture[str]
) -> None:
    changes = {"training": {"processes": 2, "nodes": 2}, "tracking": {"enabled": False}}
    content = json.dumps(configuration.overlay(seconds.model_dump(mode="json"), changes))
    assert cli.main(["configure", "--local", content]) == 2
    assert "training.nodes=2: only Slurm assigns several nodes" in capsys.readouterr().err


def test_a_local_run_may_have_no_training(
    seconds: configuration.Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    changes = {"objectives": {}, "experiments": {}, "tracking": {"enabled": False}}
    assert cli.main(["configure", "--local", json.dumps(seconds.model_dump(mode="json") | changes)]) == 0


@pytest.mark.parametrize(("processes", "nodes"), [(1, 2), (3, 2)])
def test_nodes_share_processes_equally(processes: int, nodes: int) -> None:
    with pytest.raises(ValueError, match=f"processes={processes} must be a multiple of nodes={nodes}"):
        Training(datasets=("any",), prompts_per_step=12, per_device_batch_size=8, processes=processes, nodes=nodes)


@pytest.mark.parametrize("name", ["ddp", "fsdp2", "zero3"])
def test_accelerate_understands_a_nodes_place(
    name: str, root: Path, in_slurm: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its own parser and preparation, over the shipped files, which name one machine."""
    for variable in ("MAXK_RENDEZVOUS", "MAXK_LAUNCHED"):
        monkeypatch.setenv(variable, "")  # set below, and restored after the test
    monkeypatch.setenv("SLURM_NODEID", "1")
    training = TRAINING.model_copy(update={"accelerate": f"{root}/config/accelerate/{name}.yaml"})
    launcher.on_nodes(training)
    python, _, _, module, *arguments = launcher.on_this_node(training)
    assert (python, module) == (sys.executable, "accelerate.commands.launch")
    args, _, _ = launch._validate_launch_command(launch.launch_command_parser().parse_args(arguments))
    prepare_multi_gpu_env(args)
    assert (args.rdzv_backend, args.rdzv_endpoint) == ("static", os.environ["MAXK_RENDEZVOUS"])
    assert (args.nnodes, args.node_rank, args.nproc_per_node) == ("2", 1, "2")
    assert args.deepspeed_multinode_launcher == "standard"


# ---- what a scheduler is asked for
def test_jobs_on_several_nodes_alone_are_mpi_jobs(seconds: configuration.Config, tmp_path: Path) -> None:
    """As a scheduler's submit command, which refuses the jobs here, reads them from the job script."""
    for path in (seconds.layout.problems(seconds.training.datasets[0]), seconds.layout.policy("base")):
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).touch()
    submit = tmp_path / "submit.sh"
    submit.write_text('#!/bin/sh\ncp "$1" "$(mktemp --suffix .job)"\nexit 1\n')
    submit.chmod(0o755)
    training = {"grpo": "nodes: 2, processes: 4, per_device_batch_size: 4", "bon_offpolicy_exact": "processes: 2"}
    objectives = ", ".join(f"{name}: {{training: {{{keys}}}}}" for name, keys in training.items())
    command = pipeline.command(
        *(tmp_path, "--workflow-profile", "none", "--executor", "cluster-generic", "--keep-going", "--jobs", "2"),
        *("--cluster-generic-submit-cmd", str(submit), "--rerun-triggers", "mtime"),
        *("--config", pipeline.UNTRACKED, "gpus=2", f"objectives={{{objectives}}}"),
        *("--", *(seconds.layout.policy(f"{name}/seed0") for name in training)),
    )
    done = subprocess.run(
        command, capture_output=True, text=True, env=pipeline.ENVIRONMENT | {"TMPDIR": str(tmp_path)}, timeout=600
    )
    jobs = {job["wildcards"]["objective"]: job for job in map(read_job_properties, tmp_path.glob("*.job"))}
    assert sorted(jobs) == ["bon_offpolicy_exact", "grpo"], done.stdout + done.stderr
    one, two = jobs["bon_offpolicy_exact"], jobs["grpo"]
    assert one["threads"] == two["threads"] == 2
    keys = ("nodes", "gpu", "gres", "tasks", "tasks_per_gpu", "mpi")
    assert [two["resources"].get(key) for key in keys] == [2, 0, "gpu:2", 2, 0, "srun"]
    assert [one["resources"].get(key) for key in keys] == [1, 2, None, None, None, None]


# ---- the same training
@pytest.mark.slow
def test_two_nodes_train_as_one(
    seconds: configuration.Config, base_model: str, in_slurm: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two torchrun agents that meet over loopback, with one process each, against one agent with two; gloo."""
    monkeypatch.chdir(tmp_path)
    config = configuration.overlay(
        seconds.model_dump(mode="json"),
        {
            "base": {"source": "hub", "model": base_model},
            "training": {"processes": 2, "epochs": 0.5},
            "tracking": {"enabled": False},
        },
    )
    for stage in (["configure", json.dumps(config)], ["prepare", seconds.training.datasets[0]], ["base"]):
        assert cli.main([*stage, *(["--config", seconds.layout.config] if stage[0] != "configure" else [])]) == 0
    trained = []
    for nodes in (1, 2):
        config["training"]["nodes"] = nodes
        files.write_json(seconds.layout.config, config)
        train = pipeline.maxk_command("train", "bon_offpolicy_exact", "--seed", "0")
        done = subprocess.run(train, capture_output=True, text=True, timeout=1800)
        assert done.returncode == 0, done.stderr[-3000:]
        policy = files.read_policy(seconds.layout.policy("bon_offpolicy_exact/seed0"))
        trained.append(weights(policy.model))
        shutil.rmtree(Path(policy.model).parent)
    assert difference(*trained, weights(base_model)) < ROUNDING
