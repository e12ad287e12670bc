"""The configuration, validated before anything else, and what the rules ask of it."""

from pathlib import Path

from maxk import config as configuration
from maxk.errors import UserError
from maxk.files import canonical
from maxk.paths import BASE, POLICY_PATTERN
from snakemake.exceptions import WorkflowError

DEFAULTS = Path(workflow.current_basedir).parent.parent / "config" / "config.yaml"

try:
    CONFIG = configuration.parse(
        configuration.overlay(configuration.read_yaml(DEFAULTS), config)
    )
except UserError as error:
    raise WorkflowError(str(error))

OUT = CONFIG.layout
SHARDS = range(CONFIG.sampling.shards)


wildcard_constraints:
    policy=POLICY_PATTERN,
    objective="[A-Za-z0-9_.-]+",
    dataset="[A-Za-z0-9_.-]+",
    seed=r"\d+",
    shard=r"\d+",


def settings(stage, *names):
    """Params: the settings that decide a stage's result, as text. `names` are the wildcards that it depends on."""
    return lambda wildcards: canonical(
        CONFIG.settings(stage, **{name: wildcards[name] for name in names})
    )
