"""Starts the processes of a training job, on one node or on several.

`maxk train` replaces itself by `srun`, which runs the same command once per node (`on_nodes`), and there by `torchrun`
or `accelerate launch`, which run it once per process (`on_this_node`).

A launcher tells each process its rank through environment variables. A pod, a notebook or a shell may still hold those
of another program. PyTorch and accelerate trust them and wait forever for processes that do not exist. A job therefore
clears them, unless maxk itself launched it.
"""

from __future__ import annotations

import os
import shutil
import socket
import sys

from maxk.config import Training
from maxk.errors import UserError

_NAMES = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}
_NAMES |= {f"{of}_{what}" for of in ("GROUP", "ROLE") for what in ("RANK", "WORLD_SIZE", "NAME")}  # torchrun's
_NAMES |= {"MPI_LOCALRANKID", "MPI_LOCALNRANKS"}  # Intel MPI's
_PREFIXES = ("PMI_", "OMPI_COMM_WORLD_", "MV2_COMM_WORLD_", "TORCHELASTIC_", "ACCELERATE_")
_LAUNCHED = "MAXK_LAUNCHED"
_RENDEZVOUS = "MAXK_RENDEZVOUS"  # host:port of the first node, where the processes of all nodes meet


def launched() -> bool:
    """Whether this process is one of several that maxk has launched."""
    return _LAUNCHED in os.environ


def has_node() -> bool:
    """Whether this process is the one that maxk has started on its node."""
    return _RENDEZVOUS in os.environ


def clear() -> None:
    """Removes the variables that another launcher has left."""
    for name in [name for name in os.environ if name in _NAMES or name.startswith(_PREFIXES)]:
        del os.environ[name]


def needs_slurm(nodes: int) -> UserError:
    """The error of a job over several nodes without Slurm."""
    return UserError(
        f"training.nodes={nodes}: only Slurm assigns several nodes; use the profile workflow/profiles/slurm "
        "(docs/clusters.md), or set it to 1"
    )


def on_nodes(training: Training) -> list[str]:
    """The command that runs this process's command once on every node of its Slurm job.

    Slurm runs this process on the job's first node, so the nodes meet at a free port of this machine. Raises UserError
    outside of a Slurm job.
    """
    if "SLURM_JOB_ID" not in os.environ or shutil.which("srun") is None:
        raise needs_slurm(training.nodes)
    os.environ[_RENDEZVOUS] = f"{socket.gethostname()}:{_free_port()}"
    nodes = str(training.nodes)
    # The end of one node's task ends the others, which would wait for it. A task may use all cores of the job there.
    options = ["--nodes", nodes, "--ntasks", nodes, "--kill-on-bad-exit=1", "--cpu-bind=none"]
    return ["srun", *options, sys.executable, "-m", *_maxk()]


def on_this_node(training: Training) -> list[str]:
    """The command that runs this process's command once per process of this node.

    `torchrun` for plain data parallelism, on GPUs or (gloo) on the CPU; `accelerate launch` if a config file names a
    sharding strategy.
    """
    os.environ[_LAUNCHED] = "1"
    launcher = _torchrun(training) if training.accelerate is None else _accelerate(training, training.accelerate)
    return [sys.executable, "-m", "maxk.resources.elastic", *launcher, "--module", *_maxk()]


def _maxk() -> list[str]:
    return ["maxk", *sys.argv[1:]]


def _torchrun(training: Training) -> list[str]:
    command = ["torch.distributed.run", "--nproc-per-node", str(training.processes_per_node)]
    if training.nodes == 1:
        return [*command, "--standalone"]
    rank, host, port = _place()
    where = ["--nnodes", str(training.nodes), "--node-rank", rank, "--master-addr", host, "--master-port", port]
    return [*command, *where]


def _accelerate(training: Training, file: str) -> list[str]:
    command = ["accelerate.commands.launch", "--config_file", file, "--num_processes", str(training.processes)]
    # The file's own precision would replace float32 without a word: the trainer's arguments take it from the launcher
    # unless they ask for bfloat16 themselves.
    command += ["--mixed_precision", "no"]
    if training.nodes == 1:
        return [*command, "--main_process_port", "0"]  # a free one: jobs share a host
    rank, host, port = _place()
    where = ["--num_machines", str(training.nodes), "--machine_rank", rank]
    where += ["--main_process_ip", host, "--main_process_port", port]
    # DeepSpeed's default would reach the other nodes by ssh, where srun has already started this command.
    return [*command, *where, "--deepspeed_multinode_launcher", "standard"]


def _place() -> tuple[str, str, str]:
    """This node's number, and host and port of the first node."""
    host, port = os.environ[_RENDEZVOUS].rsplit(":", 1)
    return os.environ["SLURM_NODEID"], host, port


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("", 0))
        return int(found.getsockname()[1])
