"""The configuration, validated before anything else, and what the rules ask of it."""

import sys
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from subprocess import CalledProcessError

# The code beside this Snakefile is the code that runs, also in a job's own environment where maxk is not installed.
# (Beside a Snakefile that Snakemake fetches from a repository there is none: then it is the installed maxk.)
SOURCE = Path(str(workflow.current_basedir)).parent.parent / "src"
sys.path.insert(0, str(SOURCE))
from maxk import config as configuration
from maxk.artifacts import environment, files
from maxk.resources import memory
from maxk.stages import outcome
from maxk.errors import UserError, refusal
from maxk.artifacts.digests import canonical
from maxk.artifacts.paths import BASE, POLICY_PATTERN
from maxk.reporting import specs
from snakemake.exceptions import WorkflowError

DEFAULTS = workflow.source_path("../../config/config.yaml")

# A module's `prefix:` would move what rules declare, not what stages write.
if workflow.modifier.path_modifier.prefix:
    raise WorkflowError(
        "maxk: instead of `prefix:` give the module's config a `name`; it writes to results/{name}/"
    )


@contextmanager
def user_errors():
    """What the user can mend ends Snakemake with one line, without the lines of this file that led there."""
    try:
        yield
    except UserError as error:
        sys.exit(f"maxk: {error}")
    except CalledProcessError:
        sys.exit(1)  # the command has said why


with user_errors():
    CONFIG = configuration.parse(
        configuration.overlay(configuration.read_yaml(DEFAULTS), config)
    )

OUT = CONFIG.layout

# What every job's shell does first. A prefix replaces Snakemake's own, so the strict mode that makes `maxk … | tee log`
# fail with maxk stands here again.
STRICT = (
    f"set -euo pipefail; export PYTHONPATH={quote(str(SOURCE))}"
    "${{PYTHONPATH:+:$PYTHONPATH}}"
)
# A cluster's SIGTERM reaches all processes of a job: shell and `tee` leave it to maxk, whose last words and checkpoint
# they would take with them.
LEAVE_SIGTERM = "trap '' TERM"
FOLDER = quote(OUT.root)
MARK = f"{FOLDER}/.lock"
# Jobs share the lock that their run holds (setup.smk): one that outlives its run keeps the next from starting beside it.
LOCK = f"mkdir -p {FOLDER}; exec 9>> {MARK}; flock -s 9 || true"
# After a clock was set back, inputs are "newer" than all that is made from them, and Snakemake removes the output of a
# job that has done its work. So what is of the future is of now; all of it, or it would look as if made out of order.
CLOCK = f"find {FOLDER} -newermt '5 seconds' -print0 | xargs -0 -r touch -c -d @$(date +%s) || true"
# A run looks at everything once, as it starts (setup.smk). A clock can be set back later, too: every job leaves the time
# on the lock's file, first and last thing, and only where that is of the future is everything looked at again.
CLOCK_AGAIN = f"if [ -n \"$(find {MARK} -newermt '5 seconds')\" ]; then {CLOCK}; fi; touch {MARK} || true"
KILLED = (
    "killed (SIGKILL), most likely because memory ran out (dmesg or the batch system says so): raise the mem_mb of the "
    "job, lower training.per_device_batch_size, sampling.batch_tokens or verification.workers, or run fewer at once"
)
TELL_IF_KILLED = f"[ $? != 137 ] || echo {quote(KILLED)} >&2"
shell.prefix(
    f"{STRICT}; {LEAVE_SIGTERM}; {LOCK}; {CLOCK_AGAIN}; trap {quote(f'{TELL_IF_KILLED}; {CLOCK_AGAIN}')} EXIT; "
)

SHARDS = range(CONFIG.sampling.shards)
TABLES = specs.tables(CONFIG)


wildcard_constraints:
    policy=POLICY_PATTERN,
    objective="[A-Za-z0-9_.-]+",
    dataset="[A-Za-z0-9_.-]+",
    seed=r"\d+",
    shard=r"\d+",


# On one machine its jobs share its GPUs; on a cluster the scheduler hands them out. Jobs take devices by locks
# (maxk.resources.gpus): without the limit none would collide, but idle ones would hold cores while they wait.
# (Snakemake learns later what executes its jobs; only for a cluster it is told a number of `nodes`, by --jobs.)
on_cluster = workflow.resource_settings.nodes is not None
if CONFIG.gpus and not on_cluster and "gpu" not in workflow.global_resources:
    workflow.register_resource("gpu", CONFIG.gpus)


def gpus(count):
    """GPUs that a job holds, where the machine has any."""
    return count if CONFIG.gpus else 0


def settings(stage, *names):
    """Params: the settings that decide a stage's result, as text. `names` are the wildcards that it depends on."""
    return lambda wildcards: canonical(
        CONFIG.settings(stage, **{name: wildcards[name] for name in names})
    )


def shown(path, category, caption, **labels):
    """Marks a file for the report, under its labels."""
    return report(
        path, caption=f"../report/{caption}", category=category, labels=labels
    )


def shown_table(path, name, form):
    """A numbered table; those of single datasets share a caption."""
    number = name.removeprefix("table")
    caption = f"{name}.rst" if int(number) <= 4 else "dataset.rst"
    return shown(
        path,
        "2 Tables",
        caption,
        # Labels are sorted as text, and HTML shows two spaces as one.
        table=f"Table {number:>2}",
        shows=TABLES[name].title,
        form=form,
    )


def shown_experiment(path, form):
    """A file of an experiment."""
    labels = {"experiment": "{experiment}", "as": form}
    return shown(path, "5 Experiments", "experiment.rst", **labels)
