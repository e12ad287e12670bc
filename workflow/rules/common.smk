"""Reads and validates the configuration; helper functions of the rules."""

import atexit
import sys
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from subprocess import CalledProcessError

# The source beside this Snakefile. (A Snakefile fetched from a repository has none: then the installed maxk runs.)
SOURCE = Path(str(workflow.current_basedir)).parent.parent / "src"
sys.path.insert(0, str(SOURCE))
from maxk.reporting import interruption

INTERRUPTION = interruption.Interruption(workflow.logger_manager)
# A module leaves Ctrl-C, and what a run says, to the workflow that imports it.
if workflow.modifier.is_main_snakefile():
    INTERRUPTION.heed()

from maxk import config as configuration
from maxk.artifacts import environment, files
from maxk.resources import gpus, memory
from maxk.artifacts.digests import canonical
from maxk.artifacts.paths import BASE, POLICY_PATTERN, policy_name, trained
from maxk.errors import UserError
from maxk.reporting import exit_report, figures, tables
from snakemake.exceptions import WorkflowError

DEFAULTS = workflow.source_path("../../config/config.yaml")

if set("{}") & set(str(SOURCE)):
    raise WorkflowError(
        f"maxk: {SOURCE.parent}: Snakemake takes braces in a path for wildcards; move the workflow to a folder without"
    )

# A module's `prefix:` would move the paths that rules declare, but not those that stages write.
if workflow.modifier.path_modifier.prefix:
    raise WorkflowError(
        "maxk: instead of `prefix:` give the module's config a `name`; it writes to results/{name}/"
    )


@contextmanager
def user_errors():
    """Ends Snakemake with one line after a user error, without a traceback through this file."""
    try:
        yield
    except UserError as error:
        sys.exit(f"maxk: {error}")
    except CalledProcessError:
        # The command has printed the reason.
        sys.exit(interruption.STATUS if INTERRUPTION.came else 1)


with user_errors():
    for path in workflow.configfiles:  # Snakemake takes the last of two equal keys
        configuration.read_yaml(path)
    CONFIG = configuration.parse(
        configuration.overlay(
            configuration.read_yaml(DEFAULTS),
            configuration.with_nulls(config, workflow.config_settings.config),
        )
    )

OUT = CONFIG.layout


def known_targets():
    """Names of rules, and files that they make."""
    products = [str(path) for rule in workflow.rules for path in rule.products()]
    named = [rule.name for rule in workflow.rules] + exit_report.targets(CONFIG)
    return named + [path for path in products if "{" not in path]


if workflow.modifier.is_main_snakefile():
    for handler in (
        exit_report.NothingToDo(CONFIG),
        exit_report.UnknownTarget(known_targets),
    ):
        workflow.logger_manager.logger.addHandler(handler)
RUN_LOCK = []  # open handle of the lock that this run holds until it ends (setup.smk)

# Every job's shell reads this file first. It is sourced, so that an error shows the command and not a page of shell.
JOB = SOURCE.parent / "workflow" / "job.sh"
MODULE = workflow.modifier.namespace  # the name that another workflow gives this one
shell.prefix(
    f". {quote(str(JOB) if JOB.exists() else workflow.source_path('../job.sh'))}; "
    + (f"export MAXK_MODULE={MODULE}; " if MODULE else "")
)

SHARDS = range(CONFIG.sampling.shards)
TABLES = tables.tables(CONFIG)


wildcard_constraints:
    policy=POLICY_PATTERN,
    objective="[A-Za-z0-9_.-]+",
    dataset="[A-Za-z0-9_.-]+",
    seed=r"\d+",
    shard=r"\d+",


# On a cluster, the scheduler assigns whole GPUs. On one machine, jobs take percents of its GPUs and lock them
# (maxk.resources.gpus), so they never collide; the limit keeps waiting jobs from occupying cores. (Snakemake does not
# know its executor yet; only on a cluster is it given a number of `nodes`, by --jobs.)
on_cluster = workflow.resource_settings.nodes is not None
if CONFIG.gpus and not on_cluster and "gpu_percent" not in workflow.global_resources:
    workflow.register_resource("gpu_percent", 100 * CONFIG.gpus)


# Every training job loads its own weights into a vLLM server that it is given.
if "vllm_server" not in workflow.global_resources:
    workflow.register_resource("vllm_server", 1)


def whole_gpus(count):
    """GPUs that a job on a cluster asks for."""
    return count if CONFIG.gpus and on_cluster else 0


def gpu_percent(count, fraction):
    """Percents of GPUs that a job on this machine takes."""
    return count * gpus.percent(fraction) if CONFIG.gpus and not on_cluster else 0


def training_of(wildcards):
    """The training settings of a job's objective."""
    with user_errors():
        return CONFIG.training_of(wildcards.objective)


def longest_first(training):
    """Priority of a training job: a long one that starts last would end alone. Above that of all later stages."""
    return 10 + training.epochs * training.iterations


def on_several_nodes(name):
    """A resource that only a training job on several Slurm nodes has.

    There it is an MPI job of one task a node, for it starts the tasks by srun itself. Its GPUs are stated per node
    (`gres`), because Slurm may spread a total (`gpu`) unevenly.
    """

    def resource(wildcards):
        training = training_of(wildcards)
        gpus = f"gpu:{training.processes_per_node}" if CONFIG.gpus else None
        asked = dict(gres=gpus, tasks=training.nodes, tasks_per_gpu=0, mpi="srun")
        return asked[name] if training.nodes > 1 else None

    return resource


def doubled_on_retry(megabytes):
    """mem_mb of a job: `megabytes(wildcards)`, and twice that after a failed attempt."""
    return lambda wildcards, attempt: min(attempt, 2) * megabytes(wildcards)


def local_data(wildcards):
    """Local files of a dataset: after an edit, its problems are made again."""
    with user_errors():
        return CONFIG.datasets[wildcards.dataset].inputs


def content(paths):
    """Params: a digest of local inputs. Snakemake compares dates, so it overlooks a change of content with an older
    date, such as another folder moved here.
    """
    with user_errors():
        return files.digest_of_all(paths, OUT.input_digests) if paths else None


def settings(stage, *names):
    """Params: the settings that determine a stage's result, as text. `names` are the wildcards it depends on."""
    return lambda wildcards: canonical(
        CONFIG.settings(stage, **{name: wildcards[name] for name in names})
    )
