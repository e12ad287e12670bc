"""The configuration schema: every value a user may change, validated once before any work.

A config file is an overlay on the defaults of `config/config.yaml`. Sections merge key by key, except `base`,
`datasets`, `objectives` and `experiments`: an overlay replaces each of these as a whole, and replacing `objectives`
also drops the default experiments, which refer to them. Unknown, out-of-range and contradictory values are refused
with the key, the value and what is allowed. Every command and the Snakefile import this package, so it never imports
torch.

    python -m maxk.config.reference > config/README.md      # the reference of all keys, generated from this package
"""

from __future__ import annotations

from maxk.config.base import Architecture, HubBase, PretrainedBase
from maxk.config.experiment import RESERVED, Config
from maxk.config.loading import DEFAULTS, defaults, experiment, load, overlay, parse, read_yaml, with_nulls
from maxk.config.objectives import Experiment, Objective, Rule
from maxk.config.report import Report, Tracking
from maxk.config.sampling import Sampling, Vllm
from maxk.config.training import EntropyBonus, Generator, Heldout, Lora, Training
from maxk.config.verification import Verification

__all__ = [
    "DEFAULTS",
    "RESERVED",
    "Architecture",
    "Config",
    "EntropyBonus",
    "Experiment",
    "Generator",
    "Heldout",
    "HubBase",
    "Lora",
    "Objective",
    "PretrainedBase",
    "Report",
    "Rule",
    "Sampling",
    "Tracking",
    "Training",
    "Verification",
    "Vllm",
    "defaults",
    "experiment",
    "load",
    "overlay",
    "parse",
    "read_yaml",
    "with_nulls",
]
