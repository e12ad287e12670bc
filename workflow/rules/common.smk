"""The configuration, validated before anything else, and what the rules ask of it."""

import sys
from pathlib import Path
from shlex import quote

# The code beside this Snakefile is the code that runs, also in a job's own environment where maxk is not installed.
# (Beside a Snakefile that Snakemake fetches from a repository there is none: then it is the installed maxk.)
SOURCE = Path(str(workflow.current_basedir)).parent.parent / "src"
sys.path.insert(0, str(SOURCE))
# A prefix replaces Snakemake's own, so the strict mode that makes `maxk … | tee log` fail with maxk stands here again.
shell.prefix(
    f"set -euo pipefail; export PYTHONPATH={quote(str(SOURCE))}"
    "${{PYTHONPATH:+:$PYTHONPATH}}; "
)

from maxk import config as configuration
from maxk import environment, memory
from maxk.errors import UserError
from maxk.files import canonical
from maxk.paths import BASE, POLICY_PATTERN
from maxk.reporting import specs
from snakemake.exceptions import WorkflowError

DEFAULTS = workflow.source_path("../../config/config.yaml")

# A module's `prefix:` would move what rules declare, not what stages write.
if workflow.modifier.path_modifier.prefix:
    raise WorkflowError(
        "maxk: instead of `prefix:` give the module's config a `name`; it writes to results/{name}/"
    )

try:
    CONFIG = configuration.parse(
        configuration.overlay(configuration.read_yaml(DEFAULTS), config)
    )
except UserError as error:
    raise WorkflowError(str(error))

OUT = CONFIG.layout
SHARDS = range(CONFIG.sampling.shards)
TABLES = specs.tables(CONFIG)


wildcard_constraints:
    policy=POLICY_PATTERN,
    objective="[A-Za-z0-9_.-]+",
    dataset="[A-Za-z0-9_.-]+",
    seed=r"\d+",
    shard=r"\d+",


# On one machine its jobs share its GPUs; on a cluster the scheduler hands them out. Jobs take devices by locks
# (maxk.gpus): without the limit none would collide, but idle ones would hold cores while they wait.
if CONFIG.gpus and workflow.local_exec and "gpu" not in workflow.global_resources:
    workflow.register_resource("gpu", CONFIG.gpus)


def gpus(count):
    """GPUs that a job holds, where the machine has any."""
    return count if CONFIG.gpus else 0


def settings(stage, *names):
    """Params: the settings that decide a stage's result, as text. `names` are the wildcards that it depends on."""
    return lambda wildcards: canonical(
        CONFIG.settings(stage, **{name: wildcards[name] for name in names})
    )


def scores_of(config):
    """Score files of all policies of a configuration, or of its part that an experiment compares."""
    return [
        config.layout.scores(policy, dataset)
        for policy in config.policies
        for dataset in config.evaluated
    ]


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
