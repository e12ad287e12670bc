"""The one configuration schema: every value a user may change, validated once before any work.

A config file is an overlay on the defaults of `config/config.yaml`. Sections merge key by key, except those that name
a set of things (`base`, `datasets`, `objectives`, `experiments`): an overlay replaces these whole, and with
`objectives` go the experiments on them. What is unknown, out of range or contradictory is refused with the key, what
was got and what is allowed. No torch here: this is imported by every command and by the Snakefile.

    python -m maxk.config.reference > config/README.md      # the reference of all keys, generated from this file
"""

from __future__ import annotations

from maxk.config.base import Architecture, HubBase, PretrainedBase
from maxk.config.experiment import RESERVED, Config
from maxk.config.loading import DEFAULTS, experiment, load, overlay, parse, read_yaml
from maxk.config.objectives import Experiment, Objective
from maxk.config.report import Report, Tracking
from maxk.config.sampling import Sampling, Vllm
from maxk.config.training import Generator, Heldout, Lora, Training
from maxk.config.verification import Verification

__all__ = [
    "DEFAULTS",
    "RESERVED",
    "Architecture",
    "Config",
    "Experiment",
    "Generator",
    "Heldout",
    "HubBase",
    "Lora",
    "Objective",
    "PretrainedBase",
    "Report",
    "Sampling",
    "Tracking",
    "Training",
    "Verification",
    "Vllm",
    "experiment",
    "load",
    "overlay",
    "parse",
    "read_yaml",
]
